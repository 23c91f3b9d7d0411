#include "trireme/planner/cut_flows.h"

#include <algorithm>
#include <utility>

namespace trireme {
namespace {

// Whether it is new.
bool note(CutFlows::Dims& dims, int dim) {
  if (std::ranges::find(dims, dim) != dims.end()) return false;
  dims.push_back(dim);
  return true;
}

// The dimension of `to` that is cut where dimension `dim` of `from` is.
int carried(const ShardingRule& rule, const DimFactors& from, int dim, const DimFactors& to) {
  if (dim == CutFlows::kWhole) return CutFlows::kWhole;
  const FactorsOfDim& factors = from[static_cast<size_t>(dim)];
  if (factors.empty() || !rule.factors[static_cast<size_t>(factors[0])].can_cut) return CutFlows::kWhole;
  for (size_t d = 0; d < to.size(); ++d) {
    if (!to[d].empty() && to[d][0] == factors[0]) return static_cast<int>(d);
  }
  return CutFlows::kWhole;
}

}  // namespace

ForwardOps::ForwardOps(const Graph& of, const Units& its_units)
    : graph(of), units(its_units), readers(of.values().size()), decides(of.nodes().size(), 0) {
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    if (graph.nodes()[i].phase != Phase::kForward) continue;
    for (const ValueId operand : graph.nodes()[i].inputs)
      readers[static_cast<size_t>(operand)].push_back(static_cast<NodeId>(i));
  }
}

CutFlows::CutFlows(const ForwardOps& ops, int axis)
    : ops_(ops), axis_(axis), made_(ops.graph.values().size()), read_(ops.graph.values().size()) {}

void CutFlows::add(NodeId id, const FactorCuts& cuts) {
  const Node& node = ops_.graph.node(id);
  const ShardingRule& rule = ops_.units.rule(id);
  const std::vector<Layout> results = result_layouts(rule, cuts), operands = operand_layouts(rule, cuts);
  for (size_t k = 0; k < results.size(); ++k) pass_to_results(node.outputs[k], results[k].dim_cut_by(axis_));
  for (size_t k = 0; k < operands.size(); ++k) pass_to_operands(node.inputs[k], operands[k].dim_cut_by(axis_));
}

void CutFlows::pass_to_results(ValueId from, int from_dim) {
  std::vector<std::pair<ValueId, int>> left{{from, from_dim}};
  while (!left.empty()) {
    const auto [value, dim] = left.back();
    left.pop_back();
    if (!note(made_[static_cast<size_t>(value)], dim)) continue;
    for (const NodeId reader : ops_.readers[static_cast<size_t>(value)]) {
      if (ops_.decides[static_cast<size_t>(reader)] != 0) continue;
      const Node& node = ops_.graph.node(reader);
      const ShardingRule& rule = ops_.units.rule(reader);
      const auto operand = static_cast<size_t>(std::ranges::find(node.inputs, value) - node.inputs.begin());
      for (size_t k = 0; k < node.outputs.size(); ++k)
        left.emplace_back(node.outputs[k], carried(rule, rule.in[operand], dim, rule.out[k]));
    }
  }
}

void CutFlows::pass_to_operands(ValueId from, int from_dim) {
  std::vector<std::pair<ValueId, int>> left{{from, from_dim}};
  while (!left.empty()) {
    const auto [value, dim] = left.back();
    left.pop_back();
    if (!note(read_[static_cast<size_t>(value)], dim)) continue;
    const NodeId producer = ops_.graph.value(value).producer;
    if (producer < 0 || ops_.decides[static_cast<size_t>(producer)] != 0) continue;
    const Node& node = ops_.graph.node(producer);
    const ShardingRule& rule = ops_.units.rule(producer);
    const auto result = static_cast<size_t>(std::ranges::find(node.outputs, value) - node.outputs.begin());
    for (size_t k = 0; k < node.inputs.size(); ++k)
      left.emplace_back(node.inputs[k], carried(rule, rule.out[result], dim, rule.in[k]));
  }
}

}  // namespace trireme
