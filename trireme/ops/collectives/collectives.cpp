// The collectives, and the local cut of a replicated value, on the pieces that ranks hold:
//   all_reduce      y = the sum (max, min) of x over the group; any number of tensors at once
//   all_gather      y = the pieces of the group joined along dim, in the group's order; any number of tensors of one
//                   element type at once
//   reduce_scatter  y = the rank's piece, along dim, of the sum over the group; any number, as above
//   all_to_all      x is cut along dim, piece i goes to member i; what arrives is joined along
//                   from_dim
//   ring_shift      y = the x of the member `shift` places before, around the group
//   broadcast       y = the root's x; any number of tensors at once
//   shard_slice     y = the rank's piece of x along dim; nothing is sent
//
// The compiler inserts them between layouts; a model's code may call them when it cuts by hand.
// Their gradients take each rank's value as a variable of its own.
#include <algorithm>

#include "trireme/base/said.h"
#include "trireme/ops/collectives/collective.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"
#include "trireme/tensor/most_elements.h"

namespace trireme {
namespace ops {
extern const OpDef all_reduce;
extern const OpDef all_gather;
extern const OpDef reduce_scatter;
extern const OpDef all_to_all;
extern const OpDef ring_shift;
extern const OpDef broadcast;
extern const OpDef shard_slice;
}  // namespace ops

namespace {

const CollectiveAttrs& exchange_of(const InferArgs& args) {
  return args.attrs.as<CollectiveAttrs>();
}

void check_group(const char* op, const InferArgs& args) {
  const auto& attrs = exchange_of(args);
  require(attrs.size >= 1, "{}: the group has {} ranks; it must have 1 or more", op, attrs.size);
  check_sendable(op, args.in);
}

void check_reduction(const char* op, const InferArgs& args) {
  const std::string& reduction = exchange_of(args).reduction;
  require(reduction == "sum" || reduction == "max" || reduction == "min",
          "{}: no reduction '{}'; use 'sum', 'max' or 'min'", op, reduction);
}

// x with dimension `dim` a `size`-th of what it is.
TensorType cut(const char* op, TensorType x, int64_t dim, int64_t size) {
  require(dim >= 0 && dim < x.shape.rank(), "{}: no dimension {} in an operand {}", op, dim, said(x));
  const auto d = static_cast<int>(dim);
  require(size >= 1 && x.shape[d] % size == 0, "{}: {} ranks do not divide dimension {} of size {} (operand {})", op,
          size, dim, x.shape[d], said(x));
  x.shape[d] /= size;
  return x;
}

TensorType joined(const char* op, TensorType x, int64_t dim, int64_t size) {
  require(dim >= 0 && dim < x.shape.rank(), "{}: no dimension {} in an operand {}", op, dim, said(x));
  require(size <= kMostElements / std::max<int64_t>(1, x.elements()),
          "{}: {} ranks with an operand {} each have more than 2^58 elements", op, size, said(x));
  x.shape[static_cast<int>(dim)] *= size;
  return x;
}

std::vector<TensorType> infer_all_reduce(const InferArgs& args) {
  check_group("all_reduce", args);
  check_reduction("all_reduce", args);
  require(!args.in.empty(), "all_reduce: no operands; it takes 1 or more");
  return {args.in.begin(), args.in.end()};
}

// What goes through a group as one operation.
void check_one_type(const char* op, const InferArgs& args) {
  require(!args.in.empty(), "{}: no operands; it takes 1 or more", op);
  for (const TensorType& type : args.in) {
    require(type.dtype == args.in[0].dtype, "{}: operands {} and {}; all must have one element type", op,
            said(args.in[0]), said(type));
  }
}

std::vector<TensorType> infer_all_gather(const InferArgs& args) {
  check_group("all_gather", args);
  check_one_type("all_gather", args);
  std::vector<TensorType> out;
  for (const TensorType& x : args.in)
    out.push_back(joined("all_gather", x, exchange_of(args).dim, exchange_of(args).size));
  return out;
}

std::vector<TensorType> infer_reduce_scatter(const InferArgs& args) {
  check_group("reduce_scatter", args);
  check_reduction("reduce_scatter", args);
  check_one_type("reduce_scatter", args);
  std::vector<TensorType> out;
  for (const TensorType& x : args.in)
    out.push_back(cut("reduce_scatter", x, exchange_of(args).dim, exchange_of(args).size));
  return out;
}

std::vector<TensorType> infer_all_to_all(const InferArgs& args) {
  check_group("all_to_all", args);
  const auto& attrs = exchange_of(args);
  return {joined("all_to_all", cut("all_to_all", args.in[0], attrs.dim, attrs.size), attrs.from_dim, attrs.size)};
}

std::vector<TensorType> infer_ring_shift(const InferArgs& args) {
  check_group("ring_shift", args);
  const auto& attrs = exchange_of(args);
  require(attrs.shift > -attrs.size && attrs.shift < attrs.size,
          "ring_shift: a shift by {} places in a group of {} ranks; use {} to {}", attrs.shift, attrs.size,
          1 - attrs.size, attrs.size - 1);
  return {args.in[0]};
}

std::vector<TensorType> infer_broadcast(const InferArgs& args) {
  check_group("broadcast", args);
  const auto& attrs = exchange_of(args);
  require(!args.in.empty(), "broadcast: no operands; it takes 1 or more");
  require(attrs.root >= 0 && attrs.root < attrs.size, "broadcast: root is {} in a group of {} ranks; use 0 to {}",
          attrs.root, attrs.size, attrs.size - 1);
  return {args.in.begin(), args.in.end()};
}

// Nothing is sent, so bools may be cut.
std::vector<TensorType> infer_shard_slice(const InferArgs& args) {
  return {cut("shard_slice", args.in[0], exchange_of(args).dim, exchange_of(args).size)};
}

// 1 / n where a rank holds the maximum or minimum as one of n, else 0. Shared out, because ranks may hold the same
// value as copies of one: then all of them together have its gradient.
Tensor share_of_holders(const Tensor& x, const Tensor& extreme, const CollectiveAttrs& sum, DType dtype) {
  const Tensor holds = cast(equal(x, extreme), dtype);
  return div(holds, apply1(ops::all_reduce, {holds}, Attrs::of(sum)));
}

// A sum over ranks gives every rank's cotangent to every rank. A maximum gives the sum to the ranks
// that hold it.
std::vector<Tensor> grad_all_reduce(const GradArgs& args) {
  CollectiveAttrs sum = args.attrs.as<CollectiveAttrs>();
  const bool extreme = sum.reduction != "sum";
  sum.reduction = "sum";
  std::vector<Tensor> out(args.in.size());
  for (size_t i = 0; i < args.in.size(); ++i) {
    if (!args.wanted[i] || !args.dout[i]) continue;
    const Tensor dy = apply1(ops::all_reduce, {args.dout[i]}, Attrs::of(sum));
    out[i] = extreme ? mul(dy, share_of_holders(args.in[i], args.out[i], sum, dy.dtype())) : dy;
  }
  return out;
}

std::vector<Tensor> grad_all_gather(const GradArgs& args) {
  CollectiveAttrs attrs = args.attrs.as<CollectiveAttrs>();
  attrs.reduction = "sum";
  std::vector<Tensor> out(args.in.size());
  for (size_t i = 0; i < args.in.size(); ++i) {
    if (args.wanted[i] && args.dout[i]) out[i] = apply1(ops::reduce_scatter, {args.dout[i]}, Attrs::of(attrs));
  }
  return out;
}

std::vector<Tensor> grad_reduce_scatter(const GradArgs& args) {
  const auto& attrs = args.attrs.as<CollectiveAttrs>();
  CollectiveAttrs sum = attrs;
  sum.reduction = "sum";
  std::vector<Tensor> out(args.in.size());
  for (size_t i = 0; i < args.in.size(); ++i) {
    if (!args.wanted[i] || !args.dout[i]) continue;
    out[i] = apply1(ops::all_gather, {args.dout[i]}, args.attrs);
    if (attrs.reduction == "sum") continue;
    const Tensor y = apply1(ops::all_gather, {args.out[i]}, args.attrs);
    out[i] = mul(out[i], share_of_holders(args.in[i], y, sum, out[i].dtype()));
  }
  return out;
}

std::vector<Tensor> grad_all_to_all(const GradArgs& args) {
  CollectiveAttrs back = args.attrs.as<CollectiveAttrs>();
  std::swap(back.dim, back.from_dim);
  return {apply1(ops::all_to_all, {args.dout[0]}, Attrs::of(back))};
}

std::vector<Tensor> grad_ring_shift(const GradArgs& args) {
  CollectiveAttrs back = args.attrs.as<CollectiveAttrs>();
  back.shift = -back.shift;
  return {apply1(ops::ring_shift, {args.dout[0]}, Attrs::of(back))};
}

// 1 at the root, which sends itself a 1, and where a rank is in no group and keeps what it has; else 0.
Tensor has_result(const Tensor& like, const CollectiveAttrs& attrs) {
  const Tensor one = constant(like.graph(), {like.dtype(), {}}, 1);
  std::vector<int64_t> to(static_cast<size_t>(attrs.size), -1);
  to[static_cast<size_t>(attrs.root)] = attrs.root;
  const Tensor is_root = neighbor_exchange({&one, 1}, attrs, {to})[0];
  if (attrs.ranks.empty()) return is_root;
  const Tensor members = apply1(ops::all_reduce, {one}, Attrs::of(attrs));
  return add(is_root, cast(equal(members, one), like.dtype()));
}

// The sum of the cotangents at the root, zero elsewhere.
std::vector<Tensor> grad_broadcast(const GradArgs& args) {
  const auto& attrs = args.attrs.as<CollectiveAttrs>();
  CollectiveAttrs group = attrs;
  group.reduction = "sum";
  group.dim = 0;
  std::vector<Tensor> out(args.in.size());
  for (size_t i = 0; i < args.in.size(); ++i) {
    if (!args.wanted[i] || !args.dout[i]) continue;
    out[i] = mul(apply1(ops::all_reduce, {args.dout[i]}, Attrs::of(group)), has_result(args.dout[i], attrs));
  }
  return out;
}

// The piece's cotangent where the piece lay, zeros elsewhere. The other pieces of the rank's operand went nowhere: what
// other ranks took, they took of their own operands. Were the joined cotangents given here, ranks whose operand is the
// same would count them once each when the gradients of what made it are summed.
std::vector<Tensor> grad_shard_slice(const GradArgs& args) {
  const auto& attrs = args.attrs.as<CollectiveAttrs>();
  const Tensor& dy = args.dout[0];
  CollectiveAttrs own = attrs;
  own.dim = 0;
  const Tensor number = apply1(ops::shard_slice, {iota(dy.graph(), {DType::kI32, {attrs.size}}, 0)}, Attrs::of(own));
  const Tensor mine = one_hot(number, attrs.size, dy.dtype());  // [1, pieces]
  std::vector<Tensor> pieces;
  for (int64_t k = 0; k < attrs.size; ++k) pieces.push_back(mul(dy, reshape(slice(mine, 1, k, 1), {})));
  return {concat(pieces, attrs.dim)};
}

std::vector<Example> examples_elementwise() {
  return {{.in = {f32({6, 4}), f32({5})}, .attrs = Attrs::of(CollectiveAttrs{.axes = {0}, .size = 2})},
          {.in = {i32({3})}, .attrs = Attrs::of(CollectiveAttrs{.axes = {1, 0}, .size = 6})}};
}

std::vector<Example> examples_dim() {
  return {{.in = {f32({6, 4})}, .attrs = Attrs::of(CollectiveAttrs{.axes = {0}, .dim = 0, .size = 2})},
          {.in = {f32({2, 6})}, .attrs = Attrs::of(CollectiveAttrs{.axes = {0}, .dim = 1, .size = 3})}};
}

// Also several tensors at once.
std::vector<Example> examples_of_pieces() {
  std::vector<Example> out = examples_dim();
  out.push_back({.in = {f32({6, 4}), f32({3}), f32({3, 2})},
                 .attrs = Attrs::of(CollectiveAttrs{.axes = {0}, .dim = 0, .size = 3})});
  return out;
}

std::vector<Example> examples_all_to_all() {
  return {{.in = {f32({6, 4})}, .attrs = Attrs::of(CollectiveAttrs{.axes = {0}, .dim = 0, .from_dim = 1, .size = 3})}};
}

std::vector<Example> examples_ring_shift() {
  return {{.in = {f32({6, 4})}, .attrs = Attrs::of(CollectiveAttrs{.axes = {0}, .size = 3, .shift = -2})}};
}

GroupCall numbers(const Attrs& attrs) {
  const auto& a = attrs.as<CollectiveAttrs>();
  const Reduction reduction = a.reduction == "max"   ? Reduction::kMax
                              : a.reduction == "min" ? Reduction::kMin
                                                     : Reduction::kSum;
  return {.reduction = reduction, .root = a.root, .shift = a.shift};
}

GroupCall pieces_out(const Attrs& attrs) {
  GroupCall call = numbers(attrs);
  call.parted = static_cast<int>(attrs.as<CollectiveAttrs>().dim);
  return call;
}

GroupCall pieces_in(const Attrs& attrs) {
  GroupCall call = numbers(attrs);
  call.joined = static_cast<int>(attrs.as<CollectiveAttrs>().dim);
  return call;
}

GroupCall pieces_out_and_in(const Attrs& attrs) {
  GroupCall call = pieces_out(attrs);
  call.joined = static_cast<int>(attrs.as<CollectiveAttrs>().from_dim);
  return call;
}

// The layouts of operands and results are those of the reshard step.
template <ReshardStep::Kind kKind>
CutTensor resharded(const CutTensor& operand, const Attrs& attrs, const Mesh&) {
  const auto& a = attrs.as<CollectiveAttrs>();
  const ReshardStep step{.kind = kKind,
                         .dim = static_cast<int>(a.dim),
                         .from_dim = static_cast<int>(a.from_dim),
                         .axes = {a.axes.begin(), a.axes.end()},
                         .reduction = numbers(attrs).reduction};
  return {operand.whole, layout_after(step, operand.layout)};
}

// A piece that goes on to another rank is the same part of another tensor.
CutTensor lies_as_before(const CutTensor& operand, const Attrs&, const Mesh&) {
  return operand;
}

using Step = ReshardStep::Kind;

}  // namespace

namespace ops {
extern const OpDef all_reduce = collective_op<CollectiveAttrs>({
    .name = "all_reduce",
    .doc = "y = sum over the group of x (or max, min)",
    .inputs = "...",
    .infer = infer_all_reduce,
    .grad = grad_all_reduce,
    .examples = examples_elementwise,
    .does = {.work = GroupWork::kAllReduce,
             .call = numbers,
             .step = Step::kAllReduce,
             .result = resharded<Step::kAllReduce>},
    .overwrites = each_over_its_operand,
});
extern const OpDef all_gather = collective_op<CollectiveAttrs>({
    .name = "all_gather",
    .doc = "y = the group's pieces joined along dim",
    .inputs = "...",
    .infer = infer_all_gather,
    .grad = grad_all_gather,
    .examples = examples_of_pieces,
    .does = {.work = GroupWork::kAllGather,
             .call = pieces_in,
             .step = Step::kAllGather,
             .result = resharded<Step::kAllGather>},
});
extern const OpDef reduce_scatter = collective_op<CollectiveAttrs>({
    .name = "reduce_scatter",
    .doc = "y = the rank's piece, along dim, of the sum over the group of x",
    .inputs = "...",
    .infer = infer_reduce_scatter,
    .grad = grad_reduce_scatter,
    .examples = examples_of_pieces,
    .does = {.work = GroupWork::kReduceScatter,
             .call = pieces_out,
             .step = Step::kReduceScatter,
             .result = resharded<Step::kReduceScatter>},
});
extern const OpDef all_to_all = collective_op<CollectiveAttrs>({
    .name = "all_to_all",
    .doc = "y = pieces of x along dim exchanged and joined along from_dim",
    .inputs = "x",
    .infer = infer_all_to_all,
    .grad = grad_all_to_all,
    .examples = examples_all_to_all,
    .does = {.work = GroupWork::kAllToAll,
             .call = pieces_out_and_in,
             .step = Step::kAllToAll,
             .result = resharded<Step::kAllToAll>},
});
extern const OpDef ring_shift = collective_op<CollectiveAttrs>({
    .name = "ring_shift",
    .doc = "y = the x of the member `shift` places before, around the group",
    .inputs = "x",
    .infer = infer_ring_shift,
    .grad = grad_ring_shift,
    .examples = examples_ring_shift,
    .does = {.work = GroupWork::kRingShift, .call = numbers, .result = lies_as_before},
});
extern const OpDef broadcast = collective_op<CollectiveAttrs>({
    .name = "broadcast",
    .doc = "y = the root's x",
    .inputs = "...",
    .infer = infer_broadcast,
    .grad = grad_broadcast,
    .examples = examples_elementwise,
    .does = {.work = GroupWork::kBroadcast, .call = numbers},
    .overwrites = each_over_its_operand,
});
extern const OpDef shard_slice = collective_op<CollectiveAttrs>({
    .name = "shard_slice",
    .doc = "y = the rank's piece of x along dim; nothing is sent",
    .inputs = "x",
    .infer = infer_shard_slice,
    .grad = grad_shard_slice,
    .examples = examples_dim,
    .does = {.work = GroupWork::kCut, .call = pieces_out, .step = Step::kSlice, .result = resharded<Step::kSlice>},
});
}  // namespace ops

std::vector<Tensor> all_reduce(std::span<const Tensor> x, const CollectiveAttrs& attrs) {
  return apply(ops::all_reduce, x, Attrs::of(attrs));
}
Tensor all_gather(const Tensor& x, const CollectiveAttrs& attrs) {
  return apply1(ops::all_gather, {x}, Attrs::of(attrs));
}
Tensor reduce_scatter(const Tensor& x, const CollectiveAttrs& attrs) {
  return apply1(ops::reduce_scatter, {x}, Attrs::of(attrs));
}
std::vector<Tensor> all_gather(std::span<const Tensor> x, const CollectiveAttrs& attrs) {
  return apply(ops::all_gather, x, Attrs::of(attrs));
}
std::vector<Tensor> reduce_scatter(std::span<const Tensor> x, const CollectiveAttrs& attrs) {
  return apply(ops::reduce_scatter, x, Attrs::of(attrs));
}
Tensor all_to_all(const Tensor& x, const CollectiveAttrs& attrs) {
  return apply1(ops::all_to_all, {x}, Attrs::of(attrs));
}
Tensor ring_shift(const Tensor& x, const CollectiveAttrs& attrs) {
  return apply1(ops::ring_shift, {x}, Attrs::of(attrs));
}
std::vector<Tensor> broadcast(std::span<const Tensor> x, const CollectiveAttrs& attrs) {
  return apply(ops::broadcast, x, Attrs::of(attrs));
}
Tensor shard_slice(const Tensor& x, const CollectiveAttrs& attrs) {
  return apply1(ops::shard_slice, {x}, Attrs::of(attrs));
}

}  // namespace trireme
