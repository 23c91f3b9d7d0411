// Names of single ops: "<scope>/<op>#<k>" is the k-th op of that name in the scope, counted from 0 in the order in
// which the model calls them; without "#" it is the first.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/words.h"
#include "trireme/ir/graph.h"
#include "trireme/parallel/asked/scope_pattern.h"

namespace trireme {

// Of each node, how many of its name in its scope come before it.
std::vector<int> occurrences_of(const Graph& graph);

// The forward ops of a scope, in their order.
struct OpsOfScope {
  std::string_view scope;
  std::vector<NodeId> ops;
};
// Of all scopes that have any, in the order of their first ones.
std::vector<OpsOfScope> forward_ops_by_scope(const Graph& graph);

std::string occurrence_text(std::string_view op, int occurrence);                         // "relu", "relu#1"
std::string op_text(const Graph& graph, const std::vector<int>& occurrences, NodeId id);  // "relu#1 of 'mlp'"

// What a rule names: a scope, or an op of it. The scope may be a pattern.
struct OpPattern {
  ScopePattern scope;
  std::string op;       // "": none
  int occurrence = -1;  // -1: none is given

  OpPattern() = default;
  template <Text T>
  OpPattern(const T& written)
      : OpPattern(read(written)) {}  // NOLINT: written as text; throws kInvalidArgument for an
                                     // occurrence that is no whole number
  friend bool operator==(const OpPattern&, const OpPattern&) = default;

 private:
  static OpPattern read(std::string_view text);
};
std::string to_string(const OpPattern& pattern);

// Whether the node is the op, or, where no occurrence is given, one of its name.
bool is_op(const OpPattern& pattern, const Node& node, int occurrence);

}  // namespace trireme
