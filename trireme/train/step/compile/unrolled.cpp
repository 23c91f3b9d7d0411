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

BeforeCrews before_crews(Compiled whole, const CompileOptions& options, int64_t first) {
  BeforeCrews made;
  made.whole = std::move(whole);
  Compiled& out = made.whole;
  const bool is_pipeline = options.parallel.pipeline.crews > 1;
  if (is_pipeline && !out.timetable)
    out.timetable = timetable_for(out.graph, options.parallel, micro_batches(out.partitioned.mesh));
  made.program = in_micro_batches(out.partitioned, {.sums_in_tree = options.numerics == Numerics::kInvariant,
                                                    .interleave = options.parallel.interleave,
                                                    .first = first});
  if (!is_pipeline) return made;
  made.are_joined = depend_on_each_other(made.program);
  if (const SliceCrossings how_sliced = options.parallel.pipeline.slice_crossings;
      how_sliced != SliceCrossings::kNever) {
    const bool always = how_sliced == SliceCrossings::kAlways;
    std::vector<PassRemark> remarks;
    made.program = slice_crossings(std::move(made.program), crews_of_stages(*out.timetable),
                                   always ? std::nullopt : std::optional(out.rates), always ? &remarks : nullptr);
    out.remarks = remarks_of_crews({&remarks, 1});
  }
  return made;
}

CrewPrograms unrolled(Compiled whole, const CompileOptions& options, bool may_repeat) {
  const Mesh& mesh = whole.partitioned.mesh;
  int64_t first = 0;
  CrewRepeats repeats;
  const bool is_pipeline = options.parallel.pipeline.crews > 1;
  whole.repeated = 0;
  whole.timetable.reset();
  if (is_pipeline) whole.timetable = timetable_for(whole.graph, options.parallel, micro_batches(mesh));
  const std::optional<ShorterTimetable> fewer = may_repeat ? shorter_for(whole, options) : std::nullopt;
  if (fewer) {
    whole.repeated = fewer->left_out;
    repeats.of_each = static_cast<int>(micro_batches(mesh) / (fewer->timetable.micro_batches + fewer->left_out));
    first = int64_t{fewer->timetable.micro_batches} * repeats.of_each;
    for (const ShorterTimetable::Crew& crew : fewer->crews) {
      Unit at = crew.at;
      if (!is_pipeline) at.stage = -1;
      repeats.crews.push_back({crew.micro_batches, fewer->left_out / crew.micro_batches, at});
    }
  }
  BeforeCrews all = before_crews(std::move(whole), options, first);
  CrewPrograms made;
  made.whole = std::move(all.whole);
  made.repeats = std::move(repeats);
  if (is_pipeline) {
    made.programs = in_crews(std::exchange(all.program, Program()), fewer ? fewer->timetable : *made.whole.timetable);
  } else {
    made.programs.push_back(std::move(all.program));
  }
  return made;
}

}  // namespace trireme
