// How far a search for plans is: on a terminal a line that is redrawn, elsewhere nothing.
#pragma once

#include <chrono>
#include <string>

#include "trireme/train/plan/plan_job.h"

namespace trireme::cli {

class PlanProgress {
 public:
  PlanProgress();
  ~PlanProgress() { clear(); }
  PlanProgress(const PlanProgress&) = delete;
  PlanProgress& operator=(const PlanProgress&) = delete;

  // The request's searches are shown as long as this lives.
  void watch(PlanRequest& request);
  // The terminal's line is free again.
  void clear();

 private:
  void show(const std::string& line);
  bool is_due();

  bool shows_;
  bool is_drawn_ = false;
  std::chrono::steady_clock::time_point next_ = {};
};

// "12345 of 101364 ways are left, 320 jobs of a block compiled, no way takes less than 20312.500 ms"
std::string progress_text(const ExactProgress& progress);

}  // namespace trireme::cli
