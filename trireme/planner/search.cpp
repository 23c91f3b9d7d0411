#include "trireme/planner/search.h"

#include "trireme/base/error.h"
#include "trireme/plan/search/simplify.h"
#include "trireme/planner/candidates.h"
#include "trireme/planner/strategy_problem.h"

namespace trireme {
namespace {

Strategy uncut_strategy(const Graph& graph, const Mesh& mesh) {
  Strategy out;
  out.mesh = mesh;
  for (const Input& input : graph.inputs())
    out.inputs.push_back(Layout::replicated(graph.type(input.value).shape.rank()));
  for (const Node& node : graph.nodes()) out.nodes.push_back(uncut(*rule_of(graph, node)));
  return out;
}

SearchResult search_axes(const Graph& graph, const Units& units, const Strategy& base, const std::vector<int>& axes,
                         const PartitionOptions& partition, const CostModel& model, int64_t bytes) {
  const StrategyProblem all(graph, units, {.base = base, .axes = axes}, partition, model);
  const search::Simplified smaller = search::simplify(all.problem());
  const std::optional<search::Found> found = search::cheapest_within(smaller.problem, {.bytes = bytes});
  invariant(found.has_value(), "no strategy of graph '{}' goes together, not even the one without cuts", graph.name());
  require(
      found->fits,
      "no strategy of graph '{}' over mesh '{}' fits in {} bytes on each device: the smallest needs {} for parameters, "
      "state and what the backward pass reads. Use more devices, devices with more memory, or smaller batches",
      graph.name(), to_string(base.mesh), bytes, found->choice.price.bytes);
  return {.strategy = all.strategy(smaller.restored(found->choice)),
          .price = found->choice.price,
          .bound_ps = found->bound_ps};
}

}  // namespace

SearchResult search_strategy(const Graph& graph, const Mesh& mesh, const PartitionOptions& partition,
                             const Rates& rates, const SearchOptions& options) {
  require(micro_batches(mesh) == 1, "a search over mesh '{}': micro-batches are not searched yet; leave them out",
          to_string(mesh));
  require(options.memory_bytes >= 0, "{} bytes of memory on each device; 0 is no limit", options.memory_bytes);
  const CostModel model(mesh, rates);
  const int64_t bytes = options.memory_bytes > 0 ? options.memory_bytes : int64_t{1} << 60;
  const Units units(graph);
  std::vector<std::vector<int>> rounds;
  if (options.kind == SearchKind::kDynamicProgramming || mesh.axes() == 0) rounds.emplace_back();
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    if (options.kind == SearchKind::kRecursiveProgramming) rounds.emplace_back();
    rounds.back().push_back(axis);
  }
  SearchResult out{.strategy = uncut_strategy(graph, mesh)};
  for (size_t i = 0; i < rounds.size(); ++i) {
    const bool is_last = i + 1 == rounds.size();  // before, nothing is cut as far as it will be
    out = search_axes(graph, units, out.strategy, rounds[i], partition, model, is_last ? bytes : int64_t{1} << 60);
  }
  out.strategy.why_inputs.assign(graph.inputs().size(), "found by search");
  out.strategy.why_nodes.assign(graph.nodes().size(), "found by search");
  return out;
}

}  // namespace trireme
