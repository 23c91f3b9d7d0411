#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "trireme/ops/run_op_for_tests.h"

namespace trireme::max_pool2d_test {
namespace {

using testing::ElementsAre;
using testing::IsNan;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Windows of 2 side by side, of an image of one row.
std::vector<double> pooled(const std::vector<float>& row) {
  const HostTensor x = HostTensor::of<float>({1, 1, std::ssize(row), 1}, row);
  return values(run_op("max_pool2d", {x}, "{kernel=[1,2], stride=[1,2]}")[0]);
}

std::vector<double> gradient(const std::vector<float>& row, const std::vector<float>& dy) {
  const HostTensor x = HostTensor::of<float>({1, 1, std::ssize(row), 1}, row);
  const HostTensor d = HostTensor::of<float>({1, 1, std::ssize(dy), 1}, dy);
  return values(run_op("max_pool2d_grad", {x, d}, "{kernel=[1,2], stride=[1,2]}")[0]);
}

// As the largest of a reduction does.
TEST(MaxPool2d, what_is_not_a_number_stays_and_takes_the_gradient) {
  EXPECT_THAT(pooled({5, kNan, kNan, 1, 2, 3}), ElementsAre(IsNan(), IsNan(), 3));
  EXPECT_THAT(gradient({5, kNan, kNan, 1, 2, 3}, {10, 20, 30}), ElementsAre(0, 10, 20, 0, 0, 30));
}

TEST(MaxPool2d, of_windows_of_nothing_but_minus_infinity_the_first_takes_the_gradient) {
  EXPECT_THAT(pooled({-kInf, -kInf, 1, -kInf}), ElementsAre(-kInf, 1));
  EXPECT_THAT(gradient({-kInf, -kInf, 1, -kInf}, {10, 20}), ElementsAre(10, 0, 20, 0));
}

// Two images, of which the windows at the edges begin outside.
TEST(MaxPool2d, a_window_at_the_edge_sends_its_gradient_to_its_own_image) {
  const HostTensor x = HostTensor::of<float>({2, 1, 2, 1}, {3, 4, -kInf, -kInf});
  const HostTensor dy = HostTensor::of<float>({2, 1, 3, 1}, {1, 2, 3, 10, 20, 30});
  const auto dx = run_op("max_pool2d_grad", {x, dy}, "{kernel=[1,2], stride=[1,1], padding=[0,1]}");
  EXPECT_THAT(values(dx[0]), ElementsAre(1, 5, 30, 30));
}

}  // namespace
}  // namespace trireme::max_pool2d_test
