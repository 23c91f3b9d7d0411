#include "trireme/layout/reshard_search.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <span>
#include <tuple>
#include <unordered_map>

#include "trireme/base/error.h"
#include "trireme/layout/collective_cost.h"

namespace trireme::detail {
namespace {

using Kind = ReshardStep::Kind;

// A* over states. A state's neighbours are all states one step away: any suffix of a dimension's
// units gathered or moved to the end of another dimension, any idle unit appended by a slice, any
// set of partial units reduced, any short sequence of them scattered. A communicating step takes
// units from one dimension or from the partial ones, so what remains costs at least one step for
// each of those that hold a unit out of place.
class Search {
 public:
  Search(const ReshardProblem& problem, double bound, bool direct, const ReshardCosts& costs)
      : problem_(problem), costs_(costs), bound_(bound * (1 + 1e-9)), direct_(direct) {
    double latency_s = std::numeric_limits<double>::infinity();
    for (const ReshardUnit& unit : problem_.units) {
      latency_s = std::min(latency_s, unit.link.latency_s);
      best_rate_ = std::max(best_rate_, unit.link.bytes_per_s);
    }
    least_step_s_ = (costs_.step_s + latency_s) * (1 - 1e-9);
  }

  double bound() const { return bound_; }

  std::optional<std::vector<UnitMove>> run() {
    reached_[problem_.from] = {};
    queue_.push({0.0, 0, problem_.from});
    for (int64_t visited = 0; !queue_.empty() && visited < costs_.max_states;) {
      const UnitState state = std::get<2>(queue_.top());
      queue_.pop();
      if (state == problem_.to) return chain();
      Reached& here = reached_.at(state);
      if (here.done) continue;
      here.done = true;
      ++visited;
      expand(state, here.cost, here.steps);
    }
    if (reached_.contains(problem_.to)) return chain();
    return std::nullopt;
  }

 private:
  struct Reached {
    double cost = 0;
    int steps = 0;
    UnitState before = 0;
    UnitMove move;
    bool done = false;
  };
  using Entry = std::tuple<double, int, UnitState>;

  // The state being expanded, taken apart.
  struct StateParts {
    std::vector<std::vector<int>> dims;
    std::vector<int64_t> local;  // size of each dimension of a piece
    std::vector<int> partial;
    std::vector<int> idle;
    double bytes = 0;
  };

  // Dimensions, and the partial units, that hold a unit out of place.
  int sources(UnitState state) const {
    uint32_t out = 0;
    for (int unit = 0; unit < static_cast<int>(problem_.units.size()); ++unit) {
      const uint8_t at = place_of(state, unit);
      if (at != kIdle && at != place_of(problem_.to, unit)) out |= 1U << (at >> 4U);
    }
    return std::popcount(out);
  }

  // What orders the queue. The search of direct moves wants a good chain soon: it takes each unit
  // out of place to cost the sending of a whole piece.
  double expected(UnitState state, double least) const {
    if (!direct_) return least;
    double bytes = problem_.bytes;
    int wrong = 0;
    for (int unit = 0; unit < static_cast<int>(problem_.units.size()); ++unit) {
      const uint8_t at = place_of(state, unit);
      if (at < kPartial) bytes /= static_cast<double>(size(unit));
      if (at != kIdle && at != place_of(problem_.to, unit)) ++wrong;
    }
    return least + wrong * bytes / best_rate_;
  }

  StateParts parts_of(UnitState state) const {
    StateParts out;
    out.dims.resize(problem_.dims.size());
    out.local = problem_.dims;
    out.bytes = problem_.bytes;
    for (int unit = 0; unit < static_cast<int>(problem_.units.size()); ++unit) {
      const uint8_t at = place_of(state, unit);
      if (at == kIdle) {
        out.idle.push_back(unit);
      } else if (at == kPartial) {
        out.partial.push_back(unit);
      } else {
        std::vector<int>& dim = out.dims[at >> 4U];
        dim.resize(std::max<size_t>(dim.size(), (at & 15U) + 1));
        dim[at & 15U] = unit;
        out.local[at >> 4U] /= size(unit);
        out.bytes /= static_cast<double>(size(unit));
      }
    }
    return out;
  }

  int64_t size(int unit) const { return problem_.units[static_cast<size_t>(unit)].size; }

  void expand(UnitState state, double cost, int steps) {
    state_ = state;
    cost_ = cost;
    steps_ = steps;
    now_ = parts_of(state);
    for (int dim = 0; dim < static_cast<int>(now_.dims.size()); ++dim) {
      ungather(dim);
      for (int unit : now_.idle) append(Kind::kSlice, dim, -1, std::span<const int>(&unit, 1));
      std::vector<int> chosen;
      scatter(dim, chosen);
    }
    const auto subsets = 1U << now_.partial.size();
    for (unsigned set = 1; set < subsets; ++set) {
      std::vector<int> chosen;
      for (size_t i = 0; i < now_.partial.size(); ++i) {
        if ((set >> i & 1U) != 0) chosen.push_back(now_.partial[i]);
      }
      UnitState next = state_;
      for (int unit : chosen) next = with_place(next, unit, kIdle);
      relax(next, Kind::kAllReduce, -1, -1, chosen, now_.bytes);
    }
  }

