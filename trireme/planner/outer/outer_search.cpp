#include "trireme/planner/outer/outer_search.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>
#include <utility>

#include "trireme/base/error.h"

namespace trireme {
namespace {

StageProblem without_limits(StageProblem problem) {
  problem.memory = problem.host = problem.disk = std::numeric_limits<int64_t>::max();
  return problem;
}

class OuterSearch {
 public:
  OuterSearch(const std::vector<OuterCandidate>& candidates, int64_t memory, size_t top, const OuterQuestions& ask)
      : candidates_(candidates), memory_(memory), top_(top), ask_(ask) {}

  OuterResult run() {
    out_.ledger.ways = static_cast<int64_t>(candidates_.size());
    next_.assign(candidates_.size(), kNone);
    for (size_t i = 0; i < candidates_.size(); ++i) {
      if (!candidates_[i].divides) {
        ++out_.ledger.do_not_divide;
      } else if (candidates_[i].after) {
        next_[*candidates_[i].after] = i;
        ++out_.ledger.needless;  // so far
      }
    }
    for (size_t i = 0; i < candidates_.size(); ++i) {
      if (candidates_[i].divides && !candidates_[i].after) open(admit(0, i, 0));
    }
    while (!open_.empty() && std::get<0>(open_.top()) <= limit()) {
      if (ask_.may_go_on && !ask_.may_go_on(false)) {
        stop();
        break;
      }
      if (ask_.on_progress)
        ask_.on_progress({out_.ledger.ways, static_cast<int64_t>(open_.size()), std::get<0>(open_.top())});
      open(look_at(taken()));
    }
    for (; !open_.empty(); open_.pop()) count(open_.top());
    if (out_.is_proven && !out_.best.empty()) out_.bound_ps = out_.best.front().price.total;
    return std::move(out_);
  }

 private:
  // By bound, of equal ones the first; how many bounds were asked for.
  using Open = std::tuple<int64_t, size_t, size_t>;
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();
  // Instead of a number of bounds: of one whose `after` was solved, and would be faster by a cut that is too large.
  static constexpr size_t kAfterSolved = kNone;

  void open(const std::optional<Open>& known) {
    if (known) open_.push(*known);
  }

  Open taken() {
    const Open out = open_.top();
    open_.pop();
    return out;
  }

  // One of which nothing more is asked. Of those after it nothing is known where it is undecided.
  void count(const Open& left) {
    const auto [bound, candidate, asked] = left;
    const bool is_needless = asked == kAfterSolved;  // and counted as that
    if (bound > limit()) {
      if (!is_needless) ++(asked == 0 ? out_.ledger.bound : out_.ledger.slower);
      return;
    }
    if (!is_needless) ++out_.ledger.open;
    for (size_t i = is_needless ? candidate : next_[candidate]; i != kNone; i = next_[i]) {
      --out_.ledger.needless;
      ++out_.ledger.open;
    }
  }

  void stop() {
    out_.is_proven = false;
    out_.bound_ps = std::get<0>(open_.top());
    if (ask_.likely) return ask_likely();
    while (!open_.empty() && std::get<0>(open_.top()) <= limit() && ask_.may_go_on(true)) open(ask_all(taken()));
  }

  std::optional<Open> ask_all(std::optional<Open> at) {
    while (at && std::get<0>(*at) <= limit()) at = look_at(*at);
    return at;
  }

  void ask_likely() {
    std::vector<Open> left = open_.taken_all();
    std::ranges::sort(left, {}, [](const Open& of) { return std::get<1>(of); });
    std::vector<char> is_asked(left.size(), 0);
    while (ask_.may_go_on(true)) {
      const std::optional<size_t> candidate = ask_.likely(limit());
      if (!candidate) break;
      const auto at = std::ranges::lower_bound(left, *candidate, {}, [](const Open& of) { return std::get<1>(of); });
      if (at == left.end() || std::get<1>(*at) != *candidate || is_asked[static_cast<size_t>(at - left.begin())] != 0)
        continue;  // it is decided
      is_asked[static_cast<size_t>(at - left.begin())] = 1;
      open(ask_all(*at));
    }
    for (size_t i = 0; i < left.size(); ++i) {
      if (is_asked[i] == 0) count(left[i]);
    }
  }

