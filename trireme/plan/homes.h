// Homes: the tier of memory in which a value lies while no op reads it (docs/design/tiers.md). Without a rule that is
// the device's.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/ir/graph.h"
#include "trireme/op/move.h"
#include "trireme/plan/scope_pattern.h"

namespace trireme {

// Of the optimizer's state of the parameters whose names match; of several rules the last that matches counts.
struct HomeRule {
  ScopePattern parameters;
  Tier home = Tier::kDevice;
  friend bool operator==(const HomeRule&, const HomeRule&) = default;
};

// "h.*/state = host". Throws kInvalidArgument for what is none.
HomeRule parse_home_rule(const std::string& text);
std::string to_string(const HomeRule& rule);

Tier home_of_state(std::span<const HomeRule> rules, std::string_view parameter);

// Throws kInvalidArgument for a rule that matches no parameter which the graph updates with state of its own.
void check_homes(const Graph& graph, std::span<const HomeRule> rules);

}  // namespace trireme
