#include "trireme/train/html/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::chart_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

size_t count(std::string_view text, std::string_view what) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string_view::npos; at += what.size()) ++found;
  return found;
}

// No drawing may hold what a browser cannot read as a number.
void expect_only_numbers(const std::string& html) {
  EXPECT_THAT(html, Not(HasSubstr("nan")));
  EXPECT_THAT(html, Not(HasSubstr("inf")));
}

std::vector<ChartPoint> falling(size_t n) {
  std::vector<ChartPoint> points;
  for (size_t i = 0; i < n; ++i) points.push_back({static_cast<double>(i), 1.0 + 5.0 / static_cast<double>(i + 1)});
  return points;
}

// The drawing for wide screens; the other one shows the same.
std::string roomy_chart(const Chart& chart) {
  const std::string both = line_chart(chart);
  return both.substr(0, both.find("<svg class=\"chart narrow"));
}

TEST(Chart, OnePointIsAMark) {
  const std::string svg = roomy_chart({.y_name = "loss", .lines = {{"training", 1, {{5, 2.5}}, true}}});

  EXPECT_EQ(count(svg, "<circle"), 1u);
  EXPECT_THAT(svg, HasSubstr(">5</text>"));  // the step
  expect_only_numbers(svg);
}

TEST(Chart, ValuesThatAreNoNumbersLeaveAGap) {
  const std::string svg = roomy_chart(
      {.y_name = "loss", .lines = {{"training", 1, {{0, 1}, {1, 2}, {2, kNan}, {3, kInf}, {4, 1}, {5, 3}}}}});

  const std::string path = svg.substr(svg.find("<path"), svg.find("/>", svg.find("<path")) - svg.find("<path"));
  EXPECT_EQ(count(path, "M"), 2u);
  EXPECT_EQ(count(path, "L"), 2u);
  expect_only_numbers(svg);
}

TEST(Chart, OnlyValuesThatAreNoNumbersAreNoChart) {
  EXPECT_EQ(line_chart({.y_name = "loss", .lines = {{"training", 1, {{0, kNan}, {1, -kInf}}}}}),
            "<p class=\"none\">No loss was recorded.</p>\n");
}

TEST(Chart, AConstantSeriesHasRoomAroundIt) {
  const std::string svg = roomy_chart({.y_name = "loss", .lines = {{"training", 1, {{0, 0}, {1, 0}, {2, 0}}}}});

  expect_only_numbers(svg);
  EXPECT_GT(count(svg, "class=\"grid\""), 1u);
}

TEST(Chart, OneSpikeDoesNotFlattenTheRest) {
  std::vector<ChartPoint> points = falling(1000);
  points[500].y = 1e6;

  const std::string svg = roomy_chart({.y_name = "loss", .lines = {{"training", 1, points, true}}});

  EXPECT_THAT(svg, HasSubstr(">2</text>"));  // a tick of the ordinary range
  EXPECT_THAT(svg, Not(HasSubstr(">1M</text>")));
}

// A loss falls most in its first steps.
TEST(Chart, WhereALineBeginsIsInTheDrawing) {
  std::vector<ChartPoint> points = falling(1000);
  for (size_t i = 0; i < 1000; ++i)
    points[i] = {static_cast<double>(i + 1), i == 0 ? 30.0 : 2 + 3.5 / static_cast<double>(i + 1)};

  const std::string svg = roomy_chart({.y_name = "loss", .lines = {{"training", 1, points, true}}});

  EXPECT_THAT(svg, HasSubstr(">30</text>"));
  EXPECT_THAT(svg, HasSubstr("d=\"M62.0 "));  // of the first step, at the left
}

TEST(Chart, OfFewPointsNoneIsCutOff) {
  const std::string svg =
      roomy_chart({.y_name = "throughput", .lines = {{"tokens/s", 3, {{1, 100}, {2, 4000}}, true}}, .from_zero = true});

  EXPECT_THAT(svg, HasSubstr(">4000</text>"));
}

