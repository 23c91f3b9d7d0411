// Dimensions with uneven parts. Every rank's piece has the same shape, that of the longest part (layout/layout.h), and
// what lies beyond the end of a dimension is zero in every value of a program: results are cleared there. A reshard
// between two layouts with different frames goes through the whole dimension at its own size.
#pragma once

#include "trireme/ir/program.h"
#include "trireme/op/sharding_rule.h"

namespace trireme {

// One node of a graph and how it is cut.
struct CutNode {
  const Node& node;
  const ShardingRule& rule;
  const FactorCuts& cuts;
};

// An operand in the form in which the node may read it: if the node takes a maximum or minimum along an uneven factor,
// what lies beyond the end must not win.
ValueId ready_to_read(Program& program, const CutNode& cut, size_t operand, ValueId id);

// A result that is zero beyond its ends.
ValueId cleared(Program& program, const CutNode& cut, size_t result, ValueId id);

// A value brought from one frame to another that differs in dimensions in which the value is whole: cut off, or
// extended with zeros. `whole` is the tensor of which the result is a part.
ValueId resized(Program& program, ValueId id, const Shape& from, const Shape& to, const Shape& whole);

}  // namespace trireme
