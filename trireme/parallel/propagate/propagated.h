// What propagation knows when it reaches a node: the layouts in which values are made and, for the nodes before it,
// their rules and what was chosen for them. The steps of propagation (parallel/propagate/propagate.cpp) read it and add
// to it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/parallel/propagate/asks.h"
#include "trireme/parallel/propagate/unsummed_values.h"

namespace trireme {

struct Propagated {
  Propagated(const Graph& whole, const Mesh& mesh, const Asks& given);
  Propagated(const Propagated&) = delete;

  const Mesh& mesh() const { return strategy.mesh; }
  const std::optional<Layout>& layout(ValueId id) const { return layouts[static_cast<size_t>(id)]; }
  // Whole where nothing is known of it.
  Layout layout_or_whole(ValueId id) const;
  const ShardingRule& rule(NodeId id) const { return *rules[static_cast<size_t>(id)]; }
  const FactorCuts& chosen(NodeId id) const { return strategy.nodes[static_cast<size_t>(id)]; }
  // "matmul#1 of 'mlp'", for messages.
  std::string name_of(const Node& node) const;

  const Graph& graph;
  const Asks& asks;
  std::vector<std::optional<Layout>> layouts;  // of values
  std::vector<RuleOf> rules;                   // of nodes
  Strategy strategy;
  UnsummedValues own;
  std::vector<int> occurrences;  // of nodes
};

}  // namespace trireme
