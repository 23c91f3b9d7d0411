#include "trireme/parallel/timetable/shorter.h"

#include <algorithm>
#include <numeric>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr int kMostTogether = 16;  // micro-batches, between two units that are the same
constexpr int kTimesBefore = 7;    // that a crew does the same before the cut, besides as long as units are apart
constexpr int kTimesAfter = 3;     // and after it

// Where a crew's units are the same as those `length` later but for their micro-batches.
struct Run {
  int together = 0;  // micro-batches between them
  int length = 0;    // units between them
  int begin = 0, end = 0;
  int reach = 0;  // units between two of them of which one reads what the other makes, at most
};

Run longest_run(const std::vector<Unit>& units, int together, int length) {
  Run best{.together = together, .length = length};
  const int last = static_cast<int>(units.size()) - length;
  for (int begin = 0; begin < last;) {
    int end = begin;
    const auto is_same = [&](int at) {
      Unit unit = units[static_cast<size_t>(at)];
      unit.micro_batch += together;
      return unit == units[static_cast<size_t>(at + length)];
    };
    while (end < last && is_same(end)) ++end;
    if (end - begin > best.end - best.begin) {
      best.begin = begin;
      best.end = end;
    }
    begin = end + 1;
  }
  best.end += best.end > best.begin ? length : 0;
  return best;
}

// Of the units of one micro-batch and stage, how far apart the first and the last are.
int reach_of(const std::vector<Unit>& units, const Run& run, const Timetable& timetable) {
  std::vector<int> first(static_cast<size_t>(timetable.stages) * static_cast<size_t>(timetable.micro_batches), -1);
  int out = 0;
  for (int at = 0; at < run.end; ++at) {
    const Unit& unit = units[static_cast<size_t>(at)];
    int& seen = first[static_cast<size_t>(unit.stage) * static_cast<size_t>(timetable.micro_batches) +
                      static_cast<size_t>(unit.micro_batch)];
    if (seen < 0) seen = at;
    if (at >= run.begin) out = std::max(out, at - seen);
  }
  return out;
}

// The run that leaves out most.
std::optional<Run> run_of(const std::vector<Unit>& units, const Timetable& timetable) {
  const auto middle = units.begin() + static_cast<std::ptrdiff_t>(units.size() / 2);
  if (middle == units.end()) return std::nullopt;
  for (int together = 1; together <= std::min(kMostTogether, timetable.micro_batches / 4); ++together) {
    Unit again = *middle;
    again.micro_batch += together;
    const auto next = std::find(middle, units.end(), again);
    if (next == units.end()) continue;
    Run run = longest_run(units, together, static_cast<int>(next - middle));
    if (2 * (run.end - run.begin) < static_cast<int>(units.size())) continue;
    run.reach = reach_of(units, run, timetable);
    return run;
  }
  return std::nullopt;
}

// Units before the cut, from the run's begin on.
int before_cut(const Run& run) {
  return run.reach + kTimesBefore * run.length;
}

}  // namespace

std::optional<ShorterTimetable> shorter(const Timetable& timetable) {
  std::vector<Run> runs;
  int step = 1;
  for (const std::vector<Unit>& units : timetable.crews) {
    const std::optional<Run> run = run_of(units, timetable);
    if (!run) return std::nullopt;
    runs.push_back(*run);
    step = std::lcm(step, run->together);
  }
  int left_out = timetable.micro_batches;
  for (const Run& run : runs) {
    const int spare = run.end - run.begin - before_cut(run) - kTimesAfter * run.length;
    left_out = std::min(left_out, spare / run.length * run.together);
  }
  left_out -= left_out % step;
  if (2 * left_out < timetable.micro_batches) return std::nullopt;
  ShorterTimetable out{
      {timetable.name, timetable.stages, timetable.micro_batches - left_out, timetable.seq_chunks, {}}, left_out, {}};
  for (size_t crew = 0; crew < runs.size(); ++crew) {
    const Run& run = runs[crew];
    const int from = run.begin + before_cut(run);
    std::vector<Unit> units = timetable.crews[crew];
    const auto cut = units.begin() + from;
    units.erase(cut, cut + left_out / run.together * run.length);
    for (auto unit = units.begin() + from; unit != units.end(); ++unit) unit->micro_batch -= left_out;
    const auto at = std::find_if(units.begin() + from, units.end(),
                                 [](const Unit& unit) { return unit.pass != Unit::Pass::kWeightGrad; });
    invariant(at != units.end(), "timetable '{}': crew {} ends with what it repeats", timetable.name, crew);
    out.crews.push_back({run.together, *at});
    out.timetable.crews.push_back(std::move(units));
  }
  const auto is_forward = [](const std::vector<Unit>& units) {
    return std::ranges::all_of(units, [](const Unit& unit) { return unit.pass == Unit::Pass::kForward; });
  };
  try {
    if (std::ranges::all_of(out.timetable.crews, is_forward)) {
      check_forward(out.timetable);
    } else {
      check(out.timetable);
    }
  } catch (const Error&) {  // crews that leave out the same number, but not the same micro-batches
    return std::nullopt;
  }
  return out;
}

}  // namespace trireme
