// The searches `exact` and `compiled` of the mode auto_parallel. Such a job does not say how it is cut: before it is,
// it is planned as `trireme plan` plans it by that search, and what comes out is a job whose keys say all that was
// chosen. Keys that the job itself sets are kept.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trireme/train/plan/plan_job.h"

namespace trireme::comm {
class World;
}

namespace trireme {

// Mode auto_parallel with such a search. Until it is planned nothing can be compiled for the job.
bool is_left_to_plan(const JobConfig& job);

struct AutoRequest {
  JobConfig job;
  int64_t ranks = 1;
  int threads = 1;  // of a rank
  // Of keys that say how a job is cut ("parallel.pp"), those that count at their default, too. The others ask for
  // nothing there, so the plan chooses them.
  std::vector<std::string> said = {};
  std::function<void(size_t number, size_t of)> on_way = {};  // as of PlanRequest
  std::function<void(const ExactProgress&)> on_exact = {};
};

struct AutoPlan {
  JobConfig job;          // cut as planned
  std::string file = {};  // for `train --plan`; but for comments that of `trireme plan --out`
  std::string text = {};  // about ten lines; on rank 0 alone
  std::string way = {};   // as flags; on rank 0 alone
};

// Throws kInvalidArgument if nothing fits, saying what would; for what a plan cannot keep: rules, a mesh, a strategy,
// ways that the search does not look at; and for a value that no way has, listing those that there are. The exact
// search throws kUnsupported for models that it does not price (parts/model_parts.h).
AutoPlan auto_plan(const AutoRequest& request);

// The same for all ranks of a running job, each of which calls it with the same job: rank 0 plans, the others get its
// plan and throw kInvalidArgument if it is for another job than theirs. Collective, but for a null world. Every so many
// seconds rank 0 tells those that wait that it still plans, so that none gives up (comm::WorldOptions::deadline).
AutoPlan auto_plan(const AutoRequest& request, comm::World* world, double tell_every_s = 20);

// Throws what auto_plan throws before it searches. For a launcher, which need not start ranks for that.
void check_auto_plan(const AutoRequest& request);

}  // namespace trireme
