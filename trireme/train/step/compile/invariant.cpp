#include "trireme/train/step/compile/invariant.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "trireme/base/error.h"
#include "trireme/op/kept_bits.h"
#include "trireme/op/op_def.h"
#include "trireme/op/rank_groups.h"

namespace trireme {
namespace {

std::string place_of(const Graph& graph, const Node& node) {
  const std::string_view scope = graph.scope_of(node);
  return scope.empty() ? fmt::format("a {} outside all modules", node.op->name)
                       : fmt::format("{} of '{}'", node.op->name, scope);
}

// By the kernel of the whole op: no cut changes the choice.
KeptBits kept_bits(const Graph& graph, const Node& node, const Device& device) {
  std::vector<TensorType> in, out;
  for (const ValueId id : node.inputs) in.push_back(graph.type(id));
  for (const ValueId id : node.outputs) out.push_back(graph.type(id));
  const TypeArgs types{in, out, node.attrs};
  try {
    return device.choose({.op = def_of(node), .types = types, .chosen_by = types, .numerics = Numerics::kInvariant})
        .kept;
  } catch (Error& e) {
    e.note(fmt::format("numerics = 'invariant' needs one for {}", place_of(graph, node)));
    throw;
  }
}

// Axes by how finely they cut: a larger number is of smaller parts.
class Fineness {
 public:
  Fineness(const Mesh& mesh, std::span<const int> within) : coarse_(mesh.axes()), within_(within) {}

  int of(int64_t axis) const {
    return static_cast<int>(axis) + (std::ranges::count(within_, static_cast<int>(axis)) > 0 ? coarse_ : 0);
  }
  template <class Numbers>
  bool is_sorted(const Numbers& axes) const {
    return std::ranges::is_sorted(axes, {}, [&](int64_t axis) { return of(axis); });
  }

