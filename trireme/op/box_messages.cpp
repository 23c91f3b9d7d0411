#include "trireme/op/box_messages.h"

#include "trireme/base/error.h"

namespace trireme {

std::vector<BoxMessage> BoxesAttrs::messages() const {
  const auto rank = static_cast<size_t>(shape.rank());
  const size_t words = 2 + 3 * rank;
  require(boxes.size() % words == 0, "exchange_boxes: {} numbers are no messages of {} each, for a result {}",
          boxes.size(), words, to_string(shape));
  std::vector<BoxMessage> out;
  const auto numbers = [&](size_t at) { return Shape(std::span(boxes).subspan(at, rank)); };
  for (size_t at = 0; at < boxes.size(); at += words) {
    const Shape of_box = numbers(at + 2 + 2 * rank);
    out.push_back({boxes[at], boxes[at + 1], {numbers(at + 2), of_box}, {numbers(at + 2 + rank), of_box}});
  }
  return out;
}

void BoxesAttrs::add(const BoxMessage& message) {
  boxes.insert(boxes.end(), {message.from, message.to});
  for (const Shape* numbers : {&message.sent.start, &message.got.start, &message.got.size}) {
    boxes.insert(boxes.end(), numbers->begin(), numbers->end());
  }
}

}  // namespace trireme
