// Parts of a value in one buffer: rows that are read in place, and rows that are computed directly into the place of
// what they replace (op/structural.h: part, join).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/few.h"
#include "trireme/exec/plan/execution_plan.h"
#include "trireme/ir/graph.h"

namespace trireme {

// Bytes of the whole before the rows that a look at it has; 0 for other views.
int64_t bytes_before_part(const OpBase& op, const Attrs& attrs, const TensorType& whole);

// By value: the input in whose place it is joined from parts, or is one of these, and where in it a part begins.
struct JoinedParts {
  std::vector<ValueId> into;  // kNoValue: neither
  std::vector<int64_t> offset;
};
// `replaces`: by value, the inputs that are it after the step. What is joined replaces one.
JoinedParts joined_parts(const Graph& graph, std::span<const Few<ValueId, 2>> replaces);

// Of plans: parts that do not lie where their rows of the whole are.
void verify_parts(const ExecutionPlan& plan, std::vector<std::string>& out);

}  // namespace trireme
