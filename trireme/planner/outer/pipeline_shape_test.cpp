#include "trireme/planner/outer/pipeline_shape.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/parallel/timetable/schedules.h"
#include "trireme/parallel/timetable/timetable_time.h"
#include "trireme/planner/outer/random_tables_for_tests.h"

namespace trireme::pipeline_shape_test {
namespace {

using outer_search_test::RandomTables;

// What a timetable of equal stages takes, to the unit where passes take about as long as each other.
TEST(PipelineShape, says_what_timetables_take) {
  RandomTables tables(4);
  for (const WaySchedule name : {WaySchedule::k1F1B, WaySchedule::kZbH1, WaySchedule::kZbH2}) {
    const PipelineSchedule& schedule = schedule_of(name);
    for (const int64_t crews : {2, 3, 4, 8}) {
      const PipelineShape shape = shape_of_schedule(schedule, crews);
      ASSERT_EQ(shape.crews(), crews);
      ASSERT_EQ(shape.stages(), crews);
      for (int i = 0; i < 20; ++i) {
        const int64_t fewest = name == WaySchedule::kZbH2 ? 2 * crews - 1 : crews;
        const bool in_rounds = tables.number(0, 1) == 1;
        const int64_t micro_batches = in_rounds ? ((fewest + crews - 1) / crews + tables.number(0, 4)) * crews
                                                : fewest + tables.number(0, 3 * crews);
        const int64_t f = tables.number(98, 102), in = tables.number(103, 106), w = tables.number(92, 97);
        const Timetable timetable = make_timetable(
            schedule, {.crews = static_cast<int>(crews), .micro_batches = static_cast<int>(micro_batches)});
        const int64_t transfer = in_rounds && name == WaySchedule::k1F1B ? tables.number(0, 20) : 0;
        const TimetableTime time = time_of(timetable, {.forward = static_cast<double>(f),
                                                       .input_grad = static_cast<double>(in),
                                                       .weight_grad = static_cast<double>(w),
                                                       .transfer = static_cast<double>(transfer)});
        const int64_t idle = shape.idle_forward * f + shape.idle_input * in + shape.idle_weight * w;
        const int64_t transfers = shape.transfers + shape.more_transfers * micro_batches / crews;
        EXPECT_EQ(static_cast<int64_t>(time.makespan),
                  micro_batches * (f + in + w) + idle + (transfer > 0 ? transfers * transfer : 0))
            << schedule.name << " of " << crews << ", " << micro_batches << " micro-batches";
        for (size_t crew = 0; crew < time.crews.size(); ++crew) {
          int64_t held = 0;
          for (const HeldMicroBatches& each : shape.held[crew].front()) held += each.whole + each.waiting;
          EXPECT_LE(time.crews[crew].live, held) << schedule.name;
        }
      }
    }
  }
}

TEST(PipelineShape, of_few_crews_is_as_counted_by_hand) {
  const auto moment = [](std::vector<HeldMicroBatches> of) { return HeldMoment(std::move(of)); };
  using Moments = std::vector<HeldMoment>;
  const PipelineShape four = shape_of_schedule(schedule_of(WaySchedule::k1F1B), 4);
  EXPECT_EQ(four.idle_forward, 3);
  EXPECT_EQ(four.idle_input, 3);
  EXPECT_EQ(four.idle_weight, 3);
  EXPECT_EQ(four.transfers, 4);
  EXPECT_EQ(four.more_transfers, 6);
  EXPECT_EQ(four.held,
            (std::vector<Moments>{{moment({{4, 0}})}, {moment({{3, 0}})}, {moment({{2, 0}})}, {moment({{1, 0}})}}));
  EXPECT_EQ(shape_of_schedule(schedule_of(WaySchedule::kZbH1), 2).held,
            (std::vector<Moments>{{moment({{2, 0}}), moment({{1, 1}})}, {moment({{1, 1}}), moment({{0, 2}})}}));
  const PipelineShape one = shape_of_schedule(schedule_of(WaySchedule::k1F1B), 1);
  EXPECT_EQ(one.held, (std::vector<Moments>{{moment({{1, 0}})}}));
  EXPECT_EQ(one.idle_forward + one.idle_input + one.idle_weight + one.transfers + one.more_transfers, 0);
}

// What a crew of several stages keeps: every moment of long timetables, with all stages' weights drawn.
TEST(PipelineShape, has_the_fullest_moment_of_interleaved_crews_whatever_stages_keep) {
  RandomTables tables(7);
  for (const WaySchedule name : {WaySchedule::kInterleaved, WaySchedule::kInterleavedDelayed}) {
    const PipelineSchedule& schedule = schedule_of(name);
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
        ASSERT_EQ(said, most) << schedule.name << " of " << crews << " crews of " << chunks << ", crew " << crew;
      }
    }
  }
}

}  // namespace
}  // namespace trireme::pipeline_shape_test
