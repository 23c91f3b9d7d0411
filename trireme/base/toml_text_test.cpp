#include "trireme/base/toml_text.h"

#include <gtest/gtest.h>

namespace trireme::toml_text_test {
namespace {

TEST(TomlText, quotes_and_comments_may_have_any_character) {
  EXPECT_EQ(line_of_bare_character(""), 0);
  EXPECT_EQ(line_of_bare_character("a = 1 # gr\xc3\xb6\xc3\x9f"
                                   "e\nb = 'h\xc3\xb6he'\n\"l\xc3\xa4nge\" = \"a\\\"\xc3\xa4\"\n"),
            0);
  EXPECT_EQ(line_of_bare_character(
                "a = \"\"\"x \"\" \xc3\xa4\n\xc3\xa4\"\"\"\"\"\nb = '''\n'\xc3\xa4'''\nc = ''\nd = \"\"\n"),
            0);
}

TEST(TomlText, any_other_place_is_found_with_its_line) {
  EXPECT_EQ(line_of_bare_character("gr\xc3\xb6\xc3\x9f"
                                   "e = 1"),
            1);
  EXPECT_EQ(line_of_bare_character("a = 1\nb = \xef\xb9\xbf"), 2);
  EXPECT_EQ(line_of_bare_character("a = \"\"\xc3\xa4"), 1);
  EXPECT_EQ(line_of_bare_character("a = '''\n'''\n\xc3\xa4 = 1"), 3);
  EXPECT_EQ(line_of_bare_character("a = \"not closed\n\xc3\xa4 = \""), 2);
  EXPECT_EQ(line_of_bare_character("a = \"\"\"\"\"\"\xc3\xa4"), 1);
  EXPECT_EQ(line_of_bare_character("a = \"\"\"x \\ \n  \xc3\xa4\"\"\""), 2);
}

TEST(TomlText, in_ascii_keys_stay_different) {
  EXPECT_EQ(in_ascii("a = 'b' # c\n"), "");
  EXPECT_EQ(in_ascii("'\xc3\xa4' = 1\n'\xc3\xb6' = \"\\\xc3\xb6\""), "'?c3?a4' = 1\n'?c3?b6' = \"\\?c3?b6\"");
}

}  // namespace
}  // namespace trireme::toml_text_test
