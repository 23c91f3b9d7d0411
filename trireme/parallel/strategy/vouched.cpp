#include "trireme/parallel/strategy/vouched.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/op/op_def.h"

namespace trireme {
namespace {

std::vector<TensorType> local_types(const Graph& graph, const std::vector<ValueId>& values,
                                    const std::vector<Layout>& layouts, const Mesh& mesh) {
  std::vector<TensorType> out;
  for (size_t i = 0; i < values.size(); ++i) {
    const TensorType& whole = graph.type(values[i]);
    check(layouts[i], whole.shape, mesh, to_string(whole));
    out.push_back({whole.dtype, local_shape(whole.shape, layouts[i], mesh)});
  }
  return out;
}

// What the op makes of these operands. An op whose attributes say the whole shape is judged by its elements, if it only
// gives them another shape.
std::string why_other_results(const Node& node, const std::vector<TensorType>& in, const std::vector<TensorType>& out) {
  const OpDef& def = def_of(node);
  if (def.traits.zero_cost_view) {
    if (in[0].elements() == out[0].elements()) return "";
    return fmt::format("a piece of the operand has {} elements and one of the result {}; they must be equal",
                       in[0].elements(), out[0].elements());
  }
  const std::vector<TensorType> made = def.infer.get()({in, node.attrs});
  for (size_t i = 0; i < made.size(); ++i) {
    if (made[i] == out[i]) continue;
    return fmt::format("of its pieces the op makes {} as result {}, and the layout asked for gives {}",
                       to_string(made[i]), i, to_string(out[i]));
  }
  return "";
}

bool same_cuts(const Layout& a, const Layout& b) {
  return a.dims == b.dims;
}

bool follows(const ShardingRule& rule, const VouchedLayouts& layouts, const Mesh& mesh) {
  FactorCuts cuts;
  cuts.axes.resize(rule.factors.size());
  const auto note = [&](const std::vector<DimFactors>& tensors, const std::vector<Layout>& lie) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      for (size_t dim = 0; dim < tensors[i].size(); ++dim) {
        if (tensors[i][dim].size() == 1) cuts.axes[static_cast<size_t>(tensors[i][dim].front())] = lie[i].dims[dim];
      }
    }
  };
  note(rule.in, layouts.in);
  note(rule.out, layouts.out);
  return why_illegal(rule, cuts, mesh).empty() && cut_windows(rule, cuts).empty() &&
         std::ranges::equal(operand_layouts(rule, cuts), layouts.in, same_cuts) &&
         std::ranges::equal(result_layouts(rule, cuts), layouts.out, same_cuts);
}

// A result that an axis does not cut while it cuts an operand is a term of the sum over it.
void add_terms(const Layout& operand, Layout& result) {
  for (const Axes& axes : operand.dims) {
    for (const int axis : axes) {
      if (!result.uses(axis)) result.add_partial(axis, Reduction::kSum);
    }
  }
}

// The layout of the first of these values that `is_it`; nothing is partial.
template <class IsIt>
std::optional<Layout> layout_where(std::span<const ValueId> values, const std::vector<Layout>& layouts, IsIt&& is_it) {
  const auto found = std::find_if(values.begin(), values.end(), is_it);
  if (found == values.end()) return std::nullopt;
  Layout out = layouts[static_cast<size_t>(found - values.begin())];
  out.partial.clear();
  return out;
}

}  // namespace

bool follows_rule(const Graph& graph, const Node& node, const VouchedLayouts& layouts, const Mesh& mesh) {
  return follows(*rule_of(graph, node), layouts, mesh);
}

std::string why_unsound(const Graph& graph, const Node& node, const VouchedLayouts& layouts, const Mesh& mesh) {
  // The pieces are right then, also of ops whose attributes say sizes of the whole, which the kernels do not read.
  if (follows_rule(graph, node, layouts, mesh)) return "";
  try {
    return why_other_results(node, local_types(graph, node.inputs, layouts.in, mesh),
                             local_types(graph, node.outputs, layouts.out, mesh));
  } catch (const Error& e) {
    return fmt::format("the op does not take its pieces: {}", e.text());
  }
}

Layout cut_alike(const Layout& operand, const Shape& result, const Mesh& mesh) {
  Layout out = Layout::replicated(result.rank());
  for (const Axes& axes : operand.dims) {
    for (const int axis : axes) {
      for (int dim = 0; dim < result.rank() && !out.uses(axis); ++dim) {
        Axes& cut = out.dims[static_cast<size_t>(dim)];
        cut.push_back(axis);
        if (result[dim] % mesh.size_of(cut) != 0) cut.pop_back();
      }
    }
  }
  return out;
}

std::optional<VouchedLayouts> mirrored(const Graph& graph, const Node& node,
                                       const std::vector<std::optional<Layout>>& own, const VouchedLayouts& layouts,
                                       const Mesh& mesh) {
  const Node& forward = graph.node(node.gradient_of);
  VouchedLayouts out;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId id = node.inputs[i];
    const auto is_same = [&](ValueId value) { return value == id; };
    std::optional<Layout> found = layout_where(forward.inputs, layouts.in, is_same);
    if (!found) found = layout_where(forward.outputs, layouts.out, is_same);
    if (!found)
      found = layout_where(forward.outputs, layouts.out, [&](ValueId value) { return graph.is_gradient(id, value); });
    if (!found) found = own[i];
    if (!found) return std::nullopt;
    found->partial.clear();
    out.in.push_back(std::move(*found));
  }
  for (const ValueId id : node.outputs) {
    std::optional<Layout> found =
        layout_where(forward.inputs, layouts.in, [&](ValueId value) { return graph.is_gradient(id, value); });
    if (!found) return std::nullopt;
    for (const Layout& operand : out.in) add_terms(operand, *found);
    out.out.push_back(std::move(*found));
  }
  if (!why_unsound(graph, node, out, mesh).empty()) return std::nullopt;
  return out;
}

std::optional<VouchedLayouts> unsummed(const ShardingRule& rule, const FactorCuts& cuts, const Mesh& mesh,
                                       bool as_means) {
  VouchedLayouts out{operand_layouts(rule, cuts), result_layouts(rule, cuts)};
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    require(!is_uneven(rule, cuts, f, mesh),
            "{} ranks that keep their own terms do not divide factor '{}' of {}; cut it evenly",
            mesh.size_of(cuts.axes[f]), rule.factors[f].name, to_string(rule));
  }
  bool any = false;
  for (Layout& layout : out.out) {
    std::vector<int> ranks;
    for (const PartialAxis& p : layout.partial) {
      if (!is_micro_batch_axis(mesh, p.axis)) ranks.push_back(p.axis);
    }
    if (ranks.empty()) continue;
    any = true;
    if (as_means && layout.partial.front().reduction == Reduction::kSum)
      out.factor = static_cast<double>(mesh.size_of(ranks));
    erase_if(layout.partial, [&](const PartialAxis& p) { return !is_micro_batch_axis(mesh, p.axis); });
  }
  if (!any) return std::nullopt;
  return out;
}

}  // namespace trireme
