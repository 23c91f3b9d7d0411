// A cut graph computed in micro-batches, and divided among the crews. See compile.h.
#include "trireme/train/step/compile.h"

#include <utility>

#include "trireme/parallel/timetable/shorter.h"
#include "trireme/partition/crews.h"
#include "trireme/partition/fewer_micro_batches.h"
#include "trireme/partition/micro_batches.h"
#include "trireme/pass/slice_crossings.h"
#include "trireme/train/step/crew_stages.h"

namespace trireme {
namespace {

// The timetable of fewer micro-batches, where that saves something and passes see the same of fewer.
std::optional<ShorterTimetable> shorter_for(const Compiled& whole, const CompileOptions& options) {
  const auto count = static_cast<size_t>(micro_batches(whole.partitioned.mesh));
  const bool in_tree = options.numerics == Numerics::kInvariant;  // whose sums do not repeat
  const bool is_small = whole.partitioned.graph.nodes().size() * count < options.repeat_from;
  if (in_tree || is_small || !are_apart(whole.partitioned)) return std::nullopt;
  return shorter(*whole.timetable);
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
  std::optional<ShorterTimetable> fewer;
  if (is_pipeline) {
    out.timetable = timetable_for(out.graph, options.parallel, micro_batches(mesh));
    if (may_repeat) fewer = shorter_for(out, options);
  }
  if (fewer) {
    out.repeated = fewer->left_out;
    made.repeats.of_each = static_cast<int>(micro_batches(mesh) / out.timetable->micro_batches);
    how.first = int64_t{fewer->timetable.micro_batches} * made.repeats.of_each;
    for (const ShorterTimetable::Crew& crew : fewer->crews)
      made.repeats.crews.push_back({crew.micro_batches, fewer->left_out / crew.micro_batches, crew.at});
  }
  Program all = in_micro_batches(out.partitioned, how);
  if (!is_pipeline) {
    made.programs.push_back(std::move(all));
    return made;
  }
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
