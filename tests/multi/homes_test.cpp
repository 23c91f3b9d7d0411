// Homes: training with the optimizer's state, and what is kept for the backward pass, on the host has the bits of
// training without, beside all other parallelism.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multi/loss_curve.h"
#include "trireme/base/error.h"
#include "trireme/exec/memory_plan.h"
#include "trireme/train/job/parallel_settings.h"

namespace trireme::homes_test {
namespace {

using namespace testing_support;
using testing::HasSubstr;

struct HomesCase {
  std::string name;
  int ranks = 1;
  int64_t tp = 1, pp = 1, zero = 0, micro_batches = 1;
  std::string schedule = "1f1b";
};

void PrintTo(const HomesCase& of, std::ostream* out) {
  *out << of.name;
}

Parallel parallel_with(const HomesCase& of, const std::vector<HomeRule>& homes) {
  JobConfig config;
  config.parallel.mode = Mode::kSemiAuto;
  config.parallel.tp = of.tp;
  config.parallel.pp = of.pp;
  config.parallel.schedule = of.schedule;
  config.parallel.zero.level = of.zero;
  config.parallel.zero.threshold_kb = 0;
  config.parallel.gradient_accumulation_steps = of.micro_batches;
  config.parallel.homes = homes;
  return parallel_of(config, of.ranks);
}

std::vector<HomeRule> state_on_host() {
  return {parse_home_rule("*/state = host")};
}

class HomesOnRanks : public testing::TestWithParam<HomesCase> {};

TEST_P(HomesOnRanks, change_no_bits) {
  const HomesCase& of = GetParam();
  const Graph graph = gpt_step(AdamW{});
  EXPECT_EQ(other_bits(train_curves(graph, of.ranks, parallel_with(of, {}), 0.1F),
                       train_curves(graph, of.ranks, parallel_with(of, state_on_host()), 0.1F)),
            "");
}

PassOptions kept_on_host() {
  return {.recompute = {.rules = {{.pattern = "*", .keep = Recompute::Rule::Keep::kHost}}, .fewest_bytes = 1}};
}

TEST_P(HomesOnRanks, change_no_bits_of_what_is_kept_for_the_backward_pass) {
  const HomesCase& of = GetParam();
  const Graph graph = gpt_step(AdamW{});
  EXPECT_EQ(other_bits(train_curves(graph, of.ranks, parallel_with(of, {}), 0.1F),
                       train_curves(graph, of.ranks, parallel_with(of, state_on_host()), 0.1F, kept_on_host())),
            "");
}

INSTANTIATE_TEST_SUITE_P(Beside, HomesOnRanks,
                         testing::Values(HomesCase{"nothing"}, HomesCase{"data", 2}, HomesCase{"tensor", 2, 2},
                                         HomesCase{"micro_batches", 2, 1, 1, 0, 3}, HomesCase{"zero1", 2, 1, 1, 1},
                                         HomesCase{"zero2", 2, 1, 1, 2}, HomesCase{"zero3", 2, 1, 1, 3, 2},
                                         HomesCase{"stages", 2, 1, 2, 0, 4},
                                         HomesCase{"split_backward", 2, 1, 2, 0, 4, "zb-h1"},
                                         HomesCase{"stages_tensor_zero", 8, 2, 2, 3, 4}),
                         [](const auto& about) { return about.param.name; });

int64_t bytes_of_state(const ExecutionPlan& plan) {
  int64_t out = 0;
  for (const PlanInput& input : plan.inputs) {
    const Buffer& buffer = plan.buffers[static_cast<size_t>(plan.values[static_cast<size_t>(input.value)].buffer)];
    if (input.role == Role::kState) out += align_buffer(buffer.bytes);
  }
  return out;
}

TEST(HomesOfState, are_planned_to_the_byte) {
  const Graph graph = gpt_step(AdamW{});
  const HomesCase zero2{"", 2, 1, 1, 2};
  const Compiled usual = compile(graph, {.ranks = 2, .parallel = parallel_with(zero2, {})});
  const Compiled made = compile(graph, {.ranks = 2, .parallel = parallel_with(zero2, state_on_host())});
  EXPECT_EQ(made.plan().arena(Tier::kHost).bytes, bytes_of_state(usual.plan()));
  EXPECT_EQ(made.plan().arena(Tier::kHost).persistent, bytes_of_state(usual.plan()));
  EXPECT_EQ(made.plan().arena().persistent, usual.plan().arena().persistent - bytes_of_state(usual.plan()));
}

TEST(HomesOfState, are_refused_where_there_is_none) {
  const Graph graph = gpt_step(Sgd{});
  try {
    compile(graph, {.ranks = 1, .parallel = parallel_with({"", 1}, state_on_host())});
    ADD_FAILURE() << "nothing is refused";
  } catch (const Error& e) {
    EXPECT_THAT(e.text(), HasSubstr("parallel.home '*/state = host' matches no parameter that the optimizer has state "
                                    "of. It has none"));
  }
}

int64_t fullest(const ExecutionPlan& plan, Tier tier, Holding holding) {
  return bytes_by_holding(plan, tier)[static_cast<size_t>(holding)];
}

TEST(HomesOfActivations, leave_less_on_the_device) {
  nn::Gpt gpt({.vocabulary = 20, .context = 8, .layers = 8, .width = 16, .heads = 2});
  const Graph graph = language_step(gpt, Sgd{}, false, 0);
  const Compiled usual = compile(graph, {.passes = {.disabled = {"fuse_rows"}}});
  PassOptions passes = kept_on_host();
  passes.disabled = {"fuse_rows"};
  const Compiled made = compile(graph, {.passes = passes});
  EXPECT_LT(fullest(made.plan(), Tier::kDevice, Holding::kActivation),
            fullest(usual.plan(), Tier::kDevice, Holding::kActivation) / 2);
  EXPECT_GT(fullest(made.plan(), Tier::kHost, Holding::kActivation),
            fullest(usual.plan(), Tier::kDevice, Holding::kActivation) / 2);
  EXPECT_EQ(made.plan().arena(Tier::kHost).persistent, 0);
}

}  // namespace
}  // namespace trireme::homes_test
