#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/ops/run_op_for_tests.h"

namespace trireme::updates_test {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kTol = 1e-6;

TEST(AdamUpdate, TwoDecoupledStepsFollowTheHandCalculation) {
  const std::string attrs = "{weight_decay=0.01, decoupled=true}";
  const auto one = run_op(
      "adam_update", {vec({1}), vec({0.5}), vec({0}), vec({0}), scalar_f32(0.1F), scalar_i64(1), scalar_f32(1)}, attrs);
  // m^ = g and v^ = g^2, so the step is lr sign(g) after the decay: 1 * (1 - 0.001) - 0.1.
  EXPECT_NEAR(values(one[0])[0], 0.899, kTol);
  EXPECT_NEAR(values(one[1])[0], 0.05, kTol);
  EXPECT_NEAR(values(one[2])[0], 0.00025, 1e-9);

  const auto two = run_op(
      "adam_update", {one[0], vec({-0.25}), one[1], one[2], scalar_f32(0.1F), scalar_i64(2), scalar_f32(1)}, attrs);
  // m = 0.9*0.05 - 0.1*0.25 = 0.02, over 0.19; v = 0.999*0.00025 + 0.001*0.0625 = 0.00031225, over
  // 0.001999.
  EXPECT_NEAR(values(two[0])[0], 0.899 * 0.999 - 0.1 * (0.02 / 0.19) / std::sqrt(0.00031225 / 0.001999), kTol);
}

TEST(AdamUpdate, CoupledDecayEntersTheGradientAndTheMoments) {
  const auto out =
      run_op("adam_update", {vec({2}), vec({0.5}), vec({0}), vec({0}), scalar_f32(0.1F), scalar_i64(1), scalar_f32(1)},
             "{weight_decay=0.25, decoupled=false}");

  EXPECT_NEAR(values(out[1])[0], 0.1 * (0.5 + 0.25 * 2), kTol);
  EXPECT_NEAR(values(out[0])[0], 1.9, kTol);
}

TEST(AdamUpdate, ScaleMultipliesTheGradientOnly) {
  const auto scaled = run_op("adam_update",
                             {vec({1, 2}), vec({4, -2}), vec({0.1F, 0.2F}), vec({0.1F, 0.2F}), scalar_f32(0.1F),
                              scalar_i64(3), scalar_f32(0.5F)},
                             "{}");
  const auto plain = run_op(
      "adam_update",
      {vec({1, 2}), vec({2, -1}), vec({0.1F, 0.2F}), vec({0.1F, 0.2F}), scalar_f32(0.1F), scalar_i64(3), scalar_f32(1)},
      "{}");

  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(values(scaled[i]), values(plain[i])) << "result " << i;
}

TEST(AdamUpdate, RefusesAMomentOfAnotherShape) {
  const std::string text = error_text([] {
    run_op("adam_update",
           {vec({1, 2}), vec({1, 2}), vec({0}), vec({0, 0}), scalar_f32(1), scalar_i64(1), scalar_f32(1)});
  });

  EXPECT_THAT(text, HasSubstr("adam_update: m is f32[1]; all tensors must be of one floating type "
                              "and shape, as param f32[2]"));
}

TEST(AdamUpdate, RefusesAStepThatIsNoInteger) {
  const std::string text = error_text([] {
    run_op("adam_update", {vec({1}), vec({1}), vec({0}), vec({0}), scalar_f32(1), scalar_f32(1), scalar_f32(1)});
  });

  EXPECT_EQ(text, "adam_update: step is f32[]; it must be i64[]");
}

TEST(SgdUpdate, FirstStepTakesTheGradientAsVelocityDespiteDampening) {
  const auto one =
      run_op("sgd_update", {vec({1}), vec({0.5}), vec({7}), scalar_f32(0.1F), scalar_i64(1), scalar_f32(1)},
             "{momentum=0.9, dampening=0.5}");
  const auto two = run_op("sgd_update", {one[0], vec({1}), one[1], scalar_f32(0.1F), scalar_i64(2), scalar_f32(1)},
                          "{momentum=0.9, dampening=0.5}");

  EXPECT_THAT(values(one[1]), ElementsAre(DoubleNear(0.5, kTol)));
  EXPECT_THAT(values(one[0]), ElementsAre(DoubleNear(0.95, kTol)));
  EXPECT_THAT(values(two[1]), ElementsAre(DoubleNear(0.9 * 0.5 + 0.5 * 1, kTol)));
  EXPECT_THAT(values(two[0]), ElementsAre(DoubleNear(0.95 - 0.1 * 0.95, kTol)));
}

TEST(SgdUpdate, NesterovLooksAhead) {
  const auto out =
      run_op("sgd_update", {vec({1}), vec({0.5}), vec({0.2F}), scalar_f32(0.1F), scalar_i64(5), scalar_f32(2)},
             "{momentum=0.9, weight_decay=0.1, nesterov=true}");

  const double g = 2 * 0.5 + 0.1 * 1;
  const double u = 0.9 * 0.2 + g;
  EXPECT_THAT(values(out[1]), ElementsAre(DoubleNear(u, kTol)));
  EXPECT_THAT(values(out[0]), ElementsAre(DoubleNear(1 - 0.1 * (g + 0.9 * u), kTol)));
}

TEST(SgdUpdate, RefusesNesterovWithDampening) {
  const std::string text = error_text([] {
    run_op("sgd_update", {vec({1}), vec({1}), vec({0}), scalar_f32(1), scalar_i64(1), scalar_f32(1)},
           "{nesterov=true, dampening=0.5}");
  });

  EXPECT_EQ(text, "sgd_update: nesterov needs momentum above 0 and dampening 0; they are 0.9 and 0.5");
}

TEST(SgdPlainUpdate, MovesAgainstTheGradient) {
  const auto out = run_op("sgd_plain_update", {vec({1, -2}), vec({0.5, 4}), scalar_f32(0.1F), scalar_f32(0.5F)},
                          "{weight_decay=0.01}");

  EXPECT_THAT(values(out[0]),
              ElementsAre(DoubleNear(1 - 0.1 * (0.25 + 0.01), kTol), DoubleNear(-2 - 0.1 * (2 - 0.02), kTol)));
}

TEST(AdamUpdate, RefusesABetaOfOne) {
  const std::string text = error_text([] {
    run_op("adam_update", {vec({1}), vec({1}), vec({0}), vec({0}), scalar_f32(1), scalar_i64(1), scalar_f32(1)},
           "{beta1=1}");
  });

  EXPECT_EQ(text, "adam_update: beta1 is 1 and beta2 is 0.999; both must be at least 0 and below 1");
}

TEST(LambUpdate, ScalesTheStepByTheRatioOfNorms) {
  const auto u =
      run_op("lamb_direction", {vec({3, -4}), vec({0.5, 0.25}), vec({0, 0}), vec({0, 0}), scalar_i64(1), scalar_f32(1)},
             "{weight_decay=0.1, eps=0}");
  // In step 1 without eps Adam's direction is the gradient's sign.
  EXPECT_THAT(values(u[0]), ElementsAre(DoubleNear(1.3, kTol), DoubleNear(0.6, kTol)));

  const double norm2 = 1.3 * 1.3 + 0.6 * 0.6;
  const auto p = run_op("lamb_apply",
                        {vec({3, -4}), u[0], scalar_f32(25), scalar_f32(static_cast<float>(norm2)), scalar_f32(0.1F)});
  const double step = 0.1 * 5 / std::sqrt(norm2);
  EXPECT_THAT(values(p[0]), ElementsAre(DoubleNear(3 - step * 1.3, kTol), DoubleNear(-4 - step * 0.6, kTol)));
}

TEST(LambUpdate, TakesAPlainStepFromAZeroParameter) {
  const auto p = run_op("lamb_apply", {vec({0, 0}), vec({1, 2}), scalar_f32(0), scalar_f32(5), scalar_f32(0.1F)});

  EXPECT_THAT(values(p[0]), ElementsAre(DoubleNear(-0.1, kTol), DoubleNear(-0.2, kTol)));
}

TEST(ClipScale, LimitsTheNormAndNeverGrowsIt) {
  EXPECT_NEAR(values(run_op("clip_scale", {scalar_f32(25)}, "{max_norm=2}")[0])[0], 0.4, kTol);
  EXPECT_EQ(values(run_op("clip_scale", {scalar_f32(25)}, "{max_norm=6}")[0])[0], 1);
}

TEST(ClipScale, RefusesANormOfZero) {
  EXPECT_EQ(error_text([] { run_op("clip_scale", {scalar_f32(1)}, "{max_norm=0}"); }),
            "clip_scale: max_norm is 0; it must be above 0");
}

}  // namespace
}  // namespace trireme::updates_test
