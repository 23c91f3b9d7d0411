#include "trireme/train/step/compile/crew_stages.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/log.h"

namespace trireme {
namespace {

bool trains(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const Node& n) { return n.phase == Phase::kBackward; });
}

// Of the step, whose stages and order forward passes alone have, too: as if there were enough micro-batches for it.
Timetable timetable_of_step(const Graph& graph, const Parallel& parallel) {
  const int64_t micro_batches = micro_batches_of(parallel);
  if (trains(graph)) return timetable_of(parallel.pipeline, micro_batches);
  const Timetable* const given = parallel.pipeline.schedule.given();
  return timetable_of(parallel.pipeline,
                      given ? given->micro_batches : std::max(micro_batches, parallel.pipeline.crews));
}

}  // namespace

ScopeStages stages_for(const Graph& graph, const Parallel& parallel, const ScopeStages& given) {
  if (parallel.pipeline.crews == 1 || !given.empty()) return given;
  return choose_stages(graph, timetable_of_step(graph, parallel).stages, parallel.pipeline.rules);
}

void check_written_stages(const Graph& graph, const ScopeStages& stages, const Parallel& parallel) {
  if (parallel.pipeline.crews == 1) {
    TRIREME_LOG(kWarn, "plan",
                "the stages in the strategy's file change nothing: the job has no pipeline (parallel.pp)");
    return;
  }
  try {
    require_all(graph, stages, timetable_of_step(graph, parallel).stages);
  } catch (Error& e) {
    e.note("the stages are those of the strategy's file");
    throw;
  }
}

Timetable timetable_for(const Graph& graph, const Parallel& parallel, int64_t parts) {
  const int64_t micro_batches = parts / parts_of_micro_batch(parallel);
  return trains(graph) ? timetable_of(parallel.pipeline, micro_batches)
                       : forward_only(timetable_of_step(graph, parallel), micro_batches);
}

}  // namespace trireme
