// A cut graph computed in micro-batches, and divided among the crews. See compile.h.
#include "trireme/train/step/compile/compile.h"

#include <utility>

#include "trireme/parallel/timetable/shorter.h"
#include "trireme/partition/crews.h"
#include "trireme/partition/fewer_micro_batches.h"
#include "trireme/partition/micro_batches.h"
#include "trireme/pass/slice_crossings.h"
#include "trireme/train/step/compile/crew_stages.h"

namespace trireme {
namespace {

// The timetable of fewer micro-batches, where that saves something and passes see the same of fewer. Without a pipeline
// it is that of the one crew there is.
std::optional<ShorterTimetable> shorter_for(const Compiled& whole, const CompileOptions& options) {
  const int64_t count = micro_batches(whole.partitioned.mesh);
  const bool in_tree = options.numerics == Numerics::kInvariant;  // whose sums do not repeat, and are of 16 at most
  const bool is_small = whole.partitioned.graph.nodes().size() * static_cast<size_t>(count) < options.repeat_from;
  if (in_tree || is_small || !are_apart(whole.partitioned)) return std::nullopt;
  if (whole.timetable) return shorter(*whole.timetable);
  return shorter(timetable_for(whole.graph, {.interleave = options.parallel.interleave}, count));
}

}  // namespace

CrewPrograms unrolled(Compiled whole, const CompileOptions& options, bool may_repeat) {
  CrewPrograms made{std::move(whole), {}};
  Compiled& out = made.whole;
  const Mesh& mesh = out.partitioned.mesh;
  MicroBatchOptions how{.sums_in_tree = options.numerics == Numerics::kInvariant,
                        .interleave = options.parallel.interleave};
  const bool is_pipeline = options.parallel.pipeline.crews > 1;
  out.repeated = 0;
  if (is_pipeline) out.timetable = timetable_for(out.graph, options.parallel, micro_batches(mesh));
  const std::optional<ShorterTimetable> fewer = may_repeat ? shorter_for(out, options) : std::nullopt;
  if (fewer) {
    out.repeated = fewer->left_out;
    made.repeats.of_each = static_cast<int>(micro_batches(mesh) / (fewer->timetable.micro_batches + fewer->left_out));
    how.first = int64_t{fewer->timetable.micro_batches} * made.repeats.of_each;
    for (const ShorterTimetable::Crew& crew : fewer->crews) {
      Unit at = crew.at;
      if (!is_pipeline) at.stage = -1;
      made.repeats.crews.push_back({crew.micro_batches, fewer->left_out / crew.micro_batches, at});
    }
  }
  Program all = in_micro_batches(out.partitioned, how);
  if (!is_pipeline) {
    made.programs.push_back(std::move(all));
    return made;
  }
  made.are_joined = depend_on_each_other(all);
  if (const SliceCrossings how_sliced = options.parallel.pipeline.slice_crossings;
      how_sliced != SliceCrossings::kNever) {
    const bool always = how_sliced == SliceCrossings::kAlways;
    std::vector<PassRemark> remarks;
    all = slice_crossings(std::move(all), crews_of_stages(*out.timetable),
                          always ? std::nullopt : std::optional(out.rates), always ? &remarks : nullptr);
    out.remarks = remarks_of_crews({&remarks, 1});
  }
  made.programs = in_crews(std::exchange(all, Program()), fewer ? fewer->timetable : *out.timetable);
  return made;
}

}  // namespace trireme
