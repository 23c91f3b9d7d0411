#include "trireme/backend/cpu/products/tiled_product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "trireme/backend/cpu/cases/isas_for_tests.h"
#include "trireme/backend/cpu/isa/loops.h"

namespace trireme::cpu::tiled_product_test {
namespace {

class TilesOnEveryIsa : public testing::TestWithParam<TestIsa> {
 protected:
  void SetUp() override {
    if (!GetParam().is_there()) GTEST_SKIP() << "this machine has no " << GetParam().name();
    GetParam().use();
    if (loops().tiles.multiply_f32 == nullptr) GTEST_SKIP() << GetParam().name() << " has no tiles";
  }
  void TearDown() override { use_machine_isa(); }
};

INSTANTIATE_TEST_SUITE_P(Isa, TilesOnEveryIsa, testing::ValuesIn(all_test_isas()),
                         [](const auto& each) { return each.param.name(); });

struct Matrix {
  int64_t rows, columns;
  bool transpose;  // as it lies
  std::vector<float> numbers;

  Matrix(int64_t m, int64_t n, bool transposed)
      : rows(m), columns(n), transpose(transposed), numbers(static_cast<size_t>(m * n)) {}
  int64_t stride() const { return transpose ? rows : columns; }
  float& at(int64_t i, int64_t j) { return numbers[static_cast<size_t>(transpose ? j * rows + i : i * columns + j)]; }
};

Matrix random_matrix(int64_t m, int64_t n, bool transposed, std::mt19937& random) {
  Matrix x(m, n, transposed);
  std::normal_distribution<float> number;
  for (float& each : x.numbers) each = number(random);
  return x;
}

std::vector<float> product_of(const Matrix& a, const Matrix& b, float beta = 0, std::vector<float> c = {}) {
  constexpr int64_t kRoom = 3 << 20;
  c.resize(static_cast<size_t>(a.rows * b.columns));
  std::vector<std::byte> room(kRoom + 64);
  auto* const first = room.data() + 64 - reinterpret_cast<uintptr_t>(room.data()) % 64;
  multiply_in_tiles({.m = a.rows,
                     .n = b.columns,
                     .k = a.columns,
                     .a = a.numbers.data(),
                     .b = b.numbers.data(),
                     .c = c.data(),
                     .lda = a.stride(),
                     .ldb = b.stride(),
                     .ldc = b.columns,
                     .transpose_a = a.transpose,
                     .transpose_b = b.transpose,
                     .beta = beta},
                    first, kRoom);
  return c;
}

// The bound of docs/design/numerics.md: parts that are left out, and a rounding for each pair of 16 terms and each
// product of parts.
double bound(int64_t terms, double sum_of_sizes) {
  return (0x1p-22 + 0x1p-24 * (16 + 6.0 * static_cast<double>(terms) / 32)) * sum_of_sizes;
}

TEST_P(TilesOnEveryIsa, AProductOfF32IsAsNearAsSumsInF32) {
  std::mt19937 random(5);
  double worst = 0;
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{32, 32, 32}, {1, 1, 1}, {33, 65, 97}, {47, 31, 300}}) {
    for (const int lies : {0, 1, 2, 3}) {
      Matrix a = random_matrix(m, k, (lies & 1) != 0, random);
      Matrix b = random_matrix(k, n, (lies & 2) != 0, random);
      const std::vector<float> c = product_of(a, b);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0, sizes = 0;
          for (int64_t t = 0; t < k; ++t) {
            const double term = static_cast<double>(a.at(i, t)) * static_cast<double>(b.at(t, j));
            sum += term;
            sizes += std::fabs(term);
          }
          const double off = std::fabs(c[static_cast<size_t>(i * n + j)] - sum);
          ASSERT_LE(off, bound(k, sizes)) << m << " x " << n << " x " << k << ", " << lies << ", " << i << ", " << j;
          worst = std::max(worst, off / sizes);
        }
      }
    }
  }
  EXPECT_LT(worst, 0x1p-22);  // and far better than parts of 16 bits, whose products are off by 2^-17
  EXPECT_GT(worst, 0);
}

TEST_P(TilesOnEveryIsa, ASumHasTheSameBitsInAProductOfAnySize) {
  std::mt19937 random(6);
  constexpr int64_t kTerms = 290;
  Matrix a = random_matrix(70, kTerms, false, random);
  Matrix b = random_matrix(kTerms, 90, false, random);
  const std::vector<float> whole = product_of(a, b);
  Matrix some_rows(3, kTerms, true), some_columns(kTerms, 5, true);
  for (int64_t t = 0; t < kTerms; ++t) {
    for (int64_t i = 0; i < 3; ++i) some_rows.at(i, t) = a.at(40 + i, t);
    for (int64_t j = 0; j < 5; ++j) some_columns.at(t, j) = b.at(t, 77 + j);
  }
  const std::vector<float> some = product_of(some_rows, some_columns);
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 5; ++j) EXPECT_EQ(some[i * 5 + j], whole[(40 + i) * 90 + 77 + j]) << i << ", " << j;
  }
}

TEST_P(TilesOnEveryIsa, AProductIsAddedToASum) {
  std::mt19937 random(7);
  const Matrix a = random_matrix(40, 513, false, random), b = random_matrix(513, 50, true, random);
  const std::vector<float> zero(40 * 50), start = random_matrix(40, 50, false, random).numbers;
  const std::vector<float> plain = product_of(a, b), onto_zero = product_of(a, b, 1, zero),
                           onto = product_of(a, b, 1, start);
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(onto_zero[i], plain[i]);
    EXPECT_NEAR(onto[i], plain[i] + start[i], 1e-4);
  }
}

// Numbers whose parts are at the ends of what bf16 holds.
TEST_P(TilesOnEveryIsa, LargeSmallAndInfiniteNumbersStayWhatTheyAre) {
  constexpr float kMost = std::numeric_limits<float>::max(), kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  const auto times = [](float x, float y) {
    Matrix a(1, 1, false), b(1, 1, false);
    a.numbers[0] = x, b.numbers[0] = y;
    return product_of(a, b)[0];
  };
  EXPECT_EQ(times(kMost, 1), kMost);
  EXPECT_EQ(times(-kMost, 0.5F), -kMost / 2);
  EXPECT_EQ(times(kMost, 2), kInfinity);
  EXPECT_EQ(times(kInfinity, 3), kInfinity);
  EXPECT_EQ(times(-kInfinity, 3), -kInfinity);
  EXPECT_TRUE(std::isnan(times(kInfinity, 0)));
  EXPECT_TRUE(std::isnan(times(kNone, 1)));
  EXPECT_EQ(times(0x1.234567p-100F, 1), 0x1.234567p-100F);
  EXPECT_NEAR(times(0x1.234567p-110F, 1), 0x1.234567p-110F, 0x1p-126);  // whose last part is below the normal numbers
  EXPECT_EQ(times(0x1.234567p-20F, 1), 0x1.234567p-20F);
}

}  // namespace
}  // namespace trireme::cpu::tiled_product_test
