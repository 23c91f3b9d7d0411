#include "trireme/layout/reshard_search.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <queue>
#include <span>
#include <tuple>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/layout/collective_cost.h"

namespace trireme::detail {
namespace {

using Kind = ReshardStep::Kind;

// Units in an order.
class UnitList {
 public:
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int operator[](size_t at) const { return units_[at]; }
  const int* begin() const { return units_.data(); }
  const int* end() const { return units_.data() + size_; }
  int back() const { return units_[size_ - 1]; }
  void push_back(int unit) { units_[size_++] = unit; }
  void pop_back() { --size_; }
  void set(size_t at, int unit) {
    size_ = std::max(size_, at + 1);
    units_[at] = unit;
  }
  std::span<const int> from(size_t first) const { return std::span(begin(), end()).subspan(first); }
  operator std::span<const int>() const { return from(0); }  // NOLINT: the same

 private:
  std::array<int, kMaxUnits> units_;
  size_t size_ = 0;
};

// What was reached, by state. A table with open addressing: a search reaches tens or thousands of states, and asks
// for each of them many times.
template <class T>
class ByState {
 public:
  ByState() : places_(kFirst) {}

  // Where the state is, which is new if it was not there.
  std::pair<T*, bool> add(UnitState state) {
    if (2 * count_ >= places_.size()) make_room();
    Place& place = place_of(state);
    const bool is_new = !place.is_taken;
    if (is_new) {
      place = {state, true, T()};
      ++count_;
    }
    return {&place.value, is_new};
  }
  // Null: it is not there.
  T* find(UnitState state) {
    Place& place = place_of(state);
    return place.is_taken ? &place.value : nullptr;
  }

 private:
  struct Place {
    UnitState state = 0;
    bool is_taken = false;
    T value;
  };
  static constexpr size_t kFirst = 64;

  Place& place_of(UnitState state) {
    size_t at =
        static_cast<size_t>(((state ^ state >> 32U) * 0x9e3779b97f4a7c15U) >> 32U);  // units stand in the high bytes
    for (;; ++at) {
      Place& place = places_[at & (places_.size() - 1)];
      if (!place.is_taken || place.state == state) return place;
    }
  }
  void make_room() {
    std::vector<Place> before(2 * places_.size());
    before.swap(places_);
    for (Place& place : before) {
      if (place.is_taken) place_of(place.state) = place;
    }
  }

  std::vector<Place> places_;
  size_t count_ = 0;
};

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
    for (size_t unit = 0; unit < problem_.units.size(); ++unit)
      ends_[unit] = place_of(problem_.to, static_cast<int>(unit));
  }

  double bound() const { return bound_; }

  std::optional<std::vector<UnitMove>> run() {
    reached_.add(problem_.from);
    queue_.push({0.0, 0, problem_.from});
    for (int64_t visited = 0; !queue_.empty() && visited < costs_.max_states;) {
      const UnitState state = std::get<2>(queue_.top());
      queue_.pop();
      if (state == problem_.to) return chain();
      Reached* const here = reached_.find(state);
      if (here->done) continue;
      here->done = true;
      ++visited;
      expand(state, here->cost, here->steps);
    }
    if (reached_.find(problem_.to) != nullptr) return chain();
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
    std::array<UnitList, Shape::kMaxRank> dims;
    std::array<int64_t, Shape::kMaxRank> local{};  // size of each dimension of a piece
    UnitList partial;
    UnitList idle;
    double bytes = 0;
  };

  // Dimensions, and the partial units, that hold a unit out of place.
  int sources(UnitState state) const {
    uint32_t out = 0;
    for (int unit = 0; unit < static_cast<int>(problem_.units.size()); ++unit) {
      const uint8_t at = place_of(state, unit);
      if (at != kIdle && at != ends_[static_cast<size_t>(unit)]) out |= 1U << (at >> 4U);
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
      if (at != kIdle && at != ends_[static_cast<size_t>(unit)]) ++wrong;
    }
    return least + wrong * bytes / best_rate_;
  }

  StateParts parts_of(UnitState state) const {
    StateParts out;
    std::ranges::copy(problem_.dims, out.local.begin());
    out.bytes = problem_.bytes;
    for (int unit = 0; unit < static_cast<int>(problem_.units.size()); ++unit) {
      const uint8_t at = place_of(state, unit);
      if (at == kIdle) {
        out.idle.push_back(unit);
      } else if (at == kPartial) {
        out.partial.push_back(unit);
      } else {
        out.dims[at >> 4U].set(at & 15U, unit);
        out.local[at >> 4U] /= size(unit);
        out.bytes /= static_cast<double>(size(unit));
      }
    }
    return out;
  }

  int rank() const { return static_cast<int>(problem_.dims.size()); }
  int64_t size(int unit) const { return problem_.units[static_cast<size_t>(unit)].size; }

  void expand(UnitState state, double cost, int steps) {
    state_ = state;
    cost_ = cost;
    steps_ = steps;
    now_ = parts_of(state);
    for (int dim = 0; dim < rank(); ++dim) {
      ungather(dim);
      for (int unit : now_.idle) append(Kind::kSlice, dim, -1, std::span<const int>(&unit, 1));
      UnitList chosen;
      scatter(dim, chosen);
    }
    const auto subsets = 1U << now_.partial.size();
    for (unsigned set = 1; set < subsets; ++set) {
      UnitList chosen;
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
    const UnitList& units = now_.dims[static_cast<size_t>(dim)];
    for (size_t first = 0; first < units.size(); ++first) {
      const std::span<const int> suffix = units.from(first);
      const auto p = static_cast<double>(product(suffix));
      UnitState next = state_;
      for (int unit : suffix) next = with_place(next, unit, kIdle);
      relax(next, Kind::kAllGather, dim, -1, suffix, p * now_.bytes);
      if (!costs_.enable_all_to_all) continue;
      for (int other = 0; other < rank(); ++other) {
        if (other != dim) append(Kind::kAllToAll, other, dim, suffix);
      }
    }
  }

  // Sequences of partial units, in any order; of more than three only those that start with three.
  void scatter(int dim, UnitList& chosen) {
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
      if (direct_ && kind != Kind::kAllToAll && there != ends_[static_cast<size_t>(unit)]) return false;
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
    const auto [at, is_new] = reached_.add(next);
    Reached& there = *at;
    const int steps = steps_ + 1;
    if (!is_new && std::tie(there.cost, there.steps) <= std::tie(cost, steps)) return;
    there = {cost, steps, state_, move};
    queue_.push({expected(next, least), steps, next});
  }

  std::vector<UnitMove> chain() {
    std::vector<UnitMove> out;
    for (UnitState state = problem_.to; state != problem_.from;) {
      const Reached& reached = *reached_.find(state);
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
  std::array<uint8_t, kMaxUnits> ends_{};  // places in the state that is looked for
  ByState<Reached> reached_;
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
