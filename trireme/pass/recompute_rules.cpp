#include "trireme/pass/recompute_rules.h"

#include <algorithm>
#include <utility>

#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/op/message.h"
#include "trireme/op/structural.h"
#include "trireme/parallel/asked/paths.h"

namespace trireme {
namespace {

// "h.*" against "h.3.mlp": the part of the scope that the pattern is of, "h.3"; "." for the whole model, of "";
// nothing where it does not match.
std::string_view matched_scope(const ScopePattern& pattern, std::string_view scope) {
  return pattern.text().empty() ? "." : pattern.outermost(scope);
}

bool is_of(const ScopePattern& pattern, std::string_view scope) {
  return !matched_scope(pattern, scope).empty() || pattern.names(scope);
}

void apply(const Recompute::Rule& rule, std::string_view op, std::string_view scope, RecomputeAsked& out) {
  const OpPattern& pattern = rule.pattern;
  const bool of_op = !pattern.op.empty();
  if ((of_op && pattern.op != op) || !is_of(pattern.scope, scope)) return;
  const std::string_view found = matched_scope(pattern.scope, scope);
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

// Of each node whether its results are of a batch: made of data, or of a step's numbers. A weight in another type, or a
// table of positions, is not.
std::vector<char> nodes_of_batch(const Graph& graph) {
  std::vector<char> of_value(graph.values().size(), 0), out(graph.nodes().size(), 0);
  for (const Input& input : graph.inputs())
    of_value[static_cast<size_t>(input.value)] = input.role == Role::kData || input.role == Role::kSchedule ? 1 : 0;
  const auto is_of_one = [](const Node& node) { return node.micro_batch >= 0; };
  const bool has_several = std::ranges::any_of(graph.nodes(), is_of_one);
  for (size_t i = 0; i < out.size(); ++i) {
    const Node& node = graph.nodes()[i];
    const bool came = is_message(def_of(node)) && !has_several;
    const bool is_of_batch = came || is_of_one(node) || std::ranges::any_of(node.inputs, [&](ValueId id) {
                               return of_value[static_cast<size_t>(id)] != 0;
                             });
    out[i] = is_of_batch ? 1 : 0;
    for (const ValueId made : node.outputs) of_value[static_cast<size_t>(made)] = out[i];
  }
  return out;
}

std::vector<std::string> distinct(std::vector<std::string> names) {
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace

std::vector<std::string_view> scopes_of_kept(const Graph& graph) {
  std::vector<std::string_view> out;
  std::vector<char> is_read(graph.nodes().size(), 0);
  for (const Node& node : graph.nodes()) {
    out.push_back(graph.scope_of(node));
    if (is_message(def_of(node))) continue;
    for (const ValueId operand : node.inputs) {
      const NodeId producer = graph.value(operand).producer;
      if (producer < 0 || std::exchange(is_read[static_cast<size_t>(producer)], 1) != 0) continue;
      if (is_message(def_of(graph.node(producer)))) out[static_cast<size_t>(producer)] = out.back();
    }
  }
  return out;
}

std::vector<RecomputeAsked> recompute_asked(const Graph& graph, const Recompute& options) {
  std::vector<RecomputeAsked> out;
  const std::vector<char> of_batch = options.keeps_elsewhere() ? nodes_of_batch(graph) : std::vector<char>();
  const std::vector<std::string_view> scopes = scopes_of_kept(graph);
  for (const Node& node : graph.nodes()) {
    RecomputeAsked asked{.communication = options.communication,
                         .optimizer_communication = options.optimizer_communication,
                         .slice = options.slice};
    const std::string_view scope = scopes[out.size()];
    const NumberedModule block = numbered_module(scope);
    if (block.number >= 0 && (options.blocks < 0 || block.number < options.blocks)) asked.module = block.path;
    for (const Recompute::Rule& rule : options.rules) apply(rule, node.op->name, scope, asked);
    if (asked.home != Tier::kDevice && of_batch[out.size()] == 0) asked.home = Tier::kDevice;
    asked.communication = asked.communication && options.communication;
    asked.optimizer_communication = asked.optimizer_communication && options.optimizer_communication;
    out.push_back(asked);
  }
  return out;
}

bool has_blocks(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [&](const Node& node) {
    return node.phase == Phase::kForward && !is_message(def_of(node)) &&
           numbered_module(graph.scope_of(node)).number >= 0;
  });
}

void check_keep_rules(const Graph& graph, std::span<const Recompute::Rule> rules) {
  for (const Recompute::Rule& rule : rules) {
    const OpPattern& pattern = rule.pattern;
    require(pattern.occurrence < 0,
            "parallel.keep '{}' names one op of several; it is of all of a name: leave '#{}' out", to_string(pattern),
            pattern.occurrence);
    std::vector<std::string> scopes, ops;
    bool any = false;
    for (const Node& node : graph.nodes()) {
      if (node.phase != Phase::kForward) continue;
      const std::string_view scope = graph.scope_of(node);
      if (!scope.empty()) scopes.emplace_back(scope);
      if (!is_of(pattern.scope, scope)) continue;
      ops.emplace_back(node.op->name);
      any = any || pattern.op.empty() || pattern.op == node.op->name;
    }
    if (any) continue;
    require(!ops.empty(), "parallel.keep '{}' matches no part of the model.{}", to_string(pattern),
            suggestion(pattern.scope.text(), distinct(std::move(scopes))));
    fail(ErrorKind::kInvalidArgument, "parallel.keep '{}' matches no op of the forward pass.{}", to_string(pattern),
         suggestion(pattern.op, distinct(std::move(ops))));
  }
}

void check_blocks(const Graph& graph, int64_t blocks) {
  if (blocks <= 0) return;
  int64_t there = 0;
  std::string_view last;
  for (const Node& node : graph.nodes()) {
    const NumberedModule block = numbered_module(graph.scope_of(node));
    if (block.number >= there) there = block.number + 1, last = block.path;
  }
  require(there > 0,
          "train.recompute = {}: no module of the model has a number, as 'h.0' has, so that there are no first blocks; "
          "use 'selective' or 'none'",
          blocks);
  require(blocks <= there,
          "train.recompute = {}: the model has at most {} in a row, up to '{}'; use {} or less, or 'full'", blocks,
          counted(there, "block"), last, there);
}

std::optional<BroughtWeight> brought_weight(const Graph& graph, const Node& node) {
  if (!brings_pieces(node) || !is_communication(def_of(node))) return {};
  BroughtWeight out;
  out.weight = brought_parameter(graph, node.outputs[0], &out.how);
  if (out.weight == kNoValue) return {};
  return out;
}

}  // namespace trireme
