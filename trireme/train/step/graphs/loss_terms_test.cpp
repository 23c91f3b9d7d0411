#include "trireme/train/step/graphs/loss_terms.h"

#include <gtest/gtest.h>

#include "trireme/nn/layers.h"
#include "trireme/ops/ops.h"
#include "trireme/train/step/graphs/step.h"

namespace trireme::loss_terms_test {
namespace {

const std::vector<BatchField> kBatch{{"x", {DType::kF32, {4, 3}}}, {"t", {DType::kF32, {4, 2}}}};

// The op that makes the loss no mean of parts; "" when it is one.
std::string found_in(const LossFn& loss) {
  nn::Linear linear(3, 2);
  const Graph graph = evaluation([&](const Tensor& x) { return linear(x); }, loss, kBatch);
  const std::optional<NodeId> node = not_a_mean_of_parts(graph);
  return std::string(node ? graph.nodes()[static_cast<size_t>(*node)].op->name : "");
}

Tensor positive(const Tensor& t) {
  return greater(t, abs(t) - 1e-6);
}
Tensor known(const Tensor& t) {
  return cast(positive(t), DType::kF32);
}

TEST(LossTerms, means_and_sums_over_the_batch_are_weighted_by_samples) {
  EXPECT_EQ(found_in([](const Tensor& y, const Tensor& t) { return square(sub(y, t)); }), "");
  EXPECT_EQ(found_in(mse), "");
  EXPECT_EQ(found_in([](const Tensor& y, const Tensor& t) { return reduce_sum(mul(y, t)); }), "");
  EXPECT_EQ(found_in([](const Tensor& y, const Tensor& t) { return add(scale(mse(y, t), 0.5), mean(huber(y, t))); }),
            "");
  EXPECT_EQ(found_in([](const Tensor& y, const Tensor& t) {
              return CountedLoss(mul(square(sub(y, t)), known(t)), positive(t));
            }),
            "");
}

TEST(LossTerms, other_scalars_of_the_batch_are_found) {
  EXPECT_EQ(found_in([](const Tensor& y, const Tensor& t) {
              return div(reduce_sum(mul(square(sub(y, t)), known(t))), reduce_sum(known(t)));
            }),
            "div");
  EXPECT_EQ(found_in([](const Tensor& y, const Tensor& t) { return sqrt(mse(y, t)); }), "sqrt");
  EXPECT_EQ(found_in([](const Tensor& y, const Tensor& t) { return scale(exp(mse(y, t)), 2); }), "exp");
  EXPECT_EQ(found_in([](const Tensor& y, const Tensor& t) { return reduce_max(square(sub(y, t))); }), "reduce_max");
}

}  // namespace
}  // namespace trireme::loss_terms_test
