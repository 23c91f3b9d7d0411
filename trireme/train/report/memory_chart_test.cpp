#include "trireme/train/report/memory_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "trireme/nn/optimizer.h"
#include "trireme/ops/ops.h"

namespace trireme::memory_chart_test {
namespace {

using testing::HasSubstr;

Compiled compiled_with(const std::vector<HomeRule>& homes) {
  Graph graph("two layers");
  Tensor x(graph, graph.add_input("x", {DType::kF32, {16, 64}}, Role::kData));
  for (const char* const name : {"v", "w"}) {
    const Tensor weight(graph, graph.add_input(name, {DType::kF32, {64, 64}}, Role::kParameter));
    x = tanh(matmul(x, weight));
  }
  graph.add_output("loss", mean(square(x)).id());
  CompileOptions options;
  options.parallel.homes = homes;
  return compile(std::move(graph), options);
}

double most_of(const AreaChart& chart) {
  double out = 0;
  for (const AreaPoint& point : chart.points)
    out = std::max(out, std::accumulate(point.bytes.begin(), point.bytes.end(), 0.0));
  return out;
}

TEST(MemoryCharts, of_each_tier_are_fullest_where_the_plan_says) {
  const Compiled made = compiled_with({parse_home_rule("v = host"), parse_home_rule("w = disk")});
  std::vector<std::string> names;
  for (const auto& [name, chart] : memory_charts(made)) {
    const Tier tier = kEveryTier[names.size()];
    names.push_back(name);
    EXPECT_EQ(most_of(chart), static_cast<double>(made.plan().arena(tier).lower_bound)) << name;
    EXPECT_THAT(chart.title, HasSubstr(name));
  }
  EXPECT_THAT(names, testing::ElementsAre("device", "host", "disk"));
  EXPECT_EQ(memory_charts(compiled_with({})).size(), 1U);
}

TEST(MemoryLines, are_the_fullest_moments_of_equal_parts) {
  AreaChart chart{.title = "t", .parts = {{"state", "c1"}, {"data", "c2"}}, .points = {}, .end_s = 0.004};
  for (const double bytes : {10.0, 30.0, 20.0, 40.0})
    chart.points.push_back({0.001 * static_cast<double>(chart.points.size()), {8, bytes - 8}});
  EXPECT_EQ(memory_lines(chart, 2),
            "        ms          bytes          state           data\n"
            "     0.000             30              8             22  ##############################\n"
            "     3.000             40              8             32  ########################################\n");
}

}  // namespace
}  // namespace trireme::memory_chart_test
