#include "trireme/nn/biased_attention.h"

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/ops/ops.h"

namespace trireme::nn {
namespace {

// Key's position less the query's, f32[s,t]: whole numbers.
Tensor offsets(Graph& graph, int64_t queries, int64_t keys) {
  const Tensor query = iota(graph, {DType::kF32, {queries, keys}}, 0);
  return sub(iota(graph, {DType::kF32, {queries, keys}}, 1), query);
}

// The distances from which on a distance is of the next class, beyond those that have a class of their own. In f32, as
// the released weights were trained.
std::vector<int64_t> class_borders(int64_t classes, int64_t most) {
  const int64_t near = classes / 2, far = classes - near;
  std::vector<int64_t> out;
  for (int64_t distance = near; std::ssize(out) < far - 1; ++distance) {
    const float share = std::log(static_cast<float>(distance) / static_cast<float>(near)) /
                        static_cast<float>(std::log(static_cast<double>(most) / static_cast<double>(near)));
    if (static_cast<int64_t>(share * static_cast<float>(far)) > std::ssize(out)) out.push_back(distance);
  }
  return out;
}

// 1 where the whole number is at least `from`, else 0.
Tensor at_least(const Tensor& x, int64_t from) {
  return clamp(add_scalar(x, 1 - static_cast<double>(from)), 0, 1);
}

}  // namespace

Tensor biased_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias, double scale) {
  require(q.rank() == 4 && k.shape() == v.shape() && k.rank() == 4 && q.size(0) == k.size(0) &&
              q.size(2) == k.size(2) && q.size(3) == k.size(3) && bias.dtype() == DType::kF32,
          "attention with a bias: q is {}, k {}, v {} and the bias {}; they must be [b,s,h,d], [b,t,h,d] and f32",
          to_string(q.type()), to_string(k.type()), to_string(v.type()), to_string(bias.type()));
  const auto by_head = [](const Tensor& x) { return swap_dims(x, 1, 2); };
  const Tensor scores = cast(matmul(by_head(trireme::scale(q, scale)), by_head(k), false, true), DType::kF32);
  const Tensor probabilities = cast(softmax(add(scores, bias)), v.dtype());
  return by_head(matmul(probabilities, by_head(v)));
}

Tensor causal_bias(Graph& graph, int64_t queries, int64_t keys) {
  return scale(at_least(offsets(graph, queries, keys), 1), kUnseenScore);
}

Tensor distance_classes(Graph& graph, int64_t queries, int64_t keys, const DistanceClasses& options) {
  const int64_t classes = options.both_ways ? options.classes / 2 : options.classes;
  require(classes >= 2 && options.most > classes / 2 && (!options.both_ways || options.classes % 2 == 0),
          "{} classes of distances up to {}: use {}, and a distance above half as many", options.classes, options.most,
          options.both_ways ? "an even number, 4 or more" : "2 or more");
  const Tensor offset = offsets(graph, queries, keys);
  const Tensor distance = options.both_ways ? abs(offset) : relu(neg(offset));
  Tensor out = clamp(distance, 0, static_cast<double>(classes / 2));
  for (const int64_t border : class_borders(classes, options.most)) out = add(out, at_least(distance, border));
  if (options.both_ways) out = add(out, scale(at_least(offset, 1), static_cast<double>(classes)));
  return cast(out, DType::kI32);
}

}  // namespace trireme::nn
