#include "trireme/base/toml_text.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

namespace trireme::toml_text_test {
namespace {

// "2:5 what is wrong"; "" when nothing is.
std::string before_parsing(std::string_view toml) {
  const std::optional<TomlMistake> found = mistake_before_parsing(toml);
  return found ? fmt::format("{}:{} {}", found->line, found->column, found->text) : "";
}

// What toml++ would say stands at line:column.
std::string told(std::string_view toml, int line, int column, const std::string& said = "said") {
  const TomlMistake found = mistake_of(toml, {line, column, "Error while parsing it: " + said});
  return fmt::format("{}:{} {}", found.line, found.column, found.text);
}

TEST(TomlText, quotes_and_comments_may_have_any_character) {
  EXPECT_EQ(before_parsing(""), "");
  EXPECT_EQ(before_parsing("a = 1 # gr\xc3\xb6\xc3\x9f"
                           "e\nb = 'h\xc3\xb6he'\n\"l\xc3\xa4nge\" = \"a\\\"\xc3\xa4\"\n"),
            "");
  EXPECT_EQ(before_parsing("a = \"\"\"x \"\" \xc3\xa4\n\xc3\xa4\"\"\"\"\"\nb = '''\n'\xc3\xa4'''\nc = ''\nd = \"\"\n"),
            "");
}

TEST(TomlText, any_other_place_is_found) {
  const std::string wrong = " a character that is not ASCII must stand in quotes or a comment";
  EXPECT_EQ(before_parsing("gr\xc3\xb6\xc3\x9f"
                           "e = 1"),
            "1:3" + wrong);
  EXPECT_EQ(before_parsing("a = 1\nb = \xef\xb9\xbf"), "2:5" + wrong);
  EXPECT_EQ(before_parsing("a = \"\"\xc3\xa4"), "1:7" + wrong);
  EXPECT_EQ(before_parsing("a = '''\n'''\n\xc3\xa4 = 1"), "3:1" + wrong);
  EXPECT_EQ(before_parsing("a = \"\xc3\xa4 not closed\n\xc3\xa4 = \""),
            "1:5 the string that begins here is not closed; end it with \" on this line");
  EXPECT_EQ(before_parsing("a = \"\"\"\"\"\"\xc3\xa4"), "1:11" + wrong);
  EXPECT_EQ(before_parsing("a = \"\"\"x \\ \n  \xc3\xa4\"\"\""), "2:3" + wrong);
}

TEST(TomlText, bytes_that_are_no_text_are_found) {
  EXPECT_EQ(before_parsing("a = 1\nb = '\xc3\xa4\xff'"), "2:7 the byte 0xff is not UTF-8 text; save the file as UTF-8");
  EXPECT_EQ(before_parsing("\xff\xfe"
                           "a"),
            "1:1 the file is UTF-16 text; save it as UTF-8");
}

TEST(TomlText, what_is_not_closed_is_told_by_where_it_begins) {
  EXPECT_EQ(told("a = \"x", 1, 7), "1:5 the string that begins here is not closed; end it with \" on this line");
  EXPECT_EQ(told("a = \"x\\\nb = 1\n", 1, 8),
            "1:5 the string that begins here is not closed; end it with \" on this line");
  EXPECT_EQ(told("a = 1\nb = [ 'x, 'y']\n", 2, 17),
            "2:13 the string that begins here is not closed; end it with ' on this line");
  EXPECT_EQ(told("a = '''x\n\n", 3, 1), "1:5 the string that begins here is not closed; end it with '''");
  EXPECT_EQ(told("a = 1\nops = [ 'x', # one\n  'y'", 3, 6),
            "2:7 the list that begins here is not closed; end it with ']'");
  EXPECT_EQ(told("a = { b = [1, 2]", 1, 17), "1:5 the table that begins here is not closed; end it with '}'");
  EXPECT_EQ(told("a = [ 'x'\n[train]\nlr = 1\n", 2, 1),
            "2:1 it: said; the list that begins in line 1, column 5 is open here");
  EXPECT_EQ(told("a = [ 'x',\n", 1, 11, "encountered end-of-file"),
            "1:5 the list that begins here is not closed; end it with ']'");
  EXPECT_EQ(told("a = [ 1\nlr = 1\n", 2, 1), "2:1 it: said; the list that begins in line 1, column 5 is open here");
  EXPECT_EQ(told("[train\nlr = 1\n", 1, 7), "1:1 the table's header that begins here is not closed; end it with ']'");
  EXPECT_EQ(told("[[level]\nlr = 1\n", 1, 9),
            "1:1 the table's header that begins here is not closed; end it with ']]'");
}

TEST(TomlText, what_stands_at_the_mistake_is_not_taken_for_one) {
  EXPECT_EQ(told("ops = ['a'\n'b']\n", 2, 1), "2:1 it: said; the list that begins in line 1, column 7 is open here");
  EXPECT_EQ(told("a = 1 x\n", 1, 7), "1:7 it: said");
}

TEST(TomlText, a_key_without_a_value_is_told) {
  EXPECT_EQ(told("[train]\n  lr =  # later\n", 2, 9), "2:3 the key 'lr' has no value after '='");
  EXPECT_EQ(told("lr 0.1\n", 1, 4), "1:1 'lr 0.1' has no '='; write KEY = VALUE");
  EXPECT_EQ(told("lr = 0.1\nsteps", 2, 6), "2:1 'steps' has no '='; write KEY = VALUE");
}

TEST(TomlText, what_stands_twice_is_told_by_both_places) {
  const std::string said = "cannot redefine existing integer 'a'";
  EXPECT_EQ(told("a = 1\n# b\na = 2\n", 3, 5, said), "3:1 the key 'a' stands twice, first in line 1; keep one");
  EXPECT_EQ(told("[x]\na = 1\n[y]\na = 1\n\n a = 2\n", 6, 6, said),
            "6:2 the key 'a' of [y] stands twice, first in line 4; keep one");
  EXPECT_EQ(told("[x]\na = 1\n[x]\nb = 1\n", 3, 1, said), "3:1 the table [x] stands twice, first in line 1; keep one");
  EXPECT_EQ(told("a.b = 1\na = 2\n", 2, 5, said), "2:5 it: " + said);
}

TEST(TomlText, other_mistakes_keep_their_words_and_places) {
  EXPECT_EQ(told("a = gpt # b\n", 1, 5, "could not determine value type"),
            "1:5 gpt is no value; if it is a text, it stands in quotes: \"gpt\"");
  EXPECT_EQ(told("a = .5\n", 1, 5, "could not determine value type"), "1:5 it: could not determine value type");
  EXPECT_EQ(told("'\xc3\xa4\xc3\xb6' = 1x\n", 1, 19), "1:9 it: said");
  EXPECT_EQ(told("a = 1\rb = 2\r", 1, 7, "expected '\\n' after '\\r', saw 'b'"),
            "1:7 a carriage return without a line feed; save the file with line ends of Unix or Windows");
}

TEST(TomlText, in_ascii_keys_stay_different) {
  EXPECT_EQ(in_ascii("a = 'b' # c\n"), "");
  EXPECT_EQ(in_ascii("'\xc3\xa4' = 1\n'\xc3\xb6' = \"\\\xc3\xb6\""), "'?c3?a4' = 1\n'?c3?b6' = \"\\?c3?b6\"");
}

}  // namespace
}  // namespace trireme::toml_text_test
