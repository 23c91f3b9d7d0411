#include "trireme/train/report/memory_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace trireme {
namespace {

constexpr size_t kMoments = 160;   // of a drawing in a report
constexpr double kBarLength = 40;  // of a line's bar, where the tier is at its fullest

double bytes_at(const AreaPoint& point) {
  return std::accumulate(point.bytes.begin(), point.bytes.end(), 0.0);
}

}  // namespace

AreaChart memory_chart(const ExecutionPlan& plan, std::span<const ActionSpan> spans, double end_s, Tier tier) {
  AreaChart out{.title = fmt::format("bytes of the {}'s memory in use over the step", to_string(tier)), .end_s = end_s};
  const std::vector<LiveBytes> live = live_bytes(plan, spans, tier);
  std::vector<size_t> kinds;
  for (size_t kind = 0; kind < kHoldings; ++kind) {
    if (std::ranges::none_of(live, [&](const LiveBytes& each) { return each.kinds[kind] > 0; })) continue;
    kinds.push_back(kind);
    out.parts.push_back({std::string(to_string(static_cast<Holding>(kind))), fmt::format("c{}", kind % 7 + 1)});
  }
  for (const LiveBytes& each : live) {
    AreaPoint& point = out.points.emplace_back(AreaPoint{.at_s = each.at_s, .bytes = {}});
    for (const size_t kind : kinds) point.bytes.push_back(static_cast<double>(each.kinds[kind]));
  }
  return out;
}

std::vector<std::pair<std::string, AreaChart>> memory_charts(const Compiled& compiled) {
  std::vector<std::vector<double>> seconds;
  for (const ExecutionPlan* const plan : compiled.plans()) seconds.push_back(action_seconds(*plan, compiled.rates));
  const VirtualTime time = virtual_time(
      compiled.plans(), {.seconds = std::move(seconds), .overlap_slowdown = compiled.rates.overlap_slowdown()});
  const ExecutionPlan& plan = largest_plan(compiled);
  const std::vector<const ExecutionPlan*> plans = compiled.plans();
  const auto crew = static_cast<size_t>(std::ranges::find(plans, &plan) - plans.begin());
  std::vector<std::pair<std::string, AreaChart>> out;
  for (const Tier tier : kEveryTier) {
    if (plan.arena(tier).bytes == 0) continue;
    AreaChart chart = memory_chart(plan, time.spans[crew], time.makespan_s, tier);
    chart.points = fullest_points(chart.points, chart.end_s, kMoments);
    out.emplace_back(to_string(tier), std::move(chart));
  }
  return out;
}

std::string memory_lines(const AreaChart& chart, size_t parts) {
  double most = 1;
  for (const AreaPoint& point : chart.points) most = std::max(most, bytes_at(point));
  std::string out = fmt::format("{:>10} {:>14}", "ms", "bytes");
  for (const AreaChart::Part& part : chart.parts) out += fmt::format(" {:>14}", part.name);
  out += "\n";
  for (const AreaPoint& point : fullest_points(chart.points, chart.end_s, parts)) {
    out += fmt::format("{:>10.3f} {:>14.0f}", point.at_s * 1e3, bytes_at(point));
    for (const double bytes : point.bytes) out += fmt::format(" {:>14.0f}", bytes);
    out += fmt::format("  {}\n", std::string(static_cast<size_t>(kBarLength * bytes_at(point) / most + 0.5), '#'));
  }
  return out;
}

}  // namespace trireme
