// What the two ends that speak gRPC share. Slow to compile: only they include it.
#pragma once

#include <grpc/support/log.h>
#include <grpcpp/support/byte_buffer.h>

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

// gRPC's own lines go to this process's log; what matters to a user comes as an error.
inline void quiet_grpc() {
  gpr_set_log_function([](gpr_log_func_args* line) { TRIREME_LOG(kDebug, "launch", "grpc: {}", line->message); });
}

}  // namespace trireme::launch
