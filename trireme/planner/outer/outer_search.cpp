#include "trireme/planner/outer/outer_search.h"

#include <algorithm>
#include <array>
#include <bit>
#include <deque>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "trireme/base/error.h"

namespace trireme {
namespace {

StageProblem without_limits(StageProblem problem) {
  problem.memory = problem.host = problem.disk = std::numeric_limits<int64_t>::max();
  return problem;
}

class OuterSearch {
 public:
  OuterSearch(const std::vector<OuterCandidate>& candidates, const OuterVariants& variants, int64_t memory, size_t top,
              const OuterQuestions& ask)
      : candidates_(candidates), variants_(variants), next_(variants.count()), memory_(memory), top_(top), ask_(ask) {
    for (size_t v = 0; v < next_.size(); ++v) {
      for (const size_t before : variants.after[v]) next_[before].push_back(v);
    }
  }

  OuterResult run() {
    begin();
    while (has_open()) {
      if (ask_.may_go_on && !ask_.may_go_on(false)) {
        stop();
        break;
      }
      if (ask_.on_progress) ask_.on_progress({out_.ledger.ways, static_cast<int64_t>(open_.size()), open_.top().bound});
      open(look_at(open_.taken()));
    }
    for (const Open& left : open_.taken_all()) count(left);
    if (out_.is_proven && !out_.best.empty()) out_.bound_ps = out_.best.front().price.total;
    return std::move(out_);
  }

 private:
  // A way that is open, once. There are millions: in two words a queue of them takes less time.
  struct Open {
    Open() = default;
    Open(int64_t of_bound, size_t of_way, size_t of_asked) : bound(of_bound), way(of_way), asked(of_asked) {}
    int64_t bound = 0;
    size_t way : 56 = 0;
    size_t asked : 8 = 0;  // how many bounds were asked for, and its prices are one more
    bool is_before(const Open& other) const { return bound != other.bound ? bound < other.bound : way < other.way; }
  };
  // Instead of a number of bounds: the way was solved, and a cut of it that is too large is faster than those that fit,
  // and takes the bound.
  static constexpr size_t kSolved = 255;

  // Those with the lowest bound first, of equal ones by their numbers. The way that was asked last is often the next
  // one again: it does not go through the rest. Bounds hardly ever fall, so most of the millions can wait without an
  // order: those that are far lie by the highest bit in which their bound differs from one that none of them is below,
  // and are moved nearer, in a row, once those before them are gone (a radix heap). Few are near, in a heap.
  class Queue {
   public:
    bool empty() const { return size_ == 0; }
    size_t size() const { return size_; }
    const Open& top() const { return first_ ? *first_ : near_.front(); }
    void push(Open of) {
      const bool is_first = empty() || of.is_before(top());
      ++size_;
      if (is_first && first_) std::swap(of, *first_);
      if (is_first && !first_) {
        first_ = of;
      } else {
        add(of);
      }
    }
    Open taken() {
      const Open out = top();
      --size_;
      if (first_) {
        first_.reset();
      } else {
        std::ranges::pop_heap(near_, is_after);
        near_.pop_back();
      }
      if (!first_ && near_.empty() && size_ > 0) come_near();
      return out;
    }
    std::vector<Open> taken_all() {
      std::vector<Open> out = std::exchange(near_, {});
      for (std::vector<Open>& each : far_) {
        out.insert(out.end(), each.begin(), each.end());
        each = {};
      }
      if (first_) out.push_back(*std::exchange(first_, std::nullopt));
      size_ = 0;
      return out;
    }

   private:
    static constexpr size_t kNear = 1024;  // so many come near at once, or those of one bound

    static bool is_after(const Open& a, const Open& b) { return b.is_before(a); }

    void add(const Open& of) {
      if (of.bound > until_) return far_[far_at(of)].push_back(of);
      near_.push_back(of);
      std::ranges::push_heap(near_, is_after);
    }
    size_t far_at(const Open& of) const {
      return static_cast<size_t>(std::bit_width(static_cast<uint64_t>(of.bound ^ until_))) - 1;
    }
    // None is near, and some are far: the first of these.
    void come_near() {
      while (near_.empty()) {
        const auto found = std::ranges::find_if(far_, [](const auto& each) { return !each.empty(); });
        const std::vector<Open> next = std::exchange(*found, {});
        const auto bit = found - far_.begin();
        const int64_t below = (int64_t{1} << bit) - 1;  // the bits in which those of one place differ
        until_ = (next.front().bound & ~below) | (next.size() > kNear ? 0 : below);
        for (const Open& each : next) add(each);
      }
    }

