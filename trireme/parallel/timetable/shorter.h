// The same timetable of fewer micro-batches. Between its warm-up and its end a crew does the same over and over, each
// time for the micro-batches after those of the time before; without some of these times the timetable is one of its
// schedule still. What is compiled for the shorter one is what the whole one repeats (partition/repeat.h).
#pragma once

#include <optional>

#include "trireme/parallel/timetable/timetable.h"

namespace trireme {

struct ShorterTimetable {
  Timetable timetable;
  int left_out = 0;  // micro-batches
  struct Crew {
    int micro_batches = 1;  // that are done between two units that are the same
    Unit at;                // about before which, in the shorter timetable, the others belong; none of weight gradients
  };
  std::vector<Crew> crews;
};

// Nothing where no crew does the same for long enough, or less than half of the micro-batches could be left out.
// What is left repeats often enough, on both sides of where the others belong, that what units read of earlier ones
// has become the same each time.
std::optional<ShorterTimetable> shorter(const Timetable& timetable);

}  // namespace trireme
