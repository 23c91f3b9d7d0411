#include "trireme/planner/search.h"

#include <numeric>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/planner/dynamic_programming.h"
#include "trireme/planner/least_communication.h"
#include "trireme/planner/recursive_programming.h"
#include "trireme/planner/sharding_propagation.h"
#include "trireme/planner/strategy_problem.h"

namespace trireme {
namespace {

// What propagation completes.
SearchResult by_propagation(const Graph& graph, const Mesh& mesh, const SearchOptions& options,
                            const SearchConditions& conditions) {
  SearchResult out{.strategy = options.kind == SearchKind::kShardingPropagation
                                   ? sharding_propagation(graph, mesh, options, conditions)
                                   : least_communication(graph, mesh, options, conditions)};
  out.price = price_of(graph, out.strategy, conditions).price;
  require(
      conditions.memory_bytes == 0 || out.price.bytes <= conditions.memory_bytes,
      "the strategy that {} finds for graph '{}' over mesh '{}' needs {} bytes on each device for parameters, state "
      "and what the backward pass reads, and there are {}. Ask for other cuts, or use the search dynamic_programming, "
      "which looks for one that fits",
      to_string(options), graph.name(), to_string(mesh), out.price.bytes, conditions.memory_bytes);
  return out;
}

SearchResult by_programming(const Graph& graph, const Mesh& mesh, const SearchOptions& options,
                            const SearchConditions& conditions) {
  AxisSearch search(graph, mesh, options, conditions);
  try {
    SearchResult out =
        options.kind == SearchKind::kDynamicProgramming ? dynamic_programming(search) : recursive_programming(search);
    const std::string why = fmt::format("found by {}", to_string(options.kind));
    out.strategy.why_inputs.assign(graph.inputs().size(), why);
    out.strategy.why_nodes.assign(graph.nodes().size(), why);
    return out;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kUnsupported) throw;
    throw TooManyChoices(error.what());
  }
}

}  // namespace

StepPrice price_of(const Graph& graph, const Strategy& strategy, const SearchConditions& conditions) {
  const CostModel model(strategy.mesh, conditions.rates);
  const StrategyPrice terms =
      conditions.times_brought.all(StrategyPricer(graph, conditions.partition, model).price(strategy));
  StepPrice out{.price = {terms.total_ps(), held_bytes(graph, strategy, conditions.share)}};
  for (const std::vector<int64_t>* const moved : {&terms.values, &terms.means})
    out.moved_ps = std::accumulate(moved->begin(), moved->end(), out.moved_ps);
  return out;
}

SearchResult search_strategy(const Graph& graph, const Mesh& mesh, const SearchOptions& options,
                             const SearchConditions& conditions) {
  require(micro_batches(mesh) == 1,
          "a search over mesh '{}', which has micro-batches: search over its ranks (without_micro_batches)",
          to_string(mesh));
  require(!plans_whole_job(options.kind),
          "the search '{}' finds no strategy: it plans a whole job (train/plan/auto/auto_plan.h)",
          to_string(options.kind));
  require(conditions.memory_bytes >= 0, "{} bytes of memory on each device; it must be 0 (no limit) or more",
          conditions.memory_bytes);
  const double start = now_s();
  SearchResult out = goes_on_from_batch(options) ? by_propagation(graph, mesh, options, conditions)
                                                 : by_programming(graph, mesh, options, conditions);
  out.seconds = now_s() - start;
  return out;
}

}  // namespace trireme
