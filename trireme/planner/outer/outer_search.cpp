#include "trireme/planner/outer/outer_search.h"

#include <algorithm>
#include <limits>

#include "trireme/base/error.h"

namespace trireme {
namespace {

class OuterSearch {
 public:
  OuterSearch(int64_t memory, size_t top) : memory_(memory), top_(top) {}

  // Below this a way is among the best.
  int64_t limit() const {
    return out_.best.size() < top_ ? std::numeric_limits<int64_t>::max() : out_.best.back().price.total;
  }

  void look_at(size_t candidate, std::optional<StageProblem> problem) {
    if (!problem) {
      ++out_.ledger.do_not_divide;
      return;
    }
    problem->memory = memory_;
    if (bound_of_cuts(*problem) > limit()) {
      ++out_.ledger.slower;
      return;
    }
    auto cut = best_cut(*problem);
    if (!cut) {
      ++out_.ledger.memory;
      return;
    }
    ++out_.ledger.solved;
    const CutPrice price = price_of_cut(*problem, *cut);
    out_.best.push_back({candidate, std::move(*cut), price});
    std::ranges::sort(out_.best, {}, [](const SolvedWay& way) { return std::pair(way.price.total, way.candidate); });
    if (out_.best.size() > top_) out_.best.pop_back();
  }

  OuterResult out_;

 private:
  int64_t memory_;
  size_t top_;
};

}  // namespace

OuterResult search_outer(const std::vector<OuterCandidate>& candidates, int64_t memory, size_t top,
                         const std::function<std::optional<StageProblem>(size_t)>& problem_of) {
  require(top >= 1, "the best {} ways; it must be 1 or more", top);
  OuterSearch search(memory, top);
  OuterLedger& ledger = search.out_.ledger;
  ledger.ways = static_cast<int64_t>(candidates.size());
  std::vector<size_t> order;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!candidates[i].divides) {
      ++ledger.do_not_divide;
    } else if (candidates[i].least_bytes > memory) {
      ++ledger.memory_least;
    } else {
      order.push_back(i);
    }
  }
  std::ranges::stable_sort(order, {}, [&](size_t i) { return candidates[i].bound_ps; });
  for (size_t k = 0; k < order.size(); ++k) {
    if (candidates[order[k]].bound_ps > search.limit()) {
      ledger.bound = static_cast<int64_t>(order.size() - k);  // all others have larger ones
      break;
    }
    search.look_at(order[k], problem_of(order[k]));
  }
  return std::move(search.out_);
}

}  // namespace trireme
