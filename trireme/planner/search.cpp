#include "trireme/planner/search.h"

#include <algorithm>
#include <numeric>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/planner/held_bytes.h"
#include "trireme/planner/sharding_propagation.h"
#include "trireme/planner/solver/budget.h"
#include "trireme/planner/solver/simplify.h"
#include "trireme/planner/strategy_problem.h"

namespace trireme {
namespace {

constexpr int64_t kNoLimit = int64_t{1} << 60;
constexpr int kMostPrimeAxes =
    3;  // that dynamic programming takes at once; of more, those that have one name go together

class Search {
 public:
  Search(const Graph& graph, const Mesh& mesh, const SearchOptions& options, const SearchConditions& conditions)
      : graph_(graph),
        mesh_(mesh),
        conditions_(conditions),
        units_(graph),
        model_(mesh, conditions.rates),
        bytes_(conditions.memory_bytes > 0 ? conditions.memory_bytes : kNoLimit) {
    space_.candidates = conditions.candidates;
    space_.candidates.limits = options;
    space_.candidates.sums_flow = conditions.asks.sums_flow;
    take_asks();
  }

  SearchResult all_at_once() {
    const bool few = mesh_.axes() <= kMostPrimeAxes;
    try {
      SearchResult out = over(space_.base, few ? prime_axes(mesh_) : named_axes(mesh_), bytes_);
      if (!is_limited_) return out;
      const SearchResult other = in_turn();  // may be better where choices were left out
      if (other.price.time_ps < out.price.time_ps) out.strategy = other.strategy, out.price = other.price;
      out.bound_ps = 0;
      out.notes.push_back("values that many ops read are brought to few layouts, so that better strategies may exist");
      return out;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kUnsupported) throw;
      SearchResult out = in_turn();
      out.notes.push_back(
          fmt::format("all axes at once have too many choices ({}); they were taken one by one", error.what()));
      return out;
    }
  }

  // What an axis was given stays.
  SearchResult in_turn() {
    SearchResult out{.strategy = space_.base};
    const std::vector<AxisGroup> axes = prime_axes(mesh_);
    if (axes.empty()) return over(space_.base, {}, bytes_);
    for (size_t i = 0; i < axes.size(); ++i) {
      const bool is_last = i + 1 == axes.size();  // before, nothing is cut as far as it will be
      out = over(out.strategy, {axes[i]}, is_last ? bytes_ : kNoLimit);
    }
    return out;
  }

 private:
  // Nothing is cut but what is asked.
  void take_asks() {
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
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const auto asked = asks.nodes.find(static_cast<NodeId>(i));
      space_.base.nodes.push_back(asked == asks.nodes.end() ? uncut(units_.rule(static_cast<NodeId>(i)))
                                                            : asked->second);
      if (asked == asks.nodes.end()) continue;
      if (asked->second.vouched) refuse(asked->first, "self_define_shard");
      space_.fixed_nodes.insert(asked->first);
    }
    space_.seen_as = asks.seen_as;
  }

  SearchResult over(const Strategy& base, const std::vector<AxisGroup>& axes, int64_t bytes) {
    StrategySpace space = space_;
    space.base = base;
    space.axes = axes;
    const StrategyProblem all(graph_, units_, space, conditions_.partition, model_);
    is_limited_ = is_limited_ || all.is_limited();
    const solver::Simplified smaller = solver::simplify(all.problem());
    const std::optional<solver::Found> found = solver::cheapest_within(smaller.problem, {.bytes = bytes});
    require(found.has_value(),
            "no strategy for graph '{}' on mesh '{}' has everything that is asked of it; ask for less", graph_.name(),
            to_string(mesh_));
    require(found->fits,
            "no strategy of graph '{}' over mesh '{}' fits in {} bytes on each device: the smallest needs {} for "
            "parameters, state and what the backward pass reads. Use more devices, devices with more memory, or "
            "smaller batches",
            graph_.name(), to_string(mesh_), bytes, found->choice.price.bytes);
    SearchResult out{.strategy = all.strategy(smaller.restored(found->choice)),
                     .price = found->choice.price,
                     .bound_ps = found->bound_ps * all.time_unit_ps(),
                     .notes = {}};
    if (all.time_unit_ps() > 1) out.price.time_ps = exact_ps(out.strategy);
    return out;
  }

  // The times of its tables, before these were rounded.
  int64_t exact_ps(const Strategy& strategy) const {
    return StrategyPricer(graph_, conditions_.partition, model_).price(strategy).total_ps();
  }

  const Graph& graph_;
  const Mesh& mesh_;
  const SearchConditions& conditions_;
  const Units units_;
  const CostModel model_;
  const int64_t bytes_;
  StrategySpace space_;
  bool is_limited_ = false;
};

SearchResult by_propagation(const Graph& graph, const Mesh& mesh, const SearchOptions& options,
                            const SearchConditions& conditions) {
  SearchResult out{.strategy = sharding_propagation(graph, mesh, options, conditions)};
  out.price = price_of(graph, out.strategy, conditions).price;
  require(
      conditions.memory_bytes == 0 || out.price.bytes <= conditions.memory_bytes,
      "the strategy that sharding_propagation finds for graph '{}' over mesh '{}' needs {} bytes on each device for "
      "parameters, state and what the backward pass reads, and there are {}. Ask for other cuts, or use the search "
      "dynamic_programming, which looks for one that fits",
      graph.name(), to_string(mesh), out.price.bytes, conditions.memory_bytes);
  return out;
}

SearchResult by_programming(const Graph& graph, const Mesh& mesh, const SearchOptions& options,
                            const SearchConditions& conditions) {
  Search search(graph, mesh, options, conditions);
  try {
    SearchResult out = options.kind == SearchKind::kDynamicProgramming ? search.all_at_once() : search.in_turn();
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
  const StrategyPrice terms = StrategyPricer(graph, conditions.partition, model).price(strategy);
  StepPrice out{.price = {terms.total_ps(), held_bytes(graph, strategy)}};
  for (const std::vector<int64_t>* const moved : {&terms.values, &terms.means})
    out.moved_ps = std::accumulate(moved->begin(), moved->end(), out.moved_ps);
  return out;
}

SearchResult search_strategy(const Graph& graph, const Mesh& mesh, const SearchOptions& options,
                             const SearchConditions& conditions) {
  require(micro_batches(mesh) == 1, "a search over mesh '{}': micro-batches are not searched yet; leave them out",
          to_string(mesh));
  require(conditions.memory_bytes >= 0, "{} bytes of memory on each device; 0 is no limit", conditions.memory_bytes);
  const double start = now_s();
  SearchResult out = options.kind == SearchKind::kShardingPropagation
                         ? by_propagation(graph, mesh, options, conditions)
                         : by_programming(graph, mesh, options, conditions);
  out.seconds = now_s() - start;
  return out;
}

}  // namespace trireme
