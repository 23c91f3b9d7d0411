#include "trireme/train/report/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::timeline_test {
namespace {

using testing::HasSubstr;
using testing::Not;

Timeline two_crews() {
  return {
      .crews = {
          {{Phase::kForward, 0, 0, 0, 1, 1}, {Phase::kBackward, 0, 0, 3, 5, 1.5}},
          {{Phase::kForward, 1, 0, 1, 2, 1}, {Phase::kBackward, 1, 0, 2, 3, 1}, {Phase::kUpdate, 1, -1, 3, 3.5, 0.5}}}};
}

TEST(Timeline, what_is_not_computed_is_the_bubble) {
  EXPECT_DOUBLE_EQ(two_crews().step_s(), 5);
  EXPECT_DOUBLE_EQ(two_crews().bubble(), 0.5);  // 5 of twice 5 seconds
  EXPECT_DOUBLE_EQ(Timeline{}.bubble(), 0);
}

TEST(Timeline, reads_back_as_it_was_written) {
  for (const std::vector<PassSpan>& spans : two_crews().crews) EXPECT_EQ(parse_spans(to_string(spans)), spans);
  EXPECT_EQ(parse_spans(""), std::vector<PassSpan>{});
  for (const std::string_view wrong : {"forward 0 0 0 1", "sideways 0 0 0 1 1", "forward zero 0 0 1 1", "\n"})
    EXPECT_THROW(parse_spans(wrong), Error) << wrong;
}

TEST(Timeline, is_drawn_with_both_bubbles_and_each_pass) {
  Timeline late = two_crews();
  late.crews[0][1].end_s = 6;
  const std::string drawn = timeline_chart(two_crews(), late);
  EXPECT_THAT(drawn, HasSubstr("as it ran: 6000.0 ms, bubble 58.3 %"));
  EXPECT_THAT(drawn, HasSubstr("as modelled: 5000.0 ms, bubble 50.0 %"));
  EXPECT_THAT(drawn, HasSubstr("backward of micro-batch 0, stage 1: 1000.00 ms from 2000.00 ms on"));
  EXPECT_THAT(drawn, HasSubstr("update, of no micro-batch"));
  EXPECT_THAT(drawn, Not(HasSubstr("nan")));
}

// What depends on the batch alone is of no stage: each crew that reads it makes its own.
TEST(Timeline, a_pass_of_no_stage_names_none) {
  const Timeline parts{.crews = {{{Phase::kForward, -1, 2, 0, 1, 1}}}};
  const std::string drawn = timeline_chart(parts, parts);
  EXPECT_THAT(drawn, HasSubstr("forward of micro-batch 2: 1000.00 ms from 0.00 ms on"));
  EXPECT_THAT(drawn, Not(HasSubstr("stage -1")));
}

TEST(Timeline, of_nothing_is_drawn_too) {
  EXPECT_THAT(timeline_chart({.crews = {{}}}, {.crews = {{}}}), Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace trireme::timeline_test
