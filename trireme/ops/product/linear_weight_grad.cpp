//   linear_weight_grad       w[k,n] = sum_* x[*,k] y[*,n]
//   linear_weight_grad_onto  w[k,n] = start[k,n] + sum_* x[*,k] y[*,n], or w[k,p,n] of y[*,p,n]
//
// The gradient of a weight that serves all leading dimensions. They are summed, so cutting them
// leaves the result partial: this is where a data-parallel gradient comes from. The sums of bf16
// operands are f32. Where rows come in pieces or micro-batches, one after the other, each adds to what
// the ones before have left, in their place, to a multi_linear's weight as well; passes make that.
#include <algorithm>
#include <string_view>

#include "trireme/base/said.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"

namespace trireme {
namespace ops {
extern const OpDef multi_linear_input_grad;
}  // namespace ops

namespace linear_weight_grad_op {

std::vector<TensorType> infer(const InferArgs& args) {
  const TensorType& x = args.in[0];
  const TensorType& y = args.in[1];
  const int rank = x.shape.rank();
  require(rank >= 2 && rank == y.shape.rank(),
          "linear_weight_grad: operands must have equally many dimensions, at least 2 (x {}, y {})", said(x), said(y));
  require(x.dtype == y.dtype && is_floating(x.dtype),
          "linear_weight_grad: operands must be of one floating type (x {}, y {})", said(x), said(y));
  require(leading(x.shape) == leading(y.shape),
          "linear_weight_grad: leading dimensions differ; they must be equal (x {}, y {})", said(x), said(y));
  return {{statistic_type(x.dtype), {x.shape[rank - 1], y.shape[rank - 1]}}};
}

// Whether y, and so w, has the dimension p.
bool has_parts(const TensorType& x, const TensorType& y) {
  return y.shape.rank() == x.shape.rank() + 1;
}

std::vector<TensorType> infer_onto(const InferArgs& args) {
  const TensorType &x = args.in[0], &y = args.in[1], &start = args.in[2];
  const int rank = x.shape.rank();
  const bool ranks_fit = has_parts(x, y) ? rank >= 1 : rank >= 2 && rank == y.shape.rank();
  require(ranks_fit && std::equal(x.shape.begin(), x.shape.end() - 1, y.shape.begin()),
          "linear_weight_grad_onto: x and y must be x[*,k], and y[*,n] or y[*,p,n] (x {}, y {})", said(x), said(y));
  require(x.dtype == y.dtype && is_floating(x.dtype),
          "linear_weight_grad_onto: operands must be of one floating type (x {}, y {})", said(x), said(y));
  TensorType w{statistic_type(x.dtype), {x.shape[rank - 1]}};
  for (int dim = rank - 1; dim < y.shape.rank(); ++dim) w.shape.push_back(y.shape[dim]);
  require(start == w, "linear_weight_grad_onto: start is {}; the sum is {}", said(start), said(w));
  return {w};
}

// dx[*,k] = sum_n y[*,n] dw[k,n] and dy[*,n] = sum_k x[*,k] dw[k,n], with n for p and n where there is a p.
std::vector<Tensor> grad(const GradArgs& args) {
  const Tensor& x = args.in[0];
  const Tensor& y = args.in[1];
  const Tensor dw = cast(args.dout[0], x.dtype());
  const bool parts = dw.rank() == 3;
  Tensor dx, dy;
  if (args.wanted[0]) dx = parts ? apply1(ops::multi_linear_input_grad, {y, dw}) : matmul(y, dw, false, true);
  if (args.wanted[1]) dy = parts ? multi_linear(x, dw) : matmul(x, dw);
  std::vector<Tensor> out{dx, dy};
  if (args.in.size() == 3) out.push_back(args.dout[0]);
  return out;
}

ShardingRule shard(const TypeArgs& args) {
  return parse_rule("*k,*n->kn", args.in, args.out, {.linear = {{0}, {1}}});
}

// The rows stay together: what each rank had of them would be added to a `start` that is there once.
ShardingRule shard_onto(const TypeArgs& args) {
  const std::string rows(static_cast<size_t>(args.in[0].shape.rank()) - 1, '.');
  const std::string_view columns = has_parts(args.in[0], args.in[1]) ? "pn" : "n";
  return parse_rule(fmt::format("{0}k,{0}{1},k{1}->k{1}", rows, columns), args.in, args.out,
                    {.linear = {{0, 2}, {1, 2}}});
}

Cost cost(const TypeArgs& args) {
  const double rows = static_cast<double>(leading(args.in[0].shape).elements());
  return {.flops = 2.0 * rows * static_cast<double>(args.out[0].elements()), .bytes = tensor_bytes(args)};
}

template <class T, class W>
void sum_products(const KernelArgs& args) {
  const auto x = args.in[0].as<T>();
  const auto y = args.in[1].as<T>();
  const auto start = args.in.size() == 3 ? args.in[2].as<W>() : std::span<W>();
  const auto w = args.out[0].as<W>();
  const auto k = static_cast<size_t>(args.out[0].type.shape[0]);
  const size_t n = k == 0 ? 0 : w.size() / k;
  const auto rows = static_cast<size_t>(leading(args.in[0].type.shape).elements());
  constexpr size_t kTogether = 64;  // columns, of which memory has the terms side by side
  for (size_t i = 0; i < k; ++i) {
    for (size_t first = 0; first < n; first += kTogether) {
      const size_t columns = std::min(kTogether, n - first);
      double sums[kTogether];
      for (size_t j = 0; j < columns; ++j) sums[j] = start.empty() ? 0 : load(start[i * n + first + j]);
      for (size_t row = 0; row < rows; ++row) {
        const double factor = load(x[row * k + i]);
        for (size_t j = 0; j < columns; ++j) sums[j] += factor * load(y[row * n + first + j]);
      }
      for (size_t j = 0; j < columns; ++j) w[i * n + first + j] = store<W>(sums[j]);
    }
  }
}

void kernel(const KernelArgs& args) {
  with_floating("linear_weight_grad", args.in[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    sum_products<T, Statistic<T>>(args);
  });
}

std::vector<Example> examples() {
  return {{.in = {f32({6, 4}), f32({6, 12})}},
          {.in = {f32({2, 6, 3}), f32({2, 6, 4})}},
          {.in = {f32({5, 7}), f32({5, 1})}},
          {.in = {{DType::kBF16, {6, 4}}, {DType::kBF16, {6, 12}}}}};
}

std::vector<Example> examples_onto() {
  return {{.in = {f32({6, 4}), f32({6, 12}), f32({4, 12})}},
          {.in = {f32({2, 3, 4}), f32({2, 3, 6}), f32({4, 6})}},
          {.in = {f32({5, 7}), f32({5, 1}), f32({7, 1})}},
          {.in = {f32({0, 3}), f32({0, 2}), f32({3, 2})}},
          {.in = {{DType::kBF16, {6, 4}}, {DType::kBF16, {6, 12}}, f32({4, 12})}},
          {.in = {f32({2, 3, 4}), f32({2, 3, 2, 6}), f32({4, 2, 6})}}};
}

}  // namespace linear_weight_grad_op

namespace ops {
extern const OpDef linear_weight_grad_onto;
extern const OpDef linear_weight_grad{
    {"linear_weight_grad", &Attrs::parse<NoAttrs>},
    {
        .doc = "w[k,n] = sum_* x[*,k] y[*,n]",
        .inputs = "x, y",
        .infer = linear_weight_grad_op::infer,
        .grad = linear_weight_grad_op::grad,
        .shard = linear_weight_grad_op::shard,
        .cost = linear_weight_grad_op::cost,
        .kernel = linear_weight_grad_op::kernel,
        .examples = linear_weight_grad_op::examples,
        .onto = &linear_weight_grad_onto,
    },
};
extern const OpDef linear_weight_grad_onto{
    {"linear_weight_grad_onto", &Attrs::parse<NoAttrs>},
    {
        .doc = "w[k,n] = start[k,n] + sum_* x[*,k] y[*,n], or w[k,p,n] of y[*,p,n]",
        .inputs = "x, y, start",
        .infer = linear_weight_grad_op::infer_onto,
        .grad = linear_weight_grad_op::grad,
        .shard = linear_weight_grad_op::shard_onto,
        .cost = linear_weight_grad_op::cost,
        .kernel = linear_weight_grad_op::kernel,
        .may_overwrite = {{0, 2}},
        .examples = linear_weight_grad_op::examples_onto,
    },
};
}  // namespace ops

Tensor linear_weight_grad(const Tensor& x, const Tensor& y) {
  return apply1(ops::linear_weight_grad, {x, y});
}

}  // namespace trireme
