#include "trireme/train/job/job.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

#include "trireme/base/cores.h"

namespace trireme::job_test {
namespace {

// `explain` shows the plan for so many threads, and the launcher gives a rank as many.
TEST(ComputeThreads, are_those_asked_for_or_a_share_of_the_cores_that_the_process_may_use) {
  EXPECT_EQ(compute_threads(3, 2), 3);
  EXPECT_EQ(compute_threads(0, 1 << 20), 1);
  std::thread on_one_core([] {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<size_t>(allowed_cores().front()), &set);
    ASSERT_EQ(sched_setaffinity(0, sizeof set, &set), 0);
    EXPECT_EQ(compute_threads(0, 1), 1);
    EXPECT_EQ(compute_threads(5, 1), 5);
  });
  on_one_core.join();
}

}  // namespace
}  // namespace trireme::job_test
