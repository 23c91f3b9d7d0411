#include "trireme/planner/units.h"

#include <algorithm>
#include <map>

#include "trireme/op/call_kinds.h"
#include "trireme/parallel/propagate/node_choice.h"
#include "trireme/parallel/strategy/strategy.h"

namespace trireme {
namespace {

// The layout of the gradient of a value that lies so: cut where that is cut, whole where it is a partial sum.
Layout dual(Layout layout) {
  layout.partial.clear();
  return layout;
}

}  // namespace

Units::Units(const Graph& graph) : graph_(graph) {
  std::map<NodeId, size_t> unit_of;  // of the nodes that others follow
  CallKinds kinds;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    rules_.push_back(rule_of(graph, node));
    kinds_.push_back(kinds.of(graph, node));
    const auto known = unit_of.find(node.gradient_of);
    if (known != unit_of.end()) {
      nodes_[known->second].push_back(static_cast<NodeId>(i));
      continue;
    }
    unit_of.emplace(static_cast<NodeId>(i), nodes_.size());
    nodes_.push_back({static_cast<NodeId>(i)});
  }
}

Units::Source Units::source(size_t unit, NodeId node, ValueId operand) const {
  const std::vector<NodeId>& nodes = nodes_[unit];
  const Node& first = graph_.node(nodes.front());
  if (node == nodes.front()) return {};
  for (size_t i = 0; i < first.inputs.size(); ++i) {
    if (first.inputs[i] == operand) return {Source::Kind::kOperand, 0, i};
  }
  for (size_t i = 0; i < first.outputs.size(); ++i) {
    if (first.outputs[i] == operand) return {Source::Kind::kResult, 0, i};
  }
  for (size_t k = 1; k < nodes.size() && nodes[k] < node; ++k) {
    const Node& other = graph_.node(nodes[k]);
    const auto at = std::find(other.outputs.begin(), other.outputs.end(), operand);
    if (at != other.outputs.end()) return {Source::Kind::kWithin, k, static_cast<size_t>(at - other.outputs.begin())};
  }
  for (size_t i = 0; i < first.outputs.size(); ++i) {
    if (graph_.is_gradient(operand, first.outputs[i])) return {Source::Kind::kGradientOfResult, 0, i};
  }
  return {};
}

std::vector<FactorCuts> Units::cuts(size_t unit, const FactorCuts& first, const Mesh& mesh, bool sums_flow) const {
  const std::vector<NodeId>& nodes = nodes_[unit];
  std::vector<FactorCuts> out{first};
  std::vector<std::vector<Layout>> results{result_layouts(rule(nodes.front()), first)};
  const std::vector<Layout> operands = operand_layouts(rule(nodes.front()), first);
  for (size_t k = 1; k < nodes.size(); ++k) {
    const Node& node = graph_.node(nodes[k]);
    std::vector<std::optional<Layout>> found;
    std::vector<int64_t> bytes;
    for (const ValueId operand : node.inputs) {
      const Source from = source(unit, nodes[k], operand);
      bytes.push_back(graph_.type(operand).bytes());
      found.emplace_back();
      if (from.kind == Source::Kind::kOperand) found.back() = operands[from.index];
      if (from.kind == Source::Kind::kResult || from.kind == Source::Kind::kWithin)
        found.back() = results[from.node][from.index];
      if (from.kind == Source::Kind::kGradientOfResult) found.back() = dual(results[0][from.index]);
    }
    int64_t result_bytes = 0;
    for (const ValueId result : node.outputs) result_bytes += graph_.type(result).bytes();
    out.push_back(NodeChoice(rule(nodes[k]), found, mesh).choose(bytes, result_bytes, sums_flow));
    results.push_back(result_layouts(rule(nodes[k]), out.back()));
  }
  return out;
}

bool Units::allow(size_t unit, const FactorCuts& first, const Mesh& mesh, const CandidateOptions& options) const {
  if (!options.allows) return true;
  const std::vector<FactorCuts> all = cuts(unit, first, mesh, options.sums_flow);
  for (size_t n = 0; n < all.size(); ++n) {
    if (!options.allows(graph_, graph_.node(nodes_[unit][n]), all[n], mesh)) return false;
  }
  return true;
}

std::vector<uint64_t> Units::kind(size_t unit) const {
  std::vector<uint64_t> out;
  for (const NodeId id : nodes_[unit]) {
    const Node& node = graph_.node(id);
    out.push_back(static_cast<uint64_t>(kinds_[static_cast<size_t>(id)]));
    out.push_back(static_cast<uint64_t>(node.phase));
    for (const ValueId operand : node.inputs) {
      const Source from = source(unit, id, operand);
      out.insert(out.end(), {static_cast<uint64_t>(from.kind), from.node, from.index});
    }
  }
  return out;
}

}  // namespace trireme
