// move: y = x, in another tier of the rank's memory (op/move.h); move_in_bf16: the same, in bf16, which the host makes
#include "trireme/op/move.h"
#include "trireme/base/said.h"

#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"

namespace trireme {
namespace {

std::vector<TensorType> infer_move(const InferArgs& args) {
  const Move move = move_of(args.attrs);
  require(move.from != move.to, "move: x is in '{}' already", said(move.to));
  return {args.in[0]};
}

std::vector<TensorType> infer_move_in_bf16(const InferArgs& args) {
  require(move_of(args.attrs) == Move{Tier::kHost, Tier::kDevice},
          "move_in_bf16: the host makes bf16 of what leaves it for the device");
  return {{DType::kBF16, args.in[0].shape}};
}

Cost cost_of_move(const TypeArgs& args) {
  return {0, tensor_bytes(args)};
}

std::vector<Example> move_examples() {
  return {{.in = {f32({6, 4})}, .attrs = attrs_of({Tier::kHost, Tier::kDevice})},
          {.in = {f32({5})}, .attrs = attrs_of({Tier::kDevice, Tier::kHost})},
          {.in = {f32({7, 2})}, .attrs = attrs_of({Tier::kDisk, Tier::kDevice})}};
}

std::vector<Example> move_in_bf16_examples() {
  return {{.in = {f32({6, 4})}, .attrs = attrs_of({Tier::kHost, Tier::kDevice})}};
}

}  // namespace

namespace ops {
extern const OpDef move{
    {"move", &Attrs::parse<MoveAttrs>},
    {
        .doc = "y = x, in another tier of the rank's memory",
        .inputs = "x",
        .infer = infer_move,
        .grad = Facet<GradFn>::none("stands in programs, which are made after gradients are"),
        .shard = Facet<ShardFn>::none("works on the pieces of ranks"),
        .cost = cost_of_move,
        .kernel = Facet<KernelFn>::none("the executor runs it, which knows the tiers"),
        .traits = {.move = true},
        .examples = move_examples,
    },
};
extern const OpDef move_in_bf16{
    {"move_in_bf16", &Attrs::parse<MoveAttrs>},
    {
        .doc = "y = x in bf16, which the host makes, in another tier of the rank's memory",
        .inputs = "x",
        .infer = infer_move_in_bf16,
        .grad = Facet<GradFn>::none("stands in programs, which are made after gradients are"),
        .shard = Facet<ShardFn>::none("works on the pieces of ranks"),
        .cost = cost_of_move,
        .kernel = Facet<KernelFn>::none("the executor runs it, by the kernel of a cast on the host"),
        .traits = {.move = true},
        .examples = move_in_bf16_examples,
    },
};
}  // namespace ops

}  // namespace trireme
