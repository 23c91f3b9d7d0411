// Attention whose scores have a bias: relative positions, a mask, both.
#pragma once

#include "trireme/ir/tensor.h"

namespace trireme::nn {

// softmax(scale q k^T + bias) v by head, in plain ops: q is [b,s,h,d], k and v are [b,t,h,d], and the bias, of f32,
// broadcasts to [b,h,s,t]. The result is [b,s,h,d] of q's type. Batch and heads may be cut. Scores and probabilities
// are b h s t numbers that training keeps; attention without a bias (ops/ops.h) keeps none of them.
// Throws kInvalidArgument for shapes that do not fit.
Tensor biased_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias, double scale);

// A bias with which a key is not seen: its probability is 0 beside any score.
inline constexpr double kUnseenScore = -1e9;

// f32[s,t]: 0 where query i may see key j, which is up to i, and kUnseenScore elsewhere.
Tensor causal_bias(Graph& graph, int64_t queries, int64_t keys);

// How far apart a query and a key are, in classes (Raffel et al., 2020, section 2.1): one for each near distance, then
// classes that grow by the logarithm up to `most` positions, and one for all beyond.
struct DistanceClasses {
  int64_t classes = 32;
  int64_t most = 128;
  bool both_ways = true;  // half of them for keys after the query; otherwise such keys count as at distance 0
};
// i32[s,t], from 0 to below `classes`.
Tensor distance_classes(Graph& graph, int64_t queries, int64_t keys, const DistanceClasses& options);

}  // namespace trireme::nn
