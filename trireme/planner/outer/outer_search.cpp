#include "trireme/planner/outer/outer_search.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>

#include "trireme/base/error.h"

namespace trireme {
namespace {

class OuterSearch {
 public:
  OuterSearch(const std::vector<OuterCandidate>& candidates, int64_t memory, size_t top, const OuterQuestions& ask)
      : candidates_(candidates), memory_(memory), top_(top), ask_(ask) {}

  OuterResult run() {
    out_.ledger.ways = static_cast<int64_t>(candidates_.size());
    for (size_t i = 0; i < candidates_.size(); ++i) {
      if (!candidates_[i].divides) {
        ++out_.ledger.do_not_divide;
      } else if (candidates_[i].least_bytes > memory_) {
        ++out_.ledger.memory_least;
      } else {
        open_.emplace(candidates_[i].bound_ps, i, size_t{0});
      }
    }
    while (!open_.empty() && std::get<0>(open_.top()) <= limit()) {
      const auto [bound, candidate, asked] = open_.top();
      if (ask_.on_progress) ask_.on_progress({out_.ledger.ways, static_cast<int64_t>(open_.size()), bound});
      open_.pop();
      look_at(bound, candidate, asked);
    }
    for (; !open_.empty(); open_.pop()) ++(std::get<2>(open_.top()) == 0 ? out_.ledger.bound : out_.ledger.slower);
    return std::move(out_);
  }

 private:
  // A way with a larger bound is not among the best.
  int64_t limit() const {
    return out_.best.size() < top_ ? std::numeric_limits<int64_t>::max() : out_.best.back().price.total;
  }

  void look_at(int64_t bound, size_t candidate, size_t asked) {
    if (asked < ask_.bounds.size()) {
      const OuterAnswer better = ask_.bounds[asked](candidate);
      if (better.kind == OuterAnswer::Kind::kBound) {
        open_.emplace(std::max(bound, better.bound_ps), candidate, asked + 1);
      } else {
        ++(better.kind == OuterAnswer::Kind::kRefused ? out_.ledger.do_not_divide : out_.ledger.memory);
      }
      return;
    }
    std::optional<StageProblem> problem = ask_.problem(candidate);
    if (!problem) {
      ++out_.ledger.do_not_divide;
      return;
    }
    problem->memory = memory_;
    const int64_t of_cuts = bound_of_cuts(*problem);
    if (of_cuts > limit()) {
      ++out_.ledger.slower;
    } else if (of_cuts > bound) {  // others may come first
      open_.emplace(of_cuts, candidate, asked);
    } else {
      solve(candidate, *problem);
    }
  }

  void solve(size_t candidate, const StageProblem& problem) {
    auto cut = best_cut(problem);
    if (!cut) {
      ++out_.ledger.memory;
      return;
    }
    ++out_.ledger.solved;
    const CutPrice price = price_of_cut(problem, *cut);
    out_.best.push_back({candidate, std::move(*cut), price});
    std::ranges::sort(out_.best, {}, [](const SolvedWay& way) { return std::pair(way.price.total, way.candidate); });
    if (out_.best.size() > top_) out_.best.pop_back();
  }

  // By bound, of equal ones the first; how many bounds were asked for.
  using Open = std::tuple<int64_t, size_t, size_t>;

  const std::vector<OuterCandidate>& candidates_;
  int64_t memory_;
  size_t top_;
  const OuterQuestions& ask_;
  std::priority_queue<Open, std::vector<Open>, std::greater<>> open_;
  OuterResult out_;
};

}  // namespace

OuterResult search_outer(const std::vector<OuterCandidate>& candidates, int64_t memory, size_t top,
                         const OuterQuestions& ask) {
  require(top >= 1, "the best {} ways; it must be 1 or more", top);
  return OuterSearch(candidates, memory, top, ask).run();
}

}  // namespace trireme
