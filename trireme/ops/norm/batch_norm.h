// What batch_norm and its gradients share: the operands' types, and one channel's numbers.
#pragma once

#include <cmath>

#include "trireme/ops/reference.h"

namespace trireme::detail {

// The type of a channel's numbers for x[*,c].
inline TensorType channel_type(const TensorType& x) {
  return {statistic_type(x.dtype), {x.shape[x.shape.rank() - 1]}};
}

// n = (x - mean) rstd and y = gamma n + beta.
struct ChannelNorm {
  double gamma, beta, mean, rstd;
  double normal(double x) const { return (x - mean) * rstd; }
  double value(double x) const { return gamma * normal(x) + beta; }
};

// Positions of one part of the batch.
template <class A>
Attrs in_part_of_batch(const Attrs& attrs, int64_t parts) {
  A own = attrs.as<A>();
  require(own.count % parts == 0, "{} positions of a batch cannot be divided into {} equal parts", own.count, parts);
  own.count /= parts;
  return Attrs::of(own);
}

// From the operands gamma, beta, mean and var, which begin at `first`.
template <class S>
ChannelNorm channel_norm(const KernelArgs& args, size_t first, size_t channel) {
  const auto at = [&](size_t i) { return load(args.in[first + i].as<S>()[channel]); };
  return {at(0), at(1), at(2), 1 / std::sqrt(at(3) + args.attrs.as<BatchNormAttrs>().eps)};
}

}  // namespace trireme::detail
