#include "trireme/parallel/without_effect.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "trireme/base/bytes_text.h"
#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"
#include "trireme/base/words.h"

namespace trireme {
namespace {

void mark(const Layout& layout, std::vector<char>& used) {
  for (const Axes& axes : layout.dims) {
    for (const int axis : axes) used[static_cast<size_t>(axis)] = 1;
  }
}

// Of each axis, whether it cuts an input or the work of a node.
std::vector<char> axes_that_cut(const Strategy& strategy) {
  std::vector<char> used(static_cast<size_t>(strategy.mesh.axes()), 0);
  for (const Layout& layout : strategy.inputs) mark(layout, used);
  for (const FactorCuts& cuts : strategy.nodes) {
    for (const Axes& axes : cuts.axes) {
      for (const int axis : axes) used[static_cast<size_t>(axis)] = 1;
    }
    if (!cuts.vouched) continue;
    for (const Layout& layout : cuts.vouched->in) mark(layout, used);
    for (const Layout& layout : cuts.vouched->out) mark(layout, used);
  }
  return used;
}

// Ranks that each have a term of the gradient.
int64_t ranks_of_terms(const Layout& gradient, const Mesh& mesh) {
  int64_t ranks = 1;
  for (const int axis : gradient.partial_axes()) {
    if (!is_micro_batch_axis(mesh, axis)) ranks *= mesh.axis(axis).size;
  }
  return ranks;
}

// The gradients of parameters, those of which ranks that each have a term share the update.
std::set<ValueId> gradients_of_sliced(const Graph& graph, const Strategy& strategy,
                                      const std::vector<Layout>& layouts) {
  std::set<ValueId> gradients, out;
  for (const Update& update : graph.updates()) gradients.insert(update.gradient);
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (node.phase != Phase::kUpdate) continue;
    for (const ValueId operand : node.inputs) {
      if (!gradients.contains(operand)) continue;
      const Axes terms = layouts[static_cast<size_t>(operand)].partial_axes();
      for (const Axes& axes : strategy.nodes[i].axes) {
        for (const int axis : axes) {
          if (!is_micro_batch_axis(strategy.mesh, axis) && std::ranges::find(terms, axis) != terms.end())
            out.insert(operand);
        }
      }
    }
  }
  return out;
}

// Parameters that no ranks share.
struct Whole {
  int64_t count = 0, bytes = 0;  // of a rank's pieces
  std::string largest;
  int64_t largest_bytes = 0;

  void add(const Input& input, int64_t own_bytes) {
    ++count;
    bytes += own_bytes;
    if (own_bytes > largest_bytes) largest = input.name;
    largest_bytes = std::max(largest_bytes, own_bytes);
  }
  std::string size() const { return bytes_text(static_cast<double>(bytes)); }
  std::string text() const { return fmt::format("{} ({})", count, size()); }
};

// A parameter of which several ranks have the same, and compute the whole gradient each.
bool is_alike_unsummed(const Graph& graph, const Strategy& strategy, const std::vector<Layout>& layouts,
                       const Update& update) {
  if (ranks_of_terms(layouts[static_cast<size_t>(update.gradient)], strategy.mesh) > 1) return false;
  const auto index = static_cast<size_t>(graph.value(update.parameter).index);
  const Shape& shape = graph.type(update.parameter).shape;
  int64_t pieces = 1;
  for (int dim = 0; dim < shape.rank(); ++dim) pieces *= strategy.inputs[index].cuts(dim, strategy.mesh);
  return pieces < without_micro_batches(strategy.mesh).devices();
}

std::string nothing_sliced(const Graph& graph, const Strategy& strategy, const std::vector<Layout>& layouts,
                           const OptimizerParallel& optimizer) {
  const bool summed = std::ranges::any_of(graph.updates(), [&](const Update& update) {
    return ranks_of_terms(layouts[static_cast<size_t>(update.gradient)], strategy.mesh) > 1;
  });
  if (!summed) {
    return fmt::format("optimizer parallelism of level {} slices nothing: no gradient is summed over ranks",
                       optimizer.level);
  }
  const auto makes_groups = [&](const Update& update) {
    return ranks_of_terms(layouts[static_cast<size_t>(update.gradient)], strategy.mesh) % optimizer.shard_size == 0;
  };
  if (optimizer.shard_size > 1 && std::ranges::none_of(graph.updates(), makes_groups)) {
    const Update& first = graph.updates().front();
    return fmt::format(
        "optimizer parallelism of level {} slices nothing: a shard size of {} makes no groups of the {} ranks that "
        "gradients are summed over; use a divisor of that",
        optimizer.level, optimizer.shard_size,
        ranks_of_terms(layouts[static_cast<size_t>(first.gradient)], strategy.mesh));
  }
  int64_t largest = 0, unsummed = 0;
  for (const Update& update : graph.updates()) {
    const TensorType& type = graph.type(update.parameter);
    const std::string& name = graph.inputs()[static_cast<size_t>(graph.value(update.parameter).index)].name;
    largest = std::max(largest, type.bytes());
    if (is_excepted(name, optimizer) || is_below_threshold(type, optimizer)) continue;
    if (is_alike_unsummed(graph, strategy, layouts, update)) ++unsummed;
  }
  return fmt::format(
      "optimizer parallelism of level {} slices nothing: no parameter that is not excepted has {} KiB or more (the "
      "largest has {:.3g}), a gradient that ranks sum and a dimension that falls in parts{}",
      optimizer.level, optimizer.threshold_kb, static_cast<double>(largest) / 1024,
      unsummed == 0 ? "" : fmt::format("; of {} as large each rank computes the whole gradient", unsummed));
}

// Exceptions that name no parameter that is trained.
void add_exceptions_of_nothing(const Graph& graph, const OptimizerParallel& optimizer, std::vector<std::string>& out) {
  std::vector<std::string> names;
  for (const Update& update : graph.updates())
    names.push_back(graph.inputs()[static_cast<size_t>(graph.value(update.parameter).index)].name);
  for (const std::string& pattern : optimizer.except) {
    if (std::ranges::any_of(names, [&](const std::string& name) { return matches(pattern, name); })) continue;
    out.push_back(fmt::format("parallel.zero_except '{}' names no parameter that is trained.{}", pattern,
                              suggestion(pattern, names)));
  }
}

}  // namespace

