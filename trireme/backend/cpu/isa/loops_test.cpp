#include "trireme/backend/cpu/isa/loops.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/worst.h"
#include "trireme/backend/cpu/isa.h"
#include "trireme/tensor/dtype.h"

namespace trireme::cpu {
namespace {

class EveryIsa : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (GetParam() > machine_isa()) GTEST_SKIP() << "this machine has no " << to_string(GetParam());
    set_isa(GetParam());
  }
  void TearDown() override { set_isa(machine_isa()); }
};

INSTANTIATE_TEST_SUITE_P(Isa, EveryIsa,
                         testing::Values(Isa::kBaseline, Isa::kAvx2, Isa::kAvx512,
                                         Isa::kAvx512Bf16),
                         [](const auto& each) { return std::string(to_string(each.param)); });

std::vector<float> grid(float low, float high) {
  std::vector<float> x(100003);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = low + (high - low) * static_cast<float>(i) / static_cast<float>(x.size() - 1);
  }
  return x;
}

std::vector<float> values_of(Unary kind, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  loops().f32.unary[static_cast<int>(kind)](static_cast<int64_t>(x.size()), x.data(), y.data(), 0,
                                            0);
  return y;
}

// The largest distance from the exact value in units of the last place of that value.
double worst_ulp(Unary kind, double (*exact)(double), float low, float high) {
  const std::vector<float> x = grid(low, high);
  const std::vector<float> y = values_of(kind, x);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = exact(static_cast<double>(x[i]));
    const auto size = static_cast<float>(testing_support::worse(std::numeric_limits<float>::min(), std::fabs(want)));
    const double ulp = static_cast<double>(std::nextafter(size, INFINITY) - size);
    worst = testing_support::worse(worst, std::fabs(static_cast<double>(y[i]) - want) / ulp);
  }
  return worst;
}

TEST_P(EveryIsa, ExponentialIsWithinTwoUnits) {
  EXPECT_LE(worst_ulp(
                Unary::kExp, [](double x) { return std::exp(x); }, -87, 88),
            2);
}

TEST_P(EveryIsa, ExponentialEndsInZeroAndInfinityAndKeepsWhatIsNoNumber) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> y = values_of(Unary::kExp, {-inf, -1000, 1000, inf, std::nanf(""), 0});

  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], 0);
  EXPECT_EQ(y[2], inf);
  EXPECT_EQ(y[3], inf);
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_EQ(y[5], 1);
}

TEST_P(EveryIsa, HyperbolicTangentIsWithinThreeUnits) {
  EXPECT_LE(worst_ulp(
                Unary::kTanh, [](double x) { return std::tanh(x); }, -12, 12),
            3);
}

TEST_P(EveryIsa, ErrorFunctionIsWithinItsBound) {
  const std::vector<float> x = grid(-6, 6);
  const std::vector<float> y = values_of(Unary::kErf, x);

  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    worst = testing_support::worse(worst, std::fabs(static_cast<double>(y[i]) - std::erf(static_cast<double>(x[i]))));
  }
  EXPECT_LE(worst, 4e-7);
}

TEST_P(EveryIsa, LogarithmIsWithinTwoUnits) {
  const auto exact = [](double x) { return std::log(x); };

  EXPECT_LE(worst_ulp(Unary::kLog, exact, 1e-3F, 0.9F), 2);
  EXPECT_LE(worst_ulp(Unary::kLog, exact, 1.1F, 1e9F), 2);
  EXPECT_LE(worst_ulp(Unary::kLog, exact, 1e-45F, 1e-37F), 2);
}

TEST_P(EveryIsa, LogarithmOfZeroInfinityAndWhatHasNone) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> y = values_of(Unary::kLog, {0, -0.0F, inf, -1, std::nanf(""), 1});

  EXPECT_EQ(y[0], -inf);
  EXPECT_EQ(y[1], -inf);
  EXPECT_EQ(y[2], inf);
  EXPECT_TRUE(std::isnan(y[3]));
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_EQ(y[5], 0);
}

TEST_P(EveryIsa, EveryBf16IsTheSameAfterF32) {
  std::vector<Bf16> bits(1 << 16), again(1 << 16);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<Bf16>(i);
  std::vector<float> wide(bits.size());

  loops().bf16.to_f32(static_cast<int64_t>(bits.size()), bits.data(), wide.data());
  loops().bf16.from_f32(static_cast<int64_t>(bits.size()), wide.data(), again.data());

  for (size_t i = 0; i < bits.size(); ++i) {
    // What is not a number becomes a quiet one.
    const bool number = (bits[i] & 0x7fffU) <= 0x7f80U;
    ASSERT_EQ(again[i], number ? bits[i] : bits[i] | 0x40U);
  }
}

TEST_P(EveryIsa, RoundingToBf16IsThatOfTheType) {
  std::vector<float> x = grid(-3, 3);
  for (const uint32_t bits : {0x3f808000U, 0x3f818000U, 0x7f7fffffU, 0x00000001U, 0x80008000U})
    x.push_back(std::bit_cast<float>(bits));
  std::vector<Bf16> y(x.size());

  loops().bf16.from_f32(static_cast<int64_t>(x.size()), x.data(), y.data());

  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], BFloat16(x[i]).bits) << x[i];
}

TEST_P(EveryIsa, AnElementHasTheSameBitsWhereverALoopIsCut) {
  const std::vector<float> x = grid(-9, 9);
  const std::vector<float> whole =
      values_of(Unary::kGeluErf, std::vector<float>(x.begin(), x.begin() + 67));

  for (int64_t cut = 0; cut <= 67; ++cut) {
    std::vector<float> y(67);
    const auto loop = loops().f32.unary[static_cast<int>(Unary::kGeluErf)];
    loop(cut, x.data(), y.data(), 0, 0);
    loop(67 - cut, x.data() + cut, y.data() + cut, 0, 0);
    EXPECT_EQ(y, whole) << "cut at " << cut;
  }
}

}  // namespace
}  // namespace trireme::cpu
