// What a schedule costs in addition to its passes, read off its timetables.
#pragma once

#include "trireme/parallel/timetable/schedules.h"
#include "trireme/planner/outer/stage_problem.h"

namespace trireme {

// The shape for so many crews of `chunks` stages each. The multiples are exact if passes take about equally long,
// messages take much less, and there are at least as many micro-batches as crews. (With several stages per crew and
// fewer than three times as many micro-batches as crews a crew may hold less.) Throws as make_timetable does, and
// kUnsupported for schedules whose idle time grows with the micro-batches, or whose crews do not go through several
// stages in turn.
PipelineShape shape_of_schedule(const PipelineSchedule& schedule, int64_t crews, int64_t chunks = 1);

}  // namespace trireme
