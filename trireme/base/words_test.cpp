#include "trireme/base/words.h"

#include <gtest/gtest.h>

#include <string>

namespace trireme::words_test {
namespace {

static_assert(matches("h.*.bias", "h.3.attn.bias"));

TEST(Words, a_star_stands_for_any_characters) {
  EXPECT_TRUE(matches("", ""));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("**", "x"));
  EXPECT_TRUE(matches("wte", "wte"));
  EXPECT_TRUE(matches("*.bias", "h.0.bias.x.bias"));
  EXPECT_TRUE(matches("a*b*c", "abxbc"));
  EXPECT_TRUE(matches("a*b*", "ab"));
  EXPECT_FALSE(matches("", "x"));
  EXPECT_FALSE(matches("wte", "wte2"));
  EXPECT_FALSE(matches("wte", "wt"));
  EXPECT_FALSE(matches("a*b*c", "acb"));
  EXPECT_FALSE(matches("ab*ba", "aba"));
  EXPECT_FALSE(matches("*.bias", "bias"));
}

// Trying each star with each number of characters would take longer than any test may.
TEST(Words, many_stars_take_no_longer) {
  std::string pattern;
  for (int i = 0; i < 40; ++i) pattern += "*a";
  EXPECT_FALSE(matches(pattern + "*b", std::string(400, 'a')));
  EXPECT_TRUE(matches(pattern + "*", std::string(400, 'a')));
}

}  // namespace
}  // namespace trireme::words_test
