// exchange_boxes: boxes of the ranks' operands go to boxes of the ranks' results, added where they overlap, with zeros
// where nothing comes. Its gradient sends the cotangents of the boxes back the same ways.
#include <algorithm>

#include "trireme/base/said.h"
#include "trireme/op/box_messages.h"
#include "trireme/op/build.h"
#include "trireme/ops/collectives/collective.h"
#include "trireme/ops/reference.h"

namespace trireme {
namespace ops {
extern const OpDef exchange_boxes;
}  // namespace ops

namespace exchange_boxes_op {

// Without sums, which numbers from a text could overflow.
bool is_inside(const Box& box, const Shape& shape) {
  for (int dim = 0; dim < shape.rank(); ++dim) {
    const bool fits = box.size[dim] >= 1 && box.size[dim] <= shape[dim] && box.start[dim] >= 0 &&
                      box.start[dim] <= shape[dim] - box.size[dim];
    if (!fits) return false;
  }
  return true;
}

std::vector<TensorType> infer(const InferArgs& args) {
  const auto& attrs = args.attrs.as<BoxesAttrs>();
  const TensorType& x = args.in[0];
  check_sendable("exchange_boxes", args.in);
  require(attrs.size >= 1 && attrs.size <= 65'536,
          "exchange_boxes: the group has {} ranks; it must have 1 or more, up to 65536", attrs.size);
  require(attrs.shape.rank() == x.shape.rank(),
          "exchange_boxes: a result {} of an operand {}; both must have the same number of dimensions",
          said(attrs.shape), said(x));
  for (const BoxMessage& message : attrs.messages()) {
    for (const int64_t place : {message.from, message.to}) {
      require(place >= 0 && place < attrs.size,
              "exchange_boxes: a message from rank {} of the group to rank {}; use 0 to {}", message.from, message.to,
              attrs.size - 1);
    }
    require(is_inside(message.sent, x.shape) && is_inside(message.got, attrs.shape),
            "exchange_boxes: a box of {} at {} of an operand {} goes to {} of a result {}; it must lie inside both",
            said(message.sent.size), said(message.sent.start), said(x), said(message.got.start), said(attrs.shape));
  }
  return {{x.dtype, attrs.shape}};
}

std::vector<Tensor> grad(const GradArgs& args) {
  const auto& attrs = args.attrs.as<BoxesAttrs>();
  BoxesAttrs back{.axes = attrs.axes, .ranks = attrs.ranks, .size = attrs.size, .shape = args.in[0].shape()};
  for (const BoxMessage& message : attrs.messages()) back.add({message.to, message.from, message.got, message.sent});
  return {apply1(ops::exchange_boxes, {args.dout[0]}, Attrs::of(back))};
}

// Where boxes that come overlap they are added, by rank and then in the order of the messages.
Exchange exchange_of(const TypeArgs& args, int64_t me) {
  const auto& attrs = args.attrs.as<BoxesAttrs>();
  Exchange exchange;
  std::vector<Box> come;
  for (const BoxMessage& message : attrs.messages()) {
    const bool own = message.from == message.to;
    if (message.from == me) (own ? exchange.kept_from : exchange.sends).push_back({message.to, 0, message.sent});
    if (message.to != me) continue;
    (own ? exchange.kept_to : exchange.receipts).push_back({message.from, 0, message.got});
    exchange.adds = exchange.adds ||
                    std::ranges::any_of(come, [&](const Box& box) { return intersect(box, message.got).has_value(); });
    come.push_back(message.got);
  }
  std::ranges::stable_sort(exchange.sends, {}, &Exchange::Part::peer);
  std::ranges::stable_sort(exchange.receipts, {}, &Exchange::Part::peer);
  return exchange;
}

std::vector<Example> examples() {
  BoxesAttrs attrs{.axes = {0}, .size = 2, .shape = {3, 4}};
  for (const int64_t place : {0, 1}) {
    attrs.add({place, place, {{0, 0}, {2, 4}}, {{1 - place, 0}, {2, 4}}});
    attrs.add({place, 1 - place, {{1 - place, 1}, {1, 3}}, {{2 - 2 * place, 0}, {1, 3}}});
  }
  return {{.in = {f32({2, 4})}, .attrs = Attrs::of(attrs)}};
}

}  // namespace exchange_boxes_op

namespace ops {
extern const OpDef exchange_boxes = collective_op<BoxesAttrs>({
    .name = "exchange_boxes",
    .doc = "y = the sum of the boxes of x that come to this rank, else 0",
    .inputs = "x",
    .infer = exchange_boxes_op::infer,
    .grad = exchange_boxes_op::grad,
    .examples = exchange_boxes_op::examples,
    .does = {.work = GroupWork::kExchange, .exchange = exchange_boxes_op::exchange_of},
});
}  // namespace ops

}  // namespace trireme
