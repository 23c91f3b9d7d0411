#include "trireme/parallel/timetable/shorter.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/parallel/timetable/schedules.h"

namespace trireme::shorter_test {
namespace {

TEST(Shorter, a_timetable_of_1f1b_is_that_of_fewer_micro_batches) {
  for (const int crews : {2, 4, 8}) {
    const std::optional<ShorterTimetable> fewer =
        shorter(make_timetable("1f1b", {.crews = crews, .micro_batches = 192}));
    ASSERT_TRUE(fewer.has_value());
    EXPECT_EQ(fewer->timetable.micro_batches + fewer->left_out, 192);
    EXPECT_LE(fewer->timetable.micro_batches, 3 * crews + 10);
    EXPECT_EQ(fewer->timetable,
              make_timetable("1f1b", {.crews = crews, .micro_batches = fewer->timetable.micro_batches}));
  }
}

// All that can be shorter are timetables that can be run; what keeps all activations cannot.
TEST(Shorter, timetables_of_all_schedules_can_be_run_with_fewer_micro_batches) {
  int count = 0;
  for (const PipelineSchedule& schedule : schedules()) {
    const int chunks = schedule.cuts_positions ? 2 : 1;
    const int of_crew = schedule.stages_per_crew == 0 ? 2 : schedule.stages_per_crew;
    const Timetable all = make_timetable(
        schedule.name, {.crews = 4, .stages_per_crew = of_crew, .micro_batches = 128, .seq_chunks = chunks});
    const std::optional<ShorterTimetable> fewer = shorter(all);
    if (!fewer) continue;
    ++count;
    EXPECT_NO_THROW(check(fewer->timetable)) << schedule.name;
    EXPECT_GE(2 * fewer->left_out, 128) << schedule.name;
    for (const ShorterTimetable::Crew& crew : fewer->crews) {
      EXPECT_EQ(fewer->left_out % crew.micro_batches, 0) << schedule.name;
      EXPECT_NE(crew.at.pass, Unit::Pass::kWeightGrad) << schedule.name;
    }
  }
  EXPECT_GE(count, 9);
}

TEST(Shorter, forward_passes_alone_are_those_of_fewer_micro_batches) {
  Timetable forward = make_timetable("1f1b", {.crews = 3, .micro_batches = 64});
  for (std::vector<Unit>& units : forward.crews)
    std::erase_if(units, [](const Unit& unit) { return unit.pass != Unit::Pass::kForward; });
  const std::optional<ShorterTimetable> fewer = shorter(forward);
  ASSERT_TRUE(fewer.has_value());
  EXPECT_EQ(fewer->timetable.micro_batches + fewer->left_out, 64);
  EXPECT_NO_THROW(check_forward(fewer->timetable));
  EXPECT_THROW(check(fewer->timetable), Error);
  forward.crews[1].pop_back();
  EXPECT_THROW(check_forward(forward), Error);
}

TEST(Shorter, a_timetable_without_a_part_that_repeats_is_not_shorter) {
  EXPECT_FALSE(shorter(make_timetable("gpipe", {.crews = 4, .micro_batches = 128})).has_value());
  EXPECT_FALSE(shorter(make_timetable("1f1b", {.crews = 4, .micro_batches = 8})).has_value());
  Timetable mixed = make_timetable("1f1b", {.crews = 2, .micro_batches = 64});
  for (size_t i = 10, step = 4; i + 3 < mixed.crews[0].size(); i += step, step += 2)
    std::swap(mixed.crews[0][i], mixed.crews[0][i + 1]);
  EXPECT_FALSE(shorter(mixed).has_value());
}

}  // namespace
}  // namespace trireme::shorter_test
