#include "trireme/train/step/graphs/step_options.h"

#include "trireme/train/step/graphs/precision.h"

namespace trireme {
namespace {

constexpr NameOf<Numerics> kNumerics[] = {{"fast", Numerics::kFast}, {"invariant", Numerics::kInvariant}};

ParameterRule read_parameter_rule(const std::string& text) {
  return text;
}
std::string print_parameter_rule(const ParameterRule& rule) {
  return to_string(rule);
}

}  // namespace

std::vector<Key> keys_of(StepOptions& options) {
  return {{.name = "dtype",
           .target = one_of(&options.compute, kComputeTypes),
           .doc = "f32 or bf16: what layers compute in; parameters, their state and the loss are f32",
           .flag = "--dtype",
           .in_bench = true},
          {.name = "numerics",
           .target = one_of(&options.numerics, kNumerics),
           .doc = "fast, or invariant: the same bits however the job is cut over ranks and threads; what cannot keep "
                  "them is refused",
           .flag = "--numerics",
           .in_bench = true},
          {.name = "clip",
           .target = &options.clip_norm,
           .doc = "largest global norm of the gradients; 0: no clipping",
           .check = check_not_negative,
           .flag = "--clip",
           .in_bench = true},
          {.name = "groups",
           .target = as_texts(&options.groups, read_parameter_rule, print_parameter_rule),
           .doc = "parameter groups: rules \"name = what is asked\" for parameters whose names match, like [\"*.bias = "
                  "weight_decay 0\", \"head.* = lr_scale 10\", \"wte.* = frozen\"]: numbers of the optimizer, lr_scale "
                  "(a factor of the learning rate), frozen or trained; of several that match the last counts"},
          {.name = "seed",
           .target = &options.seed,
           .doc = "seed of the starting values, of dropout and of the order of samples",
           .flag = "--seed",
           .on_resume = OnResume::kFree}};
}

}  // namespace trireme
