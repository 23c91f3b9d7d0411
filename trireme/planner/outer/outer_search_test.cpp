#include "trireme/planner/outer/outer_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "trireme/base/error.h"
#include "trireme/parallel/timetable/schedules.h"
#include "trireme/parallel/timetable/timetable_time.h"
#include "trireme/planner/outer/pipeline_shape.h"

namespace trireme::outer_search_test {
namespace {

class RandomTables {
 public:
  explicit RandomTables(uint64_t seed) : random_(seed) {}

  int64_t number(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }

  PartPrice part() {
    PartPrice out;
    for (const auto field :
         {&PartPrice::forward, &PartPrice::input_grad, &PartPrice::weight_grad, &PartPrice::again,
          &PartPrice::moving_forward, &PartPrice::moving_backward, &PartPrice::update, &PartPrice::sync,
          &PartPrice::persistent, &PartPrice::gradients, &PartPrice::kept, &PartPrice::waiting, &PartPrice::work})
      out.*field = number(0, 3) == 0 ? 0 : number(0, 9);
    if (number(0, 2) == 0) put_elsewhere(out);
    return out;
  }
  // Some of the state.
  void put_elsewhere(PartPrice& part) {
    for (const auto field : {&PartPrice::coming, &PartPrice::going, &PartPrice::host, &PartPrice::disk})
      part.*field = number(0, 1) == 0 ? 0 : number(0, 9);
  }

  StageProblem problem() {
    StageProblem out{.micro_batches = number(1, 6),
                     .crossing = number(0, 5),
                     .memory = number(5, 150),
                     .host = number(5, 60),
                     .disk = number(5, 60)};
    const int64_t parts = number(1, 7), crews = number(1, 4);
    for (int64_t i = 0; i < parts; ++i) out.parts.push_back(number(0, 2) > 0 && i > 0 ? out.parts.back() : part());
    out.shape = {.idle_forward = number(0, 4), .idle_input = number(0, 4), .idle_weight = number(-4, 4)};
    out.shape.transfers = crews > 1 ? number(0, 6) : 0;
    out.shape.more_transfers = crews > 1 ? number(0, 6) : 0;
    if (crews > 1 && number(0, 3) == 0) {
      out.shape.chunks = number(2, 3);
      out.shape.idle_weight = number(0, 4);
    }
    for (int64_t crew = 0; crew < crews; ++crew) out.shape.held.push_back(moments(out.shape.chunks));
    return out;
  }

  std::vector<HeldMoment> moments(int64_t chunks) {
    std::vector<HeldMoment> out(static_cast<size_t>(number(1, 2)));
    for (size_t i = 0; i < out.size(); ++i) {
      for (int64_t chunk = 0; chunk < chunks; ++chunk)
        out[i].push_back({.whole = number(1, 4), .waiting = i == 0 ? 0 : number(1, 3)});
    }
    return out;
  }

