#include "trireme/backend/cpu/isa/loops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "tests/worst.h"
#include "trireme/backend/cpu/cases/isas_for_tests.h"
#include "trireme/base/rng.h"
#include "trireme/tensor/dtype.h"

namespace trireme::cpu::loops_test {
namespace {

class EveryIsa : public testing::TestWithParam<TestIsa> {
 protected:
  void SetUp() override {
    if (!GetParam().is_there()) GTEST_SKIP() << "this machine has no " << GetParam().name();
    GetParam().use();
  }
  void TearDown() override { use_machine_isa(); }
};

INSTANTIATE_TEST_SUITE_P(Isa, EveryIsa, testing::ValuesIn(all_test_isas()),
                         [](const auto& each) { return each.param.name(); });

std::vector<float> grid(float low, float high) {
  std::vector<float> x(100003);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = low + (high - low) * static_cast<float>(i) / static_cast<float>(x.size() - 1);
  }
  return x;
}

std::vector<float> values_of(Unary kind, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  loops().f32.unary[static_cast<int>(kind)](static_cast<int64_t>(x.size()), x.data(), y.data(), 0, 0);
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

// Where exponentials end, and what they make of it.
constexpr float kInf = std::numeric_limits<float>::infinity();
const std::vector<float> kEnds = {-kInf, -1000, 1000, kInf, std::nanf(""), 0};

void expect_exponentials_of_ends(const std::vector<float>& y) {
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], 0);
  EXPECT_EQ(y[2], kInf);
  EXPECT_EQ(y[3], kInf);
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_EQ(y[5], 1);
}

TEST_P(EveryIsa, ExponentialEndsInZeroAndInfinityAndKeepsWhatIsNoNumber) {
  expect_exponentials_of_ends(values_of(Unary::kExp, kEnds));
}

// What attention's gradient makes of scores: p = e^(s - lse), and its gradient where dp = 1.
std::vector<float> probabilities_of(std::vector<float> scores, float lse) {
  constexpr size_t kVector = 16;  // that rows have room for, on any instruction set
  const size_t n = scores.size(), room = (n + kVector - 1) / kVector * kVector;
  scores.resize(room);
  std::vector<float> ds(room, 1);
  const float delta = 0;
  const Lines row{1, static_cast<int64_t>(n)};
  loops().softmax_tile_grad(row, static_cast<int64_t>(room), row.size, 1, &lse, &delta, scores.data(), ds.data());
  scores.resize(n);
  for (size_t i = 0; i < n; ++i) EXPECT_TRUE(scores[i] == ds[i] || std::isnan(ds[i])) << scores[i] << " and " << ds[i];
  return scores;
}

// Two units of the last place and, as a power of two is taken of a rounded product, one for each unit of the exponent.
TEST_P(EveryIsa, ProbabilitiesOfAttentionAreExponentials) {
  const std::vector<float> x = grid(-86, 86);
  const std::vector<float> y = probabilities_of(x, 0);

  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::exp(static_cast<double>(x[i]));
    ASSERT_NEAR(static_cast<double>(y[i]), want, want * (2 + std::fabs(static_cast<double>(x[i]))) * 0x1p-23) << x[i];
  }
}

TEST_P(EveryIsa, ProbabilitiesOfAttentionEndInZeroAndInfinityAndKeepWhatIsNoNumber) {
  expect_exponentials_of_ends(probabilities_of(kEnds, 0));
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
  const std::vector<float> whole = values_of(Unary::kGeluErf, std::vector<float>(x.begin(), x.begin() + 67));

  for (int64_t cut = 0; cut <= 67; ++cut) {
    std::vector<float> y(67);
    const auto loop = loops().f32.unary[static_cast<int>(Unary::kGeluErf)];
    loop(cut, x.data(), y.data(), 0, 0);
    loop(67 - cut, x.data() + cut, y.data() + cut, 0, 0);
    EXPECT_EQ(y, whole) << "cut at " << cut;
  }
}

// -- emulated instructions ---------------------------------------------------------------------------------

// Bits of bf16 numbers of all kinds but those that are none: also denormals, zeros, infinities and sums that cancel.
std::vector<uint32_t> pairs_of_all_kinds(size_t count, uint64_t seed) {
  std::vector<uint32_t> out(count);
  fill_random_bits({seed, 1}, 0, 0, out);
  for (uint32_t& pair : out) {
    for (const int shift : {0, 16}) {
      const uint32_t kind = pair >> shift & 7U;
      const uint32_t exponent = kind == 0   ? 0
                                : kind == 1 ? 1
                                            : 100 + (pair >> (shift + 4) & 63U);  // denormal, least, any
      pair = (pair & ~(0x7f80U << shift)) | exponent << (7 + shift);
    }
  }
  return out;
}

int differing(const std::vector<float>& a, const std::vector<float>& b) {
  int count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]) ? 1 : 0;
  return count;
}

// The sum of products of pairs, added one term after the other in double; only its last rounding is f32's.
TEST(EmulatedLoops, AddTheProductsOfPairs) {
  constexpr int64_t kRows = 3, kColumns = 16;
  const std::vector<uint32_t> a{0x40003f80U, 0x3f803f80U,
                                0xbf804000U};  // (1, 2), (1, 1), (2, -1); the first in the low bits
  std::vector<uint32_t> b(kColumns);
  for (uint32_t i = 0; i < kColumns; ++i)
    b[i] = uint32_t{BFloat16(static_cast<float>(i)).bits} | 0x3f800000U;  // (i, 1)
  std::vector<float> c(kRows * kColumns, 0.5F);
  isa_emulated::kLoops.pairs.multiply({.m = kRows,
                                       .n = kColumns,
                                       .pairs = 1,
                                       .a = a.data(),
                                       .a_row = 1,
                                       .a_pair = 1,
                                       .b = b.data(),
                                       .b_pair = kColumns,
                                       .c = c.data(),
                                       .c_row = kColumns,
                                       .add = true});
  for (size_t i = 0; i < kColumns; ++i) {
    const auto x = static_cast<float>(i);
    EXPECT_EQ(c[i], x + 2.5F);
    EXPECT_EQ(c[kColumns + i], x + 1.5F);
    EXPECT_EQ(c[2 * kColumns + i], 2 * x - 0.5F);
  }
}

