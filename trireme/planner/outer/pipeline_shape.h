// What a schedule costs in addition to its passes, read off its timetables.
#pragma once

#include <string_view>

#include "trireme/planner/outer/stage_problem.h"

namespace trireme {

// Of so many crews of `chunks` stages each. The multiples are exact for passes that take about as long as each other,
// messages that take much less, and micro-batches as many as the crews or more (with several stages a crew three times
// as many: of fewer a crew may hold less). Throws as make_timetable does, and kUnsupported for schedules whose idle
// time grows with the micro-batches.
PipelineShape shape_of_schedule(std::string_view schedule, int64_t crews, int64_t chunks = 1);

}  // namespace trireme
