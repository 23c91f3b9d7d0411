// part: y = rows of x, where they lie; join: y = the operands one below the other, where they lie. Neither moves a byte
// (op/structural.h).
#include "trireme/base/said.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"

namespace trireme {
namespace {

constexpr const char* kInPrograms = "stands in programs, which are made after gradients are";
constexpr const char* kOnPieces = "works on the pieces of ranks";
constexpr const char* kInPlace = "nothing runs: the plan says where the bytes lie";

std::vector<TensorType> infer_part(const InferArgs& args) {
  const auto& attrs = args.attrs.as<PartAttrs>();
  const TensorType& x = args.in[0];
  require(x.shape.rank() > 0 && attrs.first >= 0 && attrs.rows > 0 && attrs.rows <= x.shape[0] - attrs.first,
          "part: {} rows from {} on of x {}, which has {}", attrs.rows, attrs.first, said(x),
          x.shape.rank() > 0 ? x.shape[0] : 0);
  TensorType y = x;
  y.shape[0] = attrs.rows;
  return {y};
}

std::vector<TensorType> infer_join(const InferArgs& args) {
  require(!args.in.empty() && args.in[0].shape.rank() > 0,
          "join: it takes one part or more, each with one dimension or more");
  TensorType y = args.in[0];
  for (const TensorType& part : args.in.subspan(1)) {
    TensorType alike = part;
    if (alike.shape.rank() > 0) alike.shape[0] = args.in[0].shape[0];
    require(alike == args.in[0], "join: the parts {} and {} are not rows of one tensor", said(args.in[0]), said(part));
    y.shape[0] += part.shape[0];
  }
  return {y};
}

Cost nothing(const TypeArgs&) {
  return {};
}

std::vector<Example> part_examples() {
  return {{.in = {f32({6, 4})}, .attrs = Attrs::of(PartAttrs{2, 3})},
          {.in = {f32({5})}, .attrs = Attrs::of(PartAttrs{0, 5})}};
}

std::vector<Example> join_examples() {
  return {{.in = {f32({2, 4}), f32({3, 4})}}, {.in = {f32({5})}}};
}

}  // namespace

namespace ops {
extern const OpDef part{
    {"part", &Attrs::parse<PartAttrs>},
    {
        .doc = "y = x[first : first + rows], where it lies",
        .inputs = "x",
        .infer = infer_part,
        .grad = Facet<GradFn>::none(kInPrograms),
        .shard = Facet<ShardFn>::none(kOnPieces),
        .cost = nothing,
        .kernel = Facet<KernelFn>::none(kInPlace),
        .traits = {.zero_cost_view = true},
        .examples = part_examples,
    },
};
extern const OpDef join{
    {"join", &Attrs::parse<NoAttrs>},
    {
        .doc = "y = the parts one below the other, where they lie",
        .inputs = "part...",
        .infer = infer_join,
        .grad = Facet<GradFn>::none(kInPrograms),
        .shard = Facet<ShardFn>::none(kOnPieces),
        .cost = nothing,
        .kernel = Facet<KernelFn>::none(kInPlace),
        .traits = {.joins_in_place = true},
        .examples = join_examples,
    },
};
}  // namespace ops

}  // namespace trireme
