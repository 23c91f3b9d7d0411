#include "trireme/base/counted.h"

#include <gtest/gtest.h>

namespace trireme::counted_test {
namespace {

TEST(Counted, one_is_one_and_others_are_many) {
  EXPECT_EQ(counted(1, "row"), "1 row");
  EXPECT_EQ(counted(0, "row"), "0 rows");
  EXPECT_EQ(counted(2, "micro-batch"), "2 micro-batches");
  EXPECT_EQ(counted(1, "micro-batch"), "1 micro-batch");
}

}  // namespace
}  // namespace trireme::counted_test