    std::optional<Open> first_;  // none comes before it; nothing: the first of those that are near
    std::vector<Open> near_;     // a heap of those with no larger bound than `until_`
    int64_t until_ = 0;
    std::array<std::vector<Open>, 63> far_;
    size_t size_ = 0;
  };

  // Of a candidate's variants: for how many each waits, and which wait for none.
  struct Waits {
    std::vector<uint8_t> of_variants;
    std::vector<size_t> first;
    int64_t needless = 0;  // so far: those that wait
  };
  // The same of all candidates that have these variants.
  const Waits& waits_for(uint32_t variants) {
    for (const auto& [known, waits] : known_waits_) {
      if (known == variants) return waits;
    }
    const auto has = [variants](size_t variant) { return (variants >> variant & 1) != 0; };
    Waits out{.of_variants = std::vector<uint8_t>(variants_.count(), 0)};
    for (size_t v = 0; v < variants_.count(); ++v) {
      if (!has(v)) continue;
      const auto before = std::ranges::count_if(variants_.after[v], has);
      out.of_variants[v] = static_cast<uint8_t>(before);
      if (before == 0) out.first.push_back(v);
      out.needless += before > 0 ? 1 : 0;
    }
    return known_waits_.emplace_back(variants, std::move(out)).second;
  }

  // Every way that is after none.
  void begin() {
    waits_.assign(candidates_.size() * variants_.count(), 0);
    std::vector<size_t> first;
    for (size_t c = 0; c < candidates_.size(); ++c) {
      const auto ways = static_cast<int64_t>(std::popcount(candidates_[c].variants));
      out_.ledger.ways += ways;
      if (!candidates_[c].divides) {
        out_.ledger.do_not_divide += ways;
        continue;
      }
      const Waits& waits = waits_for(candidates_[c].variants);
      std::ranges::copy(waits.of_variants, waits_.begin() + static_cast<std::ptrdiff_t>(c * variants_.count()));
      out_.ledger.needless += waits.needless;
      for (const size_t v : waits.first) first.push_back(c * variants_.count() + v);
    }
    for (const size_t way : first) admit(0, way);  // which frees others
  }

  bool has(size_t candidate, size_t variant) const { return (candidates_[candidate].variants >> variant & 1) != 0; }
  bool has_open() const { return !open_.empty() && open_.top().bound <= limit(); }

  void open(const std::optional<Open>& known) {
    if (known) open_.push(*known);
  }

  // One of which nothing more is asked. Of those after it nothing is known where it is undecided.
  void count(const Open& left) {
    const auto [bound, way, asked] = left;
    const bool is_solved = asked == kSolved;  // and counted as that
    if (bound > limit()) {
      if (!is_solved) ++(asked == 0 ? out_.ledger.bound : out_.ledger.slower);
      return;
    }
    if (!is_solved) ++out_.ledger.open;
    leave_open(way);
  }
  void leave_open(size_t way) {
    for_freed(way, [&](size_t next) {
      ++out_.ledger.open;
      leave_open(next);
    });
  }

  void stop() {
    out_.is_proven = false;
    out_.bound_ps = open_.top().bound;
    if (ask_.likely) return ask_likely();
    while (has_open() && ask_.may_go_on(true)) open(ask_all(open_.taken()));
  }

  std::optional<Open> ask_all(std::optional<Open> at) {
    while (at && at->bound <= limit()) at = look_at(*at);
    return at;
  }

  void ask_likely() {
    std::vector<Open> left = open_.taken_all();
    std::ranges::sort(left, {}, [](const Open& of) { return size_t{of.way}; });
    std::vector<char> is_asked(left.size(), 0);
    while (ask_.may_go_on(true)) {
      const std::optional<size_t> way = ask_.likely(limit());
      if (!way) break;
      const auto at = std::ranges::lower_bound(left, *way, {}, [](const Open& of) { return size_t{of.way}; });
      if (at == left.end() || at->way != *way || is_asked[static_cast<size_t>(at - left.begin())] != 0)
        continue;  // it is decided
      is_asked[static_cast<size_t>(at - left.begin())] = 1;
      open_.push(*at);
      while (has_open()) open(look_at(open_.taken()));  // it, and those after it
    }
    for (size_t i = 0; i < left.size(); ++i) {
      if (is_asked[i] == 0) count(left[i]);
    }
  }

