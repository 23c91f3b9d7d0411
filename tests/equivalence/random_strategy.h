// Random legal strategies for any graph, in three ways: every node, input and output cut at random;
// propagation from random asks; and what a person says (semi_auto).
#pragma once

#include "tests/equivalence/draw.h"
#include "trireme/plan/strategy.h"

namespace trireme::equivalence {

Strategy random_strategy(const Graph& graph, Draw& draw);

}  // namespace trireme::equivalence
