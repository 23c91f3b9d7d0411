// Which ops of a program run on the host, and where its inputs lie: by the rules for homes or, without a rule, by which
// ops read them. Used by the passes on_host, updates_in_parts and homes, and by the choice of homes.
#pragma once

#include <span>
#include <vector>

#include "trireme/ir/program.h"
#include "trireme/parallel/asked/home_rules.h"
#include "trireme/parallel/asked/op_homes.h"

namespace trireme {

// By node, whether it runs on the host: as the program's nodes are marked.
std::vector<char> host_nodes(const Graph& graph);
// By node, whether it is asked for there, with the updates of parameters that ops there alone read in the forward pass.
std::vector<char> nodes_for_host(const Graph& graph, const OnHost& asked);

// By input of the graph. Without a rule for it, a parameter lies on the host where the ops of the forward pass that
// read it are there, or its update is; and other inputs where all ops that read them are, but for buffers, which an
// evaluation reads by other ops, and the schedule's numbers, which are written while ops of the step before still run
// there (exec/plan/step_border.h). Moves read nothing by themselves.
std::vector<Tier> homes_of_inputs(const Graph& graph, std::span<const HomeRule> rules, std::span<const char> on_host);

// By input, whether it is a parameter that lies on the host for its update alone, without a rule: it is on the device
// from its first reader to its last, so that it comes once a step.
std::vector<char> that_come_once(const Graph& graph, std::span<const HomeRule> rules, std::span<const char> on_host);

}  // namespace trireme