std::vector<std::string> without_effect(const Graph& graph, const Strategy& strategy,
                                        const OptimizerParallel& optimizer) {
  std::vector<std::string> out;
  const Mesh& mesh = strategy.mesh;
  const std::vector<char> used = axes_that_cut(strategy);
  for (const MeshAxis& axis : mesh.user_axes()) {
    if (axis.size == 1 || axis.name == kMicroBatchAxis || axis.name == kSeqChunkAxis) continue;
    const Axes primes = mesh.find(axis.name);
    if (std::ranges::any_of(primes, [&](int prime) { return used[static_cast<size_t>(prime)] != 0; })) continue;
    out.push_back(fmt::format("axis '{}' of the mesh '{}' cuts nothing: its {} ranks repeat each other's work",
                              axis.name, to_string(mesh), axis.size));
  }
  if (optimizer.level == 0 || graph.updates().empty()) return out;
  add_exceptions_of_nothing(graph, optimizer, out);
  const std::vector<Layout> layouts = value_layouts(graph, strategy);
  if (gradients_of_sliced(graph, strategy, layouts).empty()) {
    out.push_back(nothing_sliced(graph, strategy, layouts, optimizer));
    return out;
  }
  if (optimizer.shard_size <= 1) return out;
  int64_t ignored = 0, ranks = 0;
  std::string first;
  for (const Update& update : graph.updates()) {
    const int64_t terms = ranks_of_terms(layouts[static_cast<size_t>(update.gradient)], mesh);
    if (terms == 1 || terms % optimizer.shard_size == 0 || ignored++ > 0) continue;  // one: stays_whole says so
    first = graph.inputs()[static_cast<size_t>(graph.value(update.parameter).index)].name;
    ranks = terms;
  }
  if (ignored > 0) {
    out.push_back(fmt::format(
        "optimizer parallelism: a shard size of {} is ignored for {} parameters, the first '{}', whose gradient is "
        "summed over {} ranks; use a divisor of that",
        optimizer.shard_size, ignored, first, ranks));
  }
  return out;
}

std::string stays_whole(const Graph& graph, const Strategy& strategy, const OptimizerParallel& optimizer) {
  if (optimizer.level == 0 || graph.updates().empty()) return "";
  const std::vector<Layout> layouts = value_layouts(graph, strategy);
  const std::set<ValueId> sliced = gradients_of_sliced(graph, strategy, layouts);
  Whole all, excepted, small, indivisible, unsummed;
  for (const Update& update : graph.updates()) {
    const int64_t ranks = ranks_of_terms(layouts[static_cast<size_t>(update.gradient)], strategy.mesh);
    const bool is_unsummed = is_alike_unsummed(graph, strategy, layouts, update);
    if ((ranks == 1 && !is_unsummed) || sliced.contains(update.gradient)) continue;
    const auto index = static_cast<size_t>(graph.value(update.parameter).index);
    const Input& input = graph.inputs()[index];
    TensorType type = graph.type(update.parameter);
    Whole& why = is_excepted(input.name, optimizer)    ? excepted
                 : is_below_threshold(type, optimizer) ? small
                 : is_unsummed                         ? unsummed
                                                       : indivisible;
    type.shape = local_shape(type.shape, strategy.inputs[index], strategy.mesh);
    for (Whole* const each : {&all, &why}) each->add(input, type.bytes());
  }
  if (all.count == 0 || sliced.empty()) return "";
  std::vector<std::string> parts;
  if (small.count > 0) parts.push_back(fmt::format("{} are below {} KiB", small.text(), optimizer.threshold_kb));
  if (excepted.count > 0) parts.push_back(fmt::format("{} are named by zero_except", excepted.text()));
  if (unsummed.count > 0) {
    parts.push_back(fmt::format("of {} each rank computes the whole gradient, which none sum, the largest is '{}'",
                                unsummed.text(), unsummed.largest));
  }
  if (indivisible.count > 0) {
    parts.push_back(fmt::format("{} have no dimension that falls in parts over the ranks, the largest is '{}'",
                                indivisible.text(), indivisible.largest));
  }
  return fmt::format("optimizer parallelism of level {} leaves {} of {} parameters whole, {} on every rank: {}",
                     optimizer.level, all.count, graph.updates().size(), all.size(), joined_text(parts, "; "));
}

}  // namespace trireme
