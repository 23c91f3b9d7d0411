#include "trireme/nn/models/language.h"

#include "trireme/base/counted.h"
#include "trireme/base/error.h"

namespace trireme::nn {

std::vector<FieldNeed> needs_of_text(int64_t vocabulary) {
  const FieldNeed tokens{"tokens", DType::kI32, {0}, vocabulary, false, 0};
  FieldNeed targets = tokens;
  targets.name = "targets";
  return {tokens, targets};
}

int64_t context_of(std::span<const FieldSpec> fields) {
  return fields[0].sample.shape[0];
}

void check_above_0(const std::string& name, const KeyTarget& target) {
  const double value = *std::get<double*>(target);
  require(value > 0, "{} = {}; it must be above 0", name, value);
}

void check_mixture(int64_t experts, int64_t top_k) {
  require(experts == 0 || top_k <= experts,
          "configuration: model.top_k = {} of model.experts = {}; use more experts, or a smaller top_k", top_k,
          experts);
}

std::vector<KeyWithoutEffect> without_mixture(int64_t experts) {
  if (experts > 0) return {};
  const std::string reason = "model.experts = 0";
  return {{"top_k", reason}, {"capacity_factor", reason}, {"aux_loss_factor", reason}, {"expert_groups", reason}};
}

void check_heads_divide(int64_t width, int64_t heads) {
  require(width % heads == 0,
          "configuration: model.width = {} is not divisible by model.heads = {}; use a width that is a multiple of the "
          "heads",
          width, heads);
}

std::string attention_cuts(const CutRequest& request) {
  const std::string operand = fmt::format("[dp*ep, {}, {}, -]", request.ring, request.heads);
  return fmt::format("{0}, {0}, {0} -> [dp*ep, {1}, tp, -], [dp*ep, {2}, {3}]", operand, request.between, request.heads,
                     request.ring);
}

std::vector<Cut> columns_and_rows(const std::string& block, const std::vector<std::string>& by_columns,
                                  const std::vector<std::string>& by_rows) {
  std::vector<Cut> out;
  for (const std::string& name : by_columns) out.push_back({block + name, "[dp*ep, -, -], [tp, -]"});
  for (const std::string& name : by_rows) out.push_back({block + name, "[dp*ep, -, tp], [-, tp] -> [dp*ep, -, -]"});
  return out;
}

std::string residual_of(const CutRequest& request) {
  return request.sequence ? request.between + "*tp" : request.between;
}

std::vector<Cut> mixture_cuts(const std::string& scope, int64_t expert_groups, bool gated) {
  const bool grouped = expert_groups > 1;
  const char* places = grouped ? "dp" : "-";
  std::vector<Cut> rules;
  for (const char* name : {"gate", "up"}) {
    if (name == std::string_view("gate") && !gated) continue;
    rules.push_back({fmt::format("{}.{}/matmul", scope, name), fmt::format("[ep, {}, -], [ep, -, tp]", places)});
  }
  rules.push_back({scope + ".down/matmul", fmt::format("[ep, {0}, tp], [ep, tp, -] -> [ep, {0}, -]", places)});
  if (grouped) rules.push_back({scope + "/gather_rows", "[dp*ep, -, -], [dp*ep, -]"});
  return rules;
}

std::string describe_blocks(std::string_view kind, int64_t layers, int64_t width, int64_t heads, int64_t experts) {
  return fmt::format("{}, {} layer{} of width {}, {} head{}{}", kind, layers, layers == 1 ? "" : "s", width, heads,
                     heads == 1 ? "" : "s", experts > 0 ? ", " + counted(experts, "expert") : "");
}

}  // namespace trireme::nn
