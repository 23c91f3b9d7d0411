// Adam's formula, which adam_update and lazy_adam_update share, as reference kernels compute it.
//   g = scale grad; m' = b1 m + (1-b1) g; v' = b2 v + (1-b2) g^2;
//   p' = p - lr / (1-b1^t) * m' / (sqrt(v' / (1-b2^t)) + eps)
//
// With `decoupled` (AdamW) p is first multiplied by 1 - lr weight_decay; without (Adam) weight_decay p is added to g.
// PyTorch's torch.optim.Adam and AdamW.
#pragma once

#include <cmath>
#include <string_view>

#include "trireme/ops/update/update.h"

namespace trireme {

class AdamFormula {
 public:
  // Of an op's operands, which begin with param, grad, m, v, lr, step, scale.
  AdamFormula(std::string_view op, const KernelArgs& args)
      : attrs_(args.attrs.as<AdamAttrs>()),
        lr_(scalar(op, args.in[4])),
        scale_(scalar(op, args.in[6])),
        correction1_(1 - std::pow(attrs_.beta1, step_of(args))),
        correction2_(1 - std::pow(attrs_.beta2, step_of(args))),
        decay_(attrs_.decoupled ? 1 - lr_ * attrs_.weight_decay : 1),
        l2_(attrs_.decoupled ? 0 : attrs_.weight_decay) {}

  struct Next {
    double param, m, v;
  };
  Next next(double param, double grad, double m, double v) const {
    const double g = scale_ * grad + l2_ * param;
    const double m1 = attrs_.beta1 * m + (1 - attrs_.beta1) * g;
    const double v1 = attrs_.beta2 * v + (1 - attrs_.beta2) * g * g;
    const double direction = m1 / correction1_ / (std::sqrt(v1 / correction2_) + attrs_.eps);
    return {decay_ * param - lr_ * direction, m1, v1};
  }

 private:
  static double step_of(const KernelArgs& args) { return static_cast<double>(args.in[5].as<int64_t>()[0]); }

  AdamAttrs attrs_;
  double lr_, scale_, correction1_, correction2_, decay_, l2_;
};

}  // namespace trireme
