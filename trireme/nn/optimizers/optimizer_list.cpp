// Every optimizer. A new one is a line in each of the two lists here, and its file.
#include "trireme/nn/optimizer_spec.h"

namespace trireme::nn {

// Each stands in the file of its optimizer.
std::unique_ptr<OptimizerSpec> sgd_spec();
std::unique_ptr<OptimizerSpec> adam_spec();
std::unique_ptr<OptimizerSpec> adamw_spec();
std::unique_ptr<OptimizerSpec> lazy_adam_spec();
std::unique_ptr<OptimizerSpec> lamb_spec();

namespace {

constexpr std::unique_ptr<OptimizerSpec> (*kOptimizers[])() = {sgd_spec, adam_spec, adamw_spec, lazy_adam_spec,
                                                               lamb_spec};

}  // namespace

std::vector<std::string> optimizer_kinds() {
  std::vector<std::string> out;
  for (const auto make : kOptimizers) out.emplace_back(make()->kind());
  return out;
}

std::unique_ptr<OptimizerSpec> optimizer_spec(std::string_view kind) {
  for (const auto make : kOptimizers) {
    if (std::unique_ptr<OptimizerSpec> spec = make(); spec->kind() == kind) return spec;
  }
  fail_not_one_of("train.optimizer", std::string(kind), optimizer_kinds());
}

}  // namespace trireme::nn
