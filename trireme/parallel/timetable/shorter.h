// The same timetable with fewer micro-batches. Between its warm-up and its end a crew repeats the same units, each time
// for later micro-batches. Without some of these repetitions, it is still a timetable of its schedule. The shorter one
// is compiled, and the whole one repeats what was compiled (partition/repeat.h).
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

// Nothing if no crew repeats itself for long enough, or if less than half of the micro-batches could be left out.
// Enough repetitions remain, on both sides of the place where the others belong, that what units read of earlier ones
// has become the same each time.
std::optional<ShorterTimetable> shorter(const Timetable& timetable);

}  // namespace trireme
