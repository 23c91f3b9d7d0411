// Every kind of model. A new one is a line in each of the two lists here, and its file.
#include "trireme/base/error.h"
#include "trireme/nn/model_spec.h"
#include "trireme/ops/ops.h"

namespace trireme::nn {

// Each stands in the file of its model.
std::unique_ptr<ModelSpec> gpt_spec();
std::unique_ptr<ModelSpec> llama_spec();
std::unique_ptr<ModelSpec> deepseek_spec();
std::unique_ptr<ModelSpec> bert_spec();
std::unique_ptr<ModelSpec> bert_classifier_spec();
std::unique_ptr<ModelSpec> t5_spec();
std::unique_ptr<ModelSpec> mlp_spec();
std::unique_ptr<ModelSpec> lenet_spec();
std::unique_ptr<ModelSpec> resnet_spec();
std::unique_ptr<ModelSpec> vit_spec();
std::unique_ptr<ModelSpec> wide_deep_spec();

namespace {

constexpr std::unique_ptr<ModelSpec> (*kModels[])() = {
    gpt_spec, llama_spec, deepseek_spec, bert_spec, bert_classifier_spec, t5_spec,
    mlp_spec, lenet_spec, resnet_spec,   vit_spec,  wide_deep_spec};

}  // namespace

std::vector<std::string> model_kinds() {
  std::vector<std::string> out;
  for (const auto make : kModels) out.emplace_back(make()->kind());
  return out;
}

std::unique_ptr<ModelSpec> model_spec(std::string_view kind) {
  for (const auto make : kModels) {
    if (std::unique_ptr<ModelSpec> spec = make(); spec->kind() == kind) return spec;
  }
  fail_not_one_of("model.kind", std::string(kind), model_kinds());
}

CountedLoss ModelSpec::loss(const Fields& predicted, const Fields& batch, const LossOptions& options) const {
  const Tensor& logits = predicted[kPrediction];
  const Tensor& target = batch.back().second;
  if (options.in_parts) return cross_entropy_in_parts(logits, target);
  return cross_entropy(logits, target, MeanLossOptions{}.ignore_index, options.label_smoothing);
}

void check_layers(const std::string& name, const KeyTarget& target) {
  check_count(name, target);
  const auto check_one = [&](int64_t value, const char* what) {
    require(value <= kMostLayers, "{} = {}; {} must be at most {}", name, value, what, +kMostLayers);
  };
  if (auto* const* one = std::get_if<int64_t*>(&target)) return check_one(**one, "it");
  for (const int64_t value : *std::get<std::vector<int64_t>*>(target)) check_one(value, "each");
}

}  // namespace trireme::nn
