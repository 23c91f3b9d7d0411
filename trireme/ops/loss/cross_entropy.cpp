// cross_entropy: loss[*] = -sum_v t[*,v] ln softmax(logits)[*,v], t = (1 - s) onehot(label) + s / V
//
// s is the label smoothing and V the number of classes. Positions whose label is `ignore_index`
// have loss zero and give no gradient. The loss is f32 (f64 for f64 logits), one number a position:
// means are the caller's.
#include <algorithm>
#include <cmath>

#include "trireme/base/said.h"
#include "trireme/op/structural.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"

namespace trireme {
namespace ops {
extern const OpDef cross_entropy_grad;
}  // namespace ops

namespace cross_entropy_op {

void check_operands(const char* op, const InferArgs& args) {
  const TensorType& logits = args.in[0];
  const TensorType& labels = args.in[1];
  const double smoothing = args.attrs.as<CrossEntropyAttrs>().label_smoothing;
  require(is_floating(logits.dtype) && logits.shape.rank() >= 1,
          "{}: logits must be floating and have 1 dimension or more (logits {})", op, said(logits));
  require(is_index(labels.dtype), "{}: labels must be i32 or i64 class numbers (labels {})", op, said(labels));
  require(labels.shape == leading(logits.shape),
          "{}: labels must have the shape of the logits without its last dimension (logits {}, "
          "labels {})",
          op, said(logits), said(labels));
  require(smoothing >= 0 && smoothing <= 1, "{}: label_smoothing is {}; it must be from 0 to 1", op, smoothing);
}

std::vector<TensorType> infer(const InferArgs& args) {
  check_operands("cross_entropy", args);
  return {{statistic_type(args.in[0].dtype), args.in[1].shape}};
}

std::vector<TensorType> grad_infer(const InferArgs& args) {
  check_operands("cross_entropy_grad", args);
  const TensorType want{statistic_type(args.in[0].dtype), args.in[1].shape};
  require(args.in[2] == want, "cross_entropy_grad: dloss is {}; the loss is {}", said(args.in[2]), said(want));
  return {args.in[0]};
}

std::vector<Tensor> grad(const GradArgs& args) {
  Tensor dlogits;
  if (args.wanted[0]) dlogits = apply1(ops::cross_entropy_grad, {args.in[0], args.in[1], args.dout[0]}, args.attrs);
  return {dlogits, {}};
}

ShardingRule shard(const TypeArgs& args) {
  return parse_rule("*v!,*->*", args.in, args.out);
}

ShardingRule grad_shard(const TypeArgs& args) {
  return parse_rule("*v!,*,*->*v!", args.in, args.out, {.linear = {{2}}});
}

Cost cost(const TypeArgs& args) {
  return {.flops = 5.0 * static_cast<double>(args.in[0].elements()), .bytes = tensor_bytes(args)};
}

struct Line {
  double max = 0;
  double log_sum = 0;  // ln sum exp(x - max)
};

template <class T>
Line statistics(std::span<const T> x) {
  Line line{load(x[0]), 0};
  for (const T value : x) line.max = std::max(line.max, load(value));
  double sum = 0;
  for (const T value : x) sum += std::exp(load(value) - line.max);
  line.log_sum = std::log(sum);
  return line;
}

// Calls fn(position, the position's logits, label) where a label counts, and ignored(position)
// elsewhere.
template <class T, class Fn, class Ignored>
void each_position(const KernelArgs& args, Fn&& fn, Ignored&& ignored) {
  const auto& attrs = args.attrs.as<CrossEntropyAttrs>();
  const auto logits = args.in[0].as<T>();
  const Shape& shape = args.in[0].type.shape;
  const int64_t classes = shape[shape.rank() - 1];
  with_index("cross_entropy", args.in[1].type.dtype, [&](auto zero) {
    const auto labels = args.in[1].as<decltype(zero)>();
    for (size_t i = 0; i < labels.size(); ++i) {
      const auto label = static_cast<int64_t>(labels[i]);
      if (label == attrs.ignore_index) {
        ignored(i);
        continue;
      }
      require(label >= 0 && label < classes, "cross_entropy: label {} at position {} of {} classes; use 0 to {} or {}",
              label, i, classes, classes - 1, attrs.ignore_index);
      const auto size = static_cast<size_t>(classes);
      fn(i, std::span<const T>(logits.subspan(i * size, size)), static_cast<size_t>(label));
    }
  });
}

template <class T, class Loss>
void forward(const KernelArgs& args) {
  const double s = args.attrs.as<CrossEntropyAttrs>().label_smoothing;
  const auto loss = args.out[0].as<Loss>();
  each_position<T>(
      args,
      [&](size_t i, std::span<const T> x, size_t label) {
        const Line line = statistics(x);
        const double log_normaliser = line.max + line.log_sum;
        double value = (1 - s) * (log_normaliser - load(x[label]));
        for (size_t v = 0; s > 0 && v < x.size(); ++v) {
          value += s / static_cast<double>(x.size()) * (log_normaliser - load(x[v]));
        }
        loss[i] = static_cast<Loss>(value);
      },
      [&](size_t i) { loss[i] = 0; });
}

// dlogits = dloss (softmax(logits) - t)
template <class T, class Loss>
void backward(const KernelArgs& args) {
  const double s = args.attrs.as<CrossEntropyAttrs>().label_smoothing;
  const auto dloss = args.in[2].as<Loss>();
  const auto dx = args.out[0].as<T>();
  const Shape& shape = args.out[0].type.shape;
  const auto classes = static_cast<size_t>(shape[shape.rank() - 1]);
  each_position<T>(
      args,
      [&](size_t i, std::span<const T> x, size_t label) {
        const Line line = statistics(x);
        for (size_t v = 0; v < classes; ++v) {
          const double target = (v == label ? 1 - s : 0) + s / static_cast<double>(classes);
          const double p = std::exp(load(x[v]) - line.max - line.log_sum);
          dx[i * classes + v] = store<T>(static_cast<double>(dloss[i]) * (p - target));
        }
      },
      [&](size_t i) {
        for (size_t v = 0; v < classes; ++v) dx[i * classes + v] = store<T>(0);
      });
}

void kernel(const KernelArgs& args) {
  with_floating("cross_entropy", args.in[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    forward<T, std::conditional_t<std::is_same_v<T, double>, double, float>>(args);
  });
}

void grad_kernel(const KernelArgs& args) {
  with_floating("cross_entropy_grad", args.in[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    backward<T, std::conditional_t<std::is_same_v<T, double>, double, float>>(args);
  });
}

std::vector<Example> examples() {
  return {{.in = {f32({6, 5}), i32({6})}, .attrs = Attrs::of(CrossEntropyAttrs{}), .fill = {{}, integers(0, 5)}},
          {.in = {f32({2, 6, 7}), i32({2, 6})},
           .attrs = Attrs::of(CrossEntropyAttrs{.ignore_index = 0, .label_smoothing = 0.1}),
           .fill = {{}, integers(0, 7)}},
          {.in = {f32({3}), i64({})}, .attrs = Attrs::of(CrossEntropyAttrs{}), .fill = {{}, integers(0, 3)}}};
}

std::vector<Example> grad_examples() {
  std::vector<Example> out = examples();
  for (Example& example : out) example.in.push_back({DType::kF32, example.in[1].shape});
  return out;
}

}  // namespace cross_entropy_op

namespace ops {
extern const OpDef cross_entropy{
    {"cross_entropy", &Attrs::parse<CrossEntropyAttrs>},
    {
        .doc = "loss[*] = -sum_v t[*,v] ln softmax(logits)[*,v], t = (1-s) onehot(label) + s/V",
        .inputs = "logits, labels",
        .infer = cross_entropy_op::infer,
        .grad = cross_entropy_op::grad,
        .shard = cross_entropy_op::shard,
        .cost = cross_entropy_op::cost,
        .kernel = cross_entropy_op::kernel,
        .traits = {.loss_of_rows = true},
        .examples = cross_entropy_op::examples,
    },
};
extern const OpDef cross_entropy_grad{
    {"cross_entropy_grad", &Attrs::parse<CrossEntropyAttrs>},
    {
        .doc = "dlogits[*,v] = dloss[*] (softmax(logits)[*,v] - t[*,v])",
        .inputs = "logits, labels, dloss",
        .infer = cross_entropy_op::grad_infer,
        .grad = Facet<GradFn>::none("a gradient is not differentiated again"),
        .shard = cross_entropy_op::grad_shard,
        .cost = cross_entropy_op::cost,
        .kernel = cross_entropy_op::grad_kernel,
        .may_overwrite = {{0, 0}},
        .examples = cross_entropy_op::grad_examples,
    },
};
}  // namespace ops

namespace cross_entropy_op {

// Logits before a cast from bf16 to f32: statistics are taken in f32 anyhow.
Tensor before_widening(const Tensor& logits) {
  const Graph& graph = logits.graph();
  const NodeId producer = graph.value(logits.id()).producer;
  if (producer < 0 || logits.dtype() != DType::kF32 || !is_cast(graph.node(producer))) return logits;
  const ValueId x = graph.node(producer).inputs[0];
  return graph.type(x).dtype == DType::kBF16 ? Tensor(logits.graph(), x) : logits;
}

}  // namespace cross_entropy_op

Tensor cross_entropy(const Tensor& logits, const Tensor& labels) {
  const CrossEntropyAttrs plain{};
  return cross_entropy(logits, labels, plain.ignore_index, plain.label_smoothing);
}

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, int64_t ignore_index, double label_smoothing) {
  return apply1(ops::cross_entropy, {cross_entropy_op::before_widening(logits), labels},
                Attrs::of(CrossEntropyAttrs{.ignore_index = ignore_index, .label_smoothing = label_smoothing}));
}

}  // namespace trireme
