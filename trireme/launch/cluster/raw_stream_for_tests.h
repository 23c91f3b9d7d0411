// For tests: the scheduler's protocol without the agent's end of it.
#pragma once

#include <fmt/core.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/launch/cluster/grpc_impl.h"
#include "trireme/launch/cluster/handshake.h"

namespace trireme::launch {

// One stream to a scheduler, spoken by hand.
class RawStream {
 public:
  explicit RawStream(uint16_t port)
      : stub_(grpc::CreateChannel(fmt::format("ipv4:127.0.0.1:{}", port), grpc::InsecureChannelCredentials())),
        stream_(stub_.PrepareCall(&context_, kMethod, &queue_)) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    stream_->StartCall(nullptr);
    next();
  }
  ~RawStream() {
    context_.TryCancel();
    queue_.Shutdown();
    while (next()) {
    }
  }
  void write(std::string_view bytes) {
    stream_->Write(buffer_of(bytes), nullptr);
    next();
  }
  std::optional<std::string> read() {
    grpc::ByteBuffer in;
    stream_->Read(&in, nullptr);
    if (!next()) return std::nullopt;
    return text_of(in);
  }
  grpc::Status status() {
    grpc::Status status;
    stream_->Finish(&status, nullptr);
    next();
    return status;
  }

 private:
  bool next() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  grpc::GenericStub stub_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
};

}  // namespace trireme::launch
