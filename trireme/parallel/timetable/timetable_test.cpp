#include "trireme/parallel/timetable/timetable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "trireme/base/error.h"
#include "trireme/parallel/timetable/schedules.h"
#include "trireme/parallel/timetable/timetable_time.h"

namespace trireme::timetable_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string line_of(const Timetable& timetable, int crew) {
  std::string out;
  for (const Unit& unit : timetable.crews[static_cast<size_t>(crew)]) {
    out += fmt::format("{}{}{}", out.empty() ? "" : " ", to_string(unit).front(), unit.micro_batch);
  }
  return out;
}

// Forward passes before the first backward pass.
int warm_up(const Timetable& timetable, int crew) {
  const std::vector<Unit>& units = timetable.crews[static_cast<size_t>(crew)];
  const auto first = std::ranges::find_if(units, [](const Unit& unit) { return unit.pass != Unit::Pass::kForward; });
  return static_cast<int>(first - units.begin());
}

std::vector<int> live(const TimetableTime& time) {
  std::vector<int> out;
  for (const TimetableTime::Crew& crew : time.crews) out.push_back(crew.live);
  return out;
}

// What was thrown, without its notes.
template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.kind()), 2);
    return error.text();
  }
  return "nothing thrown";
}

// A whole backward pass takes as long as a forward pass.
const UnitCosts kEqual{.forward = 1, .input_grad = 0.5, .weight_grad = 0.5};

