#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/ops/run_op_for_tests.h"

namespace trireme::attention_test {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kTol = 1e-6;

HostTensor heads(const Shape& shape, const std::vector<float>& values) {
  return HostTensor::of<float>(shape, values);
}

TEST(Attention, MixesValuesByTheSoftmaxOfScores) {
  const auto out =
      run_op("attention",
             {heads({1, 1, 1, 2}, {1, 2}), heads({1, 2, 1, 2}, {1, 0, 0, 1}), heads({1, 2, 1, 2}, {10, 20, 30, 40})},
             "{scale=1}");

  const double p = std::exp(1.0) / (std::exp(1.0) + std::exp(2.0));
  EXPECT_THAT(values(out[0]),
              ElementsAre(DoubleNear(10 * p + 30 * (1 - p), 1e-5), DoubleNear(20 * p + 40 * (1 - p), 1e-5)));
  EXPECT_THAT(values(out[1]), ElementsAre(DoubleNear(std::log(std::exp(1.0) + std::exp(2.0)), kTol)));
}

TEST(Attention, ScalesByTheRootOfTheHeadSizeUnlessTold) {
  const auto out = run_op("attention", {heads({1, 1, 1, 4}, {1, 1, 1, 1}), heads({1, 1, 1, 4}, {1, 2, 3, 4}),
                                        heads({1, 1, 1, 4}, {0, 0, 0, 0})});

  EXPECT_THAT(values(out[1]), ElementsAre(DoubleNear(10 / 2.0, kTol)));
}

TEST(Attention, CausalQueriesSeeTheKeysUpToTheirOwn) {
  // Two queries, three keys: the first sees two keys, the second all; equal scores average the
  // values.
  const auto out = run_op(
      "attention", {heads({1, 2, 1, 1}, {0, 0}), heads({1, 3, 1, 1}, {1, 2, 3}), heads({1, 3, 1, 1}, {3, 5, 10})},
      "{causal=true}");

  EXPECT_THAT(values(out[0]), ElementsAre(DoubleNear(4, kTol), DoubleNear(6, kTol)));
}

TEST(Attention, EachKeyHeadServesItsGroupOfQueryHeads) {
  const auto out = run_op(
      "attention", {heads({1, 1, 4, 1}, {1, 1, 1, 1}), heads({1, 1, 2, 1}, {1, 1}), heads({1, 1, 2, 1}, {5, 7})});

  EXPECT_THAT(values(out[0]), ElementsAre(5, 5, 7, 7));
}

TEST(Attention, RefusesHeadsThatDoNotGroup) {
  const std::string text = error_text([] {
    run_op("attention", {heads({1, 1, 3, 1}, {1, 1, 1}), heads({1, 1, 2, 1}, {1, 1}), heads({1, 1, 2, 1}, {1, 1})});
  });

  EXPECT_THAT(text, HasSubstr("attention: 3 query heads are not a multiple of 2 key heads"));
}

TEST(Attention, RefusesCausalQueriesBeyondTheKeys) {
  const std::string text = error_text([] {
    run_op("attention", {heads({1, 2, 1, 1}, {1, 1}), heads({1, 1, 1, 1}, {1}), heads({1, 1, 1, 1}, {1})},
           "{causal=true}");
  });

  EXPECT_THAT(text, HasSubstr("causal attention of 2 queries to 1 keys"));
}

}  // namespace
}  // namespace trireme::attention_test
