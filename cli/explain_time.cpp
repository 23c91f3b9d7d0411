#include "cli/explain_time.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/cost/price.h"
#include "trireme/exec/analysis/virtual_time.h"
#include "trireme/train/report/trace.h"

namespace trireme::cli {
namespace {

constexpr size_t kMostShown = 32;  // ranks with a line of their own

template <class T>
bool read_whole(std::string_view text, T& value) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  return status == std::errc() && end == text.data() + text.size();
}

// By rank, `usual` but where "RANK=FIGURE" says otherwise; nothing where nobody does.
std::vector<double> figures(const std::vector<std::string>& given, std::string_view flag, size_t ranks, double usual,
                            double least) {
  if (given.empty()) return {};
  std::vector<double> out(ranks, usual);
  std::set<size_t> seen;
  for (const std::string& text : given) {
    const size_t equals = std::min(text.find('='), text.size());
    size_t rank = 0;
    double figure = 0;
    const bool ok = equals < text.size() && read_whole(std::string_view(text).substr(0, equals), rank) &&
                    read_whole(std::string_view(text).substr(equals + 1), figure);
    require(ok && std::isfinite(figure) && figure >= least && rank < ranks,
            "explain: {} '{}'; give RANK=FIGURE with a rank from 0 to {} and a figure from {:g} on, as {} 0=1.5", flag,
            text, ranks - 1, least, flag);
    require(seen.insert(rank).second, "explain: {} names rank {} twice; leave one out", flag, rank);
    out[rank] = figure;
  }
  return out;
}

std::string ms(double seconds) {
  return fmt::format("{:.3f}", seconds * 1e3);
}

double percent(double part, double whole) {
  return whole > 0 ? 100 * part / whole : 0;
}

// Of the ranks together; a lane that none of them uses is left out.
std::string lanes_table(const VirtualTime& time) {
  std::string out =
      fmt::format("{:<10} {:>12} {:>12} {:>12}   ms of a rank, on average\n", "lane", "busy", "exposed", "idle");
  const auto ranks = static_cast<double>(time.ranks.size());
  for (int i = 0; i < kLanes; ++i) {
    LaneTime sum;
    for (const RankTime& rank : time.ranks) {
      sum.busy_s += rank.lanes[static_cast<size_t>(i)].busy_s / ranks;
      sum.exposed_s += rank.lanes[static_cast<size_t>(i)].exposed_s / ranks;
    }
    const auto lane = static_cast<Lane>(i);
    if (in_background(lane) && sum.busy_s == 0 && sum.exposed_s == 0) continue;
    out += fmt::format("{:<10} {:>12} {:>12} {:>12}\n", to_string(lane), ms(sum.busy_s),
                       in_background(lane) ? ms(sum.exposed_s) : "-", ms(time.makespan_s - sum.busy_s));
  }
  return out;
}

std::string ranks_table(const VirtualTime& time) {
  std::string out =
      fmt::format("{:<10} {:>12} {:>12} {:>12} {:>12}   ms\n", "rank", "begins", "ends", "computes", "waits");
  for (size_t rank = 0; rank < std::min(time.ranks.size(), kMostShown); ++rank) {
    const RankTime& each = time.ranks[rank];
    out += fmt::format("{:<10} {:>12} {:>12} {:>12} {:>12}\n", rank, ms(each.late_s), ms(each.end_s),
                       ms(each.lane(Lane::kCompute).busy_s), ms(each.waiting_s));
  }
  if (time.ranks.size() > kMostShown) out += fmt::format("and {} ranks more\n", time.ranks.size() - kMostShown);
  return out;
}

}  // namespace

void write_trace(const CrewPlans& crews, const VirtualTime& time, const std::string& path) {
  std::vector<std::pair<int, std::string>> events;
  for (size_t crew = 0; crew < crews.size(); ++crew) {
    Trace trace(static_cast<int>(static_cast<int64_t>(crew) * crews[crew]->mesh.devices()));
    trace.add(*crews[crew], time.spans[crew]);
    events.emplace_back(trace.rank(), trace.events());
  }
  atomic_write(path, trace_file(events));
}

VirtualTime modelled_step(const CrewPlans& crews, const Rates& rates, const UnlikeRanks& unlike) {
  const size_t ranks = static_cast<size_t>(crews[0]->mesh.devices()) * crews.size();
  std::vector<std::vector<double>> seconds;
  for (const ExecutionPlan* plan : crews) seconds.push_back(action_seconds(*plan, rates));
  VirtualTime out = virtual_time(crews, {.seconds = std::move(seconds),
                                         .slowness = figures(unlike.slow, "--slow", ranks, 1, 1e-6),
                                         .late_s = figures(unlike.late, "--late", ranks, 0, 0),
                                         .overlap_slowdown = rates.overlap_slowdown()});
  check_step(out.makespan_s);
  return out;
}

std::string time_text(const CrewPlans& crews, const Rates& rates, const VirtualTime& time, bool by_rank) {
  const size_t ranks = time.ranks.size();
  const Machine machine = rates.machine ? *rates.machine : Machine::this_host();
  if (const std::string remark = remark_on_ranks(machine, static_cast<int64_t>(ranks)); !remark.empty()) {
    TRIREME_LOG(kWarn, "cli", "{}", remark);
  }
  std::string out = fmt::format("modelled step of {} rank{}: {} ms, by the rates of {}\n", ranks, ranks == 1 ? "" : "s",
                                ms(time.makespan_s), named_rates(machine));
  out += lanes_table(time);
  double exposed_s = 0, waiting_s = 0, busy_s = 0;
  for (const RankTime& rank : time.ranks) {
    waiting_s += rank.waiting_s;
    for (int i = 0; i < kLanes; ++i) {
      if (!communicates(static_cast<Lane>(i))) continue;
      exposed_s += rank.lanes[static_cast<size_t>(i)].exposed_s;
      busy_s += rank.lanes[static_cast<size_t>(i)].busy_s;
    }
  }
  const auto count = static_cast<double>(ranks);
  out += fmt::format(
      "communication: {} ms of {} exposed, {:.1f} % hidden; {} ms of waiting for other ranks; {:.1f} % of the "
      "time a rank does not compute\n",
      ms(exposed_s / count), ms(busy_s / count), percent(std::max(0.0, busy_s - exposed_s), busy_s),
      ms(waiting_s / count), 100 * time.idle_share());
  for (size_t crew = 0; crew < crews.size(); ++crew) {
    const std::vector<LiveBytes> live = live_bytes(*crews[crew], time.spans[crew]);
    const auto most = std::max_element(live.begin(), live.end(),
                                       [](const LiveBytes& a, const LiveBytes& b) { return a.bytes < b.bytes; });
    out += fmt::format("most bytes in use{}: {} at {} ms\n", crews.size() > 1 ? fmt::format(" on crew {}", crew) : "",
                       most->bytes, ms(most->at_s));
  }
  return by_rank ? out + ranks_table(time) : out;
}

}  // namespace trireme::cli