  // A way with a larger bound is not among the best.
  int64_t limit() const {
    return out_.best.size() < top_ ? std::numeric_limits<int64_t>::max() : out_.best.back().price.total;
  }

  void admit(int64_t bound, size_t way) {
    if (!ask_.least_bytes || ask_.least_bytes(way) <= memory_) {
      open_.push({std::max(bound, candidates_[way / variants_.count()].bound_ps), way, 0});
      return;
    }
    ++out_.ledger.memory_least;
    admit_next(bound, way);
  }
  // The way is too large, or a cut of it that takes the bound is. Those after it take no less.
  void admit_next(int64_t bound, size_t way) {
    for_freed(way, [&](size_t next) { admit(bound, next); });
  }

  // For each way that waited for this one alone.
  template <class Fn>
  void for_freed(size_t way, Fn&& fn) {
    const size_t variant = way % variants_.count(), first = way - variant;
    for (const size_t v : next_[variant]) {
      if (!waits(first + v) || --waits_[first + v] > 0) continue;
      --out_.ledger.needless;
      fn(first + v);
    }
  }
  bool waits(size_t way) const {
    const size_t count = variants_.count();
    return has(way / count, way % count) && waits_[way] > 0;
  }
  bool is_waited_for(size_t way) const {
    const size_t variant = way % variants_.count();
    return std::ranges::any_of(next_[variant], [&](size_t v) { return waits(way - variant + v); });
  }

  // What is known of it then; nothing where that decides it.
  std::optional<Open> look_at(const Open& known) {
    const auto [bound, way, asked] = known;
    if (asked == kSolved) {
      admit_next(bound, way);
      return std::nullopt;
    }
    if (asked < ask_.bounds.size()) {
      const OuterAnswer better = ask_.bounds[asked](way);
      if (better.kind == OuterAnswer::Kind::kBound) return Open(std::max(bound, better.bound_ps), way, asked + 1);
      ++(better.kind == OuterAnswer::Kind::kRefused ? out_.ledger.do_not_divide : out_.ledger.memory);
      if (better.kind == OuterAnswer::Kind::kTooLarge) admit_next(bound, way);
      return std::nullopt;
    }
    std::optional<StageProblem> problem = ask_.problem(way);
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
    if (of_cuts > bound) return Open(of_cuts, way, ask_.bounds.size() + 1);  // it has prices; others may come first
    return solve(bound, way, *problem);
  }

  std::optional<Open> solve(int64_t bound, size_t way, const StageProblem& problem) {
    std::optional<std::vector<int64_t>> cut, fastest;
    if (is_waited_for(way)) {
      fastest = best_cut(without_limits(problem));
      if (fastest && cut_fits(problem, *fastest)) cut = fastest;
    }
    if (!cut) cut = best_cut(problem);
    if (!cut) {
      ++out_.ledger.memory;
      admit_next(bound, way);
      return std::nullopt;
    }
    ++out_.ledger.solved;
    const CutPrice price = price_of_cut(problem, *cut);
    std::optional<Open> next;
    if (fastest) {
      const int64_t least = price_of_cut(problem, *fastest).total;
      if (least < price.total) next = Open(least, way, kSolved);
    }
    out_.best.push_back({way, std::move(*cut), price});
    std::ranges::sort(out_.best, {}, [](const SolvedWay& of) { return std::pair(of.price.total, of.way); });
    if (out_.best.size() > top_) out_.best.pop_back();
    return next;
  }

  const std::vector<OuterCandidate>& candidates_;
  const OuterVariants& variants_;
  std::vector<std::vector<size_t>> next_;  // of each variant those that are after it
  int64_t memory_;
  size_t top_;
  const OuterQuestions& ask_;
  std::deque<std::pair<uint32_t, Waits>> known_waits_;  // by variants
  std::vector<uint8_t> waits_;  // of each way: for how many that it is after, which are not known to be too large
  Queue open_;
  OuterResult out_;
};

}  // namespace

OuterResult search_outer(const std::vector<OuterCandidate>& candidates, const OuterVariants& variants, int64_t memory,
                         size_t top, const OuterQuestions& ask) {
  require(top >= 1, "the best {} ways; it must be 1 or more", top);
  require(variants.count() >= 1 && variants.count() <= 32, "{} variants of a way; it must be 1 to 32",
          variants.count());
  require(ask.bounds.size() < 250, "{} bounds of a way; it must be fewer than 250", ask.bounds.size());
  return OuterSearch(candidates, variants, memory, top, ask).run();
}

}  // namespace trireme
