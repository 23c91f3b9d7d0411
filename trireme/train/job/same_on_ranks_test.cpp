#include "trireme/train/job/same_on_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::same_on_ranks_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Given {
  Optimizer optimizer = AdamW{};
  TrainerOptions options = {};
  FitOptions fit = {.steps = 4};
  data::SyntheticTokens tokens = {.samples = 20, .seq = 8, .vocabulary = 16};
};

std::string text_of(const Given& given) {
  return settings_text(given.optimizer, given.options, given.fit, *data::synthetic_tokens(given.tokens));
}

// What is said of two ranks, of which the second was given something else.
std::string said_with(const std::function<void(Given&)>& change) {
  Given other;
  change(other);
  return unlike_settings({text_of({}), text_of(other)});
}

TEST(SameOnRanks, nothing_is_said_of_ranks_that_were_given_the_same) {
  EXPECT_EQ(unlike_settings({text_of({})}), "");
  EXPECT_EQ(unlike_settings({text_of({}), text_of({}), text_of({})}), "");
  EXPECT_EQ(said_with([](Given& given) { given.options.out = ""; }), "");
}

TEST(SameOnRanks, what_differs_is_named_with_the_rank_and_both_values) {
  Given other;
  other.fit.steps = 6;
  EXPECT_THAT(unlike_settings({text_of({}), text_of({}), text_of(other), text_of(other)}),
              AllOf(HasSubstr("rank 0 has steps = 4, rank 2 has steps = 6;"), HasSubstr("the same configuration")));
  Given of_file, other_of_file;
  of_file.options.config_text = other_of_file.options.config_text = "[train]\n";
  other_of_file.options.step.seed = 2;
  EXPECT_THAT(unlike_settings({text_of(of_file), text_of(other_of_file)}),
              HasSubstr("rank 0 has train.seed = 1, rank 1 has train.seed = 2"));
}

// None of these is in a plan.
TEST(SameOnRanks, all_that_no_plan_shows_is_compared) {
  EXPECT_THAT(said_with([](Given& given) { given.optimizer = AdamW{.lr = 0.5}; }), HasSubstr("rank 1 has lr = 0.5"));
  EXPECT_THAT(said_with([](Given& given) { given.options.schedule.warmup_steps = 3; }), HasSubstr("warmup = 3"));
  EXPECT_THAT(said_with([](Given& given) { given.options.schedule.kind = Schedule::Kind::kCosine; }),
              HasSubstr("schedule = 'cosine'"));
  EXPECT_THAT(said_with([](Given& given) { given.fit.save_every = 2; }), HasSubstr("save_every = 2"));
  EXPECT_THAT(said_with([](Given& given) { given.fit.eval_every = 2; }), HasSubstr("eval_every = 2"));
  EXPECT_THAT(said_with([](Given& given) { given.fit.resume = true; }), HasSubstr("resume = true"));
  EXPECT_THAT(said_with([](Given& given) { given.fit.init_from = "a"; }), HasSubstr("init_from = 'a'"));
  EXPECT_THAT(said_with([](Given& given) { given.options.trace = "a"; }), HasSubstr("a trace (train.trace) = 3 steps"));
  EXPECT_THAT(said_with([](Given& given) { given.options.parameter_broadcast = true; }),
              HasSubstr("parameter_broadcast = true"));
  EXPECT_THAT(said_with([](Given& given) { given.tokens.samples = 21; }), HasSubstr("the data = 21 samples"));
  EXPECT_THAT(said_with([](Given& given) { given.tokens.seed = 77; }), HasSubstr("the data = 20 samples"));
}

}  // namespace
}  // namespace trireme::same_on_ranks_test
