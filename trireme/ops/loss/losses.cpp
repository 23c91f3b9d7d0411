// Losses made of other ops.
#include "trireme/ops/loss/counted_loss.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"

namespace trireme {

Tensor cross_entropy_mean(const Tensor& logits, const Tensor& labels, const MeanLossOptions& options) {
  return mean(cross_entropy(logits, labels, options.ignore_index, options.label_smoothing));
}

CountedLoss cross_entropy_counted(const Tensor& logits, const Tensor& labels, const MeanLossOptions& options) {
  const Tensor ignored = full(labels.graph(), {labels.dtype(), {}}, static_cast<double>(options.ignore_index));
  return {cross_entropy(logits, labels, options.ignore_index, options.label_smoothing),
          logical_not(equal(labels, ignored))};
}

Tensor mse(const Tensor& x, const Tensor& target) {
  return mean(square(sub(x, target)));
}

}  // namespace trireme
