#include "trireme/base/bytes_text.h"

#include <gtest/gtest.h>

namespace trireme::bytes_text_test {
namespace {

TEST(BytesText, SaysThreeDigitsInBinaryUnits) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1024), "1.00 KiB");
  EXPECT_EQ(bytes_text(1023.6 * 1024), "1.00 MiB");
  EXPECT_EQ(bytes_text(41.04 * 1024 * 1024), "41.0 MiB");
  EXPECT_EQ(bytes_text(412.0 * 1024 * 1024), "412 MiB");
  EXPECT_EQ(bytes_text(13.5 * 1024 * 1024 * 1024), "13.5 GiB");
}

}  // namespace
}  // namespace trireme::bytes_text_test