// A product so large that no machine adds it up otherwise by chance.
TEST(EmulatedLoops, HaveTheBitsOfTheInstructions) {
  if (machine_isa() < Isa::kAvx512Bf16) GTEST_SKIP() << "this machine has no avx512_bf16";
  constexpr int64_t kRows = 64, kColumns = 112, kPairs = 50;
  const std::vector<uint32_t> a = pairs_of_all_kinds(kRows * kPairs, 1);
  const std::vector<uint32_t> b = pairs_of_all_kinds(kPairs * kColumns, 2);
  const auto product = [&](const Loops& loops) {
    std::vector<float> c(kRows * kColumns);
    for (int64_t pair = 0; pair < kPairs; ++pair)
      loops.pairs.multiply({.m = kRows,
                            .n = kColumns,
                            .pairs = 1,
                            .a = a.data() + pair,
                            .a_row = kPairs,
                            .a_pair = 1,
                            .b = b.data() + pair * kColumns,
                            .b_pair = kColumns,
                            .c = c.data(),
                            .c_row = kColumns,
                            .add = pair > 0});
    return c;
  };
  set_isa(Isa::kAvx512Bf16);
  const std::vector<float> real = product(loops());
  const std::vector<float> emulated = product(isa_emulated::kLoops);
  EXPECT_EQ(differing(real, emulated), 0) << "of " << real.size();
  EXPECT_TRUE(std::ranges::none_of(real, [](float x) { return std::isnan(x); }));
}

// Packed blocks of the parts of f32, as they are and added to themselves.
TEST(EmulatedLoops, HaveTheBitsOfTilesOfF32) {
  if (machine_isa() < Isa::kAmx) GTEST_SKIP() << "this machine has no amx";
  constexpr int64_t kSteps = 5;
  set_isa(Isa::kAmx);
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const std::vector<uint32_t> a = pairs_of_all_kinds(kPartsOfF32 * kSteps * kStepWords, seed);
    const std::vector<uint32_t> b = pairs_of_all_kinds(kPartsOfF32 * kSteps * kStepWords, seed + 100);
    const auto product = [&](const Loops& loops) {
      std::vector<float> c(kTileLines * kTileLines);
      loops.tiles.begin();
      for (const float* sums : {static_cast<const float*>(nullptr), static_cast<const float*>(c.data())}) {
        loops.tiles.multiply_f32({.rows = kTileLines,
                                  .columns = kTileLines,
                                  .steps = kSteps,
                                  .a = a.data(),
                                  .b = b.data(),
                                  .b_block = kPartsOfF32 * kSteps * kStepWords,
                                  .sums = sums,
                                  .sums_row = kTileLines,
                                  .c = c.data(),
                                  .c_row = kTileLines});
      }
      loops.tiles.end();
      return c;
    };
    EXPECT_EQ(differing(product(loops()), product(isa_emulated::kLoops)), 0) << "seed " << seed;
  }
}

// Packed operands and their product, of whole squares and of tails.
TEST(EmulatedLoops, HaveTheBitsOfTheInstructionsOfTiles) {
  if (machine_isa() < Isa::kAmx) GTEST_SKIP() << "this machine has no amx";
  constexpr int64_t kStride = 160;
  const std::vector<uint32_t> pairs = pairs_of_all_kinds(kStride * kStride, 3);
  const auto* const from = reinterpret_cast<const Bf16*>(pairs.data());
  const auto product = [&](const TileLoops& tiles, bool beside, int64_t rows, int64_t columns, int64_t terms) {
    const int64_t steps = (terms + kTileTerms - 1) / kTileTerms, block = steps * 2 * kTileWords;
    std::vector<uint32_t> a(static_cast<size_t>(block)), b(static_cast<size_t>(3 * block));
    tiles.pack({.as_rows = true, .lines_beside = beside, .stride = kStride}, rows, terms, from, a.data());
    for (int64_t column = 0; column < columns; column += kTileLines)
      tiles.pack({.as_rows = false, .lines_beside = !beside, .stride = kStride}, std::min(kTileLines, columns - column),
                 terms, from + kStride * kStride + column * (beside ? kStride : 1),
                 b.data() + column / kTileLines * block);
    std::vector<Bf16> c(static_cast<size_t>(rows * columns));
    tiles.begin();
    tiles.multiply({.rows = rows,
                    .columns = columns,
                    .steps = steps,
                    .a = a.data(),
                    .b = b.data(),
                    .b_block = block,
                    .rounded = c.data(),
                    .c_row = columns});
    tiles.end();
    return std::tuple{a, b, c};
  };
  set_isa(Isa::kAmx);
  for (const bool beside : {false, true}) {
    for (const auto& [rows, columns, terms] : {std::array<int64_t, 3>{32, 96, 96}, {7, 75, 41}, {19, 20, 33}}) {
      EXPECT_EQ(product(loops().tiles, beside, rows, columns, terms),
                product(isa_emulated::kLoops.tiles, beside, rows, columns, terms))
          << rows << " x " << columns << " x " << terms;
    }
  }
}

}  // namespace
}  // namespace trireme::cpu::loops_test
