// Where the time of a step goes: kernel by kernel, how often it runs, its time, arithmetic and bytes.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "trireme/exec/run/executor.h"

namespace trireme::cli {

class StepProfile {
 public:
  // From now on the executor times its actions.
  explicit StepProfile(Executor& executor);

  // After each step that counts. Of an action the step counts in which it took the least: what else the machine does
  // then weighs the least.
  void add_step();

  // One for each kernel and the types that it works on, the longest first: `kernel`, `operands`, `calls`, `ms` of all
  // calls, `share` of all computing, `flops` and `bytes` by the ops' cost functions, `gflops_per_s`, `gb_per_s`.
  nlohmann::ordered_json rows() const;

 private:
  Executor& executor_;
  std::vector<double> least_s_;  // of actions; empty before the first step
};

// The rows as a table for people, those of a kernel in one line each, and what all take together.
std::string profile_text(const nlohmann::ordered_json& rows);

}  // namespace trireme::cli
