#include "trireme/base/growing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace trireme::growing_test {
namespace {

Growing<int> counted(int count) {
  Growing<int> out;
  for (int i = 0; i < count; ++i) out.push_back(i);
  return out;
}

std::vector<int> all_of(const Growing<int>& list) {
  return {list.begin(), list.end()};
}

TEST(Growing, holds_what_was_added_in_its_order) {
  EXPECT_TRUE(Growing<int>().empty());
  for (const int count : {1, 7, 8, 9, 23, 24, 25, 1000}) {
    const Growing<int> list = counted(count);
    ASSERT_EQ(list.size(), static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) ASSERT_EQ(list[static_cast<size_t>(i)], i);
    EXPECT_EQ(list.back(), count - 1);
    EXPECT_EQ(all_of(list).size(), static_cast<size_t>(count));
  }
}

TEST(Growing, elements_stay_where_they_are) {
  Growing<int> list = counted(1);
  const int* const first = &list[0];
  for (int i = 1; i < 5000; ++i) list.push_back(i);
  EXPECT_EQ(&list[0], first);
  const int* const last = &list.back();
  const Growing<int> moved = std::move(list);
  EXPECT_EQ(&moved[0], first);
  EXPECT_EQ(&moved.back(), last);
}

TEST(Growing, copies_are_lists_of_their_own) {
  Growing<int> list = counted(100);
  Growing<int> copy = list;
  copy.push_back(-1);
  EXPECT_EQ(list.size(), 100U);
  EXPECT_EQ(copy.size(), 101U);
  list = counted(3);
  copy = list;
  EXPECT_EQ(all_of(copy), (std::vector<int>{0, 1, 2}));
  copy.push_back(3);
  EXPECT_EQ(all_of(copy), (std::vector<int>{0, 1, 2, 3}));
  list = std::move(copy);
  EXPECT_EQ(all_of(list), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_TRUE(std::ranges::any_of(list, [](int i) { return i == 3; }));
}

}  // namespace
}  // namespace trireme::growing_test
