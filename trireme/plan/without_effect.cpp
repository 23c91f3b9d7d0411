#include "trireme/plan/without_effect.h"

#include <algorithm>
#include <map>

#include "trireme/base/error.h"

namespace trireme {
namespace {

void mark(const Layout& layout, std::vector<char>& used) {
  for (const std::vector<int>& axes : layout.dims) {
    for (const int axis : axes) used[static_cast<size_t>(axis)] = 1;
  }
}

// Of each axis, whether it cuts an input or the work of a node.
std::vector<char> axes_that_cut(const Strategy& strategy) {
  std::vector<char> used(static_cast<size_t>(strategy.mesh.axes()), 0);
  for (const Layout& layout : strategy.inputs) mark(layout, used);
  for (const FactorCuts& cuts : strategy.nodes) {
    for (const std::vector<int>& axes : cuts.axes) {
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

// Whether ranks that each have a term of a gradient share the update of its parameter.
bool slices_updates(const Graph& graph, const Strategy& strategy, const std::vector<Layout>& layouts) {
  std::map<ValueId, const Layout*> gradients;  // of parameters
  for (const Update& update : graph.updates())
    gradients[update.parameter] = &layouts[static_cast<size_t>(update.gradient)];
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (node.phase != Phase::kUpdate) continue;
    for (const ValueId operand : node.inputs) {
      const auto found = gradients.find(operand);
      if (found == gradients.end()) continue;
      const std::vector<int> terms = found->second->partial_axes();
      for (const std::vector<int>& axes : strategy.nodes[i].axes) {
        for (const int axis : axes) {
          if (!is_micro_batch_axis(strategy.mesh, axis) && std::ranges::find(terms, axis) != terms.end()) return true;
        }
      }
    }
  }
  return false;
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
  int64_t largest = 0;
  for (const Update& update : graph.updates()) largest = std::max(largest, graph.type(update.parameter).bytes());
  return fmt::format(
      "optimizer parallelism of level {} slices nothing: no parameter that is not excepted has {} KiB or more (the "
      "largest has {:.3g}) and a first dimension that the ranks divide",
      optimizer.level, optimizer.threshold_kb, static_cast<double>(largest) / 1024);
}

}  // namespace

std::vector<std::string> without_effect(const Graph& graph, const Strategy& strategy,
                                        const OptimizerParallel& optimizer) {
  std::vector<std::string> out;
  const Mesh& mesh = strategy.mesh;
  const std::vector<char> used = axes_that_cut(strategy);
  for (const MeshAxis& axis : mesh.user_axes()) {
    if (axis.size == 1 || axis.name == kMicroBatchAxis || axis.name == kSeqChunkAxis) continue;
    const std::vector<int> primes = mesh.find(axis.name);
    if (std::ranges::any_of(primes, [&](int prime) { return used[static_cast<size_t>(prime)] != 0; })) continue;
    out.push_back(fmt::format("axis '{}' of the mesh '{}' cuts nothing: its {} ranks repeat each other's work",
                              axis.name, to_string(mesh), axis.size));
  }
  if (optimizer.level == 0 || graph.updates().empty()) return out;
  const std::vector<Layout> layouts = value_layouts(graph, strategy);
  if (!slices_updates(graph, strategy, layouts)) {
    out.push_back(nothing_sliced(graph, strategy, layouts, optimizer));
    return out;
  }
  if (optimizer.shard_size <= 1) return out;
  int64_t ignored = 0, ranks = 0;
  std::string first;
  for (const Update& update : graph.updates()) {
    const int64_t terms = ranks_of_terms(layouts[static_cast<size_t>(update.gradient)], mesh);
    if (terms % optimizer.shard_size == 0 || ignored++ > 0) continue;
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

}  // namespace trireme
