// LAMB (You et al., 2020): Adam's direction with decoupled weight decay, scaled for each parameter by the ratio of the
// norms of the parameter and of the direction.
#include "trireme/ops/update/lamb.h"
#include "trireme/nn/optimizer.h"

namespace trireme {
namespace nn {
namespace {

class LambSpec final : public OptimizerSpecOf<LambSpec, Lamb> {
 public:
  using OptimizerSpecOf::OptimizerSpecOf;
  std::string_view kind() const override { return "lamb"; }
  std::string_view title() const override { return "LAMB"; }
  std::vector<Key> keys() override {
    return {
        {"beta1", &o_.beta1, "share of the gradients' running mean that a step keeps", check_share, "--beta1"},
        {"beta2", &o_.beta2, "share of the running mean of their squares that a step keeps", check_share, "--beta2"},
        {"eps", &o_.eps, "added to the root of that mean before a step is divided by it", check_not_negative},
        {"weight_decay", &o_.weight_decay, "share of a parameter by which a step shrinks it, times the rate",
         check_not_negative, "--weight-decay"}};
  }
  void update(UpdateBuilder& build) const override {
    const UpdateOperands& in = build.in;
    const Tensor m = build.state("m");
    const Tensor v = build.state("v");
    const AdamUpdate out =
        lamb_update({in.param, in.grad, m, v, in.lr, in.step, in.scale},
                    {o_.beta1, o_.beta2, o_.eps, o_.weight_decay, true}, {in.sum_of_pieces, in.exact_norms});
    build.replace(in.param, out.param);
    build.replace(m, out.m);
    build.replace(v, out.v);
  }
};

}  // namespace

std::unique_ptr<OptimizerSpec> lamb_spec() {
  return spec_of(Lamb{});
}

}  // namespace nn

std::unique_ptr<nn::OptimizerSpec> spec_of(const Lamb& numbers) {
  return std::make_unique<nn::LambSpec>(numbers);
}

}  // namespace trireme
