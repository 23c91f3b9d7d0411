#include "trireme/base/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <set>
#include <vector>

#include "tests/worst.h"

namespace trireme::rng_test {
namespace {

using Block = std::array<uint32_t, 4>;

TEST(Rng, PhiloxGivesTheVectorsOfRandom123) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}), (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Rng, ABitIsTheLaneOfTheBlockTheHeaderNames) {
  const Stream stream{42, 7};
  const uint64_t step = 0x1234567890ULL;
  const uint64_t index = (5ULL << 34) + 3;

  const Block block = philox({static_cast<uint32_t>(index / 4), static_cast<uint32_t>(index / 4 >> 32),
                              static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32)},
                             key_of(stream));

  EXPECT_EQ(random_bits(stream, index, step), block[3]);
}

TEST(Rng, StreamsOfDifferentIdsSeedsAndPartsHaveDifferentKeys) {
  std::set<std::array<uint32_t, 2>> keys;
  size_t count = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    for (uint64_t id = 0; id < 50; ++id) {
      keys.insert(key_of({seed, id}));
      keys.insert(key_of(substream({seed, id}, 1)));
      count += 2;
    }
  }
  EXPECT_EQ(keys.size(), count);
}

// Every range of every fill equals the element functions, whatever the alignment of its ends.
TEST(Rng, FillsEqualTheElementFunctionsForEveryStartAndLength) {
  const Stream stream{1, 2};
  for (const uint64_t base : {uint64_t{0}, (uint64_t{1} << 34) - 70}) {
    for (uint64_t offset = 0; offset < 5; ++offset) {
      for (const size_t length : {0U, 1U, 2U, 3U, 4U, 5U, 63U, 64U, 65U, 130U, 400U}) {
        const uint64_t first = base + offset;
        std::vector<uint32_t> bits(length);
        std::vector<float> uniform(length);
        std::vector<float> gauss(length);
        fill_random_bits(stream, first, 9, bits);
        fill_uniform01(stream, first, 9, uniform);
        fill_normal(stream, first, 9, gauss);
        for (size_t i = 0; i < length; ++i) {
          ASSERT_EQ(bits[i], random_bits(stream, first + i, 9)) << first << " " << length << " " << i;
          ASSERT_EQ(uniform[i], uniform01(stream, first + i, 9)) << first << " " << length << " " << i;
          ASSERT_EQ(gauss[i], normal(stream, first + i, 9)) << first << " " << length << " " << i;
        }
      }
    }
  }
}

TEST(Rng, NormalIsBoxMullerToTheAccuracyOfAFloat) {
  const Stream stream{3, 4};
  double worst = 0;
  for (uint64_t index = 0; index < 400000; index += 2) {
    const uint32_t w0 = random_bits(stream, index, 0);
    const uint32_t w1 = random_bits(stream, index + 1, 0);
    const double u = ((w0 >> 8) + 1.0) * 0x1p-24;
    const double t = (w1 >> 8) * 0x1p-24;
    const double r = std::sqrt(-2.0 * std::log(u));
    const double even = r * std::cos(2.0 * std::numbers::pi * t);
    const double odd = r * std::sin(2.0 * std::numbers::pi * t);
    worst = testing_support::worse(worst, std::abs(normal(stream, index, 0) - even) / (r + 1e-30));
    worst = testing_support::worse(worst, std::abs(normal(stream, index + 1, 0) - odd) / (r + 1e-30));
  }
  EXPECT_LT(worst, 4 * 0x1p-24);  // a few roundings, relative to the radius
}

TEST(Rng, MomentsOfAMillionNormalsAreThoseOfTheDistribution) {
  std::vector<float> values(1 << 20);
  fill_normal({11, 12}, 0, 0, values);
  double sum = 0;
  double squares = 0;
  double fourths = 0;
  for (const float x : values) {
    sum += x;
    squares += double{x} * x;
    fourths += double{x} * x * x * x;
  }
  const double n = static_cast<double>(values.size());
  EXPECT_LT(std::abs(sum / n), 5 / std::sqrt(n));
  EXPECT_LT(std::abs(squares / n - 1), 5 * std::sqrt(2 / n));
  EXPECT_LT(std::abs(fourths / n - 3), 5 * std::sqrt(96 / n));
}

TEST(Rng, UniformStaysBelowOneAndFillsSixteenBinsEvenly) {
  std::vector<float> values(1 << 20);
  fill_uniform01({5, 6}, 3, 1, values);
  std::array<double, 16> bins{};
  for (const float x : values) {
    ASSERT_GE(x, 0.0F);
    ASSERT_LT(x, 1.0F);
    bins[static_cast<size_t>(x * 16)] += 1;
  }
  const double expected = static_cast<double>(values.size()) / 16;
  double chi = 0;
  for (const double count : bins) chi += (count - expected) * (count - expected) / expected;
  EXPECT_LT(chi, 45);  // 15 degrees of freedom: exceeded once in 10,000 seeds; this seed is fixed
}

}  // namespace
}  // namespace trireme::rng_test
