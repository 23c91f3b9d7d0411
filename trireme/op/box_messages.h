// The attributes of exchange_boxes: which box of which rank's operand goes where in which rank's result. Every rank has
// the list of all of them.
#pragma once

#include <vector>

#include "trireme/ir/attrs.h"
#include "trireme/layout/box.h"

namespace trireme {

struct BoxMessage {
  int64_t from = 0, to = 0;  // places in the group; a rank may send to itself
  Box sent;                  // of the sender's operand
  Box got;                   // of the receiver's result, of the same size
};

struct BoxesAttrs {
  std::vector<int64_t> axes = {};
  std::vector<int64_t> ranks = {};
  int64_t size = 1;  // ranks of the group
  Shape shape;       // of the result
  // Of each message: from, to, where the box begins in the operand, where in the result, and its size.
  std::vector<int64_t> boxes = {};
  static constexpr auto fields() {
    return std::tuple{field("axes", &BoxesAttrs::axes), field("ranks", &BoxesAttrs::ranks),
                      field("size", &BoxesAttrs::size), field("shape", &BoxesAttrs::shape),
                      field("boxes", &BoxesAttrs::boxes)};
  }

  // Throws kInvalidArgument when the numbers are no whole messages.
  std::vector<BoxMessage> messages() const;
  void add(const BoxMessage& message);
};

}  // namespace trireme
