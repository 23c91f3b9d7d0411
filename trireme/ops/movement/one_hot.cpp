// one_hot: y[*,d] = 1 where ids[*] = d, else 0; ids outside 0..depth-1 give zeros. d may be cut: a
// piece compares with its own coordinates.
#include "trireme/base/said.h"
#include "trireme/ops/elementwise/elementwise.h"
#include "trireme/ops/ops.h"
#include "trireme/tensor/with_element.h"

namespace trireme {
namespace one_hot_op {

struct OneHotAttrs {
  int64_t depth = 1;
  DType dtype = DType::kF32;
  static constexpr auto fields() {
    return std::tuple{field("depth", &OneHotAttrs::depth), field("dtype", &OneHotAttrs::dtype)};
  }
};

std::vector<TensorType> infer(const InferArgs& args) {
  const auto& attrs = args.attrs.as<OneHotAttrs>();
  require(is_index(args.in[0].dtype), "one_hot: ids must be i32 or i64 (ids {}); cast them", said(args.in[0]));
  require(attrs.depth > 0, "one_hot: depth is {}; it must be 1 or more", attrs.depth);
  TensorType y{attrs.dtype, args.in[0].shape};
  y.shape.push_back(attrs.depth);
  return {y};
}

ShardingRule shard(const TypeArgs& args) {
  return parse_rule("*->*d", args.in, args.out);
}

Cost cost(const TypeArgs& args) {
  return {.flops = 0, .bytes = tensor_bytes(args)};
}

void kernel(const KernelArgs& args) {
  const int last = args.out[0].type.shape.rank() - 1;
  const auto depth = args.out[0].type.shape[last];
  with_index("one_hot", args.in[0].type.dtype, [&](auto index) {
    with_element("one_hot", args.out[0].type.dtype, [&](auto zero) {
      using T = decltype(zero);
      const auto ids = args.in[0].as<decltype(index)>();
      int64_t i = 0;
      for (T& y : args.out[0].as<T>()) {
        const int64_t d = args.out_start(0, last) + i % depth;
        y = store<T>(ids[static_cast<size_t>(i++ / depth)] == d ? 1 : 0);
      }
    });
  });
}

std::vector<Example> examples() {
  return {{{i32({4})}, Attrs::of(OneHotAttrs{6}), {integers(0, 6)}},
          {{i64({2, 3})}, Attrs::of(OneHotAttrs{4, DType::kBF16}), {integers(-1, 5)}},
          {{i32({})}, Attrs::of(OneHotAttrs{6, DType::kI32}), {integers(0, 6)}}};
}

}  // namespace one_hot_op

namespace ops {
extern const OpDef one_hot{
    {"one_hot", &Attrs::parse<one_hot_op::OneHotAttrs>},
    {
        .doc = "y[*,d] = 1 where ids[*] = d, else 0",
        .inputs = "ids",
        .infer = one_hot_op::infer,
        .grad = Facet<GradFn>::none("integer operand"),
        .shard = one_hot_op::shard,
        .cost = one_hot_op::cost,
        .kernel = one_hot_op::kernel,
        .traits = {.reads_place = true},
        .examples = one_hot_op::examples,
    },
};
}  // namespace ops

Tensor one_hot(const Tensor& ids, int64_t depth, DType dtype) {
  return apply1(ops::one_hot, {ids}, Attrs::of(one_hot_op::OneHotAttrs{depth, dtype}));
}

}  // namespace trireme
