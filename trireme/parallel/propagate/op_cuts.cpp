#include "trireme/parallel/propagate/op_cuts.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"
#include "trireme/base/said.h"
#include "trireme/mesh/mesh_spec.h"
#include "trireme/op/op_def.h"
#include "trireme/parallel/strategy/strategy.h"

namespace trireme {
namespace {

// What the cuts are about, for messages.
struct Subject {
  std::string_view text;
  const Graph& graph;
  const Node& node;
  const ShardingRule& rule;

  std::string name() const {
    const std::string_view scope = graph.scope_of(node);
    return scope.empty() ? std::string(node.op->name) : fmt::format("{} of '{}'", node.op->name, scope);
  }
  auto said_name() const {
    return said_by([this] { return name(); });
  }
  auto type(ValueId id) const { return said(graph.type(id)); }

  void check(const Layout& layout, ValueId value, size_t index, std::string_view kind, const Mesh& mesh) const {
    const Shape& whole = graph.type(value).shape;
    if (fits(layout, whole, mesh, Parts::kUneven)) return;
    trireme::check(layout, whole, mesh, fmt::format("{} {} of {}", kind, index, name()), Parts::kUneven);
  }
  void check_count(size_t given, const std::vector<ValueId>& values, std::string_view kind) const {
    require(given == values.size(), "cuts '{}' of {}: {} {} are given; the op has {}", text, said_name(), given, kind,
            values.size());
  }
  void check_rank(size_t given, ValueId value, size_t index, std::string_view kind) const {
    const int rank = graph.type(value).shape.rank();
    require(given == static_cast<size_t>(rank), "cuts '{}' of {}: {} {} has {} dimensions ({}), not {}", text,
            said_name(), kind, index, rank, type(value), given);
  }
};

// The number of parts of each factor, from those of the dimensions.
class FactorParts {
 public:
  explicit FactorParts(const Subject& subject) : subject_(subject), parts_(subject.rule.factors.size(), 0) {}

  void add(size_t operand, const std::vector<int64_t>& counts) {
    const ValueId value = subject_.node.inputs[operand];
    for (size_t dim = 0; dim < counts.size(); ++dim) {
      const int64_t size = subject_.graph.type(value).shape[static_cast<int>(dim)];
      const Parts parts = is_one_factor(operand, dim) ? Parts::kUneven : Parts::kEven;
      require(falls_in(size, counts[dim], parts),
              "cuts '{}' of {}: dimension {} of operand {} ({}) cannot be divided into {} parts; use {}", subject_.text,
              subject_.said_name(), dim, operand, subject_.type(value), counts[dim],
              said_by([&] { return divisors(size); }));
      add_dim(operand, dim, counts[dim]);
    }
  }
  std::vector<int64_t> take() {
    for (int64_t& parts : parts_) parts = std::max<int64_t>(parts, 1);
    return std::move(parts_);
  }

 private:
  // Whether the dimension is a factor, and no product of factors or row of windows.
  bool is_one_factor(size_t operand, size_t dim) const {
    const FactorsOfDim& factors = subject_.rule.in[operand][dim];
    const int64_t size = subject_.graph.type(subject_.node.inputs[operand]).shape[static_cast<int>(dim)];
    return factors.size() == 1 && subject_.rule.factors[static_cast<size_t>(factors.front())].size == size;
  }

  static std::string divisors(int64_t size) {
    std::vector<int64_t> out;
    for (int64_t d = 1; d <= std::min<int64_t>(size, 64); ++d) {
      if (size % d == 0) out.push_back(d);
    }
    return joined_text(out, ", ");
  }

  // A dimension of several factors is cut from the most significant on.
  void add_dim(size_t operand, size_t dim, int64_t count) {
    if (is_one_factor(operand, dim)) return set(operand, dim, subject_.rule.in[operand][dim].front(), count);
    for (const int factor : subject_.rule.in[operand][dim]) {
      const Factor& f = subject_.rule.factors[static_cast<size_t>(factor)];
      const int64_t share = count % f.size == 0 ? f.size : (f.size % count == 0 ? count : 1);
      set(operand, dim, factor, share);
      count /= share;
    }
    require(count == 1, "cuts '{}' of {}: dimension {} of operand {} cannot be cut; the op's rule is {}", subject_.text,
            subject_.said_name(), dim, operand, said(subject_.rule));
  }

  void set(size_t operand, size_t dim, int factor, int64_t count) {
    int64_t& parts = parts_[static_cast<size_t>(factor)];
    require(parts == 0 || parts == count,
            "cuts '{}' of {}: dimension {} of operand {} is cut into {} parts, the same dimension of an earlier "
            "operand into {}; they are one (factor '{}' of {}) and must be cut alike",
            subject_.text, subject_.said_name(), dim, operand, count, parts,
            subject_.rule.factors[static_cast<size_t>(factor)].name, said(subject_.rule));
    parts = count;
  }

