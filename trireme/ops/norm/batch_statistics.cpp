// channel_sums: s[0,c] = sum_* x[*,c], s[1,c] = sum_* x[*,c]^2
// batch_statistics: mean[c] and var[c] of the positions that such sums are over, and the running statistics after them
//
// The sums are f64: squares of f32 are exact in it, so the variance, sum of squares / n - mean^2, keeps nearly all of
// f32's digits also where the mean is a thousand times the deviation, and parts of a cut tensor are simply added.
#include "trireme/base/said.h"
#include "trireme/ops/norm/batch_norm.h"
#include "trireme/ops/ops.h"

namespace trireme {
namespace batch_statistics_op {

constexpr auto kNoGradient = "batch_norm's gradient is that of x through its statistics";

std::vector<TensorType> sums_infer(const InferArgs& args) {
  const TensorType& x = args.in[0];
  require(is_floating(x.dtype) && x.shape.rank() >= 1,
          "channel_sums: x must be floating and have 1 dimension or more (x {})", said(x));
  return {{DType::kF64, {2, x.shape[x.shape.rank() - 1]}}};
}

ShardingRule sums_shard(const TypeArgs& args) {
  return parse_rule("*c->.c", args.in, args.out, {.zeros_add_nothing = "*"});
}

Cost sums_cost(const TypeArgs& args) {
  return {.flops = 3.0 * static_cast<double>(args.in[0].elements()), .bytes = tensor_bytes(args)};
}

void sums_kernel(const KernelArgs& args) {
  const auto sums = args.out[0].as<double>();
  const size_t channels = sums.size() / 2;
  std::fill(sums.begin(), sums.end(), 0.0);
  with_floating("channel_sums", args.in[0].type.dtype, [&](auto zero) {
    const auto x = args.in[0].as<decltype(zero)>();
    for (size_t i = 0; i < x.size(); ++i) {
      sums[i % channels] += load(x[i]);
      sums[channels + i % channels] += load(x[i]) * load(x[i]);
    }
  });
}

std::vector<TensorType> infer(const InferArgs& args) {
  const TensorType& sums = args.in[0];
  const TensorType& running = args.in[1];
  const auto& attrs = args.attrs.as<BatchStatisticsAttrs>();
  require(sums.dtype == DType::kF64 && sums.shape.rank() == 2 && sums.shape[0] == 2,
          "batch_statistics: the sums are {}; those of c channels are f64[2,c]", said(sums));
  require((running.dtype == DType::kF32 || running.dtype == DType::kF64) && running.shape == Shape{sums.shape[1]} &&
              args.in[2] == running,
          "batch_statistics: running mean and variance must both be f32[{}] (mean {}, variance {})", sums.shape[1],
          said(running), said(args.in[2]));
  require(attrs.count >= 1 && attrs.momentum >= 0 && attrs.momentum <= 1,
          "batch_statistics: count is {} and momentum {}; count must be 1 or more, momentum from 0 to 1", attrs.count,
          attrs.momentum);
  return {running, running, running, running};
}

ShardingRule shard(const TypeArgs& args) {
  return parse_rule(".c,c,c->c,c,c,c", args.in, args.out);
}

Cost cost(const TypeArgs& args) {
  return {.flops = 10.0 * static_cast<double>(args.in[1].elements()), .bytes = tensor_bytes(args)};
}

void kernel(const KernelArgs& args) {
  const auto& attrs = args.attrs.as<BatchStatisticsAttrs>();
  const auto count = static_cast<double>(attrs.count);
  const double unbiased = count / std::max(1.0, count - 1);
  const auto sums = args.in[0].as<double>();
  const size_t channels = sums.size() / 2;
  with_floating("batch_statistics", args.in[1].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (size_t c = 0; c < channels; ++c) {
      const double mean = sums[c] / count;
      const double var = std::max(0.0, sums[channels + c] / count - mean * mean);
      const double old_mean = load(args.in[1].as<T>()[c]);
      const double old_var = load(args.in[2].as<T>()[c]);
      args.out[0].as<T>()[c] = store<T>(mean);
      args.out[1].as<T>()[c] = store<T>(var);
      args.out[2].as<T>()[c] = store<T>(old_mean + attrs.momentum * (mean - old_mean));
      args.out[3].as<T>()[c] = store<T>(old_var + attrs.momentum * (unbiased * var - old_var));
    }
  });
}

std::vector<Example> sums_examples() {
  return {{.in = {f32({2, 6, 3, 4})}}, {.in = {f32({12, 6})}}};
}

// Sums of squares that no mean contradicts.
std::vector<Example> examples() {
  return {{.in = {{DType::kF64, {2, 6}}, f32({6}), f32({6})},
           .attrs = Attrs::of(BatchStatisticsAttrs{.count = 10, .momentum = 0.2}),
           .fill = {uniform(1, 2), {}, {}}},
          {.in = {{DType::kF64, {2, 4}}, f32({4}), f32({4})},
           .attrs = Attrs::of(BatchStatisticsAttrs{}),
           .fill = {uniform(-0.5, 0.5), {}, {}}}};
}

}  // namespace batch_statistics_op

namespace ops {
extern const OpDef channel_sums{
    {"channel_sums", &Attrs::parse<NoAttrs>},
    {
        .doc = "s[0,c] = sum_* x[*,c], s[1,c] = sum_* x[*,c]^2, in f64",
        .inputs = "x",
        .infer = batch_statistics_op::sums_infer,
        .grad = Facet<GradFn>::none(batch_statistics_op::kNoGradient),
        .shard = batch_statistics_op::sums_shard,
        .cost = batch_statistics_op::sums_cost,
        .kernel = batch_statistics_op::sums_kernel,
        .examples = batch_statistics_op::sums_examples,
    },
};
extern const OpDef batch_statistics{
    {"batch_statistics", &Attrs::parse<BatchStatisticsAttrs>},
    {
        .doc = "mean[c] = s[0,c]/n, var[c] = s[1,c]/n - mean[c]^2, and the running statistics after them",
        .inputs = "sums, running_mean, running_var",
        .infer = batch_statistics_op::infer,
        .grad = Facet<GradFn>::none(batch_statistics_op::kNoGradient),
        .shard = batch_statistics_op::shard,
        .cost = batch_statistics_op::cost,
        .kernel = batch_statistics_op::kernel,
        .may_overwrite = {{2, 1}, {3, 2}},
        .examples = batch_statistics_op::examples,
        .in_part = detail::in_part_of_batch<BatchStatisticsAttrs>,
    },
};
}  // namespace ops

Tensor channel_sums(const Tensor& x) {
  return apply1(ops::channel_sums, {x});
}

BatchStatistics batch_statistics(const Tensor& sums, const Tensor& running_mean, const Tensor& running_var,
                                 int64_t count, double momentum) {
  const std::vector<Tensor> out = apply(ops::batch_statistics, {sums, running_mean, running_var},
                                        Attrs::of(BatchStatisticsAttrs{.count = count, .momentum = momentum}));
  return {out[0], out[1], out[2], out[3]};
}

}  // namespace trireme
