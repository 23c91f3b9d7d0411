// The outer search: among many ways to cut a model over ranks, it finds those with the shortest step, each with its
// best cut into stages. A way is priced only if nothing that is known before rules it out. The result is exact over the
// tables.
#pragma once

#include <functional>
#include <string>

#include "trireme/planner/outer/stage_problem.h"

namespace trireme {

// What is known of a way and its variants before it is priced. Variants are the same way with measures that take fewer
// bytes of the device.
struct OuterCandidate {
  bool divides = true;
  uint32_t variants = 1;  // which it has, a bit for each
  int64_t bound_ps = 0;   // none takes less
};

// What variants there are. The way of candidate c that is variant v has the number c * count() + v.
struct OuterVariants {
  // For each variant, those before it that take no longer than it with any cut into stages. It is looked at only if all
  // of these that the candidate has are too large, or would be faster by a cut that is too large.
  std::vector<std::vector<size_t>> after = {{}};
  size_t count() const { return after.size(); }
};

// The counts after the first add up to it.
struct OuterLedger {
  int64_t ways = 0;
  int64_t do_not_divide = 0;  // or are refused by the compiler
  int64_t memory_least = 0;   // parameters and state alone are too much
  int64_t bound = 0;          // not priced: by its arithmetic alone not among the best
  int64_t slower = 0;         // not solved: by its prices, or by bounds from those of others, not among the best
  int64_t memory = 0;         // no cut into stages fits, by some or all of its tables
  int64_t needless = 0;       // a variant that it is after is no slower
  int64_t solved = 0;
  int64_t open = 0;  // undecided, as the search was stopped
  friend bool operator==(const OuterLedger&, const OuterLedger&) = default;
};

struct SolvedWay {
  size_t way = 0;
  std::vector<int64_t> begins;
  CutPrice price;
};

struct OuterResult {
  std::vector<SolvedWay> best;  // by time, of equal ones the first
  OuterLedger ledger;
  bool is_proven = true;  // else the search was stopped, and others may take less
  int64_t bound_ps = 0;   // but none less than this; where it is proven, what the first of the best takes
};

// What some tables say of a way.
struct OuterAnswer {
  // The last: no cut into stages fits.
  enum class Kind : uint8_t { kBound, kRefused, kTooLarge };
  Kind kind = Kind::kBound;
  int64_t bound_ps = 0;  // it takes no less
};

// How far a search is: how many ways are not yet known to be among the best or not, and what all of these take at
// least.
struct OuterProgress {
  int64_t ways = 0, open = 0;
  int64_t bound_ps = 0;
};

// What the search asks about a way, by its number. Each question costs more than the one before.
struct OuterQuestions {
  std::function<int64_t(size_t)> least_bytes = {};  // of a rank, however it is cut; none: nothing is known
  std::vector<std::function<OuterAnswer(size_t)>> bounds = {};
  // Its tables; nothing if it is refused. No cut of it may take less than the bounds say.
  std::function<std::optional<StageProblem>(size_t)> problem;
  std::function<void(const OuterProgress&)> on_progress = {};  // before each question; none: nobody is told
  // Whether the search may go on; unset: until everything is proven. Once this says no (then `is_stopped`), ways are
  // asked all questions one after the other, those with the lowest bounds first, until it says no again.
  std::function<bool(bool is_stopped)> may_go_on = {};
  // Once it is stopped: the ways to ask all questions about instead, likely ones first, given what the last of the best
  // takes; nothing: no other is likely to be among them.
  std::function<std::optional<size_t>(int64_t limit_ps)> likely = {};
};

// `top` must be 1 or more. The way with the lowest bound is asked the next question, so nothing is asked on which the
// result does not depend.
OuterResult search_outer(const std::vector<OuterCandidate>& candidates, const OuterVariants& variants, int64_t memory,
                         size_t top, const OuterQuestions& ask);

}  // namespace trireme
