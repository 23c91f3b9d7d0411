#include "trireme/cost/fit_rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::fit_rates_test {
namespace {

std::vector<OpSample> samples_of(const std::string& op, double launch_s, double achievable, double wobble = 0) {
  std::vector<OpSample> out;
  double sign = 1;
  for (double bound_s = 1e-6; bound_s < 1e-2; bound_s *= 3, sign = -sign)
    out.push_back({op, {bound_s}, (launch_s + bound_s / achievable) * (1 + sign * wobble)});
  return out;
}

TEST(FitRates, an_op_that_takes_a_launch_and_its_share_of_the_peak_is_found_so) {
  const std::vector<OpRate> rates = fit_op_rates(samples_of("matmul", 3e-6, 0.8));
  ASSERT_EQ(rates.size(), 2);
  EXPECT_EQ(rates[0].ops, "matmul");
  EXPECT_NEAR(rates[0].achievable, 0.8, 1e-6);
  EXPECT_NEAR(rates[0].launch_s, 3e-6, 1e-9);
  EXPECT_EQ(rates[1].ops, "*");
}

// Products of many shapes, by kernels that bring operands into another order before they multiply.
TEST(FitRates, what_bytes_take_beside_arithmetic_is_found_so) {
  std::vector<OpSample> samples;
  for (const double rows : {16.0, 64.0, 256.0, 1024.0}) {
    for (const double width : {128.0, 512.0, 2048.0}) {
      const OpBound bound{rows * width * width * 1e-11, (2 * rows * width + width * width) * 1e-10};
      samples.push_back({"matmul", bound, 2e-6 + bound.flops_s / 0.9 + 1.2 * bound.bytes_s});
    }
  }
  const OpRate rate = fit_op_rates(samples)[0];
  EXPECT_NEAR(rate.achievable, 0.9, 1e-6);
  EXPECT_NEAR(rate.memory, 1.2, 1e-6);
  EXPECT_NEAR(rate.launch_s, 2e-6, 1e-9);
  for (const OpSample& sample : samples) EXPECT_NEAR(seconds_by(rate, sample.bound), sample.seconds, 1e-9);
}

TEST(FitRates, small_calls_count_as_much_as_large_ones) {
  const std::vector<OpRate> rates = fit_op_rates(samples_of("matmul", 3e-6, 0.8, 0.05));
  EXPECT_NEAR(rates[0].achievable, 0.8, 0.08);
  EXPECT_NEAR(rates[0].launch_s, 3e-6, 1e-6);
}

TEST(FitRates, the_longest_comes_first_and_all_others_last) {
  std::vector<OpSample> samples = samples_of("add", 1e-6, 4);
  for (const OpSample& sample : samples_of("matmul", 3e-6, 0.8)) samples.push_back(sample);
  std::vector<std::string> names;
  for (const OpRate& rate : fit_op_rates(samples)) names.push_back(rate.ops);
  EXPECT_THAT(names, testing::ElementsAre("matmul", "add", "*"));
}

TEST(FitRates, one_size_alone_and_times_that_do_not_grow_give_rates_that_a_machine_may_have) {
  Machine machine = Machine::this_host();
  machine.op_rates = fit_op_rates(std::vector<OpSample>{{"one", {2e-6}, 4e-6}});
  EXPECT_DOUBLE_EQ(machine.op_rates[0].achievable, 0.5);
  EXPECT_EQ(machine.op_rates[0].launch_s, 0);
  check(machine, "one size");
  machine.op_rates =
      fit_op_rates(std::vector<OpSample>{{"flat", {1e-6}, 5e-6}, {"flat", {1e-3}, 4e-6}, {"none", {}, 1e-6}});
  check(machine, "no growth");
  EXPECT_NEAR(machine.op_rates[0].launch_s, 4.4e-6, 1e-6);
  EXPECT_THROW(fit_op_rates({}), Error);
}

}  // namespace
}  // namespace trireme::fit_rates_test
