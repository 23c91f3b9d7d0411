#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/ops/run_op_for_tests.h"

namespace trireme::rotary_test {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

HostTensor heads(Shape shape, const std::vector<float>& values) {
  return HostTensor::of<float>(shape, values);
}

TEST(Rotary, leaves_position_0_and_turns_the_halves_of_a_head_by_the_position) {
  const HostTensor x = heads({1, 2, 1, 4}, {1, 2, 3, 4, 1, 2, 3, 4});
  const std::vector<double> y = values(run_op("rotary", {x}, "{theta=100}")[0]);

  // Of position 1 the pair (1, 3) turns by 1, and (2, 4) by 100^(-2/4) = 0.1.
  EXPECT_THAT(std::span(y).first(4), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(std::span(y).last(4), ElementsAre(DoubleNear(std::cos(1) - 3 * std::sin(1), 1e-6),
                                                DoubleNear(2 * std::cos(0.1) - 4 * std::sin(0.1), 1e-6),
                                                DoubleNear(3 * std::cos(1) + std::sin(1), 1e-6),
                                                DoubleNear(4 * std::cos(0.1) + 2 * std::sin(0.1), 1e-6)));
}

TEST(Rotary, of_a_piece_counts_positions_in_the_whole) {
  const HostTensor x = heads({1, 1, 1, 2}, {1, 0});
  const std::vector<Place> places{{{1, 8, 1, 2}, {0, 5, 0, 0}}};
  const std::vector<double> y = values(run_op("rotary", {x}, "{}", places, places)[0]);

  EXPECT_THAT(y, ElementsAre(DoubleNear(std::cos(5), 1e-6), DoubleNear(std::sin(5), 1e-6)));
}

TEST(Rotary, inverse_turns_back) {
  const HostTensor x = heads({1, 3, 1, 2}, {1, 2, 3, 4, 5, 6});
  const auto y = run_op("rotary", {x});
  const std::vector<double> back = values(run_op("rotary", {y[0]}, "{inverse=true}")[0]);

  for (size_t i = 0; i < back.size(); ++i) EXPECT_NEAR(back[i], static_cast<double>(i + 1), 1e-6);
}

// What the turning is for: the product of a query and a key depends on how far they are apart.
TEST(Rotary, products_of_a_query_and_a_key_depend_on_their_distance) {
  const HostTensor q = heads({1, 6, 1, 2}, {1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2});
  const HostTensor k = heads({1, 6, 1, 2}, {3, -1, 3, -1, 3, -1, 3, -1, 3, -1, 3, -1});
  const std::vector<double> a = values(run_op("rotary", {q})[0]);
  const std::vector<double> b = values(run_op("rotary", {k})[0]);
  const auto product = [&](size_t i, size_t j) { return a[2 * i] * b[2 * j] + a[2 * i + 1] * b[2 * j + 1]; };

  for (size_t i = 2; i < 6; ++i) EXPECT_NEAR(product(i, i - 2), product(2, 0), 1e-5);
}

TEST(Rotary, says_what_does_not_fit) {
  EXPECT_EQ(error_text([] {
              run_op("rotary", {heads({1, 1, 1, 3}, {1, 2, 3})});
            }),
            "rotary: the head size is 3; it must be even (x f32[1,1,1,3])");
  EXPECT_EQ(error_text([] {
              run_op("rotary", {heads({1, 1, 2}, {1, 2})});
            }),
            "rotary: x must be floating [b,s,h,d] (x f32[1,1,2])");
  EXPECT_EQ(error_text([] {
              run_op("rotary", {heads({1, 1, 1, 2}, {1, 2})}, "{theta=0}");
            }),
            "rotary: theta is 0; it must be above 0");
}

}  // namespace
}  // namespace trireme::rotary_test
