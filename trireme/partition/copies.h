// Nodes of a program: one with the layouts of its pieces, and one that each rank computes in several copies.
#pragma once

#include <span>
#include <vector>

#include "trireme/ir/program.h"
#include "trireme/op/op_def.h"
#include "trireme/op/sharding_rule.h"

namespace trireme {

// Adds a node whose results, of these whole types, lie as given; the values it makes.
std::vector<ValueId> add_to(Program& program, const OpBase& op, const Attrs& attrs, std::span<const ValueId> in,
                            const std::vector<Layout>& layouts, const std::vector<TensorType>& whole);

struct CopiedNode {
  const Node& node;
  const ShardingRule& rule;
  const FactorCuts& cuts;           // `copies` of it along `copied_factor`
  std::span<const ValueId> inputs;  // of the program
  const std::vector<Layout>& results;
  const std::vector<TensorType>& whole;  // types of the results
};

// Each operand's piece is cut along the factor in as many parts, locally; the op is run on part by part; what it makes
// is laid end to end or, where the factor is summed over, added. Returns the first copy's node.
NodeId add_copies(Program& program, const CopiedNode& copied, std::vector<ValueId>& results);

}  // namespace trireme