 private:
  int coarse_;
  std::span<const int> within_;
};

// What is wrong with a factor that is cut by these axes, or "".
std::string why_not(const KeptBits& kept, const ShardingRule& rule, int factor, const Axes& axes, const Mesh& mesh,
                    const Fineness& fineness) {
  const Factor& f = rule.factors[static_cast<size_t>(factor)];
  const int64_t parts = mesh.size_of(axes);
  if (!invariant_over(kept, rule, factor)) {
    return fmt::format("cut in {} parts along '{}' of {}, which it sums over in one piece; cut another dimension",
                       parts, f.name, to_string(rule));
  }
  if (!is_summed(rule, factor) || kept.bits == Bits::kExact) return "";
  if (f.size % parts != 0) {
    return fmt::format("cut in {} uneven parts along '{}' of {}, which have no common tree of sums; cut it evenly",
                       parts, f.name, to_string(rule));
  }
  if (!std::has_single_bit(static_cast<uint64_t>(parts)) || parts > kLeaves) {
    return fmt::format("cut in {} parts along '{}' of {}, which it sums over; the parts must be 2, 4, 8 or 16", parts,
                       f.name, to_string(rule));
  }
  if (!fineness.is_sorted(axes)) {
    return fmt::format("cut along '{}' of {}, which it sums over, by mesh axes in another order than the mesh has them",
                       f.name, to_string(rule));
  }
  return "";
}

// Whether a value that collectives make is a sum of terms that are added without rounding, in any order.
bool is_exact_sum(const Graph& graph, ValueId id, const Device& device) {
  NodeId producer = graph.value(id).producer;
  while (producer >= 0 && def_of(graph.node(producer)).collective)
    producer = graph.value(graph.node(producer).inputs[0]).producer;
  return producer >= 0 && kept_bits(graph, graph.node(producer), device).bits == Bits::kExact;
}

// What makes the sum over ranks that a collective takes of its operand no node of the tree of the whole sum, or "".
// Ranks count as in the mesh, and what is left to do must be over axes that are more significant than those summed
// over.
std::string why_no_node(const Program& program, const Node& node, const Fineness& fineness) {
  const Layout& before = program.layouts[static_cast<size_t>(node.inputs[0])];
  const Layout& left = program.layouts[static_cast<size_t>(node.outputs[0])];
  const std::vector<int64_t> axes = groups_of(node).axes;
  const bool sums = before.partial.size() > left.partial.size() && before.partial.front().reduction == Reduction::kSum;
  if (sums && !fineness.is_sorted(axes))
    return "is made by mesh axes in another order than the mesh has them; cut its dimension by them in that order";
  const auto is_coarser = [&](const PartialAxis& p) {
    return std::ranges::all_of(axes, [&](int64_t axis) { return fineness.of(p.axis) < fineness.of(axis); });
  };
  if (!left.is_partial() || (!axes.empty() && std::ranges::all_of(left.partial, is_coarser))) return "";
  return fmt::format("is made in more than one step ({} leaves it {}); let its ranks be one group", node.op->name,
                     to_string(left, program.mesh));
}

}  // namespace

Axes axes_within_micro_batches(const Strategy& strategy) {
  Axes out;
  const auto is_of_parts = [&](int axis) { return is_micro_batch_axis(strategy.mesh, axis); };
  for (const FactorCuts& cuts : strategy.nodes) {
    for (const Axes& axes : cuts.axes) {
      const auto first = std::ranges::find_if(axes, is_of_parts);
      std::copy_if(first, axes.end(), std::back_inserter(out),
                   [&](int axis) { return !is_of_parts(axis) && std::ranges::count(out, axis) == 0; });
    }
  }
  return out;
}

std::string why_not_invariant(const Graph& graph, const Node& node, const FactorCuts& cuts, const Mesh& mesh,
                              const Device& device, std::span<const int> within) {
  if (def_of(node).collective) return "a collective of the program's own, which knows no order of its terms";
  if (cuts.vouched) return "cut as someone vouches for, which no kernel's promise covers";
  if (cuts.copies > 1) return "computed in copies on each rank, which no kernel's promise covers";
  if (!cuts.through.empty()) return "given partial sums, which have other bits when they are added later";
  const KeptBits kept = kept_bits(graph, node, device);
  if (kept.bits == Bits::kShape) {
    return fmt::format("computed by a kernel of which the device '{}' does not say that it keeps its bits",
                       device.name());
  }
  const RuleOf computed = rule_of(graph, node);
  const ShardingRule& rule = *computed;
  std::string why;
  for (size_t f = 0; f < rule.factors.size() && why.empty(); ++f) {
    if (!cuts.axes[f].empty())
      why = why_not(kept, rule, static_cast<int>(f), cuts.axes[f], mesh, Fineness(mesh, within));
  }
  return why;
}

void require_invariant(const Graph& graph, const Strategy& strategy, const Device& device) {
  const Axes within = axes_within_micro_batches(strategy);
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    const std::string why = why_not_invariant(graph, node, strategy.nodes[i], strategy.mesh, device, within);
    if (why.empty()) continue;
    fail(ErrorKind::kUnsupported, "numerics = 'invariant': {} is {}; or use numerics = 'fast'", place_of(graph, node),
         why);
  }
}

std::string why_not_invariant(const Program& program, const Device& device, std::span<const int> within) {
  const Fineness fineness(program.mesh, within);
  for (const Node& node : program.graph.nodes()) {
    if (!def_of(node).collective) continue;
    const std::string why = why_no_node(program, node, fineness);
    if (!why.empty() && !is_exact_sum(program.graph, node.inputs[0], device))
      return fmt::format("the sum over ranks of a value of '{}' {}", program.graph.scope_of(node), why);
  }
  return "";
}

void allow_invariant_alone(CandidateOptions& options, const Device& device) {
  options.allows = [&](const Graph& graph, const Node& node, const FactorCuts& cuts, const Mesh& mesh) {
    return why_not_invariant(graph, node, cuts, mesh, device).empty();
  };
  options.allows_pieces = [&](const Program& pieces) { return why_not_invariant(pieces, device).empty(); };
}

void require_invariant(const Program& program, const Device& device, std::span<const int> within) {
  const std::string why = why_not_invariant(program, device, within);
  if (!why.empty()) fail(ErrorKind::kUnsupported, "numerics = 'invariant': {}, or use numerics = 'fast'", why);
}

}  // namespace trireme
