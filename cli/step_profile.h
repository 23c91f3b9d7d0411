// Where the time of a step goes: kernel by kernel, how often it runs, its time, arithmetic and bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/json_text.h"
#include "trireme/exec/run/executor.h"

namespace trireme::cli {

// A kernel and the types that it works on, in all its calls of a step.
struct ProfileRow {
  std::string kernel, operands;
  int64_t calls = 0;
  double seconds = 0, flops = 0, bytes = 0;  // by the ops' cost functions
  double share = 0;                          // of the time of all computing
};

class StepProfile {
 public:
  // From now on the executor times its actions.
  explicit StepProfile(Executor& executor);

  // After each step that counts. Of an action the step counts in which it took the least: what else the machine does
  // then weighs the least.
  void add_step();

  std::vector<ProfileRow> rows() const;  // the longest first

 private:
  Executor& executor_;
  std::vector<double> least_s_;  // of actions; empty before the first step
};

// An array of objects: `kernel`, `operands`, `calls`, `ms`, `share`, `flops`, `bytes`, `gflops_per_s`, `gb_per_s`.
JsonText profile_json(const std::vector<ProfileRow>& rows);
// The rows as a table for people, those of a kernel in one line each, and what all take together.
std::string profile_text(const std::vector<ProfileRow>& rows);

}  // namespace trireme::cli
