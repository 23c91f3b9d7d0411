// CutFlows: along which dimensions one axis of a mesh cuts values, as far as that follows from ops whose cuts are
// known. What lies between these ops passes cuts on by its sharding rules, to results and to operands.
#pragma once

#include <vector>

#include "trireme/base/few.h"
#include "trireme/planner/units.h"

namespace trireme {

// The forward ops of a graph.
struct ForwardOps {
  // The graph and its units must outlive it.
  ForwardOps(const Graph& graph, const Units& units);

  const Graph& graph;
  const Units& units;
  std::vector<std::vector<NodeId>> readers;  // of values
  std::vector<char> decides;                 // of nodes, none at first: those that nothing is passed on through
};

class CutFlows {
 public:
  // Dimensions, or kWhole where the axis cuts none. A value that several such ops make or read, by way of others, has
  // one for each way in which they do.
  static constexpr int kWhole = -1;
  using Dims = Few<int, 2>;

  // The ops must outlive it.
  CutFlows(const ForwardOps& ops, int axis);

  // An op that decides, by these cuts.
  void add(NodeId node, const FactorCuts& cuts);
  const Dims& made(ValueId value) const { return made_[static_cast<size_t>(value)]; }
  const Dims& read(ValueId value) const { return read_[static_cast<size_t>(value)]; }

 private:
  void pass_to_results(ValueId value, int dim);
  void pass_to_operands(ValueId value, int dim);

  const ForwardOps& ops_;
  const int axis_;
  std::vector<Dims> made_, read_;  // of values
};

}  // namespace trireme
