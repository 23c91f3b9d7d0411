#include "trireme/planner/axis_search.h"

#include <optional>

#include "trireme/base/error.h"
#include "trireme/planner/solver/budget.h"
#include "trireme/planner/solver/simplify.h"

namespace trireme {
namespace {

constexpr int64_t kNoLimit = int64_t{1} << 60;

}  // namespace

AxisSearch::AxisSearch(const Graph& graph, const Mesh& mesh, const SearchOptions& options,
                       const SearchConditions& conditions)
    : graph_(graph),
      mesh_(mesh),
      conditions_(conditions),
      units_(graph),
      model_(mesh, conditions.rates),
      bytes_(conditions.memory_bytes > 0 ? conditions.memory_bytes : kNoLimit) {
  space_.candidates = conditions.candidates;
  space_.share = conditions.share;
  space_.times_brought = conditions.times_brought;
  space_.candidates.limits = options;
  space_.candidates.sums_flow = conditions.asks.sums_flow;
  take_asks();
}

SearchResult AxisSearch::over(const Strategy& base, const std::vector<AxisGroup>& axes) {
  return over(base, axes, bytes_);
}

SearchResult AxisSearch::over_without_limit(const Strategy& base, const std::vector<AxisGroup>& axes) {
  return over(base, axes, kNoLimit);
}

void AxisSearch::take_asks() {
  const Asks& asks = conditions_.asks;
  const auto refuse = [&](NodeId id, const char* what) {
    fail(ErrorKind::kUnsupported,
         "{} is set on {} of '{}', and the searches dynamic_programming and recursive_programming do not follow it; "
         "use "
         "sharding_propagation, or leave it out",
         what, graph_.node(id).op->name, graph_.scope_of(graph_.node(id)));
  };
  for (const auto& [id, layouts] : asks.as_it_comes) refuse(id, "skip_redistribution");
  for (const auto& [id, times] : asks.unsummed) refuse(id, "cross_batch");
  space_.base.mesh = mesh_;
  for (size_t i = 0; i < graph_.inputs().size(); ++i) {
    const int rank = graph_.type(graph_.inputs()[i].value).shape.rank();
    const bool is_asked = i < asks.inputs.size() && asks.inputs[i].has_value();
    space_.base.inputs.push_back(is_asked ? *asks.inputs[i] : Layout::replicated(rank));
    if (is_asked) space_.fixed_inputs.insert(i);
  }
  space_.base.nodes.reserve(graph_.nodes().size());
  for (size_t i = 0; i < graph_.nodes().size(); ++i) {
    const auto asked = asks.nodes.find(static_cast<NodeId>(i));
    space_.base.nodes.push_back(asked == asks.nodes.end() ? uncut(units_.rule(static_cast<NodeId>(i))) : asked->second);
    if (asked == asks.nodes.end()) continue;
    if (asked->second.vouched) refuse(asked->first, "self_define_shard");
    space_.fixed_nodes.insert(asked->first);
  }
  space_.seen_as = asks.seen_as;
}

SearchResult AxisSearch::over(const Strategy& base, const std::vector<AxisGroup>& axes, int64_t bytes) {
  StrategySpace space = space_;
  space.base = base;
  space.axes = axes;
  const StrategyProblem all(graph_, units_, space, conditions_.partition, model_);
  is_limited_ = all.is_limited();
  const solver::Simplified smaller = solver::simplify(all.problem());
  const std::optional<solver::Found> found = solver::cheapest_within(smaller.problem, {.bytes = bytes});
  require(found.has_value(),
          "no strategy for graph '{}' on mesh '{}' follows everything that is asked for; ask for less", graph_.name(),
          to_string(mesh_));
  require(found->fits,
          "no strategy of graph '{}' over mesh '{}' fits in {} bytes on each device: the smallest needs {} for "
          "parameters, state and what the backward pass reads. Use more devices, devices with more memory, or "
          "smaller batches",
          graph_.name(), to_string(mesh_), bytes, found->choice.price.bytes);
  const solver::Choice choice = smaller.restored(found->choice);
  SearchResult out{.strategy = all.strategy(choice),
                   .price = choice.price,
                   .bound_ps = found->bound_ps * all.time_unit_ps(),
                   .notes = {}};
  if (all.time_unit_ps() > 1) {
    out.price.time_ps = exact_ps(out.strategy);
  } else {
    out.moved_ps = out.price.time_ps - all.computed_ps(choice);
  }
  return out;
}

int64_t AxisSearch::exact_ps(const Strategy& strategy) const {
  return conditions_.times_brought.all(StrategyPricer(graph_, conditions_.partition, model_).price(strategy))
      .total_ps();
}

}  // namespace trireme
