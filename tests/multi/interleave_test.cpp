// Interleaved copies of a micro-batch: the step is that of one rank, and a rank computes one copy while it exchanges
// what another reads next (contracts 11.3).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/multi/loss_curve.h"
#include "trireme/base/error.h"
#include "trireme/train/job/parallel_settings.h"

namespace trireme::interleave_test {
namespace {

using namespace testing_support;
using testing::AllOf;
using testing::HasSubstr;

constexpr float kRate = 0.1F;
constexpr int64_t kLayers = 3;

Graph gpt_step() {
  nn::Gpt gpt({.vocabulary = 20, .context = 8, .layers = kLayers, .width = 16, .heads = 4, .dropout = 0.1});
  return training_step([&](const Tensor& x) { return gpt(x); }, class_loss(), gpt_batch(), Sgd{.momentum = 0.9},
                       {.name = "gpt", .seed = 3, .clip_norm = 0.5});
}

struct Case {
  std::string name;
  int ranks = 2;
  int64_t tp = 2, interleave = 2, micro_batches = 1, pp = 1, zero = 0;
  bool sp = false;
};

Parallel parallel_for(const Case& c) {
  JobConfig config;
  set_keys(config, {"model.kind=gpt", "model.heads=4"});
  config.parallel.mode = Mode::kSemiAuto;
  config.parallel.tp = c.tp;
  config.parallel.sp = c.sp;
  config.parallel.pp = c.pp;
  config.parallel.zero.level = c.zero;
  config.parallel.zero.threshold_kb = 0;
  config.parallel.gradient_accumulation_steps = c.micro_batches;
  config.parallel.interleave = c.interleave;
  return parallel_of(config, c.ranks);
}

class Interleave : public testing::TestWithParam<Case> {};

TEST_P(Interleave, contracts_11_3_trains_as_one_rank_does) {
  const Case& c = GetParam();
  const Graph graph = gpt_step();
  EXPECT_EQ(difference_of_crews(train_curve(graph, nullptr, {}, kRate),
                                train_curves(graph, c.ranks, parallel_for(c), kRate), rounding_share(graph)),
            "");
}

INSTANTIATE_TEST_SUITE_P(Cuts, Interleave,
                         testing::Values(Case{"tp2", 2}, Case{"tp2_four", 2, 2, 4},
                                         Case{"tp2_sp", 2, 2, 2, 1, 1, 0, true}, Case{"tp2_accumulation2", 2, 2, 2, 2},
                                         Case{"dp2_tp2_zero3", 4, 2, 2, 1, 1, 3}, Case{"one_rank", 1, 1, 2},
                                         Case{"dp2", 2, 1, 2}, Case{"pp2_tp2", 4, 2, 2, 2, 2}),
                         [](const auto& each) { return each.param.name; });

// As the reference has it, the loss is the sum of the copies': f(first half) + f(second half), whose gradient is twice
// that of the mean. So half the rate makes the step of a model without copies.
TEST(InterleaveOfSums, contracts_11_3_1_trains_on_the_sum_of_the_copies_losses) {
  const auto step = [](int64_t summed_parts) {
    nn::Mlp mlp({12, 16, 10});
    return training_step(mlp_model(mlp), class_loss(), mlp_batch(), Sgd{},
                         {.name = "mlp", .summed_parts = summed_parts});
  };
  const Curve mean = train_curve(step(1), nullptr, {}, kRate);
  const Curve sum = with_losses_times(2, mean);
  const Graph graph = step(2);
  EXPECT_EQ(difference_of_crews(sum, train_curves(graph, 1, {.interleave = 2}, kRate / 2), rounding_share(graph)), "");
}

// Half of the batch at a time gives the two losses that make the sum.
TEST(InterleaveOfSums, contracts_11_3_1_the_loss_is_that_of_both_halves) {
  const auto loss_of = [](int64_t rows, int64_t first, const Parallel& parallel, int64_t summed_parts) {
    nn::Mlp mlp({12, 16, 10});
    Session session(training_step(mlp_model(mlp), class_loss(), mlp_batch(rows), Sgd{}, {.summed_parts = summed_parts}),
                    std::nullopt, {.seed = 5, .compile = {.parallel = parallel}});
    session.initialise();
    const std::span<float> x = session.step().input("x").as<float>();
    for (size_t i = 0; i < x.size(); ++i) x[i] = normal({7}, static_cast<uint64_t>(first * 12) + i, 0);
    const std::span<int32_t> y = session.step().input("y").as<int32_t>();
    for (size_t i = 0; i < y.size(); ++i) y[i] = static_cast<int32_t>((first + static_cast<int64_t>(i)) * 7 % 10);
    session.step().run();
    return session.step().output("loss").as<float>()[0];
  };
  const float both = loss_of(24, 0, {.interleave = 2}, 2);
  EXPECT_NEAR(both, loss_of(12, 0, {}, 1) + loss_of(12, 12, {}, 1), 1e-5);
}

// -- what a plan hides ----------------------------------------------------------------------------

// The exchanges of forward passes that an op waits for although the rank computed no product since they began; by the
// module that they are of.
std::map<std::string, int> bare_exchanges(const ExecutionPlan& plan) {
  std::map<std::string, int> out;
  std::map<int, int> products_before;  // those done when each action began
  int products = 0;
  for (size_t i = 0; i < plan.actions.size(); ++i) {
    const Action& action = plan.actions[i];
    if (action.lane == Lane::kComm) products_before[static_cast<int>(i)] = products;
    for (const int waited : action.waits) {
      const Action& exchange = plan.actions[static_cast<size_t>(waited)];
      const bool is_forward = exchange.scope.view().starts_with("h.");
      if (is_forward && products_before.at(waited) == products) ++out[std::string(exchange.scope.view())];
    }
    if (action.lane == Lane::kCompute && action.op->name.ends_with("linear")) ++products;
    if (action.lane == Lane::kCompute && action.op->name == "matmul") ++products;
  }
  return out;
}

TEST(InterleavePlans, contracts_11_3_2_compute_a_copy_while_another_is_exchanged) {
  const std::map<std::string, int> plain =
      bare_exchanges(compile(gpt_step(), {.ranks = 2, .parallel = parallel_for({"", 2, 2, 1})}).plan());
  const std::map<std::string, int> copies =
      bare_exchanges(compile(gpt_step(), {.ranks = 2, .parallel = parallel_for({"", 2, 2, 2})}).plan());
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    EXPECT_EQ(plain.at(fmt::format("h.{}.attn.c_proj", layer)), 1);
    EXPECT_EQ(plain.at(fmt::format("h.{}.mlp.c_proj", layer)), 1);
    EXPECT_FALSE(copies.contains(fmt::format("h.{}.attn.c_proj", layer)));
  }
  EXPECT_LE(copies.size(), 1U) << "only the last copy's last exchange may have nothing beside it";
}

// A weight's slices are gathered for both copies at once.
TEST(InterleavePlans, gather_weights_once_for_all_copies) {
  const auto gathers = [](int64_t interleave, int64_t micro_batches) {
    const Compiled made =
        compile(gpt_step(), {.ranks = 2, .parallel = parallel_for({"", 2, 1, interleave, micro_batches, 1, 3})});
    size_t out = 0;  // weights, of which one operation may gather several
    for (const Action& action : made.plan().actions) out += action.op->name == "all_gather" ? action.in.size() : 0;
    return out;
  };
  EXPECT_EQ(gathers(2, 1), gathers(1, 1));
  EXPECT_EQ(gathers(2, 2), gathers(1, 2));
  EXPECT_GT(gathers(1, 2), gathers(1, 1));
}

// Two copies do what two micro-batches do, in another order; one is the micro-batch itself.
TEST(InterleavePlans, contracts_11_3_4_one_copy_is_no_copy) {
  const auto plan_of = [](int64_t interleave, int64_t micro_batches) {
    return compile(gpt_step(), {.ranks = 2, .parallel = parallel_for({"", 2, 2, interleave, micro_batches})}).plan();
  };
  const ExecutionPlan one = plan_of(1, 1), in_turn = plan_of(1, 2), side_by_side = plan_of(2, 1);
  EXPECT_EQ(one.micro_batches, 1);
  EXPECT_EQ(in_turn.micro_batches, 2);
  EXPECT_EQ(side_by_side.micro_batches, 2);
  EXPECT_FALSE(bare_exchanges(one).empty());
  EXPECT_EQ(bare_exchanges(in_turn).size(), bare_exchanges(one).size());
  EXPECT_LT(bare_exchanges(side_by_side).size(), bare_exchanges(in_turn).size());
}

// -- refused --------------------------------------------------------------------------------------

std::string refusal(const Parallel& parallel) {
  try {
    compile(gpt_step(), {.ranks = 2, .parallel = parallel});
  } catch (const Error& e) {
    return e.text();
  }
  return "";
}

TEST(InterleaveErrors, contracts_11_3_3_say_what_does_not_fit) {
  EXPECT_THAT(refusal(parallel_for({"", 2, 2, 5})),
              AllOf(HasSubstr("'x'"), HasSubstr("24 samples"), HasSubstr("5 micro-batches")));
  Parallel none = parallel_for({"", 2, 2, 2});
  none.interleave = 0;
  EXPECT_THAT(refusal(none), HasSubstr("0 interleaved copies of a micro-batch; it must be 1 or more"));
  Parallel by_hand = parallel_for({"", 2, 2, 2});
  by_hand.by_hand = true;
  EXPECT_THAT(refusal(by_hand), HasSubstr("2 interleaved copies (interleave) is for what the compiler cuts"));
}

}  // namespace
}  // namespace trireme::interleave_test
