#include "trireme/base/append_text.h"

#include <gtest/gtest.h>

namespace trireme::append_text_test {

TEST(AppendText, adds_what_format_makes) {
  std::string out = "a";
  append_text(out, " {:.2f} {}", 0.5, "b");
  append_text(out, "");
  EXPECT_EQ(out, "a 0.50 b");
}

}  // namespace trireme::append_text_test
