// From measured times of ops to a machine's rates for them (OpRate in mesh/machine.h).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/cost/op_seconds.h"
#include "trireme/mesh/machine.h"

namespace trireme {

// One call of an op that took `seconds`, and what it would take at the device's rates.
struct OpSample {
  std::string op;
  OpBound bound;
  double seconds = 0;
};

// A rate for each op by name, and at the end one for all others, "*". Each is launch_s, achievable and perhaps memory
// (OpRate) that have the least squares of errors, each divided by its time: small calls count, and long ones more. Ops
// are sorted by the time they took, the longest first. Throws kInvalidArgument without samples.
std::vector<OpRate> fit_op_rates(std::span<const OpSample> samples);

}  // namespace trireme
