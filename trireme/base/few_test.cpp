#include "trireme/base/few.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace trireme::few_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Few, holds_what_is_pushed_here_and_elsewhere) {
  Few<int, 2> few;
  EXPECT_THAT(few, IsEmpty());
  std::vector<int> same;
  for (int i = 0; i < 100; ++i) {
    few.push_back(i);
    same.push_back(i);
    ASSERT_EQ(std::vector<int>(few), same) << i;
    ASSERT_EQ(few.front(), 0);
    ASSERT_EQ(few.back(), i);
  }
}

TEST(Few, copies_are_their_own) {
  for (const size_t size : {0, 1, 2, 3, 9}) {
    std::vector<int> values(size);
    std::iota(values.begin(), values.end(), 1);
    Few<int, 2> few = values;
    Few<int, 2> copy = few, assigned{7, 8, 9, 10}, moved_to{5};
    assigned = few;
    few.push_back(-1);
    EXPECT_EQ(std::vector<int>(copy), values);
    EXPECT_EQ(copy, assigned);
    EXPECT_NE(copy, few);
    moved_to = std::move(copy);
    EXPECT_EQ(std::vector<int>(moved_to), values);
    EXPECT_THAT(copy, IsEmpty());  // NOLINT(bugprone-use-after-move): it can be used again
    copy.push_back(3);
    EXPECT_THAT(copy, ElementsAre(3));
    const Few<int, 2> taken = std::move(moved_to);
    EXPECT_EQ(std::vector<int>(taken), values);
  }
}

TEST(Few, erases_and_is_given_others) {
  Few<int, 2> few{1, 2, 3, 4, 5};
  few.erase(few.begin() + 1);
  EXPECT_THAT(few, ElementsAre(1, 3, 4, 5));
  few.erase(few.begin() + 2, few.end());
  EXPECT_THAT(few, ElementsAre(1, 3));
  few.clear();
  EXPECT_THAT(few, IsEmpty());
  const std::vector<int> others{6, 7, 8};
  few.assign(others.begin(), others.end());
  EXPECT_THAT(few, ElementsAre(6, 7, 8));
  Few<int, 2>& same = few;
  few = same;
  EXPECT_THAT(few, ElementsAre(6, 7, 8));
}

}  // namespace
}  // namespace trireme::few_test
