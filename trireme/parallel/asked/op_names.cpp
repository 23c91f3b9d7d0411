#include "trireme/parallel/asked/op_names.h"

#include <charconv>
#include <map>

#include "trireme/base/error.h"

namespace trireme {

std::vector<int> occurrences_of(const Graph& graph) {
  std::map<std::pair<std::string_view, std::string_view>, int> counts;
  std::vector<int> out;
  for (const Node& node : graph.nodes()) out.push_back(counts[{graph.scope_of(node), node.op->name}]++);
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
  if (pattern.op.empty()) return pattern.scope;
  return fmt::format("{}/{}{}", pattern.scope, pattern.op,
                     pattern.occurrence < 0 ? "" : fmt::format("#{}", pattern.occurrence));
}

bool is_op(const OpPattern& pattern, const Node& node, int occurrence) {
  return node.op->name == pattern.op && (pattern.occurrence < 0 || pattern.occurrence == occurrence);
}

}  // namespace trireme
