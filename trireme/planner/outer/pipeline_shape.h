// What a schedule costs beside its passes, read off its timetables.
#pragma once

#include <string_view>

#include "trireme/planner/outer/stage_problem.h"

namespace trireme {

// Of so many crews of one stage each. The multiples are exact for passes that take about as long as each other and
// micro-batches as many as the crews or more. Throws as make_timetable does, and kUnsupported for schedules whose idle
// time grows with the micro-batches.
PipelineShape shape_of_schedule(std::string_view schedule, int64_t crews);

}  // namespace trireme
