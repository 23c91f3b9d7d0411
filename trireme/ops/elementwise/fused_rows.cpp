// fused_rows: some of the values of a few steps, each an op on rows or a product of rows (op/row_steps.h)
//
// pass/fuse_rows makes it of a rank's nodes; nothing traces it. A step's attributes are those of its own op on these
// pieces.
#include "trireme/op/row_steps.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"

namespace trireme {
namespace fused_rows_op {

std::vector<TensorType> infer(const InferArgs& args) {
  const std::shared_ptr<const RowCall> call = row_call(args.attrs, args.in);
  const auto& [steps, values] = *call;
  std::vector<TensorType> out;
  for (const int id : steps.results) out.push_back(values[static_cast<size_t>(id)].type);
  return out;
}

// Rows may be cut.
ShardingRule shard(const TypeArgs& args) {
  const std::shared_ptr<const RowCall> call = row_call(args.attrs, args.in);
  const auto& [steps, values] = *call;
  const auto letters = [&](const RowValue& value) {
    std::string out;
    for (int dim = 0; dim < value.type.shape.rank(); ++dim) {
      out += value.by_row && dim < steps.row_dims ? static_cast<char>('a' + dim) : '.';
    }
    return out;
  };
  std::string text;
  for (size_t i = 0; i < args.in.size(); ++i) text += (i > 0 ? "," : "") + letters(values[i]);
  text += "->";
  for (size_t i = 0; i < steps.results.size(); ++i) {
    text += (i > 0 ? "," : "") + letters(values[static_cast<size_t>(steps.results[i])]);
  }
  return parse_rule(text, args.in, args.out);
}

Cost cost(const TypeArgs& args) {
  const std::shared_ptr<const RowCall> call = row_call(args.attrs, args.in);
  const auto& [steps, values] = *call;
  Cost out{.flops = 0, .bytes = tensor_bytes(args)};
  for (const RowStep& step : steps.steps) {
    std::vector<TensorType> in, results;
    for (const int id : step.in) in.push_back(values[static_cast<size_t>(id)].type);
    for (const int id : step.out) results.push_back(values[static_cast<size_t>(id)].type);
    if (step.op->cost) out.flops += step.op->cost.get()({in, results, step.attrs}).flops;
  }
  return out;
}

// The steps' own reference kernels, on whole tensors.
void kernel(const KernelArgs& args) {
  const RowSteps steps = parse_row_steps(args.attrs.as<FusedRowsAttrs>());
  std::vector<TensorType> types;
  for (const View& view : args.in) types.push_back(view.type);
  const std::vector<RowValue> values = row_values(steps, types);
  std::vector<View> views(args.in.begin(), args.in.end());
  views.resize(values.size());
  for (size_t r = 0; r < steps.results.size(); ++r) views[static_cast<size_t>(steps.results[r])] = args.out[r];
  std::vector<HostTensor> between;
  for (size_t id = args.in.size(); id < values.size(); ++id) {
    if (views[id].data == nullptr) views[id] = between.emplace_back(values[id].type).view();
  }
  for (const RowStep& step : steps.steps) {
    std::vector<View> in, out;
    for (const int id : step.in) in.push_back(views[static_cast<size_t>(id)]);
    for (const int id : step.out) out.push_back(views[static_cast<size_t>(id)]);
    std::shared_ptr<void> state;
    step.op->kernel.get()(
        {.in = in, .out = out, .in_place = {}, .out_place = {}, .attrs = step.attrs, .scratch = {}, .state = &state});
  }
}

std::vector<std::pair<int, int>> overwrites(const TypeArgs& args) {
  return row_overwrites(*row_call(args.attrs, args.in));
}

std::vector<Example> examples() {
  const auto steps = [](int64_t row_dims, const char* text, std::vector<int64_t> results) {
    return Attrs::of(FusedRowsAttrs{row_dims, text, std::move(results)});
  };
  return {{{f32({6, 2, 4}), f32({4})}, steps(2, "2=add(0,1){}; 3=gelu(2){approximate=true}", {2, 3})},
          {{f32({6, 4}), f32({4}), f32({6, 4}), f32({4}), f32({4})},
           steps(1, "5=add(0,1){}; 6=add(2,5){}; 7,8,9=layer_norm(6,3,4){eps=1e-05}", {6, 7, 9})},
          {{f32({6, 3, 4}), f32({3, 4})}, steps(1, "2=add(0,1){}; 3,4,5=split(2){dim=1, sizes=[1,1,1]}", {3, 4, 5})},
          {{f32({12}), f32({12}), f32({})}, steps(1, "3=mul(0,1){}; 4=add(3,0){}; 5=mul(4,2){}", {5})},
          {{f32({6, 4}), f32({6, 4})},
           steps(2, "2=cast(0){dtype=bf16}; 3=cast(1){dtype=bf16}; 4=mul(2,3){}; 5=cast(4){dtype=f32}", {4, 5})},
          {{f32({6, 4}), f32({6, 1})}, steps(1, "2=mul(0,1){}; 3=softmax(2){}", {3})},
          {{f32({6, 2, 4}), f32({4, 5}), f32({5})},
           steps(2, "3=matmul(0,1){transpose_a=false, transpose_b=false}; 4=add(3,2){}; 5=gelu(4){approximate=true}",
                 {4, 5})}};
}

}  // namespace fused_rows_op

namespace ops {
extern const OpDef fused_rows{
    {"fused_rows", &Attrs::parse<FusedRowsAttrs>},
    {
        .doc = "some values of a few steps, each an op on rows",
        .inputs = "...",
        .infer = fused_rows_op::infer,
        .grad = Facet<GradFn>::none("made when gradients are"),
        .shard = fused_rows_op::shard,
        .cost = fused_rows_op::cost,
        .kernel = fused_rows_op::kernel,
        .examples = fused_rows_op::examples,
        .overwrites = fused_rows_op::overwrites,
    },
};
}  // namespace ops

}  // namespace trireme
