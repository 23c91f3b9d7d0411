// What layer_norm and rms_norm share: lines along the last dimension of x, and what is kept of each.
#pragma once

#include "trireme/base/said.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"

namespace trireme {

// Of gamma, beta and their gradients.
inline TensorType line_type(const TensorType& x) {
  return {statistic_type(x.dtype), {x.shape[x.shape.rank() - 1]}};
}
// Of a mean or a deviation of each line.
inline TensorType statistic_of_lines(const TensorType& x) {
  return {statistic_type(x.dtype), leading(x.shape)};
}
// A statistic repeated along the lines of x.
inline Tensor along_lines(const Tensor& s, const Tensor& x) {
  return broadcast_to(cast(unsqueeze(s, -1), x.dtype()), x.shape());
}

inline void check_norm(std::string_view op, const TensorType& x, double eps) {
  require(is_floating(x.dtype) && x.shape.rank() >= 1, "{}: x must be floating and have 1 dimension or more (x {})", op,
          said(x));
  require(eps > 0, "{}: eps is {}; it must be above 0", op, eps);
}

// The gradient of x by way of rstd = (.. + eps)^-1/2, for `centered` = x, less its mean where that is taken off first:
// drstd/dx = -rstd^3 centered / D.
inline Tensor through_rstd(const Tensor& drstd, const Tensor& rstd, const Tensor& centered) {
  const Tensor factor = scale(mul(drstd, pow_scalar(rstd, 3)), -1 / static_cast<double>(centered.size(-1)));
  return mul(along_lines(factor, centered), centered);
}

}  // namespace trireme
