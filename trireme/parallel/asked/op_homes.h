// Which ops run on the host, by the scopes of their modules and by their purpose. All others run on the device
// (docs/design/tiers.md).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/ir/graph.h"
#include "trireme/parallel/asked/scope_pattern.h"

namespace trireme {

// For the ops in the scope and inside it, forward and backward. If several rules match an op, the last one counts.
struct HostRule {
  ScopePattern scope;
  std::string op;  // of this name; "": of any
  bool on_host = true;
  friend bool operator==(const HostRule&, const HostRule&) = default;
};

// "wte = host", "h.*/gelu = host", "h.3 = device". Throws kInvalidArgument for what is none.
HostRule parse_host_rule(const std::string& text);
std::string to_string(const HostRule& rule);

// Which ops are asked for on the host.
struct OnHost {
  std::vector<HostRule> rules = {};
  bool updates = false;  // also those of parameters, with the optimizer's state
  bool is_asked_for() const { return updates || !rules.empty(); }
};

// What the model's code asks, and then these rules.
OnHost with_requests(const Graph& graph, OnHost options);

// Whether the rules put ops of this name and module (ir/gradient_scope.h) on the host.
bool asked_on_host(std::span<const HostRule> rules, std::string_view scope, std::string_view op);

// Throws kInvalidArgument for a rule that matches no op of the graph.
void check_host_rules(const Graph& graph, std::span<const HostRule> rules);

}  // namespace trireme
