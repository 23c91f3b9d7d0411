// Homes: the tier of memory in which a value lies while no op reads it (docs/design/tiers.md). Without a rule it is the
// device's.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/ir/graph.h"
#include "trireme/op/move.h"
#include "trireme/parallel/asked/scope_pattern.h"

namespace trireme {

// What a rule is of.
enum class Held {
  kParameter,
  kState,     // the optimizer's of the parameter
  kGradient,  // the parameter's, until its update has read it
};

// For the parameters whose names match. If several rules for the same kind of value match, the last one counts.
struct HomeRule {
  ScopePattern parameters;
  Held of = Held::kState;
  Tier home = Tier::kDevice;
  friend bool operator==(const HomeRule&, const HomeRule&) = default;
};

// "wte = host", "h.*/state = disk", "*/gradient = host". Throws kInvalidArgument for what is none.
HomeRule parse_home_rule(const std::string& text);
std::string to_string(const HomeRule& rule);

// Those of a model's own code (nn::Module::home), in the order of its modules.
std::vector<HomeRule> requested_homes(const Graph& graph);

// `otherwise`: without a rule.
Tier home_of(std::span<const HomeRule> rules, Held what, std::string_view parameter, Tier otherwise = Tier::kDevice);

// Throws kInvalidArgument for a rule that matches no parameter of the graph or, in a graph that trains, no parameter
// that it updates (with state, if the rule is for state).
void check_homes(const Graph& graph, std::span<const HomeRule> rules);

// Throws kInvalidArgument where a module of a graph that trains asks for a home and has no parameters. One whose
// parameters are frozen, or whose optimizer has no state, may ask: its code is the same for every way of training.
void check_requested_homes(const Graph& graph);

}  // namespace trireme
