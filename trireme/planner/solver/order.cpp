#include "trireme/planner/solver/order.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <queue>
#include <tuple>
#include <utility>

namespace trireme::solver {
namespace {

constexpr size_t kCountedNeighbours = 24;  // of more, every pair counts as new: counting them takes too long

// Variables in their order.
class Neighbours {
 public:
  size_t size() const { return all_.size(); }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }
  bool contains(int variable) const { return std::ranges::binary_search(all_, variable); }
  // Whether it is new.
  bool insert(int variable) {
    const auto at = std::ranges::lower_bound(all_, variable);
    if (at != all_.end() && *at == variable) return false;
    all_.insert(at, variable);
    return true;
  }
  void erase(int variable) {
    const auto at = std::ranges::lower_bound(all_, variable);
    if (at != all_.end() && *at == variable) all_.erase(at);
  }

 private:
  std::vector<int> all_;
};

class MinFill {
 public:
  MinFill(const std::vector<int>& sizes, const std::vector<std::vector<int>>& scopes, const std::vector<int>& keep)
      : keep_(keep),
        neighbours_(sizes.size()),
        cost_(sizes.size(), Cost(-1, 0, 0)),
        is_out_(sizes.size()),
        is_changed_(sizes.size()) {
    for (const int size : sizes) logarithms_.push_back(std::log(size));
    for (const std::vector<int>& scope : scopes) {
      for (const int a : scope) {
        for (const int b : scope) {
          if (a != b) of(a).insert(b);
        }
      }
    }
    for (const int variable : keep) is_out_[static_cast<size_t>(variable)] = 1;
    for (size_t v = 0; v < sizes.size(); ++v) {
      if (is_out_[v] == 0) enter(static_cast<int>(v));
    }
  }

  Order run() {
    Order out;
    out.position.assign(neighbours_.size(), -1);
    while (!queue_.empty()) {
      const Cost cost = queue_.top();
      queue_.pop();
      const auto at = static_cast<size_t>(std::get<2>(cost));
      if (is_out_[at] != 0 || cost_[at] != cost) continue;  // it was eliminated, or costs something else by now
      is_out_[at] = 1;
      out.position[at] = out.eliminated++;
      out.width = std::max(out.width, static_cast<int>(neighbours_[at].size()));
      eliminate(std::get<2>(cost));
    }
    int next = out.eliminated;
    for (const int variable : keep_) out.position[static_cast<size_t>(variable)] = next++;
    return out;
  }

 private:
  using Cost = std::tuple<int64_t, double, int>;  // new pairs; logarithm of the table's size; the variable

  Neighbours& of(int variable) { return neighbours_[static_cast<size_t>(variable)]; }

  void enter(int variable) {
    const Neighbours& around = of(variable);
    const auto degree = static_cast<int64_t>(around.size());
    int64_t pairs = degree * (degree - 1) / 2;
    double size = 0;
    for (const int a : around) size += logarithms_[static_cast<size_t>(a)];
    if (around.size() <= kCountedNeighbours) {
      for (auto a = around.begin(); a != around.end(); ++a) {
        for (auto b = std::next(a); b != around.end(); ++b) pairs -= of(*a).contains(*b) ? 1 : 0;
      }
    }
    const Cost cost{pairs, size, variable};
    if (std::exchange(cost_[static_cast<size_t>(variable)], cost) != cost) queue_.push(cost);
  }

  void note_change(int variable) {
    if (std::exchange(is_changed_[static_cast<size_t>(variable)], 1) == 0) changed_.push_back(variable);
  }

  void eliminate(int variable) {
    const Neighbours around = of(variable);
    for (const int a : around) {
      of(a).erase(variable);
      note_change(a);
    }
    for (const int a : around) {
      for (const int b : around) {
        if (a >= b || !of(a).insert(b)) continue;
        of(b).insert(a);
        const bool a_is_smaller = of(a).size() < of(b).size();
        for (const int c : of(a_is_smaller ? a : b)) {
          if (of(a_is_smaller ? b : a).contains(c)) note_change(c);
        }
      }
    }
    for (const int a : changed_) {
      is_changed_[static_cast<size_t>(a)] = 0;
      if (is_out_[static_cast<size_t>(a)] == 0) enter(a);
    }
    changed_.clear();
  }

  const std::vector<int>& keep_;
  std::vector<double> logarithms_;  // of the variables' sizes
  std::vector<Neighbours> neighbours_;
  std::vector<Cost> cost_;
  std::vector<char> is_out_;  // it is kept, or was eliminated
  std::vector<char> is_changed_;
  std::vector<int> changed_;
  std::priority_queue<Cost, std::vector<Cost>, std::greater<>> queue_;
};

}  // namespace

Order min_fill(const std::vector<int>& sizes, const std::vector<std::vector<int>>& scopes,
               const std::vector<int>& keep) {
  return MinFill(sizes, scopes, keep).run();
}

}  // namespace trireme::solver
