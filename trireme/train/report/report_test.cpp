#include "trireme/train/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/train/html/chart.h"

namespace trireme::report_test {
namespace {

using testing::HasSubstr;
using testing::Not;

size_t count(std::string_view text, std::string_view what) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string_view::npos; at += what.size()) ++found;
  return found;
}

std::vector<ChartPoint> falling(size_t n) {
  std::vector<ChartPoint> points;
  for (size_t i = 0; i < n; ++i) points.push_back({static_cast<double>(i), 1.0 + 5.0 / static_cast<double>(i + 1)});
  return points;
}

ReportData whole_report() {
  ReportData data;
  data.title = "gpt";
  data.summary = "100 steps";
  data.headline = {{"loss", "1.5"}};
  data.facts = {{"ranks", "4"}, {"command", "trireme train gpt.toml -n 4 --steps 100"}};
  data.train_loss = falling(100);
  data.validation_loss = {{49, 2.0}, {99, 1.5}};
  data.throughput = falling(100);
  data.learning_rate = falling(100);
  data.memory = {{"parameters", 6 << 20}, {"activations", 2 << 20}};
  data.memory_limit = 16 << 20;
  data.time = {{"matmul", 60}, {"waited for peers", 40, TimeGroup::kCommunication}};
  data.hidden_comm_ms = 12.5;
  data.run_time = {{"100 steps", 10}, {"validation", 2}, {"checkpoints", 0.05}, {"between them", 0}};
  data.samples = {{"To be", " or not"}};
  return data;
}

TEST(Report, HoldsEverySectionAndNeedsNothingFromOutside) {
  const std::string html = render_report(whole_report());

  for (const char* title :
       {"Loss", "Throughput", "Learning rate", "Memory", "Time of a step", "Time of the run", "The run", "Samples"}) {
    EXPECT_EQ(count(html, std::string("<h2>") + title + "<"), 1u) << title;
  }
  EXPECT_EQ(count(html, "<svg class=\"chart roomy"), 3u);
  EXPECT_EQ(count(html, "<svg class=\"chart narrow"), 3u);
  EXPECT_EQ(count(html, "<section>"), count(html, "</section>"));
  EXPECT_EQ(count(html, "<div"), count(html, "</div>"));
  EXPECT_THAT(html, Not(HasSubstr("src=")));
  EXPECT_THAT(html, Not(HasSubstr("href=")));
  EXPECT_THAT(html, Not(HasSubstr("@import")));
  const std::string drawn = html.substr(0, html.find("<script>"));
  EXPECT_THAT(drawn, Not(HasSubstr("nan")));
  EXPECT_THAT(drawn, Not(HasSubstr("inf")));
}

TEST(Report, TextOfAnyKindIsEscaped) {
  ReportData data = whole_report();
  const std::string evil = "<script>alert('x')</script>\"&\x01";
  const std::string safe = "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&amp;\xef\xbf\xbd";
  data.title = data.summary = evil;
  data.headline = {{evil, evil}};
  data.facts = {{evil, evil}};
  data.unit = evil;
  data.memory = {{evil, 1}};
  data.time = {{evil, 1}};
  data.samples = {{evil, evil}};

  const std::string html = render_report(data);

  EXPECT_EQ(count(html, "<script>"), 1u);  // the page's own
  EXPECT_THAT(html, Not(HasSubstr("alert('x')")));
  EXPECT_THAT(html, HasSubstr("<title>" + safe + "</title>"));
  EXPECT_THAT(html, HasSubstr("<pre>\n<b>" + safe + "</b>" + safe + "</pre>"));
}

TEST(Report, AnEmptyRunStillGivesAPage) {
  const std::string html = render_report({});

  EXPECT_THAT(html, HasSubstr("<p class=\"none\">No loss was recorded.</p>"));
  EXPECT_THAT(html, Not(HasSubstr("<h2>Memory")));
  EXPECT_THAT(html, Not(HasSubstr("<svg")));
}

TEST(Report, MemoryIsShownInShares) {
  const std::string html = render_report(whole_report());

  EXPECT_THAT(html, HasSubstr("8.00 MiB of 16.0 MiB, on the rank with the most"));
  EXPECT_THAT(html, HasSubstr("parameters</td><td>6.00 MiB</td><td>37.5 %</td>"));
  EXPECT_THAT(html, HasSubstr("free</td><td>8.00 MiB</td><td>50.0 %</td>"));
}

TEST(Report, TimeSumsSmallOperatorsAndKeepsTheOtherGroups) {
  ReportData data;
  for (int i = 1; i <= 8; ++i) data.time.push_back({"op" + std::to_string(i), static_cast<double>(i)});
  data.time.push_back({"data", 4, TimeGroup::kData});
  data.hidden_comm_ms = 12.5;

  const std::string html = render_report(data);

  EXPECT_THAT(html, HasSubstr("40.0 ms on average"));
  EXPECT_THAT(html, HasSubstr("op8</td><td>8.0 ms</td><td>20.0 %</td>"));
  EXPECT_THAT(html, HasSubstr("4 other operators</td><td>10.0 ms</td>"));
  EXPECT_THAT(html, Not(HasSubstr("op4</td>")));
  EXPECT_THAT(html, HasSubstr("data</td><td>4.0 ms</td><td>10.0 %</td>"));
  EXPECT_THAT(html, HasSubstr("Another 12.5 ms of communication"));
}

TEST(Report, WhatIsNoPartOfAStepStandsBesideIt) {
  const std::string html = render_report(whole_report());

  EXPECT_THAT(html, HasSubstr("12.1 s from the first step on"));
  EXPECT_THAT(html, HasSubstr("100 steps</td><td>10.0 s</td>"));
  EXPECT_THAT(html, HasSubstr("checkpoints</td><td>50.0 ms</td>"));
  EXPECT_THAT(html, Not(HasSubstr("between them")));  // nothing
}

TEST(Report, IsWrittenWhole) {
  const TempDirectory dir;
  write_report(dir / "report.html", whole_report());

  EXPECT_EQ(read_file(dir / "report.html"), render_report(whole_report()));
}

}  // namespace
}  // namespace trireme::report_test
