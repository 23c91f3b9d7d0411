// Compiles the ways that an exact plan shows, as training compiles them, to see what they take beside what their tables
// say; and others that no table knows. The fastest of all these is the one to train by.
#pragma once

#include "trireme/train/plan/exact/exact_plan.h"

namespace trireme {

struct CompiledWay {
  std::optional<WayCost> cost;  // nothing where the compiler refuses the way
  std::string refusal;
  bool fits = false;  // its arena, in the plan's memory
};

// Compiles each way of the plan, including `others`, as `request` asks for it.
std::vector<CompiledWay> compile_best(const ExactPlan& plan, const PlanRequest& request);

// Of the plan's ways the fastest in virtual time that fits; nothing if none does.
std::optional<size_t> fastest_that_fits(const std::vector<CompiledWay>& compiled);

// A way that tables know is within a proof, and flags say it: others are taken where they take less by more than this
// share of a step.
inline constexpr double kLeastGainBeside = 0.001;

// A plan with what was compiled for it.
struct CompiledPlan {
  std::vector<CompiledWay> ways;  // of the plan, as ExactPlan::way numbers them
  JobPlan beside;                 // of ways that no table knows (ways_beside.h)
  // Of the plan's ways the one to train by; nothing: the first of those beside them, if there is one.
  std::optional<size_t> which;

  bool is_beside() const { return !which && !beside.best.empty(); }
  bool has_any() const { return which || is_beside(); }
  // Of the one to train by, which there must be.
  Way way(const ExactPlan& plan) const;
  const WayCost& cost() const;
};
CompiledPlan compiled_plan(const ExactPlan& plan, const PlanRequest& request);
// Throws kInvalidArgument if ways fit by the tables, and none of all that were compiled fits.
void require_any(const ExactPlan& plan, const CompiledPlan& compiled);

// A line for each, with how far the tables are off; and what became of the ways beside them.
std::string compiled_text(const ExactPlan& plan, const CompiledPlan& compiled);

// Which of all these is the plan, where the text before does not say it, and that nothing is proven of one that does
// not fit by its tables.
std::string chosen_text(const ExactPlan& plan, const CompiledPlan& compiled);

// As all ways that were compiled and fit, by time, after the one to train by. Its ledger counts those that tables know
// as well.
JobPlan as_job_plan(const ExactPlan& plan, const CompiledPlan& compiled);

// The file of the one to train by. That of a way that no table knows predicts what it takes compiled.
PlanFile plan_file(const ExactPlan& plan, const PlanRequest& request, const CompiledPlan& compiled);

}  // namespace trireme
