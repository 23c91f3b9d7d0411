#include "tests/worst.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace trireme::testing_support::worst_test {
namespace {

TEST(Worst, what_is_no_number_is_kept_whenever_it_comes) {
  EXPECT_EQ(worse(1, 2), 2);
  EXPECT_EQ(worse(2, 1), 2);
  EXPECT_TRUE(std::isnan(worse(1, NAN)));
  EXPECT_TRUE(std::isnan(worse(NAN, 1)));
  EXPECT_TRUE(std::isnan(worse(NAN, INFINITY)));
}

TEST(Worst, a_difference_of_what_is_no_number_or_of_other_lengths_keeps_no_bound) {
  const std::vector<double> right{1, -4, 2};
  EXPECT_EQ(worst_difference(std::vector<float>{1, -3.5F, 2}, right), 0.5);
  EXPECT_FALSE(worst_difference(std::vector<float>{NAN, -4, 2}, right) <= 1e300);
  EXPECT_FALSE(worst_difference(std::vector<float>{INFINITY, -4, 2}, right) <= 1e300);
  EXPECT_FALSE(worst_difference(std::vector<float>{1, -4}, right) <= 1e300);
  EXPECT_EQ(largest_of(right), 4);
  EXPECT_TRUE(std::isnan(largest_of(std::vector<float>{NAN, 1})));
}

}  // namespace
}  // namespace trireme::testing_support::worst_test
