#include "trireme/parallel/asked/asked.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/parallel/strategy/strategy_json.h"
#include "trireme/parallel/timetable/schedules.h"

namespace trireme::asked_test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

template <class Asked>
auto written(const char* text) {
  return [text] { static_cast<void>(Asked(text)); };
}

TEST(Asked, an_op_is_asked_for_cuts_or_an_attribute) {
  EXPECT_TRUE(std::holds_alternative<Cuts>(OpRequest("[dp, -], [-, tp]").what));
  const auto mean = std::get<OpAttribute>(OpRequest("cross_batch mean").what);
  EXPECT_EQ(mean.kind, OpAttribute::Kind::kCrossBatchMean);
  const auto defined = std::get<OpAttribute>(OpRequest("self_define_shard [dp, -], [] -> [-, dp]").what);
  EXPECT_EQ(defined.operands, (std::vector<NamedLayout>{"[dp, -]", "[]"}));
  EXPECT_EQ(defined.results, (std::vector<NamedLayout>{"[-, dp]"}));
}

TEST(Asked, what_an_attribute_does_not_take_is_refused_where_it_is_written) {
  EXPECT_THAT(written<OpRequest>("cross_bach"), ThrowsMessage<Error>(HasSubstr("Did you mean 'cross_batch'?")));
  EXPECT_THAT(written<OpRequest>("cross_batch [dp]"), ThrowsMessage<Error>(HasSubstr("leave '[dp]' out")));
  EXPECT_THAT(written<OpRequest>("cross_batch -> [dp]"), ThrowsMessage<Error>(HasSubstr("leave '-> [dp]' out")));
  EXPECT_THAT(written<OpRequest>("skip_redistribution [dp] -> [dp]"),
              ThrowsMessage<Error>(HasSubstr("leave '[dp]' out")));
  EXPECT_THAT(written<OpRequest>("self_define_shard [dp]"), ThrowsMessage<Error>(HasSubstr("has no '->'")));
  EXPECT_THAT(written<OpPattern>("mlp/relu#x"), ThrowsMessage<Error>(HasSubstr("'x' is not an occurrence of 'relu'")));
}

TEST(Asked, a_dataset_strategy_has_four_forms) {
  EXPECT_TRUE(DatasetStrategy("data_parallel").is(DatasetStrategy::Named::kDataParallel));
  EXPECT_TRUE(DatasetStrategy("full_batch").is(DatasetStrategy::Named::kFullBatch));
  EXPECT_EQ(std::get<NamedLayout>(DatasetStrategy("[dp, sp]").how), NamedLayout("[dp, sp]"));
  EXPECT_EQ(std::get<std::vector<PartsOfDims>>(DatasetStrategy("{{4, 1}, {4}}").how),
            (std::vector<PartsOfDims>{{4, 1}, {4}}));
  EXPECT_THAT(written<DatasetStrategy>("batch"),
              ThrowsMessage<Error>(HasSubstr("dataset strategy 'batch'; it must be")));
}

TEST(Asked, a_schedule_is_a_name_or_a_timetable) {
  EXPECT_EQ(ScheduleSpec("gpipe").schedule().name, "gpipe");
  const Timetable timetable = make_timetable("1f1b", {.crews = 2, .micro_batches = 2});
  EXPECT_EQ(*ScheduleSpec(to_string(timetable)).given(), timetable);
  EXPECT_THAT(written<ScheduleSpec>("2f2b"), ThrowsMessage<Error>(HasSubstr("there is no schedule '2f2b'")));
}

TEST(StrategyJson, has_the_stages_of_a_pipeline) {
  const std::string text =
      "strategy mesh=\"dp=2\"\n"
      "input \"x\" f32[8] [dp]\n"
      "stage \"h.0\" 0\n"
      "stage \"h.1\" 1\n"
      "node \"h.0/relu\" *0=dp\n"
      "output \"y\" f32[8] [dp]\n";
  const std::string json = strategy_to_json(text);
  EXPECT_EQ(strategy_from_json(json, "s.json"), text);
  EXPECT_THAT([] { strategy_from_json(R"({"mesh": "", "stages": {"h.0": "a"}})", "s.json"); },
              ThrowsMessage<Error>(HasSubstr("stages: 'h.0' must be")));
}

}  // namespace
}  // namespace trireme::asked_test
