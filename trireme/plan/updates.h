// Updates: which values of a training step belong to the update of one parameter.
#pragma once

#include <vector>

#include "trireme/ir/graph.h"

namespace trireme {

struct Update {
  ValueId gradient = kNoValue;  // what the update reads of the backward pass; none: the parameter is not trained
  std::vector<size_t> state;    // its optimizer state, as indices of graph.inputs()
};

Update update_of(const Graph& graph, const Input& parameter);

}  // namespace trireme