 private:
  std::mt19937_64 random_;
};

// Whether stages differ by one of the parts that count, in the order in which rounding down has them.
bool is_even(const std::vector<int64_t>& begins, int64_t parts) {
  const auto stages = static_cast<int64_t>(begins.size());
  for (const int64_t counted : {parts, parts - 1, parts - 2}) {
    for (int64_t uncounted_before = 0; uncounted_before <= std::min<int64_t>(1, parts - counted); ++uncounted_before) {
      if (counted < stages || parts - counted - uncounted_before > 1) continue;
      bool is = true;
      for (int64_t stage = 1; stage < stages; ++stage)
        is = is && begins[static_cast<size_t>(stage)] == uncounted_before + stage * counted / stages;
      if (is) return true;
    }
  }
  return false;
}

// Of all cuts the least total, with nothing but loops; -1: none fits.
int64_t least_of_all_cuts(const StageProblem& problem) {
  const auto parts = static_cast<int64_t>(problem.parts.size());
  const int64_t stages = problem.shape.stages();
  const auto crews = static_cast<size_t>(problem.shape.crews()), chunks = static_cast<size_t>(problem.shape.chunks);
  int64_t least = -1;
  for (int64_t mask = 0; mask < int64_t{1} << (parts - 1); ++mask) {  // bit i: a stage begins with part i + 1
    if (__builtin_popcountll(static_cast<uint64_t>(mask)) != stages - 1) continue;
    std::vector<int64_t> begins{0};
    int64_t fill = 0;
    std::vector<int64_t> pass(crews), once(crews), held(crews), work(crews), host(crews), disk(crews);
    std::vector<std::vector<int64_t>> kept(crews, std::vector<int64_t>(chunks)), waiting = kept;
    for (int64_t i = 0; i < parts; ++i) {
      const PartPrice& p = problem.parts[static_cast<size_t>(i)];
      const size_t stage = begins.size() - 1, crew = stage % crews, chunk = stage / crews;
      pass[crew] += p.forward + p.moving_forward + p.input_grad + p.again + p.moving_backward + p.weight_grad;
      once[crew] += p.update + p.sync + (p.coming > p.going ? p.coming : p.going);
      host[crew] += p.host;
      disk[crew] += p.disk;
      held[crew] += p.persistent + p.gradients;
      kept[crew][chunk] += p.kept;
      waiting[crew][chunk] += p.waiting;
      work[crew] = std::max(work[crew], p.work);
      fill += problem.shape.idle_forward * (p.forward + p.moving_forward) +
              problem.shape.idle_input * (p.input_grad + p.again + p.moving_backward) +
              problem.shape.idle_weight * p.weight_grad;
      if (i + 1 < parts && (mask >> i & 1) != 0) begins.push_back(i + 1);
    }
    if (chunks > 1 && !is_even(begins, parts)) continue;
    bool fits = true;
    for (size_t crew = 0; crew < crews; ++crew) {
      fits = fits && host[crew] <= problem.host && disk[crew] <= problem.disk;
      for (const HeldMoment& moment : problem.shape.held[crew]) {
        int64_t bytes = held[crew] + work[crew];
        for (size_t chunk = 0; chunk < chunks; ++chunk)
          bytes += kept[crew][chunk] * moment[chunk].whole + waiting[crew][chunk] * moment[chunk].waiting;
        fits = fits && bytes <= problem.memory;
      }
    }
    const auto all_crews = static_cast<int64_t>(crews);
    const int64_t transfers =
        problem.shape.transfers * all_crews + problem.shape.more_transfers * problem.micro_batches;
    const int64_t total = problem.micro_batches * std::ranges::max(pass) + std::max<int64_t>(fill, 0) / stages +
                          problem.crossing * transfers / (2 * all_crews) + std::ranges::max(once);
    if (fits && (least < 0 || total < least)) least = total;
  }
  return least;
}

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
    for (const int64_t bytes : bytes_elsewhere(problem, *cut, &PartPrice::host)) ASSERT_LE(bytes, problem.host);
    for (const int64_t bytes : bytes_elsewhere(problem, *cut, &PartPrice::disk)) ASSERT_LE(bytes, problem.disk);
  }
  EXPECT_GT(fit, 3'000);
  EXPECT_GT(too_large, 3'000);
  EXPECT_GT(interleaved, 300);
}

// What bounds rest on: with longer passes and more bytes no cut is faster than the bound, and none fits that did not.
TEST(StageProblem, steps_that_no_number_tells_are_refused) {
  StageProblem problem{.parts = {{.forward = int64_t{1} << 40, .kept = int64_t{1} << 40}},
                       .shape = shape_of_schedule("1f1b", 1),
                       .micro_batches = (int64_t{1} << 21) - 1};
  EXPECT_NO_THROW(check_range(problem));
  ++problem.micro_batches;
  EXPECT_THROW(check_range(problem), Error);
  problem.micro_batches = 1;
  problem.parts[0].persistent = int64_t{1} << 61;
  EXPECT_THROW(check_range(problem), Error);
}

TEST(StageProblem, bounds_hold_of_longer_parts) {
  RandomTables tables(5);
  int tight = 0, fit = 0;
  for (int i = 0; i < 20'000; ++i) {
    StageProblem problem = tables.problem();
    const int64_t bound = bound_of_longer_parts(problem);
    const bool fits = some_cut_fits(problem);
    for (PartPrice& part : problem.parts) {
      for (const auto field :
           {&PartPrice::forward, &PartPrice::input_grad, &PartPrice::weight_grad, &PartPrice::again, &PartPrice::update,
            &PartPrice::kept, &PartPrice::persistent, &PartPrice::coming, &PartPrice::going})
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
  EXPECT_GT(tight, 50);
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

// Candidates whose bounds hold; some are refused.
struct RandomSearch {
  std::vector<OuterCandidate> candidates;
  std::vector<std::optional<StageProblem>> problems;
  int64_t memory = 0;

  explicit RandomSearch(RandomTables& tables) : memory(tables.number(20, 150)) {
    const int64_t count = tables.number(1, 20);
    for (int64_t i = 0; i < count; ++i) {
      StageProblem problem = tables.problem();
      problem.memory = memory;
      int64_t held = 0;
      for (const PartPrice& part : problem.parts) held += part.persistent;
      OuterCandidate candidate{.divides = tables.number(0, 9) > 0,
                               .least_bytes = held / problem.shape.stages(),
                               .bound_ps = bound_of_cuts(problem) / tables.number(1, 3)};
      candidates.push_back(candidate);
      problems.push_back(tables.number(0, 9) > 0 ? std::optional(problem) : std::nullopt);
      while (tables.number(0, 1) == 0 && candidates.size() < 30) add_elsewhere(tables);
    }
  }

  // The last one with less on the device; nothing of it takes less time.
  void add_elsewhere(RandomTables& tables) {
    OuterCandidate candidate = candidates.back();
    candidate.after = candidates.size() - 1;
    candidate.least_bytes = 0;
    std::optional<StageProblem> problem = problems.back();
    if (problem) {
      problem->host = tables.number(5, 60);
      for (PartPrice& part : problem->parts) {
        part.persistent = tables.number(0, part.persistent);
        part.work = tables.number(0, part.work + 1);
        part.host = tables.number(0, 9);
        part.coming += tables.number(0, 3);
        part.forward += tables.number(0, 5) == 0 ? 1 : 0;
      }
    }
    candidates.push_back(candidate);
    problems.push_back(std::move(problem));
  }

  // Which are to be looked at: of those after others where that one fits by no cut, or would be faster by one that does
  // not.
  std::vector<char> needed() const {
    std::vector<char> out(candidates.size(), 1);
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (!candidates[i].after) continue;
      const size_t before = *candidates[i].after;
      out[i] = 0;
      if (!problems[before] || out[before] == 0) continue;
      StageProblem without = *problems[before];
      without.memory = without.host = without.disk = int64_t{1} << 40;
      const int64_t least = least_of_all_cuts(*problems[before]);
      const bool is_small = candidates[before].least_bytes <= memory;
      out[i] = !is_small || least < 0 || least_of_all_cuts(without) < least ? 1 : 0;
    }
    return out;
  }

  OuterResult result(size_t top, const std::function<bool(bool)>& may_go_on = {},
                     const std::function<std::optional<size_t>(int64_t)>& likely = {}) const {
    using Kind = OuterAnswer::Kind;
    const auto half = [&](size_t i) -> OuterAnswer {
      if (!problems[i]) return {.kind = Kind::kRefused};
      return {.bound_ps = (candidates[i].bound_ps + bound_of_cuts(*problems[i])) / 2};
    };
    const auto room = [&](size_t i) -> OuterAnswer {
      const bool may_fit = candidates[i].after || !problems[i] || some_cut_fits(*problems[i]);
      return {.kind = may_fit ? Kind::kBound : Kind::kTooLarge};
    };
    return search_outer(candidates, memory, top,
                        {.bounds = {room, half},
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
    size_t next = search.candidates.size() + 1;  // the first is none
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
    ASSERT_EQ(price_of_cut(*search.problems[way.candidate], way.begins).total, way.price.total) << i;
  }
  EXPECT_GT(unproven, 100);
  EXPECT_GT(found_some, 100);
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
      if (!search.candidates[k].divides || !search.problems[k] || needed[k] == 0) continue;
      const int64_t least = least_of_all_cuts(*search.problems[k]);
      if (least >= 0) all.emplace_back(least, k);
    }
    std::ranges::sort(all);
    ASSERT_EQ(found.best.size(), std::min(top, all.size())) << i;
    for (size_t k = 0; k < found.best.size(); ++k) {
      ASSERT_EQ(found.best[k].price.total, all[k].first) << i;
      ASSERT_EQ(found.best[k].candidate, all[k].second) << i;
    }
    const OuterLedger& l = found.ledger;
    ASSERT_EQ(l.do_not_divide + l.memory_least + l.bound + l.memory + l.slower + l.needless + l.solved, l.ways) << i;
    ASSERT_EQ(l.ways, static_cast<int64_t>(search.candidates.size()));
    sum.do_not_divide += l.do_not_divide;
    sum.memory_least += l.memory_least;
    sum.bound += l.bound;
    sum.memory += l.memory;
    sum.slower += l.slower;
    sum.solved += l.solved;
    sum.needless += l.needless;
    elsewhere += std::ranges::count_if(
        found.best, [&](const SolvedWay& way) { return search.candidates[way.candidate].after.has_value(); });
  }
  for (const int64_t count :
       {sum.do_not_divide, sum.memory_least, sum.bound, sum.memory, sum.slower, sum.needless, sum.solved, elsewhere})
    EXPECT_GT(count, 100);
}

// What a timetable of equal stages takes, to the unit where passes take about as long as each other.
TEST(PipelineShape, says_what_timetables_take) {
  RandomTables tables(4);
  const std::pair<const char*, int64_t> schedules[] = {{"1f1b", 1},
                                                       {"zb-h1", 1},
                                                       {"zb-h2", 1},
                                                       {"interleaved", 2},
                                                       {"interleaved", 3},
                                                       {"interleaved", 5},
                                                       {"interleaved", 8},
                                                       {"interleaved-delayed", 2},
                                                       {"interleaved-delayed", 4}};
  for (const auto& [schedule, chunks] : schedules) {
    for (const int64_t crews : {2, 3, 4, 8}) {
      const PipelineShape shape = shape_of_schedule(schedule, crews, chunks);
      ASSERT_EQ(shape.crews(), crews);
      ASSERT_EQ(shape.stages(), crews * chunks);
      for (int i = 0; i < 20; ++i) {
        const int64_t fewest = std::string_view(schedule) == "zb-h2" ? 2 * crews - 1 : crews;
        const bool in_rounds = chunks > 1 || tables.number(0, 1) == 1;
        const int64_t micro_batches = in_rounds ? ((fewest + crews - 1) / crews + tables.number(0, 4)) * crews
                                                : fewest + tables.number(0, 3 * crews);
        const int64_t f = tables.number(98, 102), in = tables.number(103, 106), w = tables.number(92, 97);
        const Timetable timetable = make_timetable(schedule, {.crews = static_cast<int>(crews),
                                                              .stages_per_crew = static_cast<int>(chunks),
                                                              .micro_batches = static_cast<int>(micro_batches)});
        const int64_t transfer = in_rounds && !std::string_view(schedule).starts_with("zb") ? tables.number(0, 20) : 0;
        const TimetableTime time = time_of(timetable, {.forward = static_cast<double>(f),
                                                       .input_grad = static_cast<double>(in),
                                                       .weight_grad = static_cast<double>(w),
                                                       .transfer = static_cast<double>(transfer)});
        const int64_t idle = shape.idle_forward * f + shape.idle_input * in + shape.idle_weight * w;
        const int64_t transfers = shape.transfers + shape.more_transfers * micro_batches / crews;
        EXPECT_EQ(static_cast<int64_t>(time.makespan),
                  micro_batches * chunks * (f + in + w) + idle + (transfer > 0 ? transfers * transfer : 0))
            << schedule << " of " << crews << " crews of " << chunks << " and " << micro_batches << " micro-batches";
        for (size_t crew = 0; crew < time.crews.size(); ++crew) {
          int64_t held = 0;
          for (const HeldMicroBatches& each : shape.held[crew].front()) held += each.whole + each.waiting;
          EXPECT_LE(time.crews[crew].live, held) << schedule;
        }
      }
    }
  }
  const auto moment = [](std::vector<HeldMicroBatches> of) { return HeldMoment(std::move(of)); };
  using Moments = std::vector<HeldMoment>;
  const PipelineShape four = shape_of_schedule("1f1b", 4);
  EXPECT_EQ(four.idle_forward, 3);
  EXPECT_EQ(four.idle_input, 3);
  EXPECT_EQ(four.idle_weight, 3);
  EXPECT_EQ(four.transfers, 4);
  EXPECT_EQ(four.more_transfers, 6);
  EXPECT_EQ(four.held,
            (std::vector<Moments>{{moment({{4, 0}})}, {moment({{3, 0}})}, {moment({{2, 0}})}, {moment({{1, 0}})}}));
  EXPECT_EQ(shape_of_schedule("zb-h1", 2).held,
            (std::vector<Moments>{{moment({{2, 0}}), moment({{1, 1}})}, {moment({{1, 1}}), moment({{0, 2}})}}));
  const PipelineShape one = shape_of_schedule("1f1b", 1);
  EXPECT_EQ(one.held, (std::vector<Moments>{{moment({{1, 0}})}}));
  EXPECT_EQ(one.idle_forward + one.idle_input + one.idle_weight + one.transfers + one.more_transfers, 0);
}

// What a crew of several stages keeps: every moment of long timetables, with all stages' weights drawn.
TEST(PipelineShape, has_the_fullest_moment_of_interleaved_crews_whatever_stages_keep) {
  RandomTables tables(7);
  for (const char* const schedule : {"interleaved", "interleaved-delayed"}) {
    for (int i = 0; i < 200; ++i) {
      const int64_t crews = tables.number(2, 5), chunks = tables.number(2, 4);
      const PipelineShape shape = shape_of_schedule(schedule, crews, chunks);
      const Timetable timetable = make_timetable(schedule, {.crews = static_cast<int>(crews),
                                                            .stages_per_crew = static_cast<int>(chunks),
                                                            .micro_batches = static_cast<int>(6 * crews)});
      std::vector<int64_t> kept;
      for (int64_t chunk = 0; chunk < chunks; ++chunk) kept.push_back(tables.number(0, 9));
      for (size_t crew = 0; crew < timetable.crews.size(); ++crew) {
        int64_t now = 0, most = 0, said = 0;
        for (const Unit& unit : timetable.crews[crew]) {
          const int64_t of = kept[static_cast<size_t>(unit.stage) / timetable.crews.size()];
          now += unit.pass == Unit::Pass::kForward ? of : -of;
          most = std::max(most, now);
        }
        for (const HeldMoment& moment : shape.held[crew]) {
          int64_t sum = 0;
          for (size_t chunk = 0; chunk < moment.size(); ++chunk) sum += kept[chunk] * moment[chunk].whole;
          said = std::max(said, sum);
        }
        ASSERT_EQ(said, most) << schedule << " of " << crews << " crews of " << chunks << ", crew " << crew;
      }
    }
  }
}

}  // namespace
}  // namespace trireme::outer_search_test
