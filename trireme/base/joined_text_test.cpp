#include "trireme/base/joined_text.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::joined_text_test {
namespace {

TEST(JoinedText, HasSomethingBetweenValues) {
  EXPECT_EQ(joined_text(std::vector<std::string>{}, ", "), "");
  EXPECT_EQ(joined_text(std::vector<std::string>{"a"}, ", "), "a");
  EXPECT_EQ(joined_text(std::set<std::string>{"b", "a", ""}, ", "), ", a, b");
  EXPECT_EQ(joined_text(std::vector<std::string_view>{"a", "b"}, ""), "ab");
  EXPECT_EQ(joined_text(std::vector<int64_t>{1, -2, std::numeric_limits<int64_t>::min()}, ","),
            "1,-2,-9223372036854775808");
  EXPECT_EQ(joined_text(std::vector<size_t>{3, 4}, "x"), "3x4");
}

}  // namespace
}  // namespace trireme::joined_text_test
