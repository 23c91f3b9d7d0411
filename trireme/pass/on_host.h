// Where inputs of a program lie in which some ops run on the host: by the rules of homes and, where none is for them,
// by who reads them. For the passes on_host and homes, and the choice of homes.
#pragma once

#include <span>
#include <vector>

#include "trireme/ir/program.h"
#include "trireme/plan/asked/homes.h"

namespace trireme {

// By node, whether it runs on the host: as the program's nodes are marked.
std::vector<char> host_nodes(const Graph& graph);

// By input of the graph. Without a rule for it, a parameter lies on the host where the ops of the forward pass that
// read it are there, and other inputs where all ops that read them are, but for buffers, which an evaluation reads by
// other ops; moves read nothing by themselves.
std::vector<Tier> homes_of_inputs(const Graph& graph, std::span<const HomeRule> rules, std::span<const char> on_host);

}  // namespace trireme
