#include "trireme/planner/candidates.h"

#include <algorithm>
#include <numeric>

namespace trireme {
namespace {

bool takes(const ShardingRule& rule, const FactorCuts& cuts, const Mesh& mesh) {
  if (!why_illegal(rule, cuts, mesh).empty()) return false;
  for (size_t factor = 0; factor < rule.factors.size(); ++factor) {
    if (is_uneven(rule, cuts, factor, mesh)) return false;
  }
  return true;
}

// Whether ranks have whole parts of each micro-batch, of the factors that these cut.
bool leaves_parts(const ShardingRule& rule, const FactorCuts& cuts, const Mesh& mesh, const FactorCuts& parts,
                  const Mesh& of_parts) {
  for (size_t factor = 0; factor < rule.factors.size(); ++factor) {
    if (parts.axes[factor].empty()) continue;
    if (rule.factors[factor].size % (mesh.size_of(cuts.axes[factor]) * of_parts.size_of(parts.axes[factor])) != 0)
      return false;
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

void add_to(Axes& axes, const AxisGroup& group) {
  axes.append(group.begin(), group.end());
}

// The ways to give one more group to the op, but for giving it to nothing.
std::vector<FactorCuts> with_group(const ShardingRule& rule, const FactorCuts& cuts, const std::vector<int>& sets,
                                   const AxisGroup& group) {
  std::vector<FactorCuts> out;
  for (size_t factor = 0; factor < rule.factors.size(); ++factor) {
    out.push_back(cuts);
    add_to(out.back().axes[factor], group);
  }
  if (rule.ring) {
    out.push_back(cuts);
    add_to(out.back().axes[static_cast<size_t>(rule.ring->first)], group);
    add_to(out.back().axes[static_cast<size_t>(rule.ring->second)], group);
  }
  for (const int set : sets) {
    if (cuts.linear_set >= 0 && cuts.linear_set != set) continue;
    out.push_back(cuts);
    out.back().linear_set = set;
    for (const int axis : group) out.back().through.push_back({axis, Reduction::kSum});
    std::ranges::sort(out.back().through, {}, &PartialAxis::axis);
  }
  return out;
}

// Whether every one of these axes gives ranks parts of their own.
bool uses_all(const FactorCuts& cuts, const std::vector<AxisGroup>& axes) {
  return std::ranges::all_of(axes, [&](const AxisGroup& group) {
    return std::ranges::any_of(cuts.axes, [&](const Axes& of) { return std::ranges::count(of, group.front()) > 0; });
  });
}

// Whether the pieces of what a product reads and makes end at multiples of `align` elements.
bool is_aligned(const Graph& graph, const Node& node, const ShardingRule& rule, const FactorCuts& cuts,
                const Mesh& mesh, int64_t align) {
  const auto ends = [&](std::span<const ValueId> values, const std::vector<Layout>& layouts) {
    for (size_t i = 0; i < values.size(); ++i) {
      const Shape& whole = graph.type(values[i]).shape;
      const Shape local = local_shape(whole, layouts[i], mesh);
      const int last = whole.rank() - 1;
      if (last >= 0 && local[last] != whole[last] && local[last] % align != 0) return false;
    }
    return true;
  };
  return ends(node.inputs, operand_layouts(rule, cuts)) && ends(node.outputs, result_layouts(rule, cuts));
}

void drop_by_limits(const Graph& graph, const Node& node, const ShardingRule& rule, const std::vector<AxisGroup>& axes,
                    const Mesh& mesh, const SearchOptions& limits, std::vector<FactorCuts>& all) {
  if (limits.align_slices && is_product(rule)) {
    const FactorCuts given = all.front();
    std::erase_if(
        all, [&](const FactorCuts& cuts) { return !is_aligned(graph, node, rule, cuts, mesh, limits.slice_align); });
    if (all.empty()) all.push_back(given);
  }
  if (limits.fully_use_devices) {
    const auto is_full = [&](const FactorCuts& cuts) { return uses_all(cuts, axes); };
    if (std::ranges::any_of(all, is_full)) std::erase_if(all, [&](const FactorCuts& cuts) { return !is_full(cuts); });
  }
}

}  // namespace

FactorCuts uncut(const ShardingRule& rule) {
  FactorCuts cuts;
  cuts.axes.resize(rule.factors.size());
  return cuts;
}

bool is_product(const ShardingRule& rule) {
  if (rule.linear.size() < 2) return false;
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    const auto has = [&](const DimFactors& tensor) { return stands_in(tensor, static_cast<int>(f)); };
    if (std::ranges::count_if(rule.in, has) >= 2 && std::ranges::none_of(rule.out, has)) return true;
  }
  return false;
}

std::vector<FactorCuts> candidates(const Graph& graph, NodeId id, const ShardingRule& rule, const FactorCuts& cuts,
                                   const std::vector<AxisGroup>& axes, const Mesh& mesh,
                                   const CandidateOptions& options) {
  const Node& node = graph.node(id);
  const std::vector<int> sets = sets_for_sums(graph, node, rule, options);
  std::vector<FactorCuts> out{cuts};
  const Strategy* const parts = options.parts.get();
  for (const AxisGroup& group : axes) {
    const size_t before = out.size();
    for (size_t i = 0; i < before; ++i) {
      for (FactorCuts& more : with_group(rule, out[i], sets, group)) {
        if (parts && !leaves_parts(rule, more, mesh, parts->nodes[static_cast<size_t>(id)], parts->mesh)) continue;
        const bool allowed = !options.allows || options.allows(graph, node, more, mesh);
        if (allowed && takes(rule, more, mesh)) out.push_back(std::move(more));
      }
    }
  }
  drop_by_limits(graph, node, rule, axes, mesh, options.limits, out);
  return out;
}

std::vector<Layout> candidates(const Shape& shape, const Layout& layout, const std::vector<AxisGroup>& axes,
                               const Mesh& mesh, const std::vector<int64_t>& parts) {
  const auto leaves_whole = [&](const Layout& of, size_t dim) {
    return parts.empty() || shape[static_cast<int>(dim)] % (mesh.size_of(of.dims[dim]) * parts[dim]) == 0;
  };
  std::vector<Layout> out{layout};
  for (const AxisGroup& group : axes) {
    const size_t before = out.size();
    for (size_t i = 0; i < before; ++i) {
      for (size_t dim = 0; dim < layout.dims.size(); ++dim) {
        Layout more = out[i];
        add_to(more.dims[dim], group);
        if (leaves_whole(more, dim) && fits(more, shape, mesh, Parts::kEven)) out.push_back(std::move(more));
      }
    }
  }
  return out;
}

std::vector<int64_t> parts_of_input(const CandidateOptions& options, size_t input) {
  std::vector<int64_t> out;
  if (!options.parts) return out;
  for (const auto& axes : options.parts->inputs[input].dims) out.push_back(options.parts->mesh.size_of(axes));
  return out;
}

std::vector<size_t> looked_at(const std::vector<int64_t>& ps, const SearchOptions& limits) {
  std::vector<size_t> out(ps.size());
  std::iota(out.begin(), out.end(), size_t{0});
  const auto most = limits.approximate ? static_cast<size_t>(std::max(1.0, 1 / limits.epsilon)) : ps.size();
  if (ps.size() <= most) return out;
  std::stable_sort(out.begin() + 1, out.end(), [&](size_t a, size_t b) { return ps[a] < ps[b]; });
  out.resize(most);
  return out;
}

std::vector<AxisGroup> prime_axes(const Mesh& mesh) {
  std::vector<AxisGroup> out;
  for (int axis = 0; axis < mesh.axes(); ++axis) out.push_back({axis});
  return out;
}

std::vector<AxisGroup> named_axes(const Mesh& mesh) {
  std::vector<AxisGroup> out;
  for (const MeshAxis& axis : mesh.user_axes()) {
    if (axis.size > 1) out.push_back(mesh.find(axis.name));
  }
  return out;
}

}  // namespace trireme
