#include "trireme/train/invariant.h"

#include <algorithm>
#include <bit>

#include "trireme/backend/cpu/leaves.h"
#include "trireme/backend/kernels.h"
#include "trireme/base/error.h"
#include "trireme/op/op_def.h"
#include "trireme/op/rank_groups.h"

namespace trireme {
namespace {

class Check {
 public:
  Check(const Graph& graph, const Mesh& mesh, const Node& node)
      : graph_(graph), mesh_(mesh), node_(node) {
    for (const ValueId id : node.inputs) in_.push_back(graph.type(id));
    for (const ValueId id : node.outputs) out_.push_back(graph.type(id));
  }

  void run(const FactorCuts& cuts) const {
    const OpDef& def = def_of(node_);
    if (def.traits.collective)
      refuse("a collective of the program's own, which knows no order of its terms");
    const Kernel& kernel = kernel_for(def);
    const ShardingRule rule = rule_of(graph_, node_);
    if (cuts.vouched) refuse("cut as someone vouches for, which no kernel's promise covers");
    if (cuts.copies > 1) refuse("computed in copies on each rank, which no kernel's promise covers");
    if (!cuts.through.empty())
      refuse("given partial sums, which have other bits when they are added later");
    for (size_t f = 0; f < rule.factors.size(); ++f) {
      if (!cuts.axes[f].empty()) check_factor(kernel, rule, static_cast<int>(f), cuts.axes[f]);
    }
  }

 private:
  const Kernel& kernel_for(const OpDef& def) const {
    try {
      return choose_kernel(def, {in_, out_, node_.attrs}, Numerics::kInvariant);
    } catch (Error& e) {
      e.note(fmt::format("numerics = 'invariant' needs one for {}", place()));
      throw;
    }
  }

  void check_factor(const Kernel& kernel, const ShardingRule& rule, int factor,
                    const std::vector<int>& axes) const {
    const Factor& f = rule.factors[static_cast<size_t>(factor)];
    const int64_t parts = mesh_.size_of(axes);
    if (!invariant_over(kernel, rule, factor)) {
      refuse(
          fmt::format("cut in {} parts along '{}' of {}, which it sums over in one piece; cut "
                      "another dimension",
                      parts, f.name, to_string(rule)));
    }
    if (f.size % parts != 0) {
      refuse(fmt::format("cut in {} uneven parts along '{}' of {}, which have no common tree of sums; cut it evenly", parts, f.name,
                         to_string(rule)));
    }
    if (!is_summed(rule, factor) || kernel.bits == Bits::kExact) return;
    if (!std::has_single_bit(static_cast<uint64_t>(parts)) || parts > cpu::kLeaves) {
      refuse(fmt::format(
          "cut in {} parts along '{}' of {}, which it sums over; the parts must be 2, 4, 8 or 16",
          parts, f.name, to_string(rule)));
    }
    if (!std::is_sorted(axes.begin(), axes.end())) {
      refuse(
          fmt::format("cut along '{}' of {}, which it sums over, by mesh axes in another order "
                      "than the mesh has them",
                      f.name, to_string(rule)));
    }
  }

  std::string place() const {
    const std::string_view scope = graph_.scope_of(node_);
    return scope.empty() ? fmt::format("a {} outside all modules", node_.op->name)
                         : fmt::format("{} of '{}'", node_.op->name, scope);
  }
  [[noreturn]] void refuse(const std::string& why) const {
    fail(ErrorKind::kUnsupported, "numerics = 'invariant': {} is {}; or use numerics = 'fast'",
         place(), why);
  }

  const Graph& graph_;
  const Mesh& mesh_;
  const Node& node_;
  std::vector<TensorType> in_, out_;
};

// Whether the sum that is made here is a node of the tree of the whole sum: what is left to do is over axes that are more
// significant than those that were summed over.
bool breaks_tree(const Program& program, const Node& node, ValueId out) {
  const Layout& left = program.layouts[static_cast<size_t>(out)];
  if (!left.is_partial()) return false;
  const std::vector<int64_t> summed = groups_of(node.op->name, node.attrs).axes;
  return summed.empty() || left.partial.back().axis > *std::ranges::min_element(summed);
}

}  // namespace

void require_invariant(const Graph& graph, const Strategy& strategy) {
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    Check(graph, strategy.mesh, graph.nodes()[i]).run(strategy.nodes[i]);
  }
}

void require_invariant(const Program& program) {
  for (const Node& node : program.graph.nodes()) {
    if (!def_of(node).traits.collective) continue;
    for (const ValueId out : node.outputs) {
      if (!breaks_tree(program, node, out)) continue;
      fail(ErrorKind::kUnsupported,
           "numerics = 'invariant': the sum over ranks of a value of '{}' is made in more than one "
           "step ({} leaves it {}); let "
           "its ranks be one group, or use numerics = 'fast'",
           program.graph.scope_of(node), node.op->name,
           to_string(program.layouts[static_cast<size_t>(out)], program.mesh));
    }
  }
}

}  // namespace trireme
