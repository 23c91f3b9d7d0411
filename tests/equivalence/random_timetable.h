// Timetables that no schedule makes: stages lie on any crews, and each crew has its units in any order that can be run.
#pragma once

#include <algorithm>
#include <cstddef>
#include <set>
#include <vector>

#include "tests/equivalence/draw.h"
#include "trireme/parallel/timetable/timetable.h"

namespace trireme::equivalence {

struct TimetableSizes {
  int crews = 1;
  int stages = 1;  // as many as crews, or more
  int micro_batches = 1;
  int seq_chunks = 1;
};

// Its units, each in the crew of its stage and in no order: backward passes whole, or in two parts.
inline Timetable random_units(const TimetableSizes& sizes, Draw& draw) {
  Timetable out{.name = "drawn",
                .stages = sizes.stages,
                .micro_batches = sizes.micro_batches,
                .seq_chunks = sizes.seq_chunks,
                .crews = std::vector<std::vector<Unit>>(static_cast<size_t>(sizes.crews))};
  std::vector<int> crews;  // by stage
  for (int stage = 0; stage < sizes.stages; ++stage)
    crews.push_back(stage < sizes.crews ? stage : static_cast<int>(draw.below(sizes.crews)));
  draw.shuffle(crews);
  using enum Unit::Pass;
  for (int stage = 0; stage < sizes.stages; ++stage) {
    for (int part = 0; part < sizes.micro_batches * sizes.seq_chunks; ++part) {
      const std::vector<Unit::Pass> passes =
          draw.chance(50) ? std::vector{kForward, kBackward} : std::vector{kForward, kInputGrad, kWeightGrad};
      for (const Unit::Pass pass : passes) {
        out.crews[static_cast<size_t>(crews[static_cast<size_t>(stage)])].push_back(
            {.pass = pass,
             .stage = stage,
             .micro_batch = part / sizes.seq_chunks,
             .seq_chunk = part % sizes.seq_chunks});
      }
    }
  }
  return out;
}

inline Timetable random_timetable(const TimetableSizes& sizes, Draw& draw) {
  Timetable out = random_units(sizes, draw);
  const UnitIndex index(out);
  std::vector<Unit> waiting;
  for (std::vector<Unit>& units : out.crews) {
    waiting.insert(waiting.end(), units.begin(), units.end());
    units.clear();
  }
  std::set<Unit> done;
  const auto is_ready = [&](const Unit& unit) {
    const UnitNeeds needs = index.needs_of(unit);
    return std::ranges::all_of(needs, [&](const Unit& need) { return done.contains(need); });
  };
  while (!waiting.empty()) {
    std::vector<size_t> ready;
    for (size_t i = 0; i < waiting.size(); ++i) {
      if (is_ready(waiting[i])) ready.push_back(i);
    }
    const size_t next = draw.of(ready);
    const Unit unit = waiting[next];
    out.crews[static_cast<size_t>(index.place_of(unit).crew)].push_back(unit);
    done.insert(unit);
    waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(next));
  }
  return out;
}

}  // namespace trireme::equivalence
