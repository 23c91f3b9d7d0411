#include "trireme/base/clock.h"

#include <gtest/gtest.h>

#include <limits>

namespace trireme::clock_test {
namespace {

TEST(Clock, DurationsReadAsAPersonWouldWriteThem) {
  EXPECT_EQ(duration_text(0.000412), "412 us");
  EXPECT_EQ(duration_text(0.0031), "3.1 ms");
  EXPECT_EQ(duration_text(59.2), "59.2 s");
  EXPECT_EQ(duration_text(59.97), "1m00s");
  EXPECT_EQ(duration_text(725), "12m05s");
  EXPECT_EQ(duration_text(3 * 3600 + 4 * 60 + 10), "3h04m");
  EXPECT_EQ(duration_text(51 * 3600), "2d03h");
  EXPECT_EQ(duration_text(-1), "?");
  EXPECT_EQ(duration_text(std::numeric_limits<double>::quiet_NaN()), "?");
  EXPECT_EQ(duration_text(std::numeric_limits<double>::infinity()), "?");
}

TEST(Clock, ADeadlineInThePastHasPassedAndLeavesNoTime) {
  const Deadline over{std::chrono::milliseconds(0)};
  EXPECT_TRUE(over.passed());
  EXPECT_EQ(over.remaining().count(), 0);

  const Deadline ahead{std::chrono::hours(1)};
  EXPECT_FALSE(ahead.passed());
  EXPECT_GT(ahead.remaining().count(), 0);
}

TEST(Clock, TheDateIsThatOfGreenwich) {
  EXPECT_EQ(utc_text(0), "1970-01-01 00:00 UTC");
  EXPECT_EQ(utc_text(1709251199.9), "2024-02-29 23:59 UTC");
}

TEST(Clock, TimeOfDayHasMilliseconds) {
  const std::string text = time_of_day();
  ASSERT_EQ(text.size(), 12u);
  EXPECT_EQ(text[2], ':');
  EXPECT_EQ(text[8], '.');
}

}  // namespace
}  // namespace trireme::clock_test
