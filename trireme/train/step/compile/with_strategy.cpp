// The strategy by which a graph is cut. See compile.h.
#include "trireme/train/step/compile/compile.h"

#include <optional>
#include <utility>

#include "trireme/backend/device.h"
#include "trireme/base/log.h"
#include "trireme/planner/search_text.h"
#include "trireme/train/step/compile/crew_stages.h"
#include "trireme/train/step/compile/invariant.h"

namespace trireme {

void take_rates(const CompileOptions& options, const Mesh& mesh, Compiled& out) {
  const Communication& how = options.parallel.communication;
  if (!how.machine && !out.measured) out.measured = how.measured;
  if (!how.machine && !out.measured && options.measure) out.measured = options.measure(mesh);
  const Communication by_rates{.machine = out.measured ? out.measured : how.machine};
  out.rates = {reshard_costs(by_rates, mesh), by_rates.machine};
}

namespace {

SearchConditions search_conditions(const CompileOptions& options, const Graph& graph, const Mesh& mesh,
                                   const Rates& rates) {
  SearchConditions out{.rates = rates};
  out.partition = partition_options(options.parallel, graph, mesh, sum_order(graph, options.parallel, mesh));
  if (options.device) out.memory_bytes = options.device->memory_bytes();
  if (options.parallel.communication.machine) out.memory_bytes = options.parallel.communication.machine->memory_bytes;
  if (options.numerics == Numerics::kInvariant) allow_invariant_alone(out.candidates, device_of(options));
  return out;
}

// What nobody asks for is found by search.
Strategy searched_by(const Parallel& parallel, const CompileOptions& options, SemiAutoOptions asked, Compiled& out,
                     std::optional<SearchResult>& found) {
  asked.decide = [&](const Graph& graph, const Mesh& mesh, const Asks& asks) {
    if (mesh.devices() == 1) return propagate(graph, mesh, asks);
    take_rates(options, mesh, out);
    SearchConditions conditions = search_conditions(options, graph, mesh, out.rates);
    conditions.asks = asks;
    found = search_strategy(graph, mesh, parallel.search, conditions);
    TRIREME_LOG(kInfo, "plan", "searched graph '{}' over mesh '{}' by {} for {:.2f} s", graph.name(), to_string(mesh),
                to_string(parallel.search.kind), found->seconds);
    return found->strategy;
  };
  return semi_auto(out.graph, options.ranks, parallel, asked);
}

Strategy searched(const CompileOptions& options, const SemiAutoOptions& asked, Compiled& out) {
  Parallel parallel = options.parallel;
  std::optional<SearchResult> found;
  Strategy strategy;
  try {
    strategy = searched_by(parallel, options, asked, out, found);
  } catch (const TooManyChoices& error) {
    parallel.search.kind = SearchKind::kShardingPropagation;
    strategy = searched_by(parallel, options, asked, out, found);
    found->notes.push_back(
        fmt::format("too many choices for {} ({})", to_string(options.parallel.search.kind), error.what()));
    TRIREME_LOG(kWarn, "plan", "{}; sharding_propagation is used instead", found->notes.back());
  }
  if (!found) return strategy;
  const SearchConditions conditions = search_conditions(options, out.graph, strategy.mesh, out.rates);
  out.search =
      search_text(out.graph, strategy, price_of(out.graph, strategy, conditions), *found, parallel.search.kind);
  return strategy;
}

}  // namespace

Compiled with_strategy(Graph graph, const CompileOptions& options) {
  Compiled out;
  out.graph = std::move(graph);
  const ScopeStages stages = stages_for(out.graph, options.parallel, options.stages);
  const SemiAutoOptions asked{
      .stored = options.stored, .numerics = options.numerics, .stages = stages, .says_why = options.says_why};
  const Parallel& parallel = options.parallel;
  out.strategy = parallel.search.kind != SearchKind::kNone
                     ? searched(options, asked, out)
                     : semi_auto(out.graph, ranks_of_crew(parallel.pipeline, options.ranks), parallel, asked);
  if (out.strategy.stages.empty()) {
    out.strategy.stages = stages;
  } else if (options.stored == nullptr) {  // else beside a step, whose check it was
    check_written_stages(out.graph, out.strategy.stages, parallel);
  }
  return out;
}

}  // namespace trireme
