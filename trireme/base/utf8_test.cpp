#include "trireme/base/utf8.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(Utf8, takes_characters_of_one_to_four_bytes) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("plain\n\x7f"));
  EXPECT_TRUE(is_utf8("\xc2\x80 \xdf\xbf \xe0\xa0\x80 \xed\x9f\xbf \xef\xbf\xbf \xf0\x90\x80\x80 \xf4\x8f\xbf\xbf"));
}

TEST(Utf8, refuses_pieces_longer_forms_surrogates_and_what_is_beyond) {
  for (const std::string_view text : {"\x80", "\xc2", "\xe2\x82", "\xf0\x9f\x98", "\xc2x", "\xe2\x82x", "\xff", "\xc0\xaf",
                                      "\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80"}) {
    EXPECT_FALSE(is_utf8(text)) << text;
  }
}

}  // namespace
}  // namespace trireme
