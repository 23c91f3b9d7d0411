// Stages: which part of a model is computed when, and where, in a pipeline. A stage is a run of the model's modules; a
// crew is the ranks that hold one stage or more (parallel/timetable). Stages are given to forward ops by the scopes
// they stand in; everything else follows:
//   forward ops of no scope that has a stage   the last stage of their operands
//   casts of a parameter to a narrower type    that of the parameter, if later stages read nothing but such casts of it
//   parts of gradients                         the stage of the op whose gradient it is
//   sums of gradients, and those of no stage   the first stage of their operands
//   updates                                    that of the parameter, which lies on the first stage that reads it
//   what depends on the batch alone            none: each stage that reads it makes its own
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/ir/graph.h"
#include "trireme/parallel/asked/scope_pattern.h"
#include "trireme/parallel/timetable/schedules.h"

namespace trireme {

// Scopes whose ops are of a stage.
using ScopeStages = std::map<std::string, int, std::less<>>;

// The last rule that matches a scope counts.
struct StageRule {
  ScopePattern pattern;
  int stage = 0;
  friend bool operator==(const StageRule&, const StageRule&) = default;
};

// Whether what crosses to another crew and lies whole on several ranks goes in slices (pass/slice_crossings.h).
enum class SliceCrossings { kAuto, kAlways, kNever };  // auto: where it is quicker by the links

// What is asked of a pipeline.
struct PipelineParallel {
  int64_t crews = 1;            // equal parts of the ranks: rank r of n is of crew r / (n / crews)
  int64_t stages_per_crew = 0;  // 0: the fewest that the schedule takes
  ScheduleSpec schedule = "1f1b";
  int64_t seq_chunks = 0;  // of a micro-batch's positions; 0: as few as the schedule takes
  SliceCrossings slice_crossings = SliceCrossings::kAuto;
  std::vector<StageRule> rules;  // none, and nothing asked by the model's code: stages that cost alike
};

// The order of work of a training step. Throws kInvalidArgument for what the schedule does not take.
Timetable timetable_of(const PipelineParallel& pipeline, int64_t micro_batches);
// The order of the forward passes alone, for as many micro-batches as there are.
Timetable forward_only(const Timetable& timetable, int64_t micro_batches);

// The scopes of the graph's forward ops, by the rules and by what the model's code asks, which rules win over; where
// nothing is asked, cut between modules (up to the first number of a path: "wte", "h.0", "h.1", "layer1.0") such that
// the slowest stage takes as short as it can, gradients included; or between modules inside these ("h.0.mlp.c_fc")
// where it then takes at least 2 % less, and what more crosses to other stages takes less than that saves. Throws
// kInvalidArgument for rules that match nothing, stages out of range, stages without ops, and models that have fewer
// modules than stages.
ScopeStages choose_stages(const Graph& graph, int stages, std::span<const StageRule> rules);

// Throws kInvalidArgument where a stage has no op, or is none of so many.
void require_all(const Graph& graph, const ScopeStages& of_scope, int stages);

// Of nodes: whether each depends on a parameter or on state, so that it is of a stage.
std::vector<char> depends_on_parameters(const Graph& graph);
// Of nodes; -1: none. Throws kInvalidArgument where an op reads what a later stage makes, naming both.
std::vector<int> stages_of(const Graph& graph, const ScopeStages& of_scope);
// Nodes that read what another stage makes.
std::set<NodeId> nodes_across_stages(const Graph& graph, const ScopeStages& of_scope);
// Of inputs: where parameters and state lie; -1 for data and schedules, which are given to all. `stages` is of nodes.
std::vector<int> stages_of_inputs(const Graph& graph, std::span<const int> stages);

}  // namespace trireme
