#include "trireme/planner/outer/interleaved_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "trireme/base/error.h"
#include "trireme/parallel/timetable/schedules.h"
#include "trireme/parallel/timetable/timetable_time.h"
#include "trireme/planner/outer/pipeline_shape.h"
#include "trireme/planner/outer/random_tables_for_tests.h"

namespace trireme::interleaved_time_test {
namespace {

using outer_search_test::RandomTables;

constexpr uint64_t kSeed = 11;

// Some crews and stages of an interleaved schedule, each stage with a time of its own.
struct RandomPipeline {
  WaySchedule name;
  PipelineShape shape;
  int64_t micro_batches = 0, crossing = 0;
  std::vector<StagePass> stages;

  explicit RandomPipeline(RandomTables& tables)
      : name(tables.number(0, 1) == 0 ? WaySchedule::kInterleaved : WaySchedule::kInterleavedDelayed) {
    const int64_t crews = tables.number(2, 6);
    shape = shape_of_schedule(schedule_of(name), crews, tables.number(2, 4));
    micro_batches = crews * tables.number(1, 9);
    crossing = tables.number(0, 1) * tables.number(0, 400);
    const int64_t kind = tables.number(0, 2);  // all alike; some longer, and a head; each drawn by itself
    for (int64_t stage = 0; stage < shape.stages(); ++stage) {
      const bool is_longer = tables.number(0, 3) == 0 || stage + 1 == shape.stages();
      const int64_t parts = kind > 0 && is_longer ? tables.number(100, 200) : 100;
      stages.push_back({.forward = 10 * parts, .backward = 20 * parts});
      if (kind == 2) stages.back() = {.forward = tables.number(0, 1'500), .backward = tables.number(0, 3'000)};
    }
  }

  Timetable timetable() const {
    return make_timetable(schedule_of(name), {.crews = static_cast<int>(shape.crews()),
                                              .stages_per_crew = static_cast<int>(shape.chunks),
                                              .micro_batches = static_cast<int>(micro_batches)});
  }
  // In halves of a ps, so that a message is whole: each unit begun at once where what it needs has ended.
  int64_t end_of_timetable() const {
    const Timetable units = timetable();
    std::vector<int64_t> end(units.crews.size(), 0);
    std::vector<size_t> next(units.crews.size(), 0);
    std::map<Unit, int64_t> ends;
    for (bool has_run = true; has_run;) {
      has_run = false;
      for (size_t crew = 0; crew < next.size(); ++crew) {
        for (; next[crew] < units.crews[crew].size(); ++next[crew], has_run = true) {
          const Unit& unit = units.crews[crew][next[crew]];
          const bool is_forward = unit.pass == Unit::Pass::kForward;
          Unit needed = unit;
          needed.stage += is_forward ? -1 : 1;
          const bool waits = needed.stage >= 0 && needed.stage < units.stages;
          const auto found = waits ? ends.find(needed) : ends.end();
          if (waits && found == ends.end()) break;
          if (waits) end[crew] = std::max(end[crew], found->second + crossing);
          const StagePass& takes = stages[static_cast<size_t>(unit.stage)];
          ends[unit] = end[crew] += 2 * (is_forward ? takes.forward : takes.backward);
        }
      }
    }
    return std::ranges::max(end);
  }

  std::vector<int64_t> before() const {
    std::vector<int64_t> out{0};
    for (const StagePass& stage : stages) out.push_back(out.back() + stage.forward + stage.backward);
    return out;
  }
};

TEST(InterleavedTime, is_the_end_of_the_timetable_whatever_stages_take) {
  RandomTables tables(kSeed);
  for (int i = 0; i < 20'000; ++i) {
    const RandomPipeline random(tables);
    const int64_t time = interleaved_time(random.shape, random.stages, random.micro_batches, random.crossing);
    ASSERT_EQ(time, random.end_of_timetable() / 2)
        << i << " of seed " << kSeed << ": " << to_string(random.name) << " of " << random.shape.crews() << " x "
        << random.shape.chunks << ", " << random.micro_batches << " micro-batches";
  }
}

// The same by the virtual time of timetables, for stages that are each so many times as long as one.
TEST(InterleavedTime, is_what_timetables_take_in_virtual_time) {
  RandomTables tables(kSeed + 1);
  for (int i = 0; i < 500; ++i) {
    RandomPipeline random(tables);
    random.crossing *= 2;
    UnitCosts costs{.forward = 10, .input_grad = 14, .weight_grad = 6, .transfer = random.crossing / 2.0};
    for (StagePass& stage : random.stages) {
      costs.of_stage.push_back(static_cast<double>(tables.number(0, 20)));
      stage.forward = std::llround(10 * costs.of_stage.back());
      stage.backward = std::llround(20 * costs.of_stage.back());
    }
    const int64_t time = interleaved_time(random.shape, random.stages, random.micro_batches, random.crossing);
    ASSERT_EQ(time, std::llround(time_of(random.timetable(), costs).makespan)) << i << " of seed " << kSeed + 1;
  }
}

// What bounds rest on: it holds of these stages, and of longer ones.
TEST(InterleavedTime, is_never_less_than_its_bound_nor_where_stages_take_longer) {
  RandomTables tables(kSeed + 2);
  double gap = 0;
  int tight = 0;
  constexpr int kPipelines = 40'000;
  for (int i = 0; i < kPipelines; ++i) {
    RandomPipeline random(tables);
    const auto time = [&] {
      return interleaved_time(random.shape, random.stages, random.micro_batches, random.crossing);
    };
    const int64_t least = least_interleaved_time(random.before(), random.shape, random.micro_batches, random.crossing);
    const int64_t takes = time();
    ASSERT_LE(least, takes) << i << " of seed " << kSeed + 2;
    tight += least == takes ? 1 : 0;
    gap += 1 - static_cast<double>(least) / static_cast<double>(std::max<int64_t>(1, takes));
    for (StagePass& stage : random.stages) {
      stage.forward += tables.number(0, 2) == 0 ? tables.number(0, 500) : 0;
      stage.backward += tables.number(0, 2) == 0 ? tables.number(0, 500) : 0;
    }
    random.crossing += tables.number(0, 1) * tables.number(0, 50);
    ASSERT_LE(takes, time()) << i << " of seed " << kSeed + 2;
    ASSERT_LE(least, least_interleaved_time(random.before(), random.shape, random.micro_batches, random.crossing)) << i;
  }
  EXPECT_GT(tight, kPipelines / 10);
  EXPECT_LT(gap / kPipelines, 0.05);
}

// However many micro-batches there are: most groups of them are skipped.
TEST(InterleavedTime, of_many_micro_batches_is_that_of_their_timetable) {
  RandomTables tables(kSeed + 3);
  for (int i = 0; i < 50; ++i) {
    RandomPipeline random(tables);
    random.micro_batches = random.shape.crews() * tables.number(30, 60);
    ASSERT_EQ(interleaved_time(random.shape, random.stages, random.micro_batches, random.crossing),
              random.end_of_timetable() / 2)
        << i << " of seed " << kSeed + 3;
  }
}

}  // namespace
}  // namespace trireme::interleaved_time_test
