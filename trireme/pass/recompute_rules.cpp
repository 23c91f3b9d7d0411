#include "trireme/pass/recompute_rules.h"

#include <algorithm>
#include <charconv>

#include "trireme/base/words.h"
#include "trireme/op/structural.h"

namespace trireme {
namespace {

// "h.*" against "h.3.mlp": the part of the scope that the pattern is of, "h.3"; "." for the whole model, of "";
// nothing where it does not match.
std::string_view matched_scope(std::string_view pattern, std::string_view scope) {
  if (pattern.empty()) return ".";
  for (size_t end = 0; end <= scope.size(); ++end) {
    end = std::min(scope.find('.', end), scope.size());
    if (matches(pattern, scope.substr(0, end))) return scope.substr(0, end);
  }
  return {};
}

// The path up to its first number, "h.3", and that number.
std::pair<std::string_view, int64_t> block_of(std::string_view scope) {
  for (size_t begin = 0; begin < scope.size();) {
    const size_t end = std::min(scope.find('.', begin), scope.size());
    int64_t number = 0;
    const auto [last, error] = std::from_chars(scope.data() + begin, scope.data() + end, number);
    if (error == std::errc() && last == scope.data() + end) return {scope.substr(0, end), number};
    begin = end + 1;
  }
  return {{}, -1};
}

void apply(const Recompute::Rule& rule, std::string_view op, std::string_view scope, RecomputeAsked& out) {
  const size_t slash = rule.pattern.rfind('/');
  const bool of_op = slash != std::string::npos;
  const std::string_view pattern = std::string_view(rule.pattern).substr(0, slash);
  if (of_op && rule.pattern.substr(slash + 1) != op) return;
  const std::string_view found = matched_scope(pattern, scope);
  if (found.empty() && !matches(pattern, scope)) return;
  using Keep = Recompute::Rule::Keep;
  const bool is_elsewhere = rule.keep == Keep::kHost || rule.keep == Keep::kDisk;
  if (rule.keep == Keep::kMemory) out.home = Tier::kDevice;
  if (is_elsewhere) out.home = rule.keep == Keep::kHost ? Tier::kHost : Tier::kDisk;
  if (is_elsewhere) return;
  out.slice = rule.slice || rule.keep == Keep::kSlice;
  if (rule.keep == Keep::kSlice) return;
  out.kept = rule.keep == Keep::kMemory;
  out.by_op = of_op && !out.kept;
  if (of_op) return;
  out.module = out.kept ? std::string_view() : found;
  if (out.kept) return;
  out.communication = rule.communication;
  out.optimizer_communication = rule.optimizer_communication;
}

}  // namespace

std::vector<RecomputeAsked> recompute_asked(const Graph& graph, const Recompute& options) {
  std::vector<RecomputeAsked> out;
  for (const Node& node : graph.nodes()) {
    RecomputeAsked asked{.communication = options.communication,
                         .optimizer_communication = options.optimizer_communication,
                         .slice = options.slice};
    const std::string_view scope = graph.scope_of(node);
    const auto [block, number] = block_of(scope);
    if (number >= 0 && (options.blocks < 0 || number < options.blocks)) asked.module = block;
    for (const Recompute::Rule& rule : options.rules) apply(rule, node.op->name, scope, asked);
    asked.communication = asked.communication && options.communication;
    asked.optimizer_communication = asked.optimizer_communication && options.optimizer_communication;
    out.push_back(asked);
  }
  return out;
}

bool gathers_weight(const Graph& graph, const Node& node) {
  if (!does(node, ReshardStep::Kind::kAllGather) || node.inputs.size() != 1) return false;
  const Value& operand = graph.value(node.inputs[0]);
  return operand.producer < 0 && graph.inputs()[static_cast<size_t>(operand.index)].role == Role::kParameter;
}

}  // namespace trireme
