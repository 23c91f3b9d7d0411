#include "trireme/parallel/searched_in_parts.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "trireme/parallel/batch_in_parts.h"

namespace trireme {
namespace {

// Axes that cut the batch as ranks are given it.
std::set<int> axes_of_batch(const Graph& graph, const Strategy& found) {
  std::set<int> out;
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const Layout& layout = found.inputs[i];
    if (graph.inputs()[i].role == Role::kData && !layout.dims.empty())
      out.insert(layout.dims[0].begin(), layout.dims[0].end());
  }
  return out;
}

// Of these axes those that do not cut the samples of an op: along them ranks share what they had of their own.
std::set<int> shared_by(const FactorCuts& ranks, const FactorCuts& parts, const std::set<int>& of_batch) {
  std::set<int> out;
  for (size_t factor = 0; factor < parts.axes.size(); ++factor) {
    if (parts.axes[factor].empty()) continue;
    std::ranges::copy_if(of_batch, std::inserter(out, out.end()),
                         [&](int axis) { return std::ranges::count(ranks.axes[factor], axis) == 0; });
  }
  return out;
}

// Whether the results have no samples: the op sums over them.
bool sums_over_samples(const Graph& graph, const Node& node, const FactorCuts& parts) {
  const RuleOf rule = rule_of(graph, node);
  for (size_t factor = 0; factor < parts.axes.size(); ++factor) {
    if (!parts.axes[factor].empty() && !is_summed(*rule, static_cast<int>(factor))) return false;
  }
  return true;
}

}  // namespace

Strategy cut_by_micro_batches(const Graph& graph, const Parallel& parallel) {
  const Mesh mesh =
      with_micro_batches(Mesh(), micro_batches_of(parallel) * parts_of_micro_batch(parallel), seq_chunks_of(parallel));
  Asks asks{.says_why = false};
  for (const Input& input : graph.inputs()) {
    std::optional<Layout>& asked = asks.inputs.emplace_back();
    if (input.role == Role::kData) asked = Layout::replicated(graph.type(input.value).shape.rank());
  }
  BatchInParts(graph, parallel, mesh).ask(asks);
  return propagate(graph, mesh, std::move(asks));
}

std::vector<char> brought_to_each(const Graph& graph, const Strategy& by_parts) {
  const std::vector<Layout> layouts = value_layouts(graph, by_parts);
  std::vector<char> out(graph.values().size(), 0);
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const FactorCuts& cuts = by_parts.nodes[i];
    if (std::ranges::all_of(cuts.axes, [](const auto& axes) { return axes.empty(); })) continue;
    for (const ValueId id : graph.nodes()[i].inputs) {
      if (layouts[static_cast<size_t>(id)].is_replicated()) out[static_cast<size_t>(id)] = 1;
    }
  }
  return out;
}

void ask_found(const Graph& graph, const Strategy& found, const Strategy& by_parts, bool with_updates, Asks& asks) {
  for (size_t i = 0; i < found.inputs.size(); ++i) asks.inputs[i] = found.inputs[i];
  const std::set<int> of_batch = axes_of_batch(graph, found);
  std::set<int> exchanged;
  for (size_t i = 0; i < found.nodes.size(); ++i) {
    const Node& node = graph.nodes()[i];
    const bool is_update = with_updates && node.phase == Phase::kUpdate;
    if (node.phase != Phase::kForward && !is_update) continue;
    const std::set<int> shared = shared_by(found.nodes[i], by_parts.nodes[i], of_batch);
    // A sum over samples is one over the ranks' own, which is as little to exchange.
    if (!shared.empty() && sums_over_samples(graph, node, by_parts.nodes[i])) continue;
    asks.nodes.emplace(static_cast<NodeId>(i), found.nodes[i]);
    exchanged.insert(shared.begin(), shared.end());
  }
  if (!asks.sums_flow) return;  // the order of sums is that of the batch
  for (const int axis : exchanged) {
    if (std::ranges::count(asks.within_micro_batches, axis) == 0) asks.within_micro_batches.push_back(axis);
  }
}

}  // namespace trireme
