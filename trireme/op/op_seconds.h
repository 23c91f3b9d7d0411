// How long an op takes on one rank by the rates of its machine: what passes place sums over ranks by, and what virtual
// time adds up.
#pragma once

#include <optional>

#include "trireme/layout/reshard.h"
#include "trireme/mesh/machine.h"
#include "trireme/op/op_def.h"
#include "trireme/op/rank_groups.h"

namespace trireme {

struct Rates {
  ReshardCosts links;                   // of the mesh
  std::optional<Machine> machine = {};  // of the devices; none: Machine::this_host()
};

// The longer of its arithmetic and its bytes; 0 for a view.
double compute_seconds(const OpDef& op, const TypeArgs& types, const Machine& machine);

// A collective over these ranks: the latencies of its rounds, and what each rank sends over the slowest link between
// them. `ways`: 2 for a sum that all get, which is taken and then given out.
double collective_seconds(const RankGroups& groups, const TypeArgs& types, const Mesh& mesh, const ReshardCosts& links,
                          int ways = 1);

// What packing adds (op/packing.h): its bytes are written and read.
double packing_seconds(const OpDef& op, const TypeArgs& types, const Machine& machine);

// The parts of it. Rounds of p ranks: ceil(log2 p).
LinkCost slowest_link(const RankGroups& groups, const Mesh& mesh, const ReshardCosts& links);
double rounds(int64_t ranks);

}  // namespace trireme