TEST(Timetable, contracts_9_4_the_orders_of_1f1b_are_those_of_the_papers) {
  const Timetable timetable = make_timetable("1f1b", {.crews = 4, .micro_batches = 4});

  EXPECT_EQ(line_of(timetable, 3), "F0 B0 F1 B1 F2 B2 F3 B3");
  EXPECT_EQ(line_of(timetable, 2), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(line_of(timetable, 1), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(line_of(timetable, 0), "F0 F1 F2 F3 B0 B1 B2 B3");
}

TEST(Timetable, contracts_9_4_gpipe_runs_all_forward_passes_and_then_backward_in_their_order) {
  const Timetable timetable = make_timetable("gpipe", {.crews = 2, .micro_batches = 3});

  EXPECT_EQ(line_of(timetable, 0), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(line_of(timetable, 1), "F0 F1 F2 B0 B1 B2");
}

TEST(Timetable, contracts_9_4_gpipe_and_1f1b_take_as_long_and_keep_what_theory_says) {
  for (const auto& [stages, micro_batches] : {std::pair{4, 4}, {4, 8}, {2, 6}, {8, 32}}) {
    SCOPED_TRACE(fmt::format("{} stages, {} micro-batches", stages, micro_batches));
    const auto time = [&](std::string_view name) {
      return time_of(make_timetable(name, {.crews = stages, .micro_batches = micro_batches}), kEqual);
    };
    EXPECT_EQ(time("gpipe").makespan, 2 * (micro_batches + stages - 1));  // 14 for 4 and 4, 22 for 4 and 8
    EXPECT_EQ(time("1f1b").makespan, 2 * (micro_batches + stages - 1));
    EXPECT_EQ(live(time("gpipe")), std::vector<int>(static_cast<size_t>(stages), micro_batches));
    std::vector<int> kept;
    for (int stage = 0; stage < stages; ++stage) kept.push_back(std::min(micro_batches, stages - stage));
    EXPECT_EQ(live(time("1f1b")), kept);
  }
}

TEST(Timetable, contracts_9_4_interleaved_orders_warm_up_as_megatron_and_mindspore_do_and_take_equally_long) {
  const ScheduleRequest request{.crews = 4, .stages_per_crew = 2, .micro_batches = 8};
  const Timetable early = make_timetable("interleaved", request);
  const Timetable late = make_timetable("interleaved-delayed", request);
  for (int crew = 0; crew < 4; ++crew) {
    EXPECT_EQ(warm_up(early, crew), 11 - 2 * crew);
    EXPECT_EQ(warm_up(late, crew), 8 - crew);
  }
  const UnitCosts costs{.forward = 1, .input_grad = 1, .weight_grad = 1};  // a whole backward pass takes two

  EXPECT_EQ(time_of(early, costs).makespan, 57);
  EXPECT_EQ(time_of(late, costs).makespan, 57);
  EXPECT_EQ(live(time_of(early, costs))[0], 11);
  EXPECT_EQ(live(time_of(late, costs))[0], 8);
  // Stages twice as long, one a crew.
  const UnitCosts twice{.forward = 2, .input_grad = 2, .weight_grad = 2};
  EXPECT_EQ(time_of(make_timetable("1f1b", {.crews = 4, .micro_batches = 8}), twice).makespan, 66);
}

TEST(Timetable, zero_bubble_schedules_equal_their_papers_formulas) {
  for (const auto& [crews, micro_batches] : {std::pair{2, 6}, {3, 9}, {4, 8}, {4, 16}, {6, 24}, {8, 32}, {16, 64}}) {
    SCOPED_TRACE(fmt::format("{} crews, {} micro-batches", crews, micro_batches));
    const auto time = [&](std::string_view name, int stages_per_crew) {
      return time_of(
          make_timetable(name, {.crews = crews, .stages_per_crew = stages_per_crew, .micro_batches = micro_batches}));
    };
    const auto most = [](const TimetableTime& of) { return std::ranges::max(live(of)); };
    // Qi et al. 2023, table 2, for F = I = W = 1.
    EXPECT_EQ(time("zb-h1", 1).bubble, crews - 1);
    EXPECT_EQ(most(time("zb-h1", 1)), crews);
    EXPECT_EQ(time("zb-h2", 1).bubble, 0);
    EXPECT_EQ(most(time("zb-h2", 1)), 2 * crews - 1);
    // Qi et al. 2024, table 1; a crew keeps two stages of half the size of one of 1F1B's.
    EXPECT_EQ(time("zb-v", 2).bubble, 0);
    EXPECT_EQ(most(time("zb-v", 2)), 2 * crews);
    EXPECT_LE(time("v-half", 2).bubble, 3 * crews);
    EXPECT_EQ(most(time("v-half", 2)), 2 * ((crews + 2) / 2));
    EXPECT_LE(time("v-min", 2).bubble, 4 * crews);
    EXPECT_EQ(most(time("v-min", 2)), 2 * ((crews + 4) / 3));
    EXPECT_EQ(time("1f1b", 1).bubble, 3 * (crews - 1));
  }
}

TEST(Timetable, contracts_9_4_a_v_folds_the_stages_and_dual_pipe_keeps_one_more_micro_batch_than_1f1b) {
  for (const std::string_view name : {"zb-v", "v-half", "v-min", "dualpipe-v"}) {
    const Timetable timetable = make_timetable(name, {.crews = 4, .stages_per_crew = 2, .micro_batches = 8});
    EXPECT_THAT(crews_of_stages(timetable), ElementsAre(0, 1, 2, 3, 3, 2, 1, 0)) << name;
  }
  const TimetableTime time =
      time_of(make_timetable("dualpipe-v", {.crews = 4, .stages_per_crew = 2, .micro_batches = 8}));
  EXPECT_EQ(std::ranges::max(live(time)), 2 * 4 + 1);
}

TEST(Timetable, contracts_9_4_chunks_of_positions_go_forward_in_order_and_backward_in_reverse) {
  const Timetable timetable = make_timetable("seq-1f1b", {.crews = 2, .micro_batches = 2, .seq_chunks = 2});

  EXPECT_EQ(to_string(timetable),
            "timetable seq-1f1b stages=2 micro_batches=2 seq_chunks=2\n"
            "crew 0: F0.0.0 F0.0.1 F0.1.0 B0.0.1 F0.1.1 B0.0.0 B0.1.1 B0.1.0\n"
            "crew 1: F1.0.0 F1.0.1 B1.0.1 F1.1.0 B1.0.0 F1.1.1 B1.1.1 B1.1.0\n");
  // Two chunks are half as long, and so is the bubble.
  const Timetable halves = make_timetable("seq-1f1b", {.crews = 4, .micro_batches = 8, .seq_chunks = 2});
  EXPECT_EQ(time_of(halves, {.forward = 0.5, .input_grad = 0.5, .weight_grad = 0.5}).bubble, 4.5);
  EXPECT_EQ(time_of(make_timetable("1f1b", {.crews = 4, .micro_batches = 8})).bubble, 9);
}

TEST(Timetable, contracts_9_4_one_chunk_of_positions_is_1f1b) {
  for (const auto& [crews, micro_batches] : {std::pair{2, 6}, {4, 4}, {4, 8}}) {
    const ScheduleRequest request{.crews = crews, .micro_batches = micro_batches, .seq_chunks = 1};
    EXPECT_EQ(make_timetable("seq-1f1b", request).crews, make_timetable("1f1b", request).crews);
  }
}

// The micro-batches whose terms a stage adds to the gradients of its weights, in the order in which it does.
std::vector<int> terms_of(const Timetable& timetable, int stage) {
  std::vector<int> out;
  for (const std::vector<Unit>& crew : timetable.crews) {
    for (const Unit& unit : crew) {
      const bool adds = unit.pass == Unit::Pass::kBackward || unit.pass == Unit::Pass::kWeightGrad;
      if (adds && unit.stage == stage) out.push_back(unit.micro_batch);
    }
  }
  return out;
}

TEST(Timetable, every_schedule_reads_back_and_is_sound_at_random_sizes) {
  constexpr unsigned kSeed = 20;
  std::mt19937 rng(kSeed);
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  const auto draw = [&](int least, int most) { return std::uniform_int_distribution(least, most)(rng); };
  for (const PipelineSchedule& schedule : schedules()) {
    for (int i = 0; i < 20; ++i) {
      const int crews = draw(1, 9);
      const ScheduleRequest request{
          .crews = crews,
          .stages_per_crew = schedule.stages_per_crew == 0 ? draw(2, 4) : schedule.stages_per_crew,
          .micro_batches = crews * draw(2, 5),
          .seq_chunks = schedule.cuts_positions ? draw(1, 4) : 1};
      const Timetable timetable = make_timetable(schedule.name, request);
      EXPECT_EQ(parse_timetable(to_string(timetable)), timetable) << to_string(timetable);
      EXPECT_GT(time_of(timetable, kEqual).makespan, 0);
      for (int stage = 0; stage < timetable.stages; ++stage)
        EXPECT_TRUE(std::ranges::is_sorted(terms_of(timetable, stage))) << to_string(timetable);
    }
  }
}

// A timetable that was sound, with one thing wrong, is refused; each wrong thing by its unit and crew.
TEST(Timetable, contracts_9_5_what_cannot_run_is_refused_with_the_unit_and_the_crew) {
  const Timetable sound = make_timetable("1f1b", {.crews = 2, .micro_batches = 2});
  const auto problem = [&](auto change) {
    Timetable timetable = sound;
    change(timetable.crews);
    return error_of([&] { check(timetable); });
  };
  using Crews = std::vector<std::vector<Unit>>;
  EXPECT_EQ(problem([](Crews&) {}), "nothing thrown");
  EXPECT_EQ(problem([](Crews& crews) { crews[1].erase(crews[1].begin()); }), "timetable '1f1b': crew 1 lacks F1.0");
  EXPECT_EQ(problem([](Crews& crews) { crews[1].pop_back(); }),
            "timetable '1f1b': crew 1 lacks B1.1 (or I1.1 and W1.1)");
  EXPECT_EQ(problem([](Crews& crews) { crews[1].push_back(crews[1][0]); }),
            "timetable '1f1b': F1.0 stands twice, the second time in crew 1");
  EXPECT_EQ(problem([](Crews& crews) { std::swap(crews[1][0], crews[1][1]); }),
            "timetable '1f1b': crew 1 has B1.0 before F1.0, which it needs");
  EXPECT_EQ(problem([](Crews& crews) {
              crews[0].push_back(crews[1].back());
              crews[1].pop_back();
            }),
            "timetable '1f1b': F1.0 is in crew 1, but stage 1 belongs to crew 0");
}

TEST(Timetable, contracts_9_5_the_parts_of_a_backward_pass_stand_once_each_and_in_their_order) {
  const auto problem = [](std::string_view second) {
    return error_of([&] {
      check(parse_timetable(
          fmt::format("timetable mine stages=2 micro_batches=1\ncrew 0: F0.0 B0.0\ncrew 1: {}\n", second)));
    });
  };
  EXPECT_EQ(problem("F1.0 I1.0 W1.0"), "nothing thrown");
  EXPECT_EQ(problem("F1.0 W1.0 I1.0"), "timetable 'mine': crew 1 has W1.0 before I1.0, which it needs");
  EXPECT_EQ(problem("F1.0 I1.0"), "timetable 'mine': crew 1 has I1.0 but lacks W1.0");
  EXPECT_EQ(problem("F1.0 B1.0 W1.0"),
            "timetable 'mine': crew 1 has B1.0, the whole backward pass, and also a part of it");
}

TEST(Timetable, contracts_9_5_a_circle_over_crews_is_told_with_all_who_wait) {
  const Timetable circle = parse_timetable(
      "timetable mine stages=2 micro_batches=2\n"
      "crew 0: F0.0 B0.0 F0.1 B0.1\n"
      "crew 1: F1.0 F1.1 B1.0 B1.1\n");
  EXPECT_EQ(error_of([&] { check(circle); }),
            "timetable 'mine' cannot end: crew 0 waits before B0.0 for B1.0 of crew 1, crew 1 waits before F1.1 for "
            "F0.1 of crew 0");
}

TEST(Timetable, lines_may_be_empty_or_notes_and_end_as_on_any_system) {
  EXPECT_EQ(parse_timetable("# ours\r\n\r\ntimetable x stages=1 micro_batches=1\r\n # of one\r\ncrew 0: F0.0 B0.0\r\n"),
            parse_timetable("timetable x stages=1 micro_batches=1\ncrew 0: F0.0 B0.0"));
}

TEST(Timetable, text_that_is_none_is_refused_by_its_line) {
  const auto problem = [](std::string_view text) { return error_of([&] { parse_timetable(text); }); };

  EXPECT_THAT(problem(""), HasSubstr("there is no line 'timetable NAME"));
  EXPECT_THAT(problem("\ntimetable x stages=2\n"), HasSubstr("line 2"));
  EXPECT_THAT(problem("timetable x stages=0 micro_batches=1\n"),
              HasSubstr("stages must be a number from 1 to 16384 (got '0')"));
  EXPECT_THAT(problem("timetable x stages=16384 micro_batches=65536\n"), HasSubstr("are more than"));
  EXPECT_THAT(problem("timetable x stages=1 micro_batches=1 colour=1\n"), HasSubstr("'colour=1' is not one of"));
  EXPECT_THAT(problem("timetable x stages=1 micro_batches=1\ncrew 1: F0.0\n"), HasSubstr("begins with 'crew 0:'"));
  EXPECT_THAT(problem("timetable x stages=1 micro_batches=1\ncrew 0: F0.0 X0.0\n"), HasSubstr("'X0.0' is no unit"));
  EXPECT_THAT(problem("timetable x stages=1 micro_batches=1\ncrew 0: F0.0.0\n"), HasSubstr("as F0.1"));
}

TEST(Timetable, contracts_9_5_what_a_schedule_does_not_take_is_refused) {
  const auto problem = [](std::string_view name, ScheduleRequest request) {
    return error_of([&] { make_timetable(name, request); });
  };
  EXPECT_THAT(problem("1f1b", {.crews = 4, .micro_batches = 3}), HasSubstr("give at least 4"));
  EXPECT_THAT(
      problem("1f1b", {.crews = 4, .stages_per_crew = 2, .micro_batches = 8}),
      HasSubstr("schedule '1f1b': 2 stages a crew (--virtual-stages); it takes 1; use that, or 'interleaved', "));
  EXPECT_THAT(problem("zb-v", {.crews = 4, .stages_per_crew = 3, .micro_batches = 8}),
              HasSubstr("it takes 2; use that, or 'interleaved' or 'interleaved-delayed'"));
  EXPECT_THAT(problem("interleaved", {.crews = 2, .stages_per_crew = 1, .micro_batches = 8}),
              HasSubstr("1 stage a crew (--virtual-stages); it takes 2 or more; use that, or 'gpipe', "));
  EXPECT_THAT(problem("interleaved", {.crews = 4, .stages_per_crew = 2, .micro_batches = 6}),
              HasSubstr("give a multiple (--micro-batches)"));
  EXPECT_THAT(problem("gpipe", {.crews = 2, .micro_batches = 2, .seq_chunks = 2}),
              HasSubstr("2 chunks of positions (--seq-chunks); only seq-1f1b"));
  EXPECT_THAT(problem("zigzag", {.crews = 2, .micro_batches = 2}), HasSubstr("there are gpipe, "));
}

TEST(Timetable, the_picture_shows_each_crews_units_and_where_it_idles) {
  const Timetable timetable = make_timetable("1f1b", {.crews = 2, .micro_batches = 2});
  EXPECT_EQ(picture_of(timetable, time_of(timetable), 9),
            "crew  0 |F0 F1  .  . B0  =  . B1  =\n"
            "crew  1 | . F0 B0  = F1 B1  =  .  .\n");
}

}  // namespace
}  // namespace trireme::timetable_test