  // A way with a larger bound is not among the best.
  int64_t limit() const {
    return out_.best.size() < top_ ? std::numeric_limits<int64_t>::max() : out_.best.back().price.total;
  }

  std::optional<Open> admit(int64_t bound, size_t candidate, size_t asked) {
    if (candidates_[candidate].least_bytes <= memory_)
      return Open(std::max(bound, candidates_[candidate].bound_ps), candidate, asked);
    ++out_.ledger.memory_least;
    return too_large_for_device(bound, candidate, 0);
  }
  // The candidate is too large. What was asked of it before holds of the next one, too.
  std::optional<Open> admit_next(int64_t bound, size_t candidate, size_t asked) {
    if (next_[candidate] == kNone) return std::nullopt;
    --out_.ledger.needless;
    return admit(bound, next_[candidate], asked);
  }
  // By what is of the device alone: with the state elsewhere that is the same wherever it lies.
  std::optional<Open> too_large_for_device(int64_t bound, size_t candidate, size_t asked) {
    if (candidates_[candidate].after) return std::nullopt;
    return admit_next(bound, candidate, asked);
  }

  // What is known of it then, or of the one after it; nothing where that decides it.
  std::optional<Open> look_at(const Open& known) {
    const auto [bound, candidate, asked] = known;
    if (asked == kAfterSolved) {
      --out_.ledger.needless;
      return admit(bound, candidate, 0);
    }
    if (asked < ask_.bounds.size()) {
      const OuterAnswer better = ask_.bounds[asked](candidate);
      if (better.kind == OuterAnswer::Kind::kBound) return Open(std::max(bound, better.bound_ps), candidate, asked + 1);
      if (better.kind == OuterAnswer::Kind::kRefused) {
        ++out_.ledger.do_not_divide;
        return std::nullopt;
      }
      ++out_.ledger.memory;
      return too_large_for_device(bound, candidate, asked);
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
    return solve(bound, candidate, *problem);
  }

  std::optional<Open> solve(int64_t bound, size_t candidate, const StageProblem& problem) {
    std::optional<std::vector<int64_t>> cut, fastest;
    if (next_[candidate] != kNone) {
      fastest = best_cut(without_limits(problem));
      if (fastest && cut_fits(problem, *fastest)) cut = fastest;
    }
    if (!cut) cut = best_cut(problem);
    if (!cut) {
      ++out_.ledger.memory;
      return admit_next(bound, candidate, ask_.bounds.size());
    }
    ++out_.ledger.solved;
    const CutPrice price = price_of_cut(problem, *cut);
    std::optional<Open> next;
    if (fastest) {
      const int64_t least = price_of_cut(problem, *fastest).total;
      if (least < price.total) next = Open(least, next_[candidate], kAfterSolved);
    }
    out_.best.push_back({candidate, std::move(*cut), price});
    std::ranges::sort(out_.best, {}, [](const SolvedWay& way) { return std::pair(way.price.total, way.candidate); });
    if (out_.best.size() > top_) out_.best.pop_back();
    return next;
  }

  const std::vector<OuterCandidate>& candidates_;
  int64_t memory_;
  size_t top_;
  const OuterQuestions& ask_;
  std::vector<size_t> next_;  // by candidate: the one that is after it
  struct Queue : std::priority_queue<Open, std::vector<Open>, std::greater<>> {
    std::vector<Open> taken_all() { return std::exchange(c, {}); }
  };
  Queue open_;
  OuterResult out_;
};

}  // namespace

OuterResult search_outer(const std::vector<OuterCandidate>& candidates, int64_t memory, size_t top,
                         const OuterQuestions& ask) {
  require(top >= 1, "the best {} ways; it must be 1 or more", top);
  return OuterSearch(candidates, memory, top, ask).run();
}

}  // namespace trireme
