// A plan for people to read, and as a file: text with a version that sets keys of the job. `trireme train --plan`
// follows it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/train/plan/plan_job.h"

namespace trireme {

// The best way item by item, the next ones beside it, and what became of all the others; or what is missing if none
// fits.
std::string plan_text(const JobPlan& plan, int64_t ranks, int64_t tokens_per_step, std::string_view unit);

// A line about what moves between the device, the host and the disk, and what lies there; "" if nothing does.
std::string tiers_text(const WayCost& cost);

// What a file says.
struct PlanFile {
  int64_t ranks = 1;
  std::string machine;            // by whose rates, for people
  std::string graph;              // hash of the training step
  std::vector<std::string> keys;  // "parallel.tp=2"
  int64_t step_ps = 0;
  int64_t arena_bytes = 0;  // of the rank with the most
  int64_t bound_ps = 0;
  // For a plan that was predicted by tables and then compiled: the compiled time, and the arena to the byte.
  struct Compiled {
    int64_t step_ps = 0, arena_bytes = 0;
  };
  std::optional<Compiled> compiled = {};
  PlanLedger ledger = {};
};

PlanFile plan_file(const JobPlan& plan, const PlanRequest& request);
// What the job itself says about where values lie and under what budget, as far as no way says it; this is part of what
// was planned. "parallel.home=[...]".
std::vector<std::string> keys_of_places(const JobConfig& job);
std::string to_string(const PlanFile& file);
// Whether it begins as a plan's file of some version.
bool is_plan_file(std::string_view text);
// Throws kInvalidArgument with the line's number: another version, a line that is none, counts that do not add up.
PlanFile parse_plan_file(std::string_view text);

// Throws kInvalidArgument, naming what differs, where the plan is for another number of ranks or another training step.
// `job` has the plan's keys.
void check_plan(const PlanFile& file, const JobConfig& job, int64_t ranks);

}  // namespace trireme
