#include <deque>

#include "trireme/base/error.h"
#include "trireme/parallel/timetable/schedules.h"

namespace trireme::schedule {

void fill_with_weight_grads(Timetable& timetable, int most_live) {
  struct Crew {
    size_t next = 0;
    int live = 0;
    std::deque<Unit> waiting = {};  // weight gradients whose input gradients are done
    std::vector<Unit> order = {};
  };
  const UnitIndex index(timetable);
  const std::vector<std::vector<Unit>>& given = timetable.crews;
  std::vector<Crew> crews(given.size());
  std::vector<std::vector<int>> done_at(given.size());  // the slot in which each unit of the given orders ran
  const auto is_ready = [&](const Unit& unit, int slot) {
    for (const Unit& need : index.needs_of(unit)) {
      const UnitIndex::Place place = index.place_of(need);
      const std::vector<int>& done = done_at[static_cast<size_t>(place.crew)];
      if (static_cast<size_t>(place.at) >= done.size() || done[static_cast<size_t>(place.at)] >= slot) return false;
    }
    return true;
  };
  const auto has_ended = [&](size_t i) { return crews[i].next == given[i].size() && crews[i].waiting.empty(); };
  for (int slot = 0;; ++slot) {
    bool ended = true;
    bool moved = false;
    for (size_t i = 0; i < crews.size(); ++i) {
      if (has_ended(i)) continue;
      ended = false;
      Crew& crew = crews[i];
      const bool may_run = crew.next < given[i].size() && is_ready(given[i][crew.next], slot);
      if (may_run && !(given[i][crew.next].pass == Unit::Pass::kForward && crew.live >= most_live)) {
        const Unit unit = given[i][crew.next++];
        crew.order.push_back(unit);
        done_at[i].push_back(slot);
        if (unit.pass == Unit::Pass::kForward) {
          ++crew.live;
        } else {
          crew.waiting.push_back({Unit::Pass::kWeightGrad, unit.stage, unit.micro_batch, unit.seq_chunk});
        }
      } else if (!crew.waiting.empty()) {
        crew.order.push_back(crew.waiting.front());
        crew.waiting.pop_front();
        --crew.live;
      } else {
        continue;
      }
      moved = true;
    }
    if (ended) break;
    // What ran in a slot can be read in the next, so that nothing ever will run after a slot in which nothing did.
    invariant(moved, "schedule: crews wait for each other with at most {} units kept", most_live);
  }
  for (size_t i = 0; i < crews.size(); ++i) timetable.crews[i] = std::move(crews[i].order);
}

}  // namespace trireme::schedule
