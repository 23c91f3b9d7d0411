// What a model's code asks about how its modules are run, by the scope of each module. Passes and plans read it from
// the traced graph.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/layout/cuts.h"

namespace trireme {

// What the model's code asks of a pipeline: that the ops of the scope, and of those inside it, are of this stage.
struct StageRequest {
  std::string scope;
  int stage = 0;
  friend bool operator==(const StageRequest&, const StageRequest&) = default;
};

// What the model's code asks of how it is cut: the cuts of the operands of one op. The op is the first one in the scope
// whose operands have these numbers of dimensions.
struct ShardRequest {
  std::string scope;
  Cuts cuts;
  friend bool operator==(const ShardRequest&, const ShardRequest&) = default;
};

// What the model's code asks: that the collectives of the scope's parameters, and with `inside` of those in the scopes
// inside it, are taken together with others of this id (parallel/asked/fusion.h). `order`: of what is asked; the last
// counts.
struct FusionRequest {
  std::string scope;
  int64_t id = 0;
  bool inside = true;
  uint64_t order = 0;
};

// What the model's code asks of how the backward pass gets the values that the scope's ops make, and those inside it
// (pass/passes.h has what each means).
struct RecomputeRequest {
  std::string scope;
  bool again = true;
  bool mp_comm = true;
  bool optimizer_comm = true;
  bool slice = false;
  friend bool operator==(const RecomputeRequest&, const RecomputeRequest&) = default;
};

// What the model's code asks: that the scope's ops, and those inside it, run on the host, or on the device whatever is
// asked of the scope around it (parallel/asked/op_homes.h).
struct HostRequest {
  std::string scope;
  bool on_host = true;
  friend bool operator==(const HostRequest&, const HostRequest&) = default;
};

// What the model's code asks: where parameters, the optimizer's state of them or their gradients lie while nothing
// reads them. A rule as parallel.home has it, "h.0/state = disk" (parallel/asked/home_rules.h).
struct HomeRequest {
  std::string rule;
  friend bool operator==(const HomeRequest&, const HomeRequest&) = default;
};

}  // namespace trireme