TEST(Chart, StepsAreWholeNumbersFromTheFirstOn) {
  const std::string two = roomy_chart({.y_name = "loss", .lines = {{"training", 1, {{1, 5.5}, {2, 5.2}}}}});
  EXPECT_THAT(two, HasSubstr(">1</text>"));
  EXPECT_THAT(two, HasSubstr(">2</text>"));
  EXPECT_THAT(two, Not(HasSubstr(">1.5</text>")));
  std::vector<ChartPoint> resumed;
  for (int step = 51; step <= 200; ++step) resumed.push_back({static_cast<double>(step), 1.0 / step});
  EXPECT_THAT(roomy_chart({.y_name = "loss", .lines = {{"training", 1, resumed}}}), HasSubstr(">51</text>"));
}

TEST(Chart, LabelsTellCloseValuesApart) {
  EXPECT_THAT(tick_texts({5.5411, 5.5412, 5.5413}), ElementsAre("5.5411", "5.5412", "5.5413"));
  EXPECT_THAT(tick_texts({20'000, 20'001}), ElementsAre("20000", "20001"));
  EXPECT_THAT(tick_texts({10'000, 20'000}), ElementsAre("10k", "20k"));
}

TEST(Chart, ManyPointsAreThinnedKeepingExtremesAndGaps) {
  std::vector<ChartPoint> points;
  for (int i = 0; i < 10'000; ++i) points.push_back({static_cast<double>(i), std::sin(i * 0.37)});
  points[1234].y = 50;
  points[5678].y = -50;
  points[9000].y = kNan;

  const std::vector<ChartPoint> thin = thinned(points, 100);

  EXPECT_LE(thin.size(), 202u);
  EXPECT_EQ(thin.front().x, 0);
  EXPECT_EQ(thin.back().x, 9999);
  double low = 0;
  double high = 0;
  size_t gaps = 0;
  for (size_t i = 0; i < thin.size(); ++i) {
    EXPECT_TRUE(i == 0 || thin[i].x > thin[i - 1].x) << i;
    if (std::isnan(thin[i].y)) {
      ++gaps;
      continue;
    }
    low = std::min(low, thin[i].y);
    high = std::max(high, thin[i].y);
  }
  EXPECT_EQ(high, 50);
  EXPECT_EQ(low, -50);
  EXPECT_EQ(gaps, 1u);
}

TEST(Chart, TheRunningMeanKeepsALineAndCalmsNoise) {
  std::vector<ChartPoint> line;
  std::vector<ChartPoint> noise;
  for (int i = 0; i < 800; ++i) {
    line.push_back({static_cast<double>(i), 3.0 - 0.01 * i});
    noise.push_back({static_cast<double>(i), i % 2 == 0 ? 1.0 : -1.0});
  }
  noise[400].y = kNan;

  const auto same = running_mean(line);
  const auto calm = running_mean(noise);

  for (size_t i = 0; i < line.size(); ++i) EXPECT_NEAR(same[i].y, line[i].y, 1e-9);
  for (size_t i = 50; i < 350; ++i) EXPECT_LT(std::abs(calm[i].y), 0.1);
  EXPECT_TRUE(std::isnan(calm[400].y));
}

TEST(Chart, TicksAreRoundNumbersInsideTheRange) {
  EXPECT_THAT(nice_ticks(0, 10, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(nice_ticks(1.2, 4.7, 4), ElementsAre(2, 3, 4));
  EXPECT_THAT(nice_ticks(-1, 1, 4), ElementsAre(-1, -0.5, 0, 0.5, 1));
  EXPECT_TRUE(nice_ticks(1, 1, 4).empty());
  EXPECT_TRUE(nice_ticks(0, kInf, 4).empty());
  EXPECT_TRUE(nice_ticks(kNan, 1, 4).empty());
}

TEST(Chart, NumbersAreShort) {
  EXPECT_EQ(tick_text(0.0003), "0.0003");
  EXPECT_EQ(tick_text(2000), "2000");
  EXPECT_EQ(tick_text(20'000), "20k");
  EXPECT_EQ(tick_text(1.5e6), "1.5M");
}
}  // namespace
}  // namespace trireme::chart_test
