#include "trireme/planner/candidates.h"

#include <algorithm>

namespace trireme {
namespace {

bool takes(const ShardingRule& rule, const FactorCuts& cuts, const Mesh& mesh) {
  if (!why_illegal(rule, cuts, mesh).empty()) return false;
  for (size_t factor = 0; factor < rule.factors.size(); ++factor) {
    if (is_uneven(rule, cuts, factor, mesh)) return false;
  }
  return true;
}

// The linear sets of operands through which sums may flow.
std::vector<int> sets_for_sums(const Graph& graph, const Node& node, const ShardingRule& rule,
                               const CandidateOptions& options) {
  std::vector<int> out;
  int64_t results = 0;
  for (const ValueId result : node.outputs) results += graph.type(result).bytes();
  for (size_t set = 0; set < rule.linear.size() && options.sums_flow; ++set) {
    int64_t sums = 0;
    for (const int member : rule.linear[set]) sums += graph.type(node.inputs[static_cast<size_t>(member)]).bytes();
    if (results <= sums) out.push_back(static_cast<int>(set));
  }
  return out;
}

// The ways to give one more axis to the op, but for giving it to nothing.
std::vector<FactorCuts> with_axis(const ShardingRule& rule, const FactorCuts& cuts, const std::vector<int>& sets,
                                  int axis) {
  std::vector<FactorCuts> out;
  for (size_t factor = 0; factor < rule.factors.size(); ++factor) {
    out.push_back(cuts);
    out.back().axes[factor].push_back(axis);
  }
  if (rule.ring) {
    out.push_back(cuts);
    out.back().axes[static_cast<size_t>(rule.ring->first)].push_back(axis);
    out.back().axes[static_cast<size_t>(rule.ring->second)].push_back(axis);
  }
  for (const int set : sets) {
    if (cuts.linear_set >= 0 && cuts.linear_set != set) continue;
    out.push_back(cuts);
    out.back().linear_set = set;
    out.back().through.push_back({axis, Reduction::kSum});
    std::sort(out.back().through.begin(), out.back().through.end(),
              [](const PartialAxis& a, const PartialAxis& b) { return a.axis < b.axis; });
  }
  return out;
}

}  // namespace

FactorCuts uncut(const ShardingRule& rule) {
  FactorCuts cuts;
  cuts.axes.resize(rule.factors.size());
  return cuts;
}

std::vector<FactorCuts> candidates(const Graph& graph, NodeId id, const ShardingRule& rule, const FactorCuts& cuts,
                                   const std::vector<int>& axes, const Mesh& mesh, const CandidateOptions& options) {
  const Node& node = graph.node(id);
  const std::vector<int> sets = sets_for_sums(graph, node, rule, options);
  std::vector<FactorCuts> out{cuts};
  for (const int axis : axes) {
    const size_t before = out.size();
    for (size_t i = 0; i < before; ++i) {
      for (FactorCuts& more : with_axis(rule, out[i], sets, axis)) {
        if (takes(rule, more, mesh) && (!options.allows || options.allows(node, more))) out.push_back(std::move(more));
      }
    }
  }
  return out;
}

std::vector<Layout> candidates(const Shape& shape, const Layout& layout, const std::vector<int>& axes,
                               const Mesh& mesh) {
  std::vector<Layout> out{layout};
  for (const int axis : axes) {
    const size_t before = out.size();
    for (size_t i = 0; i < before; ++i) {
      for (size_t dim = 0; dim < layout.dims.size(); ++dim) {
        Layout more = out[i];
        more.dims[dim].push_back(axis);
        if (fits(more, shape, mesh, Parts::kEven)) out.push_back(std::move(more));
      }
    }
  }
  return out;
}

}  // namespace trireme
