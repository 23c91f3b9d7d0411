// softmax: y[*,v] = exp(x[*,v]) / sum_v exp(x[*,v]), and log_softmax, its logarithm,
// over the last dimension
//
// Each has a gradient op that reads the result instead of the operand, so x need not be kept.
#include <algorithm>
#include <cmath>

#include "trireme/base/said.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"

namespace trireme {
namespace ops {
extern const OpDef softmax_grad;
extern const OpDef log_softmax_grad;
}  // namespace ops

namespace softmax_op {

std::vector<TensorType> infer(const InferArgs& args) {
  const TensorType& x = args.in[0];
  require(is_floating(x.dtype) && x.shape.rank() >= 1,
          "softmax: the operand must be floating and have 1 dimension or more (x {})", said(x));
  return {x};
}

std::vector<TensorType> grad_infer(const InferArgs& args) {
  const TensorType& y = args.in[0];
  const TensorType& dy = args.in[1];
  require(is_floating(y.dtype) && y.shape.rank() >= 1 && y == dy,
          "softmax_grad: y and dy must be of one floating type with 1 dimension or more (y {}, dy {})", said(y),
          said(dy));
  return {y};
}

std::vector<Tensor> grad(const GradArgs& args) {
  return {apply1(ops::softmax_grad, {args.out[0], args.dout[0]})};
}

std::vector<Tensor> log_grad(const GradArgs& args) {
  return {apply1(ops::log_softmax_grad, {args.out[0], args.dout[0]})};
}

ShardingRule shard(const TypeArgs& args) {
  return parse_rule("*v!->*v!", args.in, args.out);
}

ShardingRule grad_shard(const TypeArgs& args) {
  return parse_rule("*v!,*v!->*v!", args.in, args.out, {.linear = {{1}}});
}

// A maximum, a difference, an exponential, a sum and a division each.
Cost cost(const TypeArgs& args) {
  return {.flops = 5.0 * static_cast<double>(args.in[0].elements()), .bytes = tensor_bytes(args)};
}

// Calls fn(first element, size) for each line along the last dimension.
template <class Fn>
void each_line(const TensorType& type, Fn&& fn) {
  const auto size = static_cast<size_t>(type.shape[type.shape.rank() - 1]);
  const auto elements = static_cast<size_t>(type.elements());
  for (size_t first = 0; first < elements; first += size) fn(first, size);
}

// y = x - max - ln sum exp(x - max), or its exponential.
template <class T>
void forward(const KernelArgs& args, bool logarithm) {
  const auto x = args.in[0].as<T>();
  const auto y = args.out[0].as<T>();
  each_line(args.in[0].type, [&](size_t first, size_t size) {
    double max = load(x[first]);
    for (size_t i = 1; i < size; ++i) max = std::max(max, load(x[first + i]));
    double sum = 0;
    for (size_t i = 0; i < size; ++i) sum += std::exp(load(x[first + i]) - max);
    const double log_sum = std::log(sum);
    for (size_t i = 0; i < size; ++i) {
      const double value = load(x[first + i]) - max - log_sum;
      y[first + i] = store<T>(logarithm ? value : std::exp(value));
    }
  });
}

void kernel(const KernelArgs& args) {
  with_floating("softmax", args.out[0].type.dtype, [&](auto zero) { forward<decltype(zero)>(args, false); });
}

void log_kernel(const KernelArgs& args) {
  with_floating("log_softmax", args.out[0].type.dtype, [&](auto zero) { forward<decltype(zero)>(args, true); });
}

// dx = y (dy - sum_v y dy)
template <class T>
void backward(const KernelArgs& args) {
  const auto y = args.in[0].as<T>();
  const auto dy = args.in[1].as<T>();
  const auto dx = args.out[0].as<T>();
  each_line(args.in[0].type, [&](size_t first, size_t size) {
    double sum = 0;
    for (size_t i = first; i < first + size; ++i) sum += load(y[i]) * load(dy[i]);
    for (size_t i = first; i < first + size; ++i) dx[i] = store<T>(load(y[i]) * (load(dy[i]) - sum));
  });
}

void grad_kernel(const KernelArgs& args) {
  with_floating("softmax_grad", args.out[0].type.dtype, [&](auto zero) { backward<decltype(zero)>(args); });
}

// dx = dy - exp(y) sum_v dy
template <class T>
void log_backward(const KernelArgs& args) {
  const auto y = args.in[0].as<T>();
  const auto dy = args.in[1].as<T>();
  const auto dx = args.out[0].as<T>();
  each_line(args.in[0].type, [&](size_t first, size_t size) {
    double sum = 0;
    for (size_t i = first; i < first + size; ++i) sum += load(dy[i]);
    for (size_t i = first; i < first + size; ++i) dx[i] = store<T>(load(dy[i]) - std::exp(load(y[i])) * sum);
  });
}

void log_grad_kernel(const KernelArgs& args) {
  with_floating("log_softmax_grad", args.out[0].type.dtype, [&](auto zero) { log_backward<decltype(zero)>(args); });
}

std::vector<Example> examples() {
  return {{.in = {f32({6, 5})}}, {.in = {f32({2, 6, 7})}}, {.in = {f32({3})}}};
}

std::vector<Example> grad_examples() {
  return {{.in = {f32({6, 5}), f32({6, 5})}}, {.in = {f32({2, 6, 7}), f32({2, 6, 7})}}};
}

constexpr const char* kFirstOrder = "a gradient is not differentiated again";

}  // namespace softmax_op

namespace ops {
extern const OpDef softmax{
    {"softmax", &Attrs::parse<NoAttrs>},
    {
        .doc = "y[*,v] = exp(x[*,v]) / sum_v exp(x[*,v])",
        .inputs = "x",
        .infer = softmax_op::infer,
        .grad = softmax_op::grad,
        .shard = softmax_op::shard,
        .cost = softmax_op::cost,
        .kernel = softmax_op::kernel,
        .may_overwrite = {{0, 0}},
        .examples = softmax_op::examples,
    },
};
extern const OpDef softmax_grad{
    {"softmax_grad", &Attrs::parse<NoAttrs>},
    {
        .doc = "dx = y (dy - sum_v y dy)",
        .inputs = "y, dy",
        .infer = softmax_op::grad_infer,
        .grad = Facet<GradFn>::none(softmax_op::kFirstOrder),
        .shard = softmax_op::grad_shard,
        .cost = softmax_op::cost,
        .kernel = softmax_op::grad_kernel,
        .may_overwrite = {{0, 0}, {0, 1}},
        .examples = softmax_op::grad_examples,
    },
};
extern const OpDef log_softmax{
    {"log_softmax", &Attrs::parse<NoAttrs>},
    {
        .doc = "y[*,v] = x[*,v] - ln sum_v exp(x[*,v])",
        .inputs = "x",
        .infer = softmax_op::infer,
        .grad = softmax_op::log_grad,
        .shard = softmax_op::shard,
        .cost = softmax_op::cost,
        .kernel = softmax_op::log_kernel,
        .may_overwrite = {{0, 0}},
        .examples = softmax_op::examples,
    },
};
extern const OpDef log_softmax_grad{
    {"log_softmax_grad", &Attrs::parse<NoAttrs>},
    {
        .doc = "dx = dy - exp(y) sum_v dy",
        .inputs = "y, dy",
        .infer = softmax_op::grad_infer,
        .grad = Facet<GradFn>::none(softmax_op::kFirstOrder),
        .shard = softmax_op::grad_shard,
        .cost = softmax_op::cost,
        .kernel = softmax_op::log_grad_kernel,
        .may_overwrite = {{0, 0}, {0, 1}},
        .examples = softmax_op::grad_examples,
    },
};
}  // namespace ops

Tensor softmax(const Tensor& x) {
  return apply1(ops::softmax, {x});
}
Tensor log_softmax(const Tensor& x) {
  return apply1(ops::log_softmax, {x});
}

}  // namespace trireme
