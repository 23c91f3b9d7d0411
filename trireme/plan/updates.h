// Updates: which values of a training step belong to the update of one parameter.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "trireme/ir/graph.h"

namespace trireme {

struct Update {
  ValueId gradient = kNoValue;  // what the update reads of the backward pass; none: the parameter is not trained
  std::vector<size_t> state;    // its optimizer state, as indices of graph.inputs()
};

// The updates of all parameters, by name; the graph must outlive them.
std::map<std::string_view, Update> updates_of(const Graph& graph);

}  // namespace trireme
