// How long an op takes on one rank by the rates of its machine. Passes use it to place sums over ranks, virtual time
// adds it up, and programs are priced by it.
#pragma once

#include <optional>

#include "trireme/layout/collective_cost.h"
#include "trireme/layout/reshard.h"
#include "trireme/mesh/machine.h"
#include "trireme/op/move.h"
#include "trireme/op/op_def.h"
#include "trireme/op/rank_groups.h"

namespace trireme {

struct Rates {
  ReshardCosts links;                   // of the mesh
  std::optional<Machine> machine = {};  // of the devices; none: Machine::this_host()

  double overlap_slowdown() const { return machine ? machine->overlap_slowdown : 0; }
};

// What an op takes at the device's rates of arithmetic and memory; nothing of a view.
struct OpBound {
  double flops_s = 0, bytes_s = 0;
};
OpBound bound_of(const OpDef& op, const TypeArgs& types, const Machine& machine);

// What a call takes by a rate without a tile.
double seconds_by(const OpRate& rate, const OpBound& bound);

// The longer of its arithmetic and its bytes, by the machine's rate for the op if it has one; 0 for a view.
double compute_seconds(const OpDef& op, const TypeArgs& types, const Machine& machine);

// The same for an op on the host, by the host's rates of memory and arithmetic, or by the device's if the machine names
// none.
double compute_seconds_on_host(const OpDef& op, const TypeArgs& types, const Machine& machine);

// A move of `bytes` between tiers: at the rate of the host's link or, if the machine names none, at the rate of the
// memory, with each byte read and written once; or at the rate of the disk, if that is lower.
double move_seconds(const Move& move, int64_t bytes, const Machine& machine);

// A collective, from the latencies of its messages and what the rank with the most to send sends over the slowest link
// of its group (layout/collective_cost.h). 0 where a rank is alone in its group.
double collective_seconds(const OpDef& op, const TypeArgs& types, const Mesh& mesh, const ReshardCosts& links);

// What such a rank goes through.
CollectiveWork collective_work(const OpDef& op, const TypeArgs& types);

// What packing adds (op/packing.h): its bytes are written and read. 0 where a rank is alone in its group, and of
// exchanges, where it is counted with what they send.
double packing_seconds(const OpDef& op, const TypeArgs& types, const Machine& machine);

LinkCost slowest_link(const RankGroups& groups, const Mesh& mesh, const ReshardCosts& links);

}  // namespace trireme
