#include "trireme/base/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace trireme::cores_test {
namespace {

TEST(Cores, are_those_that_the_thread_may_run_on) {
  const std::vector<int> all = allowed_cores();
  ASSERT_FALSE(all.empty());
  std::vector<int> of_one;
  std::thread one([&] {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<size_t>(all.back()), &set);
    ASSERT_EQ(sched_setaffinity(0, sizeof set, &set), 0);
    of_one = allowed_cores();
  });
  one.join();
  EXPECT_EQ(of_one, std::vector{all.back()});
  EXPECT_EQ(allowed_cores(), all);
}

}  // namespace
}  // namespace trireme::cores_test
