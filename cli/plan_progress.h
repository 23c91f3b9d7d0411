// How far a search for plans is: on a terminal a line that is redrawn, elsewhere nothing.
#pragma once

#include <functional>
#include <string>

#include "cli/progress_line.h"
#include "trireme/train/plan/auto/auto_plan.h"

namespace trireme::cli {

class PlanProgress {
 public:
  // The request's searches are shown as long as this lives.
  void watch(PlanRequest& request);
  void watch(AutoRequest& request);
  // The terminal's line is free again.
  void clear() { line_.clear(); }

 private:
  std::function<void(size_t number, size_t of)> on_way();
  std::function<void(const ExactProgress&)> on_exact();

  ProgressLine line_;
};

// "12345 of 101364 ways are left, 320 jobs of a block compiled, no way takes less than 20312.500 ms"
std::string progress_text(const ExactProgress& progress);

}  // namespace trireme::cli
