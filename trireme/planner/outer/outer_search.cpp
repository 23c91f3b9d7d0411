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
      if (ask_.may_go_on && !ask_.may_go_on(false)) {
        stop();
        break;
      }
      if (ask_.on_progress)
        ask_.on_progress({out_.ledger.ways, static_cast<int64_t>(open_.size()), std::get<0>(open_.top())});
      if (const auto next = look_at(taken())) open_.push(*next);
    }
    for (; !open_.empty(); open_.pop()) ++count_of(open_.top());
    if (out_.is_proven && !out_.best.empty()) out_.bound_ps = out_.best.front().price.total;
    return std::move(out_);
  }

 private:
  // By bound, of equal ones the first; how many bounds were asked for.
  using Open = std::tuple<int64_t, size_t, size_t>;

  Open taken() {
    const Open out = open_.top();
    open_.pop();
    return out;
  }

  int64_t& count_of(const Open& left) {
    if (std::get<0>(left) <= limit()) return out_.ledger.open;
    return std::get<2>(left) == 0 ? out_.ledger.bound : out_.ledger.slower;
  }

  void stop() {
    out_.is_proven = false;
    out_.bound_ps = std::get<0>(open_.top());
    while (!open_.empty() && std::get<0>(open_.top()) <= limit() && ask_.may_go_on(true)) {
      std::optional<Open> at = taken();
      while (at && std::get<0>(*at) <= limit()) at = look_at(*at);
      if (at) open_.push(*at);
    }
  }

  // A way with a larger bound is not among the best.
  int64_t limit() const {
    return out_.best.size() < top_ ? std::numeric_limits<int64_t>::max() : out_.best.back().price.total;
  }

  // What is known of it then; nothing where that decides it.
  std::optional<Open> look_at(const Open& known) {
    const auto [bound, candidate, asked] = known;
    if (asked < ask_.bounds.size()) {
      const OuterAnswer better = ask_.bounds[asked](candidate);
      if (better.kind == OuterAnswer::Kind::kBound) return Open(std::max(bound, better.bound_ps), candidate, asked + 1);
      ++(better.kind == OuterAnswer::Kind::kRefused ? out_.ledger.do_not_divide : out_.ledger.memory);
      return std::nullopt;
    }
    std::optional<StageProblem> problem = ask_.problem(candidate);
    if (!problem) {
      ++out_.ledger.do_not_divide;
      return std::nullopt;
    }
    problem->memory = memory_;
    const int64_t of_cuts = bound_of_cuts(*problem);
    if (of_cuts > limit()) {
      ++out_.ledger.slower;
      return std::nullopt;
    }
    if (of_cuts > bound) return Open(of_cuts, candidate, asked);  // others may come first
    solve(candidate, *problem);
    return std::nullopt;
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
