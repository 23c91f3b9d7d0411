// Stochastic gradient descent as torch.optim.SGD has it: without momentum no state, with it a velocity
// u' = momentum u + g, p' = p - lr u', and with Nesterov's p' = p - lr (g + momentum u'), where g is the scaled
// gradient plus weight_decay p.
#include "trireme/base/error.h"
#include "trireme/nn/optimizer.h"
#include "trireme/ops/ops.h"

namespace trireme {
namespace nn {
namespace {

class SgdSpec final : public OptimizerSpecOf<SgdSpec, Sgd> {
 public:
  using OptimizerSpecOf::OptimizerSpecOf;
  std::string_view kind() const override { return "sgd"; }
  std::string_view title() const override { return "SGD"; }
  std::vector<Key> keys() override {
    return {
        {"momentum", &o_.momentum, "share of the velocity, a running sum of gradients, that stays from step to step",
         check_share, "--momentum"},
        {"nesterov", &o_.nesterov, "true: Nesterov's momentum, which looks one step ahead along the velocity"},
        {"weight_decay", &o_.weight_decay, "a step adds to the gradient this times the parameter", check_not_negative,
         "--weight-decay"}};
  }
  void check(std::string_view where) const override {
    require(!o_.nesterov || o_.momentum > 0, "{}nesterov = true needs a momentum above 0; it is 0", where);
  }
  void update(UpdateBuilder& build) const override {
    const UpdateOperands& in = build.in;
    if (o_.momentum == 0) {
      build.replace(in.param, sgd_plain_update(in.param, in.grad, in.lr, in.scale, o_.weight_decay));
      return;
    }
    const Tensor velocity = build.state("velocity");
    const SgdUpdate out =
        sgd_update({in.param, in.grad, velocity, in.lr, in.step, in.scale},
                   {.momentum = o_.momentum, .weight_decay = o_.weight_decay, .nesterov = o_.nesterov});
    build.replace(in.param, out.param);
    build.replace(velocity, out.velocity);
  }
};

}  // namespace

std::unique_ptr<OptimizerSpec> sgd_spec() {
  return spec_of(Sgd{.lr = 1e-3, .momentum = 0.9, .weight_decay = 0.01});
}

}  // namespace nn

std::unique_ptr<nn::OptimizerSpec> spec_of(const Sgd& numbers) {
  return std::make_unique<nn::SgdSpec>(numbers);
}

}  // namespace trireme
