// Adam (Kingma and Ba, 2015) and AdamW (Loshchilov and Hutter, 2019) as torch.optim has them: m' = beta1 m + (1 -
// beta1) g and v' = beta2 v + (1 - beta2) g^2, and p' = p - lr m^ / (sqrt(v^) + eps), where m^ and v^ are m' and v'
// without their bias towards zero. Weight decay is part of g in Adam, and shrinks p by itself in AdamW. LazyAdam is
// Adam but for tables that are looked up and nothing else: of these, rows that the batch has not looked up stay as they
// are, with m and v (TensorFlow Addons' and MindSpore's LazyAdam).
#include "trireme/nn/optimizer.h"
#include "trireme/ops/ops.h"

namespace trireme {
namespace nn {
namespace {

template <class Self, class Numbers>
class AdamSpecOf : public OptimizerSpecOf<Self, Numbers> {
 public:
  using OptimizerSpecOf<Self, Numbers>::OptimizerSpecOf;

 protected:
  std::vector<Key> keys_with(std::string_view doc_of_decay) {
    auto& o = this->o_;
    return {{"beta1", &o.beta1, "share of the gradients' running mean that a step keeps", check_share, "--beta1"},
            {"beta2", &o.beta2, "share of the running mean of their squares that a step keeps", check_share, "--beta2"},
            {"eps", &o.eps, "added to the root of that mean before a step is divided by it", check_not_negative},
            {"weight_decay", &o.weight_decay, doc_of_decay, check_not_negative, "--weight-decay"}};
  }
  void update_adam(UpdateBuilder& build, bool decoupled, const Tensor& lookups = {}) const {
    const UpdateOperands& in = build.in;
    const auto& o = this->o_;
    const Tensor m = build.state("m");
    const Tensor v = build.state("v");
    const AdamOperands operands{in.param, in.grad, m, v, in.lr, in.step, in.scale};
    const AdamOptions options{o.beta1, o.beta2, o.eps, o.weight_decay, decoupled};
    const AdamUpdate out = lookups ? lazy_adam_update(operands, lookups, options) : adam_update(operands, options);
    build.replace(in.param, out.param);
    build.replace(m, out.m);
    build.replace(v, out.v);
  }
};

class AdamSpec final : public AdamSpecOf<AdamSpec, Adam> {
 public:
  using AdamSpecOf::AdamSpecOf;
  std::string_view kind() const override { return "adam"; }
  std::string_view title() const override { return "Adam"; }
  std::vector<Key> keys() override { return keys_with("a step adds to the gradient this times the parameter"); }
  void update(UpdateBuilder& build) const override { update_adam(build, false); }
};

class AdamWSpec final : public AdamSpecOf<AdamWSpec, AdamW> {
 public:
  using AdamSpecOf::AdamSpecOf;
  std::string_view kind() const override { return "adamw"; }
  std::string_view title() const override { return "AdamW"; }
  std::vector<Key> keys() override {
    return keys_with("share of a parameter by which a step shrinks it, times the rate");
  }
  void update(UpdateBuilder& build) const override { update_adam(build, true); }
};

class LazyAdamSpec final : public AdamSpecOf<LazyAdamSpec, LazyAdam> {
 public:
  using AdamSpecOf::AdamSpecOf;
  std::string_view kind() const override { return "lazy_adam"; }
  std::string_view title() const override { return "LazyAdam"; }
  std::vector<Key> keys() override { return keys_with("a step adds to the gradient this times the parameter"); }
  void update(UpdateBuilder& build) const override { update_adam(build, false, build.lookups()); }
};

}  // namespace

std::unique_ptr<OptimizerSpec> adam_spec() {
  return spec_of(Adam{.weight_decay = 0.01});
}
std::unique_ptr<OptimizerSpec> adamw_spec() {
  return spec_of(AdamW{});
}
std::unique_ptr<OptimizerSpec> lazy_adam_spec() {
  return spec_of(LazyAdam{});
}

}  // namespace nn

std::unique_ptr<nn::OptimizerSpec> spec_of(const Adam& numbers) {
  return std::make_unique<nn::AdamSpec>(numbers);
}
std::unique_ptr<nn::OptimizerSpec> spec_of(const AdamW& numbers) {
  return std::make_unique<nn::AdamWSpec>(numbers);
}
std::unique_ptr<nn::OptimizerSpec> spec_of(const LazyAdam& numbers) {
  return std::make_unique<nn::LazyAdamSpec>(numbers);
}

}  // namespace trireme
