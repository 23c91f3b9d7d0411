// The price of a program: how long the ops of a rank take, one after the other, in whole picoseconds. Sums of integers
// do not depend on their order, so what a search adds up from its tables can be compared exactly with the price of the
// resulting program. A price counts all communication, even if computing hides it; virtual time says what is hidden
// (exec/analysis/virtual_time.h).
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/cost/op_seconds.h"
#include "trireme/ir/program.h"

namespace trireme {

class CostModel {
 public:
  CostModel(Mesh mesh, const Rates& rates);

  // Of an op on a rank's pieces: a collective with its packing, a move between tiers, or the op's own work, on the
  // device or the host.
  int64_t op_ps(const OpDef& op, const TypeArgs& types, bool on_host = false) const;
  int64_t node_ps(const Program& program, const Node& node) const;

  const Mesh& mesh() const { return mesh_; }
  const ReshardCosts& links() const { return links_; }

 private:
  Mesh mesh_;
  ReshardCosts links_;
  Machine machine_;
};

// Throws kInvalidArgument for a step of more than 100 days, or of no number of seconds.
void check_step(double seconds);

// The sum of two times of a step. Throws kInvalidArgument for more than 100 days, of which 64 bits hold no more.
int64_t sum_ps(int64_t a, int64_t b);

// Of each node of the program, which is over the model's mesh.
std::vector<int64_t> node_prices_ps(const Program& program, const CostModel& model);
int64_t price_ps(const Program& program, const CostModel& model);

}  // namespace trireme
