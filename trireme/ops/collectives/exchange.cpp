// Ops in which ranks send boxes of their pieces to each other:
//   take_windows       block k of a dimension that lies in blocks over the group -> positions
//                      [offset + k step, + length) of it, `fill` outside the whole ("halo exchange")
//   add_windows        back: each rank's block of the sum of all windows
//   neighbor_exchange  operand i of rank k becomes result i of rank to[i][k]; zeros where nothing comes
//
// The first two are each other's gradient; the third's sends back along its own way.

#include <algorithm>

#include "trireme/base/joined_text.h"
#include "trireme/base/said.h"
#include "trireme/ops/collectives/collective.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"

namespace trireme {
namespace ops {
extern const OpDef take_windows;
extern const OpDef add_windows;
extern const OpDef neighbor_exchange;
}  // namespace ops

namespace {

// The operand with a window instead of a block along dimension `dim`, or the other way round.
TensorType with_extent(const char* op, const InferArgs& args, bool to_window) {
  const auto& attrs = args.attrs.as<WindowAttrs>();
  TensorType x = args.in[0];
  check_sendable(op, args.in);
  require(attrs.dim >= 0 && attrs.dim < x.shape.rank(), "{}: no dimension {} in an operand {}", op, attrs.dim, said(x));
  const std::string wrong = why_not(attrs.cut());
  require(wrong.empty(), "{}: dimension {} of {}: {}", op, attrs.dim, said(x), wrong);
  const auto dim = static_cast<int>(attrs.dim);
  const int64_t from = to_window ? attrs.cut().block() : attrs.cut().length;
  const int64_t to = to_window ? attrs.cut().length : attrs.cut().block();
  require(x.shape[dim] == from, "{}: dimension {} has {} positions in an operand {}; it must have {}", op, attrs.dim,
          x.shape[dim], said(x), from);
  x.shape[dim] = to;
  return x;
}

std::vector<TensorType> infer_take(const InferArgs& args) {
  return {with_extent("take_windows", args, true)};
}

std::vector<TensorType> infer_add(const InferArgs& args) {
  return {with_extent("add_windows", args, false)};
}

std::vector<Tensor> grad_take(const GradArgs& args) {
  WindowAttrs attrs = args.attrs.as<WindowAttrs>();
  attrs.fill = 0;
  return {apply1(ops::add_windows, {args.dout[0]}, Attrs::of(attrs))};
}

std::vector<Tensor> grad_add(const GradArgs& args) {
  return {apply1(ops::take_windows, {args.dout[0]}, args.attrs)};
}

std::vector<TensorType> infer_exchange(const InferArgs& args) {
  const auto& attrs = args.attrs.as<ExchangeAttrs>();
  check_sendable("neighbor_exchange", args.in);
  require(attrs.size >= 1 && attrs.size <= 65'536,
          "neighbor_exchange: the group has {} ranks; it must have 1 or more, up to 65536", attrs.size);
  require(attrs.to.size() == args.in.size() * static_cast<size_t>(attrs.size),
          "neighbor_exchange: {} receivers are given for {} operands of {} ranks; give one for each, -1 for none",
          attrs.to.size(), args.in.size(), attrs.size);
  for (size_t i = 0; i < args.in.size(); ++i) {
    std::vector<int64_t> from(static_cast<size_t>(attrs.size), -1);
    for (int64_t k = 0; k < attrs.size; ++k) {
      const int64_t to = attrs.to[i * static_cast<size_t>(attrs.size) + static_cast<size_t>(k)];
      require(to >= -1 && to < attrs.size,
              "neighbor_exchange: rank {} of the group sends operand {} to {}; use 0 to {}, or -1 for nobody", k, i, to,
              attrs.size - 1);
      if (to < 0) continue;
      int64_t& known = from[static_cast<size_t>(to)];
      require(known < 0,
              "neighbor_exchange: operand {} goes to rank {} of the group from rank {} and from rank {}; a rank "
              "receives it from one",
              i, to, known, k);
      known = k;
    }
  }
  return {args.in.begin(), args.in.end()};
}

std::vector<Tensor> grad_exchange(const GradArgs& args) {
  const auto& attrs = args.attrs.as<ExchangeAttrs>();
  std::vector<Tensor> out(args.in.size());
  for (size_t i = 0; i < args.in.size(); ++i) {
    if (!args.wanted[i] || !args.dout[i]) continue;
    const auto n = static_cast<size_t>(attrs.size);
    ExchangeAttrs back{.axes = attrs.axes, .ranks = attrs.ranks, .size = attrs.size, .to = std::vector<int64_t>(n, -1)};
    for (size_t k = 0; k < n; ++k) {
      const int64_t to = attrs.to[i * n + k];
      if (to >= 0) back.to[static_cast<size_t>(to)] = static_cast<int64_t>(k);
    }
    out[i] = apply1(ops::neighbor_exchange, {args.dout[i]}, Attrs::of(back));
  }
  return out;
}

Exchange::Part part(int64_t peer, const Shape& shape, int64_t dim, Range range, int64_t first) {
  Box box = Box::whole(shape);
  box.start[static_cast<int>(dim)] = range.start - first;
  box.size[static_cast<int>(dim)] = range.size;
  return {peer, 0, box};
}

// Between blocks and windows: `take` from blocks, else back to them.
Exchange of_windows(const WindowAttrs& attrs, const Shape& in, const Shape& out, int64_t me, bool take) {
  const WindowCut cut = attrs.cut();
  const int64_t window = cut.start(me);
  const int64_t block = me * cut.block();
  Exchange exchange{.adds = !take, .fill = take ? attrs.fill : 0};
  for (int64_t peer = 0; peer < cut.parts; ++peer) {
    const Range of_mine = common(cut, me, peer);  // in this rank's window and the peer's block
    const Range of_peers = common(cut, peer, me);
    const Range to_send = take ? of_peers : of_mine;
    const Range to_get = take ? of_mine : of_peers;
    const Exchange::Part sent = part(peer, in, attrs.dim, to_send, take ? block : window);
    const Exchange::Part got = part(peer, out, attrs.dim, to_get, take ? window : block);
    if (to_send.size > 0) (peer == me ? exchange.kept_from : exchange.sends).push_back(sent);
    if (to_get.size > 0) (peer == me ? exchange.kept_to : exchange.receipts).push_back(got);
  }
  return exchange;
}

template <bool kTake>
Exchange exchange_windows(const TypeArgs& args, int64_t me) {
  return of_windows(args.attrs.as<WindowAttrs>(), args.in[0].shape, args.out[0].shape, me, kTake);
}

// Windows are another tensor, cut by the same axes: all windows side by side.
template <bool kTake>
CutTensor windows_lie(const CutTensor& operand, const Attrs& attrs, const Mesh& mesh) {
  const auto& a = attrs.as<WindowAttrs>();
  const auto dim = static_cast<int>(a.dim);
  const Axes& axes = operand.layout.dims[static_cast<size_t>(dim)];
  require(std::ranges::equal(axes, a.axes), "is over other axes than those that cut its dimension");
  CutTensor out = operand;
  const int64_t windows = a.size * a.length;
  require(operand.whole[dim] == (kTake ? a.extent : windows) && mesh.size_of(axes) == a.size,
          "says another size than its operand has");
  out.whole[dim] = kTake ? windows : a.extent;
  return out;
}

Exchange exchange_with_neighbors(const TypeArgs& args, int64_t me) {
  const auto& attrs = args.attrs.as<ExchangeAttrs>();
  const std::span<const TensorType> types = args.in;
  Exchange exchange;
  for (size_t i = 0; i < types.size(); ++i) {
    const Box whole = Box::whole(types[i].shape);
    for (int64_t place = 0; place < attrs.size; ++place) {
      const int64_t to = attrs.to[i * static_cast<size_t>(attrs.size) + static_cast<size_t>(place)];
      if (to < 0) continue;
      if (place == me) (to == me ? exchange.kept_from : exchange.sends).push_back({to, i, whole});
      if (to == me) (place == me ? exchange.kept_to : exchange.receipts).push_back({place, i, whole});
    }
  }
  return exchange;
}

WindowAttrs halo_of_one() {
  return {.axes = {0}, .size = 2, .dim = 1, .extent = 8, .offset = -1, .step = 4, .length = 6};
}

std::vector<Example> take_examples() {
  return {{.in = {f32({3, 4})}, .attrs = Attrs::of(halo_of_one())}};
}
std::vector<Example> add_examples() {
  return {{.in = {f32({3, 6})}, .attrs = Attrs::of(halo_of_one())}};
}
std::vector<Example> exchange_examples() {
  return {
      {.in = {f32({3, 4}), i32({2})}, .attrs = Attrs::of(ExchangeAttrs{.axes = {0}, .size = 2, .to = {1, 0, -1, 0}})}};
}

}  // namespace

namespace ops {
extern const OpDef take_windows = collective_op<WindowAttrs>({
    .name = "take_windows",
    .doc = "y = positions [offset + k step, + length) of the dimension whose block k is x",
    .inputs = "x",
    .infer = infer_take,
    .grad = grad_take,
    .examples = take_examples,
    .does = {.work = GroupWork::kExchange, .exchange = exchange_windows<true>, .result = windows_lie<true>},
});
extern const OpDef add_windows = collective_op<WindowAttrs>({
    .name = "add_windows",
    .doc = "y = block k of the sum of the group's windows x",
    .inputs = "x",
    .infer = infer_add,
    .grad = grad_add,
    .examples = add_examples,
    .does = {.work = GroupWork::kExchange, .exchange = exchange_windows<false>, .result = windows_lie<false>},
});
extern const OpDef neighbor_exchange = collective_op<ExchangeAttrs>({
    .name = "neighbor_exchange",
    .doc = "y[i] = the x[i] that comes to this rank, else 0",
    .inputs = "...",
    .infer = infer_exchange,
    .grad = grad_exchange,
    .examples = exchange_examples,
    .does = {.work = GroupWork::kExchange, .exchange = exchange_with_neighbors},
    .overwrites = each_over_its_operand,
});
}  // namespace ops

CollectiveAttrs over_axes(const Mesh& mesh, std::string_view axes) {
  const Axes found = parse_axes(axes, mesh);
  return {.axes = {found.begin(), found.end()}, .size = mesh.size_of(found)};
}

CollectiveAttrs over_ranks(const std::vector<std::vector<int64_t>>& groups) {
  require(!groups.empty(), "over_ranks: no groups are given; give one list of ranks or more");
  CollectiveAttrs out{.axes = {}, .size = static_cast<int64_t>(groups[0].size())};
  for (const std::vector<int64_t>& group : groups) {
    require(group.size() >= 2, "over_ranks: the group [{}] has {} ranks; a group has 2 or more",
            said_by([&] { return joined_text(group, ","); }), group.size());
    require(group.size() == groups[0].size(),
            "over_ranks: the group [{}] has {} ranks and [{}] has {}; all groups must be of one size",
            said_by([&] { return joined_text(group, ","); }), group.size(),
            said_by([&] { return joined_text(groups[0], ","); }), groups[0].size());
    for (const int64_t rank : group) {
      require(rank >= 0, "over_ranks: rank {} in the group [{}]; ranks count from 0", rank,
              said_by([&] { return joined_text(group, ","); }));
      require(std::find(out.ranks.begin(), out.ranks.end(), rank) == out.ranks.end(),
              "over_ranks: rank {} is listed twice, the second time in the group [{}]; list each rank once", rank,
              said_by([&] { return joined_text(group, ","); }));
      out.ranks.push_back(rank);
    }
  }
  return out;
}

Tensor take_windows(const Tensor& x, const CollectiveAttrs& group, const WindowOptions& o) {
  require(o.dim >= 0 && o.dim < x.rank(), "take_windows: no dimension {} in an operand {}", o.dim, said(x.type()));
  return apply1(ops::take_windows, {x},
                Attrs::of(WindowAttrs{.axes = group.axes,
                                      .ranks = group.ranks,
                                      .size = group.size,
                                      .dim = o.dim,
                                      .extent = x.size(o.dim) * group.size,
                                      .offset = o.offset,
                                      .step = o.step,
                                      .length = o.length,
                                      .fill = o.fill}));
}

Tensor halo(const Tensor& x, const CollectiveAttrs& group, int dim, int64_t before, int64_t after) {
  require(dim >= 0 && dim < x.rank(), "halo: no dimension {} in an operand {}", dim, said(x.type()));
  const int64_t own = x.size(dim);
  require(
      before >= 0 && after >= 0 && before <= own && after <= own,
      "halo: {} positions before and {} after dimension {} of {}; each must be from 0 to the {} that a neighbour has",
      before, after, dim, said(x.type()), own);
  return take_windows(x, group, {.dim = dim, .offset = -before, .step = own, .length = before + own + after});
}

std::vector<Tensor> neighbor_exchange(std::span<const Tensor> x, const CollectiveAttrs& group,
                                      const std::vector<std::vector<int64_t>>& to) {
  ExchangeAttrs attrs{.axes = group.axes, .ranks = group.ranks, .size = group.size, .to = {}};
  for (const std::vector<int64_t>& of_operand : to) {
    require(static_cast<int64_t>(of_operand.size()) == group.size,
            "neighbor_exchange: {} receivers in a list; the group has {} ranks, so give as many, -1 for nobody",
            of_operand.size(), group.size);
    attrs.to.insert(attrs.to.end(), of_operand.begin(), of_operand.end());
  }
  return apply(ops::neighbor_exchange, x, Attrs::of(attrs));
}

}  // namespace trireme
