// One action with everything it needs, ready to run.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/exec/background/background.h"
#include "trireme/exec/plan/execution_plan.h"
#include "trireme/op/op_def.h"

namespace trireme {

using Clock = std::chrono::steady_clock;

struct Bound {
  const Action* action = nullptr;
  std::string what;  // "in matmul at 'h.0'", for errors
  std::vector<View> in, out;
  std::vector<Place> in_place, out_place;
  std::span<std::byte> scratch;
  KernelFn* kernel = nullptr;
  std::shared_ptr<void> kernel_state;
  std::unique_ptr<Background> background;
  bool sends = false;      // the background work has other members than this rank
  Clock::time_point sent;  // when it was started in this step
  int dim = 0;             // of a local cut, and which part of it
  int64_t part = 0;
  double seconds = 0;
};

}  // namespace trireme
