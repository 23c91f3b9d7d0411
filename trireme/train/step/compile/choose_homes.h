// Homes under a budget: which values leave the device's memory so that a rank takes no more of each tier than it may.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/exec/plan/execution_plan.h"
#include "trireme/ir/program.h"
#include "trireme/parallel/asked/tier_sizes.h"
#include "trireme/pass/home_candidates.h"
#include "trireme/pass/passes.h"

namespace trireme {

// A program with moves, its plan, and what was chosen for them besides the rules that were given.
struct ChosenHomes {
  Program program;
  ExecutionPlan plan;
  PassOptions passes;
  std::vector<ChosenRule> chosen;  // in the order in which they count
};

struct WaysToPlan {
  std::function<Program(const PassOptions&)> program_of;  // after all passes that do not go by homes
  std::function<ExecutionPlan(const Program&)> plan_of;
};

// No choice keeps within what there is of a tier; the text has a size that fits.
class TooLittleMemory : public Error {
 public:
  TooLittleMemory(Tier tier, int64_t needed, std::string text)
      : Error(ErrorKind::kInvalidArgument, std::move(text)), tier_(tier), needed_(needed) {}
  Tier tier() const { return tier_; }
  int64_t needed() const { return needed_; }  // bytes

 private:
  Tier tier_;
  int64_t needed_;
};

// Of several crews that were refused, the one that needs most of the first tier is told, as its size fits all. None:
// does nothing.
void throw_largest(const std::vector<std::optional<TooLittleMemory>>& refused);

// The fewest parts of the model leave that do, those first that are away longest for each byte that moves; of these,
// what is read soonest lies on the host, as far as that has room, and the rest on the disk, if sizes.disk is given;
// what is kept for the backward pass is computed again instead, where that takes less than waiting for it. What lies on
// the host because ops run there shares its room with these, and goes on to the disk likewise. Where the plan fits
// without, nothing is chosen. Throws TooLittleMemory where no choice does.
ChosenHomes choose_homes(const PassOptions& passes, const TierSizes& sizes, const WaysToPlan& ways);

// Throws kInvalidArgument, with both, when a rank's memory on the device, or of this host where the device names none,
// does not hold what the plan takes, or `sizes` allows less of a tier.
void require_fits(const ExecutionPlan& plan, const Device& device, const TierSizes& sizes = {});
// Whether a plan that is only looked at has a bound to keep.
bool is_bounded(const Device& device, const TierSizes& sizes);

}  // namespace trireme
