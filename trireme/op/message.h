// Messages between crews. A crew is the ranks that run one plan. A job of several crews runs several plans side by
// side, all for meshes of the same size. Rank r of one crew sends to rank r of another. Messages from one crew to
// another with equal tags arrive in the order in which they were sent.
#pragma once

#include "trireme/op/op_def.h"

namespace trireme {

inline constexpr int64_t kMostCrews = 1 << 20;
inline constexpr int64_t kMessageTags = 1 << 29;  // tags are below; the transport keeps those above for collectives
inline constexpr int64_t kStepsEnd = kMessageTags;

struct SendAttrs {
  int64_t to = 0;  // a crew
  int64_t tag = 0;
  // The tag of a message that the other crew sends after it has asked for this one. Until that message has arrived, the
  // bytes of this one stay in use, so that nobody waits for a crew that waits for them. kStepsEnd: they stay in use to
  // the end of the step; -1: the crew has asked before this one is sent, and whoever overwrites the bytes waits.
  int64_t answer = -1;
  static constexpr auto fields() {
    return std::tuple{field("to", &SendAttrs::to), field("tag", &SendAttrs::tag), field("answer", &SendAttrs::answer)};
  }
};

struct RecvAttrs {
  int64_t from = 0;  // a crew
  int64_t tag = 0;
  DType dtype = DType::kF32;
  Shape shape;
  static constexpr auto fields() {
    return std::tuple{field("from", &RecvAttrs::from), field("tag", &RecvAttrs::tag), field("dtype", &RecvAttrs::dtype),
                      field("shape", &RecvAttrs::shape)};
  }
};

struct Message {
  bool sends = false;
  int64_t crew = 0;  // the other one
  int64_t tag = 0;
  int64_t answer = -1;  // of one that is sent
};

inline bool is_message(const OpDef& op) {
  return op.traits.message;
}

// What a message's attributes say; one with an operand sends it.
Message message_of(const OpDef& op, const Attrs& attrs);

}  // namespace trireme
