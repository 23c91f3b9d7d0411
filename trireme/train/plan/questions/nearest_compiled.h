// What to change when no compiled way of a job fits (for the exact search, exact/nearest_fit.h says it): changes with
// which ways like the smallest one were compiled and fit. Other ways may fit with smaller changes.
#pragma once

#include <optional>
#include <string>

#include "trireme/train/plan/plan_job.h"

namespace trireme {

struct NearestCompiled {
  struct Change {
    int64_t to = 0;
    Way way;  // that fits then
    int64_t bytes = 0;
  };
  int64_t memory_bytes = 0;            // with so much on each device the smallest fits; 0: it lacks others, too
  bool is_budgeted = false;            // by parallel.device_memory
  std::optional<Change> ranks, batch;  // the first of twice as many, four times and so on; of half, a quarter and so on
  int64_t most_ranks = 0;              // that were looked at
};

inline constexpr int kMostCompiledDoublings = 4;

// For a plan in which nothing fits; nothing if it has no smallest way.
std::optional<NearestCompiled> nearest_compiled(const PlanRequest& request, const JobPlan& plan);

// Lines that say it.
std::string nearest_text(const NearestCompiled& nearest);

}  // namespace trireme
