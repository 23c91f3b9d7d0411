#include "trireme/parallel/timetable/timetable_time.h"

#include <fmt/core.h>

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme {
double cost_of(const Unit& unit, const UnitCosts& costs) {
  double cost = costs.forward;
  if (unit.pass == Unit::Pass::kInputGrad) cost = costs.input_grad;
  if (unit.pass == Unit::Pass::kWeightGrad) cost = costs.weight_grad;
  if (unit.pass == Unit::Pass::kBackward) cost = costs.input_grad + costs.weight_grad;
  return costs.of_stage.empty() ? cost : cost * costs.of_stage[static_cast<size_t>(unit.stage)];
}

namespace {

void check_costs(const UnitCosts& costs, const Timetable& timetable) {
  const bool fits = costs.of_stage.empty() || costs.of_stage.size() == static_cast<size_t>(timetable.stages);
  require(fits, "timetable '{}': costs of {} stages for {}", timetable.name, costs.of_stage.size(), timetable.stages);
  for (const double cost : {costs.forward, costs.input_grad, costs.weight_grad, costs.transfer}) {
    require(cost >= 0, "timetable '{}': a cost is negative or no number ({})", timetable.name, cost);
  }
  for (const double factor : costs.of_stage) {
    require(factor >= 0, "timetable '{}': a stage's factor is negative or no number ({})", timetable.name, factor);
  }
}

int most_live(const std::vector<Unit>& units) {
  int live = 0;
  int most = 0;
  for (const Unit& unit : units) {
    if (unit.pass == Unit::Pass::kForward) most = std::max(most, ++live);
    if (unit.pass == Unit::Pass::kBackward || unit.pass == Unit::Pass::kWeightGrad) --live;
  }
  return most;
}

}  // namespace

TimetableTime time_of(const Timetable& timetable, const UnitCosts& costs) {
  check(timetable);
  check_costs(costs, timetable);
  const UnitIndex index(timetable);
  TimetableTime out;
  out.crews.resize(timetable.crews.size());
  // When the crew may start its next unit; false while something that it needs has not run.
  const auto start = [&](size_t crew, double& at) {
    TimetableTime::Crew& own = out.crews[crew];
    for (const Unit& need : index.needs_of(timetable.crews[crew][own.units.size()])) {
      const UnitIndex::Place place = index.place_of(need);
      const auto other = static_cast<size_t>(place.crew);
      if (static_cast<size_t>(place.at) >= out.crews[other].units.size()) return false;
      const double ready = out.crews[other].units[static_cast<size_t>(place.at)].end;
      at = std::max(at, ready + (other == crew ? 0 : costs.transfer));
    }
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t crew = 0; crew < timetable.crews.size(); ++crew) {
      TimetableTime::Crew& own = out.crews[crew];
      for (double at = own.end; own.units.size() < timetable.crews[crew].size() && start(crew, at); at = own.end) {
        const double cost = cost_of(timetable.crews[crew][own.units.size()], costs);
        if (own.units.empty()) own.begin = at;
        own.units.push_back({at, at + cost});
        own.end = at + cost;
        own.busy += cost;
        moved = true;
      }
    }
  }
  for (size_t crew = 0; crew < timetable.crews.size(); ++crew) {
    out.crews[crew].live = most_live(timetable.crews[crew]);
    out.makespan = std::max(out.makespan, out.crews[crew].end);
    out.bubble = std::max(out.bubble, out.crews[crew].bubble());
  }
  return out;
}

std::string picture_of(const Timetable& timetable, const TimetableTime& time, int columns) {
  require(columns >= 1, "picture of timetable '{}': {} columns", timetable.name, columns);
  const double step = time.makespan / columns;
  std::string out;
  for (size_t crew = 0; crew < timetable.crews.size(); ++crew) {
    out += fmt::format("crew {:>2} |", crew);
    size_t at = 0;
    const std::vector<TimetableTime::Span>& spans = time.crews[crew].units;
    for (int column = 0; column < columns; ++column) {
      const double middle = (column + 0.5) * step;
      const size_t before = at;
      while (at < spans.size() && spans[at].end <= middle) ++at;
      if (at == spans.size() || spans[at].begin > middle) {
        out += " . ";
        continue;
      }
      const Unit& unit = timetable.crews[crew][at];
      const bool goes_on = column > 0 && at == before && spans[at].begin <= middle - step;
      out += goes_on ? " = " : fmt::format("{}{:<2}", to_string(unit).front(), unit.micro_batch);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
  }
  return out;
}

}  // namespace trireme
