// The learning rate over the steps of a run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/keys.h"

namespace trireme {

struct Schedule {
  enum class Kind { kConstant, kLinear, kCosine };
  Kind kind = Kind::kConstant;
  int64_t warmup_steps = 0;  // linear, from 0
  double final_ratio = 0.1;  // the last step's rate as a share of the peak; not of kConstant
};

// The section [train].
std::vector<Key> keys_of(Schedule& schedule);

// The rate of step `step`, counted from 1, of `total`.
double rate_at(const Schedule& schedule, double peak, int64_t step, int64_t total);

}  // namespace trireme
