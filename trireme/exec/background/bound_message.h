// One message of a plan to or from another crew (op/message.h), bound to the bytes it sends or fills.
#pragma once

#include "trireme/comm/comm.h"
#include "trireme/exec/background/background.h"
#include "trireme/op/message.h"

namespace trireme {

class BoundMessage : public Background {
 public:
  // `peer` is the other rank's place in the group.
  BoundMessage(comm::Group& group, int peer, const Message& message, const View& view)
      : group_(group), peer_(peer), message_(message), view_(view) {}

  void start() override {
    // The tags below are those of exchanges, which may use the same group.
    const int tag = static_cast<int>(kMessageTags + message_.tag);
    work_ = message_.sends ? group_.send(view_, peer_, tag) : group_.recv(view_, peer_, tag);
    started_ = true;
  }
  void wait() override {
    if (!started_) return;
    started_ = false;
    work_.wait();
  }
  bool is_under_way() const override { return started_; }
  std::chrono::steady_clock::time_point ended() const override { return work_.ended(); }

 private:
  comm::Group& group_;
  int peer_;
  Message message_;
  View view_;
  comm::Work work_;
  bool started_ = false;
};

}  // namespace trireme