  const Subject& subject_;
  std::vector<int64_t> parts_;  // 0: nothing is given
};

// A layout without the reserved axis, and the dimension in which it stood, or -1.
struct Interleaved {
  NamedLayout layout;
  int dim = -1;
};

Interleaved without_interleaved(const NamedLayout& layout, std::string_view whole) {
  Interleaved out{layout};
  for (size_t dim = 0; dim < out.layout.dims.size(); ++dim) {
    AxisNames& axes = out.layout.dims[dim];
    const auto found = std::ranges::find(axes, kInterleavedAxis);
    if (found == axes.end()) continue;
    require(found + 1 == axes.end() && out.dim < 0,
            "cuts '{}': '{}' must be the last axis of one dimension, as in [dp*{}, -]", whole, kInterleavedAxis,
            kInterleavedAxis);
    out.dim = static_cast<int>(dim);
    axes.pop_back();
  }
  return out;
}

// The axes of each factor, from the layouts of the operands.
class FactorAxes {
 public:
  FactorAxes(const Subject& subject, const Mesh& mesh) : subject_(subject), mesh_(mesh) {
    cuts_.axes.resize(subject.rule.factors.size());
    said_.resize(subject.rule.factors.size(), 0);
  }

  void add(size_t operand, const Layout& layout) {
    require(!layout.is_partial(), "cuts '{}' of {}: operand {} is asked for as a partial sum; ask for cuts only",
            subject_.text, subject_.said_name(), operand);
    for (size_t dim = 0; dim < layout.dims.size(); ++dim) add_dim(operand, dim, layout.dims[dim]);
  }
  void add_copies(size_t operand, int dim, int64_t copies) {
    require(copies > 1, "cuts '{}' of {}: the mesh has no axis '{}'; add {}=2 to it", subject_.text,
            subject_.said_name(), kInterleavedAxis, kInterleavedAxis);
    require(!def_of(subject_.node).traits.reads_place,
            "cuts '{}' of {}: the op's result depends on where its piece lies, so it cannot be computed in copies; "
            "leave {} out",
            subject_.text, subject_.said_name(), kInterleavedAxis);
    const FactorsOfDim& factors = subject_.rule.in[operand][static_cast<size_t>(dim)];
    const bool fits = factors.size() == 1 && (cuts_.copied_factor < 0 || cuts_.copied_factor == factors.front());
    require(fits, "cuts '{}' of {}: dimension {} of operand {} cannot be computed in copies{}; the op's rule is {}",
            subject_.text, subject_.said_name(), dim, operand, cuts_.copied_factor < 0 ? "" : " beside another one",
            said(subject_.rule));
    cuts_.copied_factor = factors.front();
    cuts_.copies = copies;
  }
  FactorCuts take() { return std::move(cuts_); }

 private:
  void add_dim(size_t operand, size_t dim, const Axes& axes) {
    size_t at = 0;
    const bool alone = subject_.rule.in[operand][dim].size() == 1;  // then its parts may be uneven
    for (const int factor : subject_.rule.in[operand][dim]) {
      int64_t rest = subject_.rule.factors[static_cast<size_t>(factor)].size;
      Axes mine;
      while (at < axes.size() && (alone || rest % mesh_.axis(axes[at]).size == 0)) {
        rest /= mesh_.axis(axes[at]).size;
        mine.push_back(axes[at++]);
      }
      set(operand, dim, static_cast<size_t>(factor), mine);
    }
    require(at == axes.size(),
            "cuts '{}' of {}: dimension {} of operand {} ({}) cannot be cut by {}; the op's rule is {}", subject_.text,
            subject_.said_name(), dim, operand, subject_.type(subject_.node.inputs[operand]),
            said_by([&] { return print_axes(axes, mesh_); }), said(subject_.rule));
  }

  void set(size_t operand, size_t dim, size_t factor, const Axes& axes) {
    require(said_[factor] == 0 || cuts_.axes[factor] == axes,
            "cuts '{}' of {}: dimension {} of operand {} is cut by {}, the same dimension of an earlier operand by {}; "
            "they are one (factor '{}' of {}) and must be cut alike",
            subject_.text, subject_.said_name(), dim, operand, said_by([&] { return print_axes(axes, mesh_); }),
            said_by([&] { return print_axes(cuts_.axes[factor], mesh_); }), subject_.rule.factors[factor].name,
            said(subject_.rule));
    cuts_.axes[factor] = axes;
    said_[factor] = 1;
  }

