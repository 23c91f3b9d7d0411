#include "trireme/base/utf8.h"

#include <gtest/gtest.h>

namespace trireme::utf8_test {
namespace {

TEST(Utf8, takes_characters_of_one_to_four_bytes) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("plain\n\x7f"));
  EXPECT_TRUE(is_utf8("\xc2\x80 \xdf\xbf \xe0\xa0\x80 \xed\x9f\xbf \xef\xbf\xbf \xf0\x90\x80\x80 \xf4\x8f\xbf\xbf"));
}

TEST(Utf8, refuses_pieces_longer_forms_surrogates_and_what_is_beyond) {
  for (const std::string_view text :
       {"\x80", "\xc2", "\xe2\x82", "\xf0\x9f\x98", "\xc2x", "\xe2\x82x", "\xff", "\xc0\xaf", "\xc1\xbf",
        "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80"}) {
    EXPECT_FALSE(is_utf8(text)) << text;
  }
}

TEST(Utf8, a_byte_order_mark_is_left_out_once_and_only_at_the_beginning) {
  EXPECT_EQ(without_byte_order_mark("\xef\xbb\xbf"
                                    "a"),
            "a");
  EXPECT_EQ(without_byte_order_mark("\xef\xbb\xbf\xef\xbb\xbf"), "\xef\xbb\xbf");
  EXPECT_EQ(without_byte_order_mark("a\xef\xbb\xbf"), "a\xef\xbb\xbf");
  EXPECT_EQ(without_byte_order_mark("\xef\xbb"), "\xef\xbb");
  EXPECT_EQ(without_byte_order_mark(""), "");
}

TEST(Utf8, what_cannot_be_shown_is_replaced) {
  EXPECT_EQ(printable("plain\n\ttext \xc3\xa9\xf0\x9f\x98\x80"), "plain\n\ttext \xc3\xa9\xf0\x9f\x98\x80");
  const std::string sign = "\xef\xbf\xbd";
  EXPECT_EQ(printable("a\x1b[31mb\r\x07\x7f"), "a" + sign + "[31mb" + sign + sign + sign);
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m\xc2\xa0"),
            sign + "31m\xc2\xa0")
      << "a terminal obeys U+009B as it does ESC [";
  EXPECT_EQ(printable("\xff\xe2\x82x"), sign + sign + sign + "x");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a" + sign + "b");
  for (int i = 0; i < 65536; ++i) {
    const std::string text{static_cast<char>(i >> 8), static_cast<char>(i & 255)};
    ASSERT_TRUE(is_utf8(printable(text))) << i;
  }
}

}  // namespace
}  // namespace trireme::utf8_test
