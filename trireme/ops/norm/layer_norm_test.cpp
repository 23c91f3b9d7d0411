#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/ops/run_op_for_tests.h"

namespace trireme::layer_norm_test {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

constexpr double kTol = 1e-6;

HostTensor row(const std::vector<float>& values) {
  return HostTensor::of<float>({1, static_cast<int64_t>(values.size())}, values);
}

TEST(LayerNorm, CentresScalesAndShifts) {
  const auto out = run_op("layer_norm", {row({1, 2, 3, 6}), vec({1, 2, 1, 1}), vec({0, 0.5, 0, 0})}, "{eps=0.5}");

  const double rstd = 1 / std::sqrt((4 + 1 + 0 + 9) / 4.0 + 0.5);  // mean 3, variance 3.5
  EXPECT_THAT(values(out[0]), ElementsAre(DoubleNear(-2 * rstd, kTol), DoubleNear(-2 * rstd + 0.5, kTol),
                                          DoubleNear(0, kTol), DoubleNear(3 * rstd, kTol)));
  EXPECT_THAT(values(out[1]), ElementsAre(DoubleNear(3, kTol)));
  EXPECT_THAT(values(out[2]), ElementsAre(DoubleNear(rstd, kTol)));
}

TEST(LayerNorm, RefusesAGammaOfAnotherSize) {
  const std::string text = error_text([] { run_op("layer_norm", {row({1, 2}), vec({1}), vec({0, 0})}); });

  EXPECT_EQ(text,
            "layer_norm: gamma and beta must be f32[2], for the last dimension of x "
            "(x f32[1,2], gamma f32[1], beta f32[2])");
}

TEST(RmsNorm, ScalesByTheRootMeanSquare) {
  const auto out = run_op("rms_norm", {row({1, 2, 2, 4}), vec({1, 1, 3, 1})}, "{eps=0.75}");

  const double rstd = 1 / std::sqrt(25 / 4.0 + 0.75);
  EXPECT_THAT(values(out[0]), ElementsAre(DoubleNear(rstd, kTol), DoubleNear(2 * rstd, kTol),
                                          DoubleNear(6 * rstd, kTol), DoubleNear(4 * rstd, kTol)));
  EXPECT_THAT(values(out[1]), ElementsAre(DoubleNear(rstd, kTol)));
}

}  // namespace
}  // namespace trireme::layer_norm_test
