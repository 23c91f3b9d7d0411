#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/train/loop/run_impl.h"

namespace trireme::run_graphs_test {
namespace {

using testing::HasSubstr;

TEST(Run, tells_ranks_on_different_processors_which) {
  EXPECT_EQ(unlike_processors({"A"}), "");
  EXPECT_EQ(unlike_processors({"A", "A", "A"}), "");
  EXPECT_THAT(unlike_processors({"A", "A", "B", "C"}), HasSubstr("rank 0 on 'A', rank 2 on 'B'"));
}

}  // namespace
}  // namespace trireme::run_graphs_test
