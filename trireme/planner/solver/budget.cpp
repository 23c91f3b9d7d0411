#include "trireme/planner/solver/budget.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/planner/solver/elimination.h"
#include "trireme/planner/solver/labels.h"

namespace trireme::solver {
namespace {

constexpr int kMostSolves = 64;
constexpr int64_t kWindows = 1024;  // the first window is this part of what the dual leaves open
constexpr int64_t kWider = 4;

// Of all tables together.
Price largest_sum(const Problem& problem) {
  Price out;
  for (const Price& most : largest_prices(problem.tables)) out += most;
  for (const Run& run : problem.runs) {
    for (const Price& most : largest_prices(run.block.tables))
      out += {most.time_ps * run.times, most.bytes * run.times};
  }
  return out;
}

// About the same ratio, small enough that no sum of weights reaches kNever. Time keeps a weight of 1 or more.
Weights fitting(Weights weights, const Price& largest) {
  const auto sum = [&](Weights w) {
    return static_cast<double>(w.time) * static_cast<double>(largest.time_ps) +
           static_cast<double>(w.bytes) * static_cast<double>(largest.bytes);
  };
  constexpr auto kMost = static_cast<double>(kNever / 2);
  while (weights.time > 1 && sum(weights) >= kMost) weights = {weights.time / 2, weights.bytes / 2};
  while (sum(weights) >= kMost) weights.bytes /= 2;
  return weights;
}

class BudgetSearch {
 public:
  BudgetSearch(const Problem& problem, const Budget& budget)
      : problem_(problem), budget_(budget), largest_(largest_sum(problem)), elimination_(problem) {}

  std::optional<Found> run() {
    if (!solve({1, 0})) return std::nullopt;
    found_.bound_ps = solved_.price.time_ps;
    found_.multiplier = {1, 0};
    found_.choice = solved_;
    if (fits(solved_)) return std::move(found_);
    Choice over = solved_;
    solve({0, 1});
    found_.choice = solved_;
    found_.fits = fits(solved_);
    if (!found_.fits) return std::move(found_);
    raise_bound(std::move(over), solved_);
    close_gap();
    return std::move(found_);
  }

 private:
  bool fits(const Choice& choice) const { return choice.price.bytes <= budget_.bytes; }

  bool solve(Weights weights) {
    elimination_.solve(weights);
    ++found_.solves;
    if (!elimination_.least()) return false;
    solved_ = elimination_.choice();
    return true;
  }

  bool is_near() const {
    const int64_t above = found_.choice.price.time_ps - found_.bound_ps;
    return above <= 0 || static_cast<double>(above) <= budget_.gap * static_cast<double>(found_.bound_ps);
  }

  // Kelley: the next price of bytes is that at which the two choices nearest to the budget cost the same.
  void raise_bound(Choice over, Choice under) {
    while (found_.solves < kMostSolves) {
      const Weights weights = fitting(
          {over.price.bytes - under.price.bytes, std::max<int64_t>(under.price.time_ps - over.price.time_ps, 0)},
          largest_);
      const int64_t known = std::min(weights.of(over.price), weights.of(under.price));
      solve(weights);
      note_bound(weights);
      if (fits(solved_) && solved_.price.time_ps < found_.choice.price.time_ps) found_.choice = solved_;
      if (weights.of(solved_.price) >= known) return;
      (fits(solved_) ? under : over) = solved_;
    }
  }

  void note_bound(Weights weights) {
    const int64_t above = *elimination_.least() - weights.bytes * budget_.bytes;
    if (above <= 0) return;
    const int64_t bound = (above + weights.time - 1) / weights.time;
    if (bound < found_.bound_ps) return;
    found_.bound_ps = bound;
    found_.multiplier = weights;
  }

  void close_gap() {
    if (is_near()) return;
    const Unrolled unrolled = unroll(problem_);
    LabelSearch search(unrolled.problem, found_.multiplier);
    ++found_.solves;
    int64_t window = std::max<int64_t>(1, (found_.choice.price.time_ps - found_.bound_ps) / kWindows);
    const int64_t first = found_.bound_ps;
    while (!is_near()) {
      const int64_t within = std::min(first + window, found_.choice.price.time_ps);
      const LabelSearch::Result result = search.run(budget_.bytes, within, budget_.most_labels);
      found_.labels = result.labels;
      if (!result.is_complete) return;
      if (result.choice && result.choice->price.time_ps < found_.choice.price.time_ps)
        found_.choice = roll_up(problem_, unrolled, *result.choice);
      // A choice of `within_ps` or less would have been found.
      found_.bound_ps = std::max(found_.bound_ps, std::min(within + 1, found_.choice.price.time_ps));
      window *= kWider;
    }
  }

  const Problem& problem_;
  const Budget& budget_;
  Price largest_;
  Elimination elimination_;
  Choice solved_;
  Found found_;
};

}  // namespace

std::optional<Found> cheapest_within(const Problem& problem, const Budget& budget) {
  check(problem);
  require(budget.gap >= 0, "a gap of {}; it is a share of the bound, 0 or more", budget.gap);
  return BudgetSearch(problem, budget).run();
}

std::optional<Choice> cheapest(const Problem& problem) {
  check(problem);
  Elimination elimination(problem);
  elimination.solve({1, 0});
  if (!elimination.least()) return std::nullopt;
  return elimination.choice();
}

}  // namespace trireme::solver
