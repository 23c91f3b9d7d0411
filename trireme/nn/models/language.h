// What the specs of language models share: their fields, the keys and cuts of mixtures of experts, and the cuts of
// attention whose positions or heads ranks share.
#pragma once

#include <string>
#include <vector>

#include "trireme/nn/model_spec.h"

namespace trireme::nn {

// Tokens and, for each, the next one; `vocabulary` many. As many as the data have.
std::vector<FieldNeed> needs_of_text(int64_t vocabulary);
// The positions of the first field.
int64_t context_of(std::span<const FieldSpec> fields);

// A KeyCheck of a capacity factor: above 0, infinity included.
void check_above_0(const std::string& name, const KeyTarget& target);

// The keys of a mixture in a model's configuration.
template <class Config>
std::vector<Key> mixture_keys(Config& c) {
  return {{"experts", &c.experts, "experts in each block's MLP; 0: one plain MLP", check_size_or_0},
          {"top_k", &c.top_k, "experts that each token goes to", check_count},
          {"capacity_factor", &c.capacity_factor,
           "how many tokens an expert has room for, as a multiple of an even share; inf: all tokens", check_above_0},
          {"aux_loss_factor", &c.aux_loss_factor,
           "weight of the auxiliary loss that keeps the experts evenly used; it is trained, but not part of the loss "
           "that is reported; 0: none",
           check_not_negative},
          {"expert_groups", &c.expert_groups,
           "equal parts of the batch, each with room of its own at every expert; ranks that share them out exchange "
           "tokens by all-to-all",
           check_size}};
}
void check_mixture(int64_t experts, int64_t top_k);
std::vector<KeyWithoutEffect> without_mixture(int64_t experts);
void check_heads_divide(int64_t width, int64_t heads);

// Cuts of q, k and v and of the result.
std::string attention_cuts(const CutRequest& request);
// Of the two products of attention with a bias (nn/biased_attention.h): batch and heads.
inline constexpr const char* kCutsOfScores = "[dp*ep, tp, -, -], [dp*ep, tp, -, -]";
// Of blocks whose positions ranks do not share: products that read the residual stream are cut by columns, those that
// write to it by rows. Weights are [out, in]; the scopes stand after `block`.
std::vector<Cut> columns_and_rows(const std::string& block, const std::vector<std::string>& by_columns,
                                  const std::vector<std::string>& by_rows);
// The axes of positions of the residual stream.
std::string residual_of(const CutRequest& request);
// Each rank of ep computes its own experts, and tp cuts each expert's weights. Groups of tokens go from the ranks that
// have them to those of the experts and back; one group for all is summed and gathered.
std::vector<Cut> mixture_cuts(const std::string& scope, int64_t expert_groups, bool gated);

std::string describe_blocks(std::string_view kind, int64_t layers, int64_t width, int64_t heads, int64_t experts);

}  // namespace trireme::nn
