#include "trireme/train/html/area_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/train/html/html_page.h"
#include "trireme/train/html/lanes_chart.h"

namespace trireme::area_chart_test {
namespace {

using testing::HasSubstr;
using testing::Not;

AreaChart two_parts() {
  return {.title = "bytes",
          .parts = {{"kept", "c1"}, {"<made>", "c2"}},
          .points = {{0, {1024, 0}}, {1, {1024, 2048}}, {3, {1024, 0}}},
          .end_s = 4};
}

TEST(AreaChart, stacks_parts_that_change_in_steps) {
  const std::string drawn = area_chart(two_parts());
  // The lower part from left to right at one height, and back along the ground.
  EXPECT_THAT(drawn, HasSubstr("d=\"M52.0 "));
  EXPECT_THAT(drawn, HasSubstr("H285.0"));  // 1 of 4 seconds
  EXPECT_THAT(drawn, HasSubstr("<title>&lt;made&gt;</title>"));
  EXPECT_THAT(drawn, HasSubstr("3 KiB"));
  EXPECT_THAT(drawn, Not(HasSubstr("limit")));
}

TEST(AreaChart, shows_a_limit_that_is_near) {
  AreaChart chart = two_parts();
  chart.limit = 4000;
  EXPECT_THAT(area_chart(chart), HasSubstr("class=\"limit\""));
  chart.limit = 1e9;
  EXPECT_THAT(area_chart(chart), Not(HasSubstr("class=\"limit\"")));
}

TEST(AreaChart, of_nothing_says_so) {
  EXPECT_EQ(area_chart({}), "<p class=\"none\">Nothing is kept.</p>\n");
  EXPECT_THAT(area_chart({.parts = {{"kept", "c1"}}, .points = {{0, {0}}}, .end_s = 1}), HasSubstr("Nothing is kept"));
}

TEST(AreaChart, keeps_the_fullest_moments_of_many) {
  std::vector<AreaPoint> points;
  for (int i = 0; i < 10'000; ++i) points.push_back({i * 1e-3, {i == 7654 ? 500.0 : 1.0 + i % 7}});
  const std::vector<AreaPoint> thin = fullest_points(points, 10, 100);
  EXPECT_LE(thin.size(), 100U);
  double most = 0;
  for (size_t i = 0; i < thin.size(); ++i) {
    most = std::max(most, thin[i].bytes[0]);
    if (i > 0) {
      EXPECT_GT(thin[i].at_s, thin[i - 1].at_s);
    }
  }
  EXPECT_EQ(most, 500);
  EXPECT_EQ(thin.front().at_s, 0);
}

TEST(Lanes, that_follow_each_other_in_one_colour_are_one) {
  const std::vector<LaneSpan> joined =
      joined_spans({{0, 1, "c1"}, {1, 2, "c1"}, {2, 3, "c2"}, {3.5, 4, "c2"}, {4, 5, "c2", "", "1"}}, 5);
  ASSERT_EQ(joined.size(), 4U);
  EXPECT_EQ(joined[0].end_s, 2);
  EXPECT_EQ(joined[1].end_s, 3);  // a gap stays one
  EXPECT_EQ(joined[3].label, "1");
}

TEST(HtmlTable, escapes_its_cells_and_puts_numbers_at_the_right) {
  EXPECT_THAT(html_table({"what", "ms"}, {{"<b>", "1.5"}}),
              HasSubstr("<tr><td>&lt;b&gt;</td><td class=\"n\">1.5</td></tr>"));
}

}  // namespace
}  // namespace trireme::area_chart_test
