#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/ops/run_op_for_tests.h"

namespace trireme::dropout_test {
namespace {

constexpr std::string_view kAttrs = "{p=0.25, seed=5, stream=9}";

HostTensor ones(const Shape& shape) {
  HostTensor out({DType::kF32, shape});
  std::ranges::fill(out.as<float>(), 1.0F);
  return out;
}

TEST(Dropout, ZeroesAShareOfPAndScalesTheRest) {
  const auto y = values(run_op("dropout", {ones({100, 100}), scalar_i64(1)}, kAttrs)[0]);

  const auto zeros = std::ranges::count(y, 0.0);
  EXPECT_NEAR(static_cast<double>(zeros) / 1e4, 0.25, 0.02);  // 4.6 standard deviations
  for (const double x : y) EXPECT_TRUE(x == 0 || std::abs(x - 1 / 0.75) < 1e-6) << x;
}

TEST(Dropout, OfAPieceIsThePieceOfTheWhole) {
  const auto whole = values(run_op("dropout", {ones({6, 8}), scalar_i64(3)}, kAttrs)[0]);
  const std::vector<Place> in{{{6, 8}, {2, 4}}, {{}, {}}};
  const std::vector<Place> out{{{6, 8}, {2, 4}}};
  const auto piece = values(run_op("dropout", {ones({2, 4}), scalar_i64(3)}, kAttrs, in, out)[0]);

  for (size_t i = 0; i < 2; ++i) {
    for (size_t j = 0; j < 4; ++j) EXPECT_EQ(piece[i * 4 + j], whole[(i + 2) * 8 + j + 4]) << i << ", " << j;
  }
}

TEST(Dropout, DrawsAnotherMaskEachStepAndInEachStream) {
  const auto at = [](int64_t step, std::string_view attrs) {
    return values(run_op("dropout", {ones({64}), scalar_i64(step)}, attrs)[0]);
  };

  EXPECT_EQ(at(1, kAttrs), at(1, kAttrs));
  EXPECT_NE(at(1, kAttrs), at(2, kAttrs));
  EXPECT_NE(at(1, kAttrs), at(1, "{p=0.25, seed=5, stream=10}"));
}

TEST(Dropout, RefusesToDropEverything) {
  EXPECT_EQ(error_text([] {
              run_op("dropout", {ones({2}), scalar_i64(1)}, "{p=1}");
            }),
            "dropout: p is 1; it must be at least 0 and below 1");
}

}  // namespace
}  // namespace trireme::dropout_test
