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
  EXPECT_EQ(erase_if(few, [](int value) { return value == 7; }), 1U);
  EXPECT_THAT(few, ElementsAre(6, 8));
}

TEST(Few, grows_in_the_middle_and_at_the_end) {
  Few<int, 2> few;
  EXPECT_EQ(*few.insert(few.begin(), 3), 3);
  EXPECT_EQ(*few.insert(few.begin(), 1), 1);
  EXPECT_EQ(*few.insert(few.begin() + 1, 2), 2);
  few.insert(few.end(), 4);
  EXPECT_THAT(few, ElementsAre(1, 2, 3, 4));
  few.resize(6);
  EXPECT_THAT(few, ElementsAre(1, 2, 3, 4, 0, 0));
  few.resize(1);
  const std::vector<int64_t> others{7, 8};
  few.append(others.begin(), others.end());
  EXPECT_THAT(few, ElementsAre(1, 7, 8));
  few.pop_back();
  EXPECT_THAT(few, ElementsAre(1, 7));
  EXPECT_THAT((Few<int, 2>(3)), ElementsAre(0, 0, 0));
}

// As a layout's axes.
TEST(Few, holds_lists) {
  using Lists = Few<Few<int, 2>, 2>;
  for (const size_t size : {0, 1, 2, 3, 7}) {
    std::vector<std::vector<int>> values;
    for (size_t i = 0; i < size; ++i) values.emplace_back(i, static_cast<int>(i));  // from none to many
    Lists lists = values;
    ASSERT_EQ(lists.size(), size);
    Lists copy = lists, assigned{{9, 9, 9}, {}, {9}}, moved_to{{}, {9}};
    assigned = copy;
    lists.push_back({-1});
    EXPECT_EQ(lists.back(), (Few<int, 2>{-1}));
    EXPECT_NE(lists, copy);
    moved_to = std::move(copy);
    EXPECT_THAT(copy, IsEmpty());  // NOLINT(bugprone-use-after-move): it can be used again
    EXPECT_EQ(moved_to, assigned);
    for (size_t i = 0; i < size; ++i) EXPECT_EQ(std::vector<int>(moved_to[i]), values[i]);
    lists.erase(lists.begin());
    EXPECT_EQ(lists.size(), size);
    lists.clear();
    EXPECT_THAT(lists, IsEmpty());
  }
}

}  // namespace
}  // namespace trireme::few_test
