// fill_beyond: what a piece holds beyond the end of its whole, where a dimension has uneven parts (layout/layout.h),
// becomes zero, or what changes no maximum or no minimum. Where the piece lies tells what that is.
#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "trireme/base/said.h"
#include "trireme/op/op_attrs.h"
#include "trireme/ops/movement/movement.h"
#include "trireme/ops/ops.h"
#include "trireme/tensor/with_element.h"

namespace trireme {
namespace fill_beyond_op {

std::vector<TensorType> infer(const InferArgs& args) {
  const auto& attrs = args.attrs.as<FillBeyondAttrs>();
  const TensorType& x = args.in[0];
  require(attrs.dim >= 0 && attrs.dim < x.shape.rank(), "fill_beyond: no dimension {} in x {}; dimensions are 0 to {}",
          attrs.dim, said(x), x.shape.rank() - 1);
  require(attrs.size >= 0, "fill_beyond: dimension {} ends at {}; it must be 0 or more", attrs.dim, attrs.size);
  require(attrs.with == "zero" || attrs.with == "lowest" || attrs.with == "highest",
          "fill_beyond: with '{}'; it must be zero, lowest or highest", attrs.with);
  require(attrs.with == "zero" || is_number(x.dtype), "fill_beyond: the {} of x {}, which is no number", attrs.with,
          said(x));
  return {x};
}

std::vector<Tensor> grad(const GradArgs& args) {
  const auto& attrs = args.attrs.as<FillBeyondAttrs>();
  return {fill_beyond(args.dout[0], static_cast<int>(attrs.dim), attrs.size)};
}

ShardingRule shard(const TypeArgs& args) {
  RuleOptions options;
  if (args.attrs.as<FillBeyondAttrs>().with == "zero") options.linear = {{0}};
  return parse_rule("*->*", args.in, args.out, options);
}

// What is filled is a part of the last piece.
Cost cost(const TypeArgs& args) {
  return {.flops = 0, .bytes = tensor_bytes(args)};
}

template <class T>
T fill_of(std::string_view with) {
  if (with == "zero") return T{};
  if constexpr (std::is_integral_v<T>) {
    return with == "lowest" ? std::numeric_limits<T>::lowest() : std::numeric_limits<T>::max();
  } else {
    const double infinity = std::numeric_limits<double>::infinity();
    return store<T>(with == "lowest" ? -infinity : infinity);
  }
}

void kernel(const KernelArgs& args) {
  const auto& attrs = args.attrs.as<FillBeyondAttrs>();
  const View& x = args.in[0];
  const View& y = args.out[0];
  if (x.data != y.data) std::memcpy(y.data, x.data, static_cast<size_t>(y.bytes()));
  const int dim = static_cast<int>(attrs.dim);
  const int64_t size = y.type.shape[dim];
  const int64_t kept = std::clamp<int64_t>(attrs.size - args.out_start(0, dim), 0, size);
  if (kept == size) return;
  const int64_t inner = y.type.shape.strides()[static_cast<size_t>(dim)];
  with_element("fill_beyond", y.type.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto all = y.as<T>();
    for (int64_t end = size * inner; end <= y.elements(); end += size * inner) {
      std::fill(all.begin() + (end - (size - kept) * inner), all.begin() + end, fill_of<T>(attrs.with));
    }
  });
}

std::vector<Example> examples() {
  return {{{f32({6, 4})}, Attrs::of(FillBeyondAttrs{0, 4})},
          {{f32({2, 6, 2})}, Attrs::of(FillBeyondAttrs{1, 3})},
          {{{DType::kBF16, {6}}}, Attrs::of(FillBeyondAttrs{0, 5})},
          {{i64({2, 6})}, Attrs::of(FillBeyondAttrs{1, 4, "lowest"}), {integers(-9, 9)}},
          {{i64({6})}, Attrs::of(FillBeyondAttrs{0, 4, "highest"}), {integers(-9, 9)}}};
}

}  // namespace fill_beyond_op

namespace ops {
extern const OpDef fill_beyond{
    {"fill_beyond", &Attrs::parse<FillBeyondAttrs>},
    {
        .doc = "y = x where the coordinate in dimension dim is below size, else zero (or the lowest or highest number)",
        .inputs = "x",
        .infer = fill_beyond_op::infer,
        .grad = fill_beyond_op::grad,
        .shard = fill_beyond_op::shard,
        .cost = fill_beyond_op::cost,
        .kernel = fill_beyond_op::kernel,
        .traits = {.reads_place = true},
        .may_overwrite = {{0, 0}},
        .examples = fill_beyond_op::examples,
    },
};
}  // namespace ops

Tensor fill_beyond(const Tensor& x, int dim, int64_t size) {
  return apply1(ops::fill_beyond, {x}, Attrs::of(FillBeyondAttrs{dim, size}));
}

}  // namespace trireme
