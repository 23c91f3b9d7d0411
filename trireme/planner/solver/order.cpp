#include "trireme/planner/solver/order.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

namespace trireme::solver {
namespace {

constexpr size_t kCountedNeighbours = 24;  // of more, every pair counts as new: counting them takes too long

class MinFill {
 public:
  MinFill(const std::vector<int>& sizes, const std::vector<std::vector<int>>& scopes, const std::vector<int>& keep)
      : sizes_(sizes), keep_(keep), neighbours_(sizes.size()), cost_(sizes.size()), is_kept_(sizes.size()) {
    for (const std::vector<int>& scope : scopes) {
      for (const int a : scope) {
        for (const int b : scope) {
          if (a != b) of(a).insert(b);
        }
      }
    }
    for (const int variable : keep) is_kept_[static_cast<size_t>(variable)] = 1;
    for (size_t v = 0; v < sizes.size(); ++v) {
      if (!is_kept_[v]) enter(static_cast<int>(v));
    }
  }

  Order run() {
    Order out;
    out.position.assign(sizes_.size(), -1);
    while (!queue_.empty()) {
      const int variable = std::get<2>(*queue_.begin());
      queue_.erase(queue_.begin());
      out.position[static_cast<size_t>(variable)] = out.eliminated++;
      out.width = std::max(out.width, static_cast<int>(of(variable).size()));
      eliminate(variable);
    }
    int next = out.eliminated;
    for (const int variable : keep_) out.position[static_cast<size_t>(variable)] = next++;
    return out;
  }

 private:
  using Cost = std::tuple<int64_t, double, int>;  // new pairs; logarithm of the table's size; the variable

  std::set<int>& of(int variable) { return neighbours_[static_cast<size_t>(variable)]; }

  void enter(int variable) {
    const std::set<int>& around = of(variable);
    const auto degree = static_cast<int64_t>(around.size());
    int64_t pairs = degree * (degree - 1) / 2;
    double size = 0;
    for (const int a : around) size += std::log(sizes_[static_cast<size_t>(a)]);
    if (around.size() <= kCountedNeighbours) {
      for (auto a = around.begin(); a != around.end(); ++a) {
        for (auto b = std::next(a); b != around.end(); ++b) pairs -= of(*a).contains(*b) ? 1 : 0;
      }
    }
    cost_[static_cast<size_t>(variable)] = {pairs, size, variable};
    queue_.insert(cost_[static_cast<size_t>(variable)]);
  }

  void update(int variable) {
    if (is_kept_[static_cast<size_t>(variable)]) return;
    queue_.erase(cost_[static_cast<size_t>(variable)]);
    enter(variable);
  }

  void eliminate(int variable) {
    const std::set<int> around = of(variable);
    std::set<int> changed = around;
    for (const int a : around) of(a).erase(variable);
    for (const int a : around) {
      for (const int b : around) {
        if (a >= b || !of(a).insert(b).second) continue;
        of(b).insert(a);
        const bool a_is_smaller = of(a).size() < of(b).size();
        for (const int c : of(a_is_smaller ? a : b)) {
          if (of(a_is_smaller ? b : a).contains(c)) changed.insert(c);
        }
      }
    }
    for (const int a : changed) update(a);
  }

  const std::vector<int>& sizes_;
  const std::vector<int>& keep_;
  std::vector<std::set<int>> neighbours_;
  std::vector<Cost> cost_;
  std::vector<char> is_kept_;
  std::set<Cost> queue_;
};

}  // namespace

Order min_fill(const std::vector<int>& sizes, const std::vector<std::vector<int>>& scopes,
               const std::vector<int>& keep) {
  return MinFill(sizes, scopes, keep).run();
}

}  // namespace trireme::solver
