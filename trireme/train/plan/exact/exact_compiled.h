// Compiles the ways that an exact plan shows, as training compiles them, to see what they take beside what their tables
// say.
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

// Up to so many ranks what a plan shows is compiled where nobody asks for it.
inline constexpr int64_t kMostRanksOfBestCompiled = 32;

// Of the plan's ways the fastest in virtual time that fits, which is the one to train by. Throws kInvalidArgument if
// none of them fits.
size_t fastest_that_fits(const ExactPlan& plan, const std::vector<CompiledWay>& compiled);

// A line for each, with how far the tables are off.
std::string compiled_text(const ExactPlan& plan, const std::vector<CompiledWay>& compiled);

}  // namespace trireme