  // Every suffix of a dimension, gathered or moved to another dimension.
  void ungather(int dim) {
    const std::vector<int>& units = now_.dims[static_cast<size_t>(dim)];
    for (size_t first = 0; first < units.size(); ++first) {
      const std::span<const int> suffix(units.begin() + static_cast<int64_t>(first), units.end());
      const auto p = static_cast<double>(product(suffix));
      UnitState next = state_;
      for (int unit : suffix) next = with_place(next, unit, kIdle);
      relax(next, Kind::kAllGather, dim, -1, suffix, p * now_.bytes);
      if (!costs_.enable_all_to_all) continue;
      for (int other = 0; other < static_cast<int>(now_.dims.size()); ++other) {
        if (other != dim) append(Kind::kAllToAll, other, dim, suffix);
      }
    }
  }

  // Sequences of partial units, in any order; of more than three only those that start with three.
  void scatter(int dim, std::vector<int>& chosen) {
    for (int unit : now_.partial) {
      if (std::find(chosen.begin(), chosen.end(), unit) != chosen.end()) continue;
      if (chosen.size() >= 3 && unit < chosen.back()) continue;
      chosen.push_back(unit);
      if (append(Kind::kReduceScatter, dim, -1, chosen)) scatter(dim, chosen);
      chosen.pop_back();
    }
  }

  // Puts units at the end of a dimension, where they divide it.
  bool append(Kind kind, int dim, int from_dim, std::span<const int> units) {
    const int64_t p = product(units);
    if (now_.local[static_cast<size_t>(dim)] % p != 0) return false;
    UnitState next = state_;
    size_t at = now_.dims[static_cast<size_t>(dim)].size();
    for (int unit : units) {
      const auto there = static_cast<uint8_t>(dim * 16 + static_cast<int>(at++));
      if (direct_ && kind != Kind::kAllToAll && there != place_of(problem_.to, unit)) return false;
      next = with_place(next, unit, there);
    }
    relax(next, kind, dim, from_dim, units, now_.bytes);
    return true;
  }

  int64_t product(std::span<const int> units) const {
    int64_t out = 1;
    for (int unit : units) out *= size(unit);
    return out;
  }

  void relax(UnitState next, Kind kind, int dim, int from_dim, std::span<const int> units, double payload) {
    UnitMove move{kind, static_cast<int8_t>(dim), static_cast<int8_t>(from_dim), static_cast<int8_t>(units.size()), {}};
    LinkCost link = problem_.units[static_cast<size_t>(units[0])].link;
    int axes = 0;
    for (size_t i = 0; i < units.size(); ++i) {
      const ReshardUnit& unit = problem_.units[static_cast<size_t>(units[i])];
      move.units[i] = static_cast<int8_t>(units[i]);
      axes += unit.axes;
      link = slower(link, unit.link);
    }
    const double cost = cost_ + step_seconds(kind, axes, product(units), link, payload, costs_);
    const double least = cost + sources(next) * least_step_s_;
    if (least > bound_) return;
    if (next == problem_.to) bound_ = cost;
    const auto [at, is_new] = reached_.try_emplace(next);
    Reached& there = at->second;
    const int steps = steps_ + 1;
    if (!is_new && std::tie(there.cost, there.steps) <= std::tie(cost, steps)) return;
    there = {cost, steps, state_, move};
    queue_.push({expected(next, least), steps, next});
  }

  std::vector<UnitMove> chain() const {
    std::vector<UnitMove> out;
    for (UnitState state = problem_.to; state != problem_.from;) {
      const Reached& reached = reached_.at(state);
      out.push_back(reached.move);
      state = reached.before;
    }
    std::reverse(out.begin(), out.end());
    return out;
  }

  const ReshardProblem& problem_;
  const ReshardCosts& costs_;
  double bound_;
  bool direct_;  // append units only where they end, or by an all-to-all
  double least_step_s_ = 0;
  double best_rate_ = 0;
  std::unordered_map<UnitState, Reached> reached_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
  UnitState state_ = 0;
  double cost_ = 0;
  int steps_ = 0;
  StateParts now_;
};

}  // namespace

double step_seconds(ReshardStep::Kind kind, int axes, int64_t size, LinkCost link, double payload,
                    const ReshardCosts& costs) {
  if (kind == Kind::kSlice) return costs.slice_s * axes;
  return seconds(among_all(size, payload, kind == Kind::kAllReduce ? 2 : 1), link, costs);
}

std::optional<std::vector<UnitMove>> cheapest_moves(const ReshardProblem& problem, double bound,
                                                    const ReshardCosts& costs) {
  invariant(problem.units.size() <= kMaxUnits, "a reshard of {} units", problem.units.size());
  // The chains of direct moves are few and hold a good one, which keeps the full search short.
  Search direct(problem, bound, true, costs);
  auto first = direct.run();
  Search full(problem, direct.bound(), false, costs);
  auto best = full.run();
  return best ? best : first;
}

}  // namespace trireme::detail
