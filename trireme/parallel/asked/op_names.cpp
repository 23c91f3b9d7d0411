#include "trireme/parallel/asked/op_names.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/few.h"

namespace trireme {

std::vector<int> occurrences_of(const Graph& graph) {
  std::vector<Few<std::pair<const OpBase*, int>, 4>> counts;  // by scope: of its ops
  std::vector<int> out;
  out.reserve(graph.nodes().size());
  for (const Node& node : graph.nodes()) {
    const auto scope = static_cast<size_t>(node.scope);
    if (counts.size() <= scope) counts.resize(scope + 1);
    auto& of_scope = counts[scope];
    auto count = std::ranges::find(of_scope, node.op, &std::pair<const OpBase*, int>::first);
    if (count == of_scope.end()) {
      of_scope.push_back({node.op, 0});
      count = of_scope.end() - 1;
    }
    out.push_back(count->second++);
  }
  return out;
}

std::vector<OpsOfScope> forward_ops_by_scope(const Graph& graph) {
  std::vector<OpsOfScope> out;
  std::vector<size_t> place;  // by a scope's number, one more than where it is; 0: it is nowhere yet
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    const Node& node = graph.node(id);
    if (node.phase != Phase::kForward) continue;
    place.resize(std::max(place.size(), static_cast<size_t>(node.scope) + 1));
    size_t& of_scope = place[static_cast<size_t>(node.scope)];
    if (of_scope == 0) {
      out.push_back({graph.scope_of(node), {}});
      of_scope = out.size();
    }
    out[of_scope - 1].ops.push_back(id);
  }
  return out;
}

std::string occurrence_text(std::string_view op, int occurrence) {
  return occurrence == 0 ? std::string(op) : fmt::format("{}#{}", op, occurrence);
}

std::string op_text(const Graph& graph, const std::vector<int>& occurrences, NodeId id) {
  const Node& node = graph.node(id);
  return fmt::format("{} of '{}'", occurrence_text(node.op->name, occurrences[static_cast<size_t>(id)]),
                     graph.scope_of(node));
}

OpPattern OpPattern::read(std::string_view text) {
  const size_t slash = text.rfind('/');
  OpPattern out;
  out.scope = text.substr(0, slash);
  if (slash == std::string_view::npos) return out;
  const std::string_view op = text.substr(slash + 1);
  const size_t hash = op.find('#');
  out.op = op.substr(0, hash);
  if (hash == std::string_view::npos) return out;
  const std::string_view number = op.substr(hash + 1);
  const auto [end, status] = std::from_chars(number.data(), number.data() + number.size(), out.occurrence);
  require(status == std::errc() && end == number.data() + number.size() && out.occurrence >= 0,
          "rule '{}': '{}' is not an occurrence of '{}'; count from 0, as in {}#1 for the second", text, number, out.op,
          out.op);
  return out;
}

std::string to_string(const OpPattern& pattern) {
  if (pattern.op.empty()) return pattern.scope.text();
  return fmt::format("{}/{}{}", pattern.scope.text(), pattern.op,
                     pattern.occurrence < 0 ? "" : fmt::format("#{}", pattern.occurrence));
}

bool is_op(const OpPattern& pattern, const Node& node, int occurrence) {
  return node.op->name == pattern.op && (pattern.occurrence < 0 || pattern.occurrence == occurrence);
}

}  // namespace trireme
