// The strategy by which a graph is cut. See compile.h.
#include "trireme/train/step/compile/compile.h"

#include <memory>
#include <optional>
#include <utility>

#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/parallel/searched_in_parts.h"
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

int64_t all_micro_batches(const Parallel& parallel) {
  return micro_batches_of(parallel) * parts_of_micro_batch(parallel);
}

SearchConditions search_conditions(const CompileOptions& options, const Graph& graph, const Mesh& mesh,
                                   const Rates& rates) {
  SearchConditions out{.rates = rates};
  out.partition = partition_options(options.parallel, graph, mesh, sum_order(graph, options.parallel, mesh));
  if (options.device) out.memory_bytes = options.device->memory_bytes();
  if (options.parallel.communication.machine) out.memory_bytes = options.parallel.communication.machine->memory_bytes;
  if (options.numerics == Numerics::kInvariant) allow_invariant_alone(out.candidates, device_of(options));
  const int64_t count = all_micro_batches(options.parallel);
  out.share = held_share(options.parallel.pipeline.crews, count);
  if (count > 1) {
    out.candidates.parts = std::make_shared<const Strategy>(cut_by_micro_batches(graph, options.parallel));
    for (const char to_each : brought_to_each(graph, *out.candidates.parts))
      out.times_brought.of_values.push_back(to_each != 0 ? count : 1);
  }
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
                to_string(parallel.search), found->seconds);
    return found->strategy;
  };
  return semi_auto(out.graph, ranks_of_crew(parallel.pipeline, options.ranks), parallel, asked);
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
  // Prices are of the ranks alone, by what was found for them.
  const Strategy& priced = micro_batches(strategy.mesh) > 1 ? found->strategy : strategy;
  const bool is_as_found = &priced == &found->strategy || (parallel.optimizer.level == 0 && options.stored == nullptr);
  const StepPrice price =
      is_as_found && found->moved_ps
          ? StepPrice{found->price, *found->moved_ps}
          : price_of(out.graph, priced, search_conditions(options, out.graph, priced.mesh, out.rates));
  out.search = search_text(out.graph, strategy, price, *found, options.parallel.pipeline.crews, parallel.search);
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
  require(
      !plans_whole_job(parallel.search.kind),
      "the search '{}' plans a job of built-in parts before it is cut (auto_plan, train/plan/auto/auto_plan.h); for "
      "a graph, use recursive_programming or dynamic_programming",
      to_string(parallel.search.kind));
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