  const Subject& subject_;
  const Mesh& mesh_;
  FactorCuts cuts_;
  std::vector<char> said_;
};

FactorCuts by_layouts(const std::vector<NamedLayout>& layouts, const Subject& subject, const Mesh& mesh,
                      int64_t copies) {
  FactorAxes axes(subject, mesh);
  for (size_t i = 0; i < layouts.size(); ++i) {
    const Interleaved given = without_interleaved(layouts[i], subject.text);
    const Layout layout = given.layout.on(mesh);
    subject.check_rank(layout.dims.size(), subject.node.inputs[i], i, "operand");
    subject.check(layout, subject.node.inputs[i], i, "operand", mesh);
    axes.add(i, layout);
    if (given.dim >= 0) axes.add_copies(i, given.dim, copies);
  }
  return axes.take();
}

FactorCuts by_numbers(const std::vector<PartsOfDims>& tensors, const Subject& subject, const Mesh& mesh) {
  FactorParts parts(subject);
  for (size_t i = 0; i < tensors.size(); ++i) {
    subject.check_rank(tensors[i].size(), subject.node.inputs[i], i, "operand");
    parts.add(i, tensors[i]);
  }
  FactorCuts cuts;
  try {
    cuts.axes = axes_for_cuts(parts.take(), mesh);
  } catch (const Error& e) {
    fail(e.kind(), "cuts '{}' of {}: {}", subject.text, subject.name(), e.text());
  }
  return cuts;
}

FactorCuts operands_of(const TensorCuts& side, const Subject& subject, const Mesh& mesh, int64_t copies) {
  subject.check_count(count_of(side), subject.node.inputs, "operands");
  if (const auto* numbers = std::get_if<std::vector<PartsOfDims>>(&side)) return by_numbers(*numbers, subject, mesh);
  return by_layouts(std::get<std::vector<NamedLayout>>(side), subject, mesh, copies);
}

// A result by numbers: its own axes where the number is the op's, else with the axes over which it is partial after
// them, which makes a reduce-scatter; else as axes_for_cuts has it.
Layout result_by_number(const PartsOfDims& counts, const Layout& own, const Mesh& mesh) {
  Layout out = Layout::replicated(own.rank());
  bool known = true;
  for (size_t dim = 0; dim < counts.size(); ++dim) {
    Axes with_partial = own.dims[dim];
    for (const int axis : own.partial_axes()) with_partial.push_back(axis);
    if (mesh.size_of(own.dims[dim]) == counts[dim]) {
      out.dims[dim] = own.dims[dim];
    } else if (mesh.size_of(with_partial) == counts[dim]) {
      out.dims[dim] = with_partial;
    } else {
      known = false;
    }
  }
  if (!known) out.dims = axes_for_cuts(counts, mesh);
  return out;
}

Layout result_of(const TensorCuts& results, size_t i, const Subject& subject, const Layout& own, const Mesh& mesh) {
  const ValueId value = subject.node.outputs[i];
  if (const auto* numbers = std::get_if<std::vector<PartsOfDims>>(&results)) {
    subject.check_rank((*numbers)[i].size(), value, i, "result");
    return result_by_number((*numbers)[i], own, mesh);
  }
  const Layout out = without_interleaved(std::get<std::vector<NamedLayout>>(results)[i], subject.text).layout.on(mesh);
  subject.check_rank(out.dims.size(), value, i, "result");
  return out;
}

}  // namespace

std::vector<Layout> layouts_of(const std::vector<NamedLayout>& layouts, const Graph& graph,
                               const std::vector<ValueId>& values, const Mesh& mesh, const std::string& what) {
  require(layouts.size() == values.size(), "'{}' gives {} layouts of {}; it has {}", said(layouts), layouts.size(),
          what, values.size());
  std::vector<Layout> out;
  for (size_t i = 0; i < layouts.size(); ++i) {
    out.push_back(layouts[i].on(mesh));
    check(out.back(), graph.type(values[i]).shape, mesh, fmt::format("{} {}", what, i));
  }
  return out;
}

OpCuts op_cuts(const Cuts& cuts, const Graph& graph, const Node& node, const Mesh& mesh, int64_t copies) {
  const RuleOf computed = rule_of(graph, node);
  const ShardingRule& rule = *computed;
  const Subject subject{cuts.text, graph, node, rule};
  OpCuts out;
  out.cuts = operands_of(cuts.operands, subject, mesh, copies);
  const std::string illegal = why_illegal(rule, out.cuts, mesh);
  require(illegal.empty(),
          "cuts '{}' of {}: {}; the op's rule is {}: do not cut what has a '!', and use divisors of the sizes",
          cuts.text, subject.said_name(), illegal, said(rule));
  if (!cuts.results) return out;
  subject.check_count(count_of(*cuts.results), node.outputs, "results");
  const std::vector<Layout> own = result_layouts(rule, out.cuts);
  for (size_t i = 0; i < own.size(); ++i) {
    Layout wanted = result_of(*cuts.results, i, subject, own[i], mesh);
    subject.check(wanted, node.outputs[i], i, "result", mesh);
    out.results.emplace_back(std::move(wanted));
  }
  return out;
}

}  // namespace trireme
