// Losses made of other ops.
#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"

namespace trireme {

Tensor cross_entropy_mean(const Tensor& logits, const Tensor& labels, const MeanLossOptions& options) {
  const Tensor loss = cross_entropy(logits, labels, options.ignore_index, options.label_smoothing);
  if (!options.only_counted) return mean(loss);
  const Tensor ignored = full(labels.graph(), {labels.dtype(), {}}, static_cast<double>(options.ignore_index));
  const Tensor counted = cast(logical_not(equal(labels, ignored)), loss.dtype());
  return div(reduce_sum(loss), reduce_sum(counted));
}

Tensor mse(const Tensor& x, const Tensor& target) {
  return mean(square(sub(x, target)));
}

}  // namespace trireme
