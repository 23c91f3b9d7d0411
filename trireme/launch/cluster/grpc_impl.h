// What the agent's and the scheduler's code for gRPC share. It is slow to compile, so only these two include it.
#pragma once

#include <grpc/grpc_security_constants.h>
#include <grpc/support/log.h>
#include <grpcpp/security/auth_context.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/log.h"

namespace trireme::launch {

inline std::string text_of(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string text;
  if (!buffer.Dump(&slices).ok()) return text;
  for (const grpc::Slice& slice : slices) text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return text;
}

inline grpc::ByteBuffer buffer_of(std::string_view text) {
  const grpc::Slice slice(text.data(), text.size());
  return {&slice, 1};
}

// What the other end has shown, PEM; empty where it did not need to. The connection must stand.
inline std::string certificate_of(const std::shared_ptr<const grpc::AuthContext>& peer) {
  if (peer == nullptr) return "";
  const std::vector<grpc::string_ref> shown = peer->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  return shown.empty() ? "" : std::string(shown.front().data(), shown.front().size());
}

// gRPC's own lines go to this process's log; what matters to a user comes as an error.
inline void quiet_grpc() {
  gpr_set_log_function([](gpr_log_func_args* line) { TRIREME_LOG(kDebug, "launch", "grpc: {}", line->message); });
}

}  // namespace trireme::launch
