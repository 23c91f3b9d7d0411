#include "trireme/planner/outer/outer_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>

#include "trireme/base/error.h"
#include "trireme/planner/outer/least_part.h"
#include "trireme/planner/outer/least_slowest.h"
#include "trireme/planner/outer/pipeline_shape.h"
#include "trireme/planner/outer/random_tables_for_tests.h"
#include "trireme/planner/outer/stage_sums.h"

namespace trireme::outer_search_test {
namespace {

TEST(StageProblem, the_best_cut_is_the_best_of_all) {
  RandomTables tables(1);
  int fit = 0, too_large = 0, interleaved = 0;
  for (int i = 0; i < 20'000; ++i) {
    const StageProblem problem = tables.problem();
    const int64_t least = least_of_all_cuts(problem);
    const auto cut = best_cut(problem);
    ASSERT_EQ(cut.has_value(), least >= 0) << i;
    ASSERT_EQ(some_cut_fits(problem), least >= 0) << i;
    StageProblem narrow = problem;
    if (const auto fewest = fewest_bytes_of_cuts(problem)) {
      narrow.memory = *fewest;
      ASSERT_TRUE(some_cut_fits(narrow)) << i;
      --narrow.memory;
      ASSERT_EQ(least_of_all_cuts(narrow), -1) << i;
    }
    interleaved += cut && problem.shape.chunks > 1 ? 1 : 0;
    ++(cut ? fit : too_large);
    if (!cut) continue;
    ASSERT_EQ(price_of_cut(problem, *cut).total, least) << i;
    ASSERT_LE(bound_of_cuts(problem), least) << i;
    for (const int64_t bytes : bytes_of_crews(problem, *cut)) ASSERT_LE(bytes, problem.memory);
    for (const int64_t bytes : bytes_elsewhere(problem, *cut, Tier::kHost)) ASSERT_LE(bytes, problem.host);
    for (const int64_t bytes : bytes_elsewhere(problem, *cut, Tier::kDisk)) ASSERT_LE(bytes, problem.disk);
  }
  EXPECT_GT(fit, 3'000);
  EXPECT_GT(too_large, 3'000);
  EXPECT_GT(interleaved, 200);
}

// What bounds rest on: with longer passes and more bytes no cut is faster than the bound, and none fits that did not.
TEST(StageProblem, steps_that_no_number_tells_are_refused) {
  StageProblem problem{.parts = {{.forward = int64_t{1} << 40, .kept = int64_t{1} << 40}},
                       .shape = shape_of_schedule(schedule_of(WaySchedule::k1F1B), 1),
                       .micro_batches = (int64_t{1} << 21) - 1};
  EXPECT_NO_THROW(check_range(problem));
  ++problem.micro_batches;
  EXPECT_THROW(check_range(problem), Error);
  problem.micro_batches = 1;
  problem.parts[0].persistent = int64_t{1} << 61;
  EXPECT_THROW(check_range(problem), Error);

  StageSums sums(std::vector<PartPrice>(2, {.kept = int64_t{1} << 58}));
  EXPECT_NO_THROW(sums.check_bytes(3));
  EXPECT_THROW(sums.check_bytes(4), Error);
  EXPECT_THROW(sums.add({.persistent = int64_t{1} << 60}, 16), Error);  // whose sum no number tells
}

// What bounds by time are remembered by.
TEST(LeastPart, times_depend_on_what_is_said_of_them_alone) {
  RandomTables tables(8);
  int wholes = 0;
  for (int i = 0; i < 2'000; ++i) {
    PartPrice part = tables.part();
    part.adding = tables.number(0, part.weight_grad);
    part.sums = tables.number(0, part.gradients);
    LeastPartOf of{.rows = tables.number(1, 4),
                   .is_own = tables.number(0, 1) == 0,
                   .ranks = tables.number(1, 4),
                   .zero = tables.number(0, 3),
                   .state_elsewhere = tables.number(0, 1) == 0,
                   .parameter_bytes = tables.number(0, 2'000),
                   .state_bytes = tables.number(0, 2'000)};
    of.rows_of_table = of.rows * tables.number(1, 2);
    of.update_elsewhere = of.state_elsewhere && tables.number(0, 1) == 0;
    of.weight_bytes = tables.number(0, of.parameter_bytes);
    const PartPrice whole = least_part(part, of), times = least_part(part, of.for_times());
    ASSERT_EQ(times.forward_pass(), whole.forward_pass()) << i;
    ASSERT_EQ(times.input_pass(), whole.input_pass()) << i;
    ASSERT_EQ(times.weight_grad, whole.weight_grad) << i;
    ASSERT_EQ(times.once(), whole.once()) << i;
    wholes += whole.once() > 0 ? 1 : 0;
  }
  EXPECT_GT(wholes, 100);
}

TEST(StageProblem, bounds_hold_of_longer_parts) {
  RandomTables tables(5);
  int tight = 0, fit = 0;
  for (int i = 0; i < 20'000; ++i) {
    StageProblem problem = tables.problem();
    const int64_t bound = bound_of_longer_parts(problem);
    const bool fits = some_cut_fits(problem);
    for (PartPrice& part : problem.parts) {
      for (const auto field : {&PartPrice::forward, &PartPrice::input_grad, &PartPrice::weight_grad, &PartPrice::again,
                               &PartPrice::update, &PartPrice::kept, &PartPrice::persistent, &PartPrice::coming,
                               &PartPrice::going, &PartPrice::leaving, &PartPrice::returning, &PartPrice::kept_host})
        part.*field += tables.number(0, 2) == 0 ? tables.number(0, 9) : 0;
    }
    const auto cut = best_cut(problem);
    if (!cut) continue;
    ++fit;
    ASSERT_TRUE(fits) << i;
    const int64_t total = price_of_cut(problem, *cut).total;
    ASSERT_LE(bound, total) << i;
    tight += bound == total ? 1 : 0;
  }
  EXPECT_GT(fit, 2'000);
  EXPECT_GT(tight, 30);
}

// By runs of parts that are alike, against all cuts.
TEST(StageProblem, the_slowest_stage_of_the_best_cut_is_known_without_looking_at_cuts) {
  RandomTables tables(7);
  int several = 0;
  for (int i = 0; i < 5'000; ++i) {
    StageProblem problem = tables.problem();
    if (problem.shape.chunks > 1) continue;
    std::vector<PassRun> chain;
    for (PartPrice& part : problem.parts) {
      part.update = part.sync = part.coming = part.going = part.updating = 0;
      if (chain.empty() || chain.back().pass != part.pass()) chain.push_back({part.pass(), 0});
      ++chain.back().count;
    }
    several += problem.shape.crews() > 1 ? 1 : 0;
    PipelineShape& shape = problem.shape;
    shape.idle_forward = shape.idle_input = shape.idle_weight = shape.transfers = shape.more_transfers = 0;
    shape.waits_for_slowest = false;
    problem.micro_batches = 1;
    problem.memory = problem.host = problem.disk = int64_t{1} << 40;
    ASSERT_EQ(least_slowest(chain, shape.crews()), std::max<int64_t>(0, least_of_all_cuts(problem))) << i;
  }
  EXPECT_GT(several, 500);
}

TEST(StageProblem, more_memory_and_faster_parts_are_never_worse) {
  RandomTables tables(2);
  for (int i = 0; i < 2'000; ++i) {
    StageProblem problem = tables.problem();
    const auto before = best_cut(problem);
    if (!before) continue;
    const int64_t total = price_of_cut(problem, *before).total;
    StageProblem larger = problem;
    larger.memory += 20;
    ASSERT_LE(price_of_cut(larger, *best_cut(larger)).total, total);
    problem.parts[0].update = 0;
    ASSERT_LE(price_of_cut(problem, *best_cut(problem)).total, total);
  }
}

// Candidates with variants whose bounds hold; some are refused.
struct RandomSearch {
  OuterVariants variants;
  std::vector<OuterCandidate> candidates;
  // By the numbers of ways.
  std::vector<std::optional<StageProblem>> problems;
  std::vector<int64_t> least_bytes;
  int64_t memory = 0;

  explicit RandomSearch(RandomTables& tables) : memory(tables.number(20, 150)) {
    for (size_t v = 1; tables.number(0, 2) > 0 && v < 5; ++v) {
      std::vector<size_t>& after = variants.after.emplace_back();
      for (size_t before = 0; before < v; ++before) {
        if (tables.number(0, 1) == 0 || (before + 1 == v && after.empty())) after.push_back(before);
      }
    }
    const int64_t count = tables.number(1, 20);
    for (int64_t i = 0; i < count; ++i) add(tables);
  }

  void add(RandomTables& tables) {
    StageProblem problem = tables.problem();
    problem.memory = memory;
    const auto all = static_cast<int64_t>(1U << variants.count());
    candidates.push_back(
        {.divides = tables.number(0, 9) > 0,
         .variants = static_cast<uint32_t>(tables.number(0, 1) == 0 ? all - 1 : tables.number(1, all - 1)),
         .bound_ps = bound_of_cuts(problem) / tables.number(1, 3)});
    const size_t first = problems.size();
    for (size_t v = 0; v < variants.count(); ++v) {
      bool is_refused = tables.number(0, 15) == 0;
      if (v > 0) problem = tables.number(0, 9) == 0 ? problem : with_less(tables, problem);
      for (const size_t before : variants.after[v]) {
        is_refused = is_refused || !problems[first + before];
        if (!is_refused) raise(problem, *problems[first + before]);
      }
      problems.push_back(is_refused ? std::nullopt : std::optional(problem));
      int64_t held = 0;
      for (const PartPrice& part : problem.parts) held += part.persistent;
      least_bytes.push_back(held / problem.shape.stages());
    }
  }

  // Less of it on the device.
  static StageProblem with_less(RandomTables& tables, StageProblem problem) {
    problem.host = tables.number(5, 60);
    for (PartPrice& part : problem.parts) {
      part.persistent = tables.number(0, part.persistent);
      part.kept = tables.number(0, part.kept);
      part.work = tables.number(0, part.work + 1);
      part.host = tables.number(0, 9);
      part.coming += tables.number(0, 3);
      part.forward += tables.number(0, 5) == 0 ? 1 : 0;
    }
    return problem;
  }
  // No time of it is shorter.
  static void raise(StageProblem& problem, const StageProblem& before) {
    for (size_t i = 0; i < problem.parts.size(); ++i) {
      for (const auto field :
           {&PartPrice::forward, &PartPrice::coming, &PartPrice::updating, &PartPrice::leaving, &PartPrice::returning})
        problem.parts[i].*field = std::max(problem.parts[i].*field, before.parts[i].*field);
    }
  }

  size_t variant_of(size_t way) const { return way % variants.count(); }
  bool has(size_t way) const {
    const OuterCandidate& candidate = candidates[way / variants.count()];
    return candidate.divides && (candidate.variants >> variant_of(way) & 1) != 0;
  }

  // Which are to be looked at: where all that they are after fit by no cut, or would be faster by one that does not.
  std::vector<char> needed() const {
    std::vector<char> out(problems.size(), 0);
    for (size_t i = 0; i < problems.size(); ++i) {
      out[i] = has(i) ? 1 : 0;
      for (const size_t v : variants.after[variant_of(i)]) {
        const size_t before = i - variant_of(i) + v;
        if (has(before) && (out[before] == 0 || !frees(before))) out[i] = 0;
      }
    }
    return out;
  }
  bool frees(size_t way) const {
    if (least_bytes[way] > memory) return true;
    if (!problems[way]) return false;
    StageProblem without = *problems[way];
    without.memory = without.host = without.disk = int64_t{1} << 40;
    const int64_t least = least_of_all_cuts(*problems[way]);
    return least < 0 || least_of_all_cuts(without) < least;
  }

  OuterResult result(size_t top, const std::function<bool(bool)>& may_go_on = {},
                     const std::function<std::optional<size_t>(int64_t)>& likely = {}) const {
    using Kind = OuterAnswer::Kind;
    const auto half = [&](size_t i) -> OuterAnswer {
      if (!problems[i]) return {.kind = Kind::kRefused};
      return {.bound_ps = (candidates[i / variants.count()].bound_ps + bound_of_cuts(*problems[i])) / 2};
    };
    const auto room = [&](size_t i) -> OuterAnswer {
      const bool may_fit = !problems[i] || some_cut_fits(*problems[i]);
      return {.kind = may_fit ? Kind::kBound : Kind::kTooLarge};
    };
    return search_outer(candidates, variants, memory, top,
                        {.least_bytes = [&](size_t i) { return least_bytes[i]; },
                         .bounds = {room, half},
                         .problem = [&](size_t i) { return problems[i]; },
                         .may_go_on = may_go_on,
                         .likely = likely});
  }
};

// Whatever order they are said in: those that are the best are among them.
TEST(OuterSearch, that_is_stopped_asks_the_ways_that_are_said_to_be_likely) {
  RandomTables tables(6);
  int unproven = 0;
  for (int i = 0; i < 1'000; ++i) {
    const RandomSearch search(tables);
    const OuterResult whole = search.result(2);
    int64_t before = tables.number(0, 5);
    size_t next = search.problems.size() + 1;  // the first is none
    const OuterResult found = search.result(
        2, [&](bool is_stopped) { return is_stopped || before-- > 0; },
        [&](int64_t) { return next == 0 ? std::nullopt : std::optional(--next); });
    if (found.is_proven) continue;
    ++unproven;
    const OuterLedger& l = found.ledger;
    ASSERT_EQ(l.do_not_divide + l.memory_least + l.bound + l.memory + l.slower + l.needless + l.solved + l.open, l.ways)
        << i;
    ASSERT_EQ(found.best.size(), whole.best.size()) << i;
    for (size_t k = 0; k < whole.best.size(); ++k) ASSERT_EQ(found.best[k].price.total, whole.best[k].price.total) << i;
  }
  EXPECT_GT(unproven, 300);
}

TEST(OuterSearch, that_is_stopped_finds_ways_that_there_are_and_a_bound_that_holds) {
  RandomTables tables(5);
  int unproven = 0, found_some = 0;
  for (int i = 0; i < 2'000; ++i) {
    const RandomSearch search(tables);
    const OuterResult whole = search.result(1);
    int64_t before = tables.number(0, 12), after = tables.number(0, 5);
    const OuterResult found = search.result(1, [&](bool is_stopped) { return (is_stopped ? after : before)-- > 0; });
    const OuterLedger& l = found.ledger;
    ASSERT_EQ(l.do_not_divide + l.memory_least + l.bound + l.memory + l.slower + l.needless + l.solved + l.open, l.ways)
        << i;
    if (found.is_proven) {
      ASSERT_EQ(l, whole.ledger) << i;
      continue;
    }
    ++unproven;
    if (whole.best.empty()) {
      ASSERT_TRUE(found.best.empty()) << i;
      continue;
    }
    ASSERT_LE(found.bound_ps, whole.best.front().price.total) << i;
    if (found.best.empty()) continue;
    ++found_some;
    const SolvedWay& way = found.best.front();
    ASSERT_GE(way.price.total, whole.best.front().price.total) << i;
    ASSERT_EQ(price_of_cut(*search.problems[way.way], way.begins).total, way.price.total) << i;
  }
  EXPECT_GT(unproven, 100);
  EXPECT_GT(found_some, 100);
}

// More than come near at once, with bounds that lie close together, far apart, and on one number.
TEST(OuterSearch, asks_many_ways_by_their_bounds_and_numbers) {
  for (const int64_t most : {int64_t{0}, int64_t{100}, int64_t{1} << 20, int64_t{1} << 61}) {
    RandomTables random(9);
    const size_t count = 20'000;
    std::vector<OuterCandidate> candidates(count);
    std::vector<std::pair<int64_t, size_t>> expected;
    std::vector<int64_t> bounds;
    for (size_t way = 0; way < count; ++way) {
      candidates[way].bound_ps = random.number(0, most);
      bounds.push_back(random.number(0, most));
      expected.emplace_back(std::max(bounds[way], candidates[way].bound_ps), way);
    }
    std::ranges::sort(expected);
    std::vector<std::pair<int64_t, size_t>> asked;
    OuterQuestions ask;
    ask.bounds = {[&](size_t way) { return OuterAnswer{.bound_ps = bounds[way]}; }};
    ask.problem = [&](size_t way) {
      asked.emplace_back(std::max(bounds[way], candidates[way].bound_ps), way);
      return std::optional<StageProblem>();
    };
    const OuterResult found = search_outer(candidates, {}, 1, 1, ask);
    EXPECT_EQ(asked, expected) << "bounds up to " << most;
    EXPECT_EQ(found.ledger.do_not_divide, static_cast<int64_t>(count));
  }
}

TEST(OuterSearch, finds_the_best_of_all_ways_and_counts_each_once) {
  RandomTables tables(3);
  OuterLedger sum;
  int64_t elsewhere = 0;  // of the best
  for (int i = 0; i < 5'000; ++i) {
    const RandomSearch search(tables);
    const auto top = static_cast<size_t>(tables.number(1, 4));
    const OuterResult found = search.result(top);

    const std::vector<char> needed = search.needed();
    std::vector<std::pair<int64_t, size_t>> all;
    for (size_t k = 0; k < search.problems.size(); ++k) {
      if (!search.problems[k] || needed[k] == 0 || search.least_bytes[k] > search.memory) continue;
      const int64_t least = least_of_all_cuts(*search.problems[k]);
      if (least >= 0) all.emplace_back(least, k);
    }
    std::ranges::sort(all);
    ASSERT_EQ(found.best.size(), std::min(top, all.size())) << i;
    for (size_t k = 0; k < found.best.size(); ++k) {
      ASSERT_EQ(found.best[k].price.total, all[k].first) << i;
      ASSERT_EQ(found.best[k].way, all[k].second) << i;
    }
    const OuterLedger& l = found.ledger;
    ASSERT_EQ(l.do_not_divide + l.memory_least + l.bound + l.memory + l.slower + l.needless + l.solved, l.ways) << i;
    int64_t ways = 0;
    for (const OuterCandidate& each : search.candidates) ways += std::popcount(each.variants);
    ASSERT_EQ(l.ways, ways);
    sum.do_not_divide += l.do_not_divide;
    sum.memory_least += l.memory_least;
    sum.bound += l.bound;
    sum.memory += l.memory;
    sum.slower += l.slower;
    sum.solved += l.solved;
    sum.needless += l.needless;
    elsewhere +=
        std::ranges::count_if(found.best, [&](const SolvedWay& way) { return search.variant_of(way.way) > 0; });
  }
  for (const int64_t count :
       {sum.do_not_divide, sum.memory_least, sum.bound, sum.memory, sum.slower, sum.needless, sum.solved, elsewhere})
    EXPECT_GT(count, 100);
}

}  // namespace
}  // namespace trireme::outer_search_test
