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

// An operand as the node may read it: where it takes the largest or smallest along an uneven factor, what lies beyond
// is no candidate.
ValueId ready_to_read(Program& program, const CutNode& cut, size_t operand, ValueId id);

// A result that is zero beyond its ends.
ValueId cleared(Program& program, const CutNode& cut, size_t result, ValueId id);

// A value of one frame in another that differs where the value is whole: cut off, or with zeros added. `whole` is what
// the result is a part of.
ValueId resized(Program& program, ValueId id, const Shape& from, const Shape& to, const Shape& whole);

}  // namespace trireme
