#include "trireme/base/disk_wait.h"

#include <gtest/gtest.h>

namespace trireme::disk_wait_test {
namespace {

TEST(DiskWait, is_counted_where_it_is_said_and_where_it_began) {
  static std::atomic<int> one{0}, other{0};  // stay, as what counts there may
  count_disk_waits(one);
  {
    const DiskWait first, second;
    EXPECT_EQ(one, 2);
    count_disk_waits(other);
    const DiskWait third;
    EXPECT_EQ(other, 1);
  }
  EXPECT_EQ(one, 0);
  EXPECT_EQ(other, 0);
}

}  // namespace
}  // namespace trireme::disk_wait_test
