// Gradient accumulation: a step in micro-batches is the step in one part, with less memory for activations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "tests/multi/loss_curve.h"
#include "tests/multi/training_support.h"
#include "trireme/base/error.h"
#include "trireme/exec/analysis/traffic.h"
#include "trireme/grad/gradients.h"
#include "trireme/train/job/parallel_settings.h"
#include "trireme/train/step/compile/remarks.h"

namespace trireme::accumulation_test {
namespace {

using namespace testing_support;
using testing::HasSubstr;

constexpr int64_t kSamples = 24;
constexpr int64_t kPositions = 8;
constexpr float kRate = 0.1F;

std::vector<BatchField> text_batch(int64_t samples = kSamples) {
  return {{"x", {DType::kI32, {samples, kPositions}}}, {"y", {DType::kI32, {samples, kPositions}}}};
}

Graph gpt_step(nn::GptConfig config = {}, DType compute = DType::kF32) {
  config.vocabulary = 20;
  config.context = kPositions;
  config.layers = 2;
  config.width = 16;
  config.heads = 4;
  nn::Gpt gpt(config);
  return training_step([&](const Tensor& x) { return gpt(x); }, class_loss(), text_batch(), Sgd{.momentum = 0.9},
                       {.name = "gpt", .seed = 3, .clip_norm = 0.5, .compute = compute});
}

Graph mlp_step(int64_t samples = kSamples) {
  nn::Mlp mlp({12, 64, 64, 10});
  return training_step(mlp_model(mlp), class_loss(), mlp_batch(samples), AdamW{}, {.name = "mlp"});
}

Parallel in_parts(int64_t count, int zero = 0, bool shard = false) {
  Parallel out{.accumulation = count};
  out.optimizer = {.level = zero, .threshold_kb = 0};
  out.communication.shard_accumulation = shard;
  return out;
}

struct Case {
  std::string name;
  int ranks = 1;
  int64_t micro_batches = 1;
  int64_t tp = 1, cp = 1;
  int zero = 0;
  bool shard = false, sp = false;
};

class Accumulation : public testing::TestWithParam<Case> {};

// With the mean of the batch as its loss, the update is that of the whole batch.
TEST_P(Accumulation, contracts_12_5_trains_as_the_whole_batch_does) {
  const Case& c = GetParam();
  JobConfig config;
  config.parallel.mode = Mode::kSemiAuto;
  config.parallel.tp = c.tp;
  config.parallel.cp = c.cp;
  config.parallel.sp = c.sp;
  config.parallel.zero.level = c.zero;
  config.parallel.zero.threshold_kb = 0;
  config.parallel.gradient_accumulation_steps = c.micro_batches;
  config.parallel.communication.shard_accumulation = c.shard;
  const Graph graph = gpt_step({.dropout = 0.1});
  EXPECT_EQ(difference_on(c.ranks, graph, parallel_of(config, c.ranks), kRate), "");
}

INSTANTIATE_TEST_SUITE_P(
    Cuts, Accumulation,
    testing::Values(Case{"four", 1, 4}, Case{"six", 1, 6}, Case{"of_one_sample", 1, kSamples}, Case{"dp2_three", 2, 3},
                    Case{"tp2_four", 2, 4, 2}, Case{"dp2_tp2_sp_two", 4, 2, 2, 1, 0, false, true},
                    Case{"cp2_three", 2, 3, 1, 2}, Case{"zero1_dp2_four", 2, 4, 1, 1, 1},
                    Case{"zero2_dp2_four", 2, 4, 1, 1, 2}, Case{"zero2_dp2_four_sliced", 2, 4, 1, 1, 2, true},
                    Case{"zero3_dp4_two", 4, 2, 1, 1, 3}, Case{"zero3_dp4_two_sliced", 4, 2, 1, 1, 3, true},
                    Case{"dp2_tp2_zero3_six_sliced", 4, 6, 2, 1, 3, true}),
    [](const auto& each) { return each.param.name; });

TEST(AccumulationOfExperts, TokensAreDroppedByTheirPlaceInTheWholeBatch) {
  const Graph graph = gpt_step({.experts = 4, .top_k = 2, .capacity_factor = 0.75});
  EXPECT_EQ(difference_on(1, graph, in_parts(4), kRate), "");
  EXPECT_EQ(difference_on(2, graph, in_parts(2), kRate), "");
}

// As the reference has it, the loss is the sum of the micro-batches' losses, and gradients are those of the sum.
TEST(AccumulationOfSums, contracts_12_5_and_9_3_trains_on_the_sum_of_the_micro_batches_losses) {
  const auto step = [](int64_t summed_parts) {
    nn::Mlp mlp({12, 16, 10});
    return training_step(mlp_model(mlp), class_loss(), mlp_batch(), Sgd{},
                         {.name = "mlp", .summed_parts = summed_parts});
  };
  const Curve mean = train_curve(step(1), nullptr, {}, 4 * kRate);
  const Curve sum = train_curve(step(4), nullptr, in_parts(4), kRate);
  for (size_t i = 0; i < mean.losses.size(); ++i) EXPECT_NEAR(sum.losses[i], 4 * mean.losses[i], 1e-4F);
  for (const auto& [name, moved] : sum.tensors) {
    EXPECT_LT(worst_difference(moved.after.as<float>(), mean.tensors.at(name).after.as<float>()),
              1e-4 * moved.distance() + 1e-7)
        << name;
  }
}

// Gradients of the parts of a batch, each taken by itself, and of the whole in as many micro-batches.
TEST(AccumulationOfSums, contracts_12_1_a_gradient_is_the_sum_of_those_of_the_micro_batches_to_the_bit) {
  constexpr int64_t kParts = 4, kRows = 6;
  const auto gradient_of = [](int64_t rows, int64_t parts, int64_t first) {
    Graph graph("gradient");
    const Tensor x(graph, graph.add_input("x", {DType::kF32, {rows, 12}}, Role::kData));
    const Tensor w(graph, graph.add_input("w", {DType::kF32, {12, 5}}, Role::kParameter));
    const Tensor loss = reduce_sum(square(matmul(x, w)));
    graph.add_output("gradient", gradients(loss, std::vector<Tensor>{w})[0].id());
    Session session(std::move(graph), std::nullopt, {.compile = {.parallel = in_parts(parts)}});
    const std::span<float> of_x = session.step().input("x").as<float>();
    for (size_t i = 0; i < of_x.size(); ++i) of_x[i] = normal({7}, static_cast<uint64_t>(first * 12) + i, 0);
    const std::span<float> of_w = session.step().input("w").as<float>();
    for (size_t i = 0; i < of_w.size(); ++i) of_w[i] = normal({8}, i, 0);
    session.step().run();
    return copy_of(session.step().output("gradient"));
  };
  const HostTensor sum = gradient_of(kParts * kRows, kParts, 0);
  HostTensor expected = gradient_of(kRows, 1, 0);
  for (int64_t part = 1; part < kParts; ++part) {
    const HostTensor next = gradient_of(kRows, 1, part * kRows);
    for (size_t i = 0; i < 12 * 5; ++i) expected.as<float>()[i] += next.as<float>()[i];
  }
  EXPECT_TRUE(std::ranges::equal(sum.view().raw(), expected.view().raw()));
  EXPECT_GT(worst_difference(sum.as<float>(), gradient_of(kRows, 1, 0).as<float>()), 1);
}

TEST(AccumulationInBf16, StaysAsNearToTheWholeBatchAsItsRounding) {
  const Graph graph = gpt_step({}, DType::kBF16);
  const Curve whole = train_curve(graph, nullptr, {}, kRate);
  EXPECT_NE(whole.losses.front(), whole.losses.back());
  for (const Curve& curve : train_curves(graph, 2, in_parts(3), kRate)) {
    for (size_t i = 0; i < whole.losses.size(); ++i) {
      EXPECT_NEAR(curve.losses[i], whole.losses[i], 0.02F) << "step " << i + 1;
    }
  }
}

// Otherwise 4 micro-batches would be 4 updates.
TEST(AccumulationProgram, contracts_12_2_updates_each_parameter_once) {
  const Compiled compiled = compile(mlp_step(), {.parallel = in_parts(4)});
  int updates = 0, products = 0;
  for (const Action& action : compiled.plan().actions) {
    updates += action.op->name == "adam_update" ? 1 : 0;
    products += action.op->name.starts_with("linear_weight_grad") ? 1 : 0;
  }
  EXPECT_EQ(updates, 6);
  EXPECT_EQ(products, 4 * 3);
}

// Where bits are promised, sums of micro-batches are nodes of the tree in which ranks add.
TEST(AccumulationProgram, products_add_to_the_sums_but_for_those_of_invariant_numerics) {
  const auto onto = [](Numerics numerics) {
    nn::Mlp mlp({12, 64, 64, 10});
    const Graph graph =
        training_step(mlp_model(mlp), class_loss(), mlp_batch(), Sgd{}, {.name = "mlp", .numerics = numerics});
    const Compiled compiled = compile(graph, {.parallel = in_parts(4), .numerics = numerics});
    return std::ranges::count_if(compiled.plan().actions,
                                 [](const Action& each) { return each.op->name == "linear_weight_grad_onto"; });
  };
  EXPECT_EQ(onto(Numerics::kFast), 3 * 3);
  EXPECT_EQ(onto(Numerics::kInvariant), 0);
}

TEST(AccumulationMemory, contracts_12_3_activations_fall_with_the_number_of_micro_batches) {
  const auto activations = [](int64_t count) {
    nn::Mlp mlp({12, 64, 64, 64, 64, 10});
    const Graph graph = training_step(mlp_model(mlp), class_loss(), mlp_batch(4096), Sgd{}, {.name = "mlp"});
    const Compiled compiled = compile(graph, {.parallel = in_parts(count)});
    const std::vector<int64_t> bytes = bytes_by_holding(compiled.plan());
    return static_cast<double>(bytes[static_cast<size_t>(Holding::kActivation)]);
  };
  const double whole = activations(1);
  EXPECT_NEAR(activations(4) / whole, 0.25, 0.05);
  EXPECT_NEAR(activations(16) / whole, 1.0 / 16, 0.05);
}

// Sliced accumulators take less memory, and one reduce-scatter a micro-batch.
TEST(AccumulationMemory, contracts_12_4_and_8_5_5_sliced_gradients_take_less_and_are_scattered_for_each_micro_batch) {
  struct Found {
    int64_t scatters = 0, gradients = 0;
  };
  const auto found = [](bool shard) {
    nn::Mlp mlp({12, 256, 256, 256, 256, 256, 256, 10});
    const Graph graph = training_step(mlp_model(mlp), class_loss(), mlp_batch(64), Sgd{}, {.name = "mlp"});
    const Compiled compiled = compile(graph, {.ranks = 4, .parallel = in_parts(4, 2, shard)});
    Found out;
    for (const Action& action : compiled.plan().actions) {
      const Shape& whole = compiled.plan().values[static_cast<size_t>(action.in.empty() ? 0 : action.in[0])].whole;
      out.scatters += action.op->name == "reduce_scatter" && whole == Shape{256, 256} ? 1 : 0;
    }
    out.gradients = compiled.plan().arena().bytes - compiled.plan().arena().persistent;
    return out;
  };
  EXPECT_EQ(found(false).scatters, 5);
  EXPECT_EQ(found(true).scatters, 4 * 5);
  EXPECT_LT(found(true).gradients, found(false).gradients - 2 * 256 * 256 * 4);
}

// The losses and weights of these are in Accumulation, cases zero2_dp2_four and zero2_dp2_four_sliced, beside one
// rank's.
TEST(AccumulationOfSums, contracts_12_4_sliced_accumulators_change_no_loss) {
  const Graph graph = mlp_step();
  const std::vector<Curve> whole = train_curves(graph, 4, in_parts(3, 2, false), kRate);
  const std::vector<Curve> sliced = train_curves(graph, 4, in_parts(3, 2, true), kRate);
  for (size_t i = 0; i < whole[0].losses.size(); ++i)
    EXPECT_NEAR(sliced[0].losses[i], whole[0].losses[i], rounding_share(graph) * whole[0].losses[i]);
}

TEST(AccumulationMemory, WeightsInSlicesAreGatheredForEachPassOfEachMicroBatch) {
  const auto gathers = [](int64_t count) {
    int64_t out = 0;
    const Compiled compiled = compile(mlp_step(), {.ranks = 2, .parallel = in_parts(count, 3)});
    for (const Action& action : compiled.plan().actions) out += action.op->name == "all_gather" ? 1 : 0;
    return out;
  };
  EXPECT_EQ(gathers(3), 3 * gathers(1));
}

// What a rank of each crew sends a step, of 4 ranks.
std::vector<int64_t> bytes_sent(const Graph& graph, int64_t zero, int64_t micro_batches, int64_t pp, int64_t tp) {
  JobConfig config;
  config.parallel.mode = Mode::kSemiAuto;
  config.parallel.pp = pp;
  config.parallel.tp = tp;
  config.parallel.zero.level = zero;
  config.parallel.zero.threshold_kb = 0;
  config.parallel.gradient_accumulation_steps = micro_batches;
  const Compiled compiled = compile(graph, {.ranks = 4, .parallel = parallel_of(config, 4)});
  std::vector<int64_t> out;
  for (const CompiledCrew& crew : compiled.crews) {
    out.push_back(0);
    for (const PlanTraffic& each : traffic_per_step(crew.plan)) out.back() += each.bytes;
  }
  return out;
}

// ZeRO 1 scatters the sum of all micro-batches once and gathers the weights, also where gradients are clipped by their
// norm: the bytes of data parallelism and a scalar of each parameter's norm. ZeRO 2 scatters each micro-batch's.
TEST(AccumulationTraffic, of_zero_1_is_that_of_data_parallelism_and_a_few_scalars) {
  struct Way {
    int64_t micro_batches = 1, pp = 1, tp = 1;
    DType compute = DType::kF32;
  };
  constexpr int64_t kLine = 64;  // bytes that an operand takes of what is sent together
  EXPECT_EQ(bytes_sent(gpt_step(), 0, 3, 1, 1), bytes_sent(gpt_step(), 0, 1, 1, 1)) << "sums are taken once a step";
  for (const Way& way : {Way{}, Way{3}, Way{3, 1, 2}, Way{3, 2}, Way{3, 1, 1, DType::kBF16}}) {
    const Graph graph = gpt_step({.dropout = 0.1}, way.compute);
    const auto sent = [&](int64_t zero) { return bytes_sent(graph, zero, way.micro_batches, way.pp, way.tp); };
    const std::vector<int64_t> plain = sent(0), sliced = sent(1), each = sent(2);
    for (size_t crew = 0; crew < plain.size(); ++crew) {
      SCOPED_TRACE(fmt::format("{} micro-batches, pp {}, tp {}, {}, crew {}", way.micro_batches, way.pp, way.tp,
                               to_string(way.compute), crew));
      EXPECT_LE(sliced[crew], plain[crew] + 2 * kLine * static_cast<int64_t>(graph.updates().size()));
      if (way.micro_batches == 1) {
        EXPECT_EQ(each[crew], sliced[crew]);
      } else {
        EXPECT_GT(each[crew], sliced[crew] * 9 / 8);
      }
    }
  }
}

// Where another order of sums is asked for that no value is summed by, it is said.
TEST(AccumulationTraffic, an_order_of_sums_that_changes_nothing_is_said) {
  const Graph graph = gpt_step();
  const auto said = [&](int zero) {
    const Parallel parallel = in_parts(3, zero, false);
    return order_without_effect(compile(graph, {.ranks = 2, .parallel = parallel}), parallel);
  };
  EXPECT_THAT(said(0), HasSubstr("= false has no effect with parallel.zero = 0: what this step sums"));
  EXPECT_THAT(said(1), HasSubstr("= false has no effect with parallel.zero = 1: what this step sums"));
  EXPECT_EQ(said(2), "");
}

int64_t all_reduces(const Optimizer& optimizer, double clip, const Parallel& parallel, Numerics numerics) {
  nn::Gpt gpt({.vocabulary = 20, .context = kPositions, .layers = 2, .width = 64, .heads = 4});
  const Graph graph = training_step([&](const Tensor& x) { return gpt(x); }, class_loss(), text_batch(), optimizer,
                                    {.name = "gpt", .clip_norm = clip, .numerics = numerics});
  const Compiled compiled = compile(graph, {.ranks = 2, .parallel = parallel, .numerics = numerics});
  int64_t out = 0;
  for (const PlanTraffic& each : traffic_per_step(compiled.plan())) out += each.op == "all_reduce" ? each.calls : 0;
  return out;
}

// Of one group, the squares of all slices, and of what is whole no more: without slices the norm takes none.
TEST(AccumulationTraffic, the_norm_of_slices_is_one_all_reduce) {
  const auto sums = [](int zero, int64_t micro_batches, Numerics numerics) {
    return all_reduces(AdamW{}, 0.5, in_parts(micro_batches, zero), numerics);
  };
  for (const int64_t micro_batches : {1, 3}) {
    EXPECT_LE(sums(1, micro_batches, Numerics::kFast), sums(0, micro_batches, Numerics::kFast) + 1);
    EXPECT_LE(sums(3, micro_batches, Numerics::kFast), sums(0, micro_batches, Numerics::kFast) + 1);
  }
  EXPECT_LE(sums(1, 1, Numerics::kInvariant), sums(0, 1, Numerics::kInvariant) + 1);
}

// The norms by which LAMB scales a step are summed over the ranks that have slices, of a parameter and of its step.
TEST(AccumulationTraffic, the_ratios_of_slices_are_a_few_all_reduces) {
  for (const double clip : {0.0, 0.5}) {
    for (const auto& [zero, micro_batches] : {std::pair{1, 1}, std::pair{1, 3}, std::pair{3, 1}}) {
      for (const Numerics numerics : {Numerics::kFast, Numerics::kInvariant}) {
        if (numerics == Numerics::kInvariant && micro_batches == 3) continue;
        const Parallel parallel = in_parts(micro_batches, zero);
        EXPECT_LE(all_reduces(Lamb{}, clip, parallel, numerics), all_reduces(AdamW{}, clip, parallel, numerics) + 8)
            << "clip " << clip << ", zero " << zero << ", " << micro_batches << " micro-batches";
      }
    }
  }
}

// Slices of a group of 2 ranks, of which the other 2 have copies: scattered in the group for each micro-batch, and
// summed with the copies once.
TEST(AccumulationTraffic, copies_of_sliced_gradients_are_summed_once) {
  Parallel parallel = in_parts(4, 2, true);
  parallel.optimizer.shard_size = 2;
  const Compiled compiled = compile(mlp_step(16 * kSamples), {.ranks = 4, .parallel = parallel});
  std::map<std::string_view, int> sums;  // of the weight of 64 x 64
  for (const Action& action : compiled.plan().actions) {
    for (const int operand : action.in) {
      if (compiled.plan().values[static_cast<size_t>(operand)].whole == Shape{64, 64}) ++sums[action.op->name];
    }
  }
  EXPECT_EQ(sums["reduce_scatter"], 4);
  EXPECT_EQ(sums["all_reduce"], 1);
}

TEST(AccumulationPlan, ReadsBackFromItsText) {
  const Compiled compiled = compile(gpt_step({.dropout = 0.1}), {.ranks = 2, .parallel = in_parts(3)});
  const std::string text = to_string(compiled.plan());
  EXPECT_EQ(to_string(parse_plan(text)), text);
}

TEST(AccumulationPlan, IsASavedStrategyToo) {
  const Graph graph = mlp_step();
  Parallel parallel = in_parts(3, 2);
  const Strategy strategy = semi_auto(graph, 2, parallel);
  EXPECT_THAT(to_string(strategy.mesh), HasSubstr("micro_batch=3"));
  const Parallel read{.strategy = to_string(graph, strategy)};
  EXPECT_EQ(difference_on(2, graph, read, kRate), "");
  Parallel wrong = read;
  wrong.accumulation = 4;
  EXPECT_THAT([&] { semi_auto(graph, 2, wrong); },
              testing::ThrowsMessage<Error>(HasSubstr("the strategy is for 3 micro-batches a step")));
}

TEST(AccumulationErrors, ABatchThatDoesNotDivideIsRefused) {
  EXPECT_THAT([] { semi_auto(mlp_step(24), 2, in_parts(5)); },
              testing::ThrowsMessage<Error>(testing::AllOf(HasSubstr("a rank's 12 samples of the batch"),
                                                           HasSubstr("cannot be divided into 5 micro-batches"),
                                                           HasSubstr("or a batch of 30"))));
}

TEST(AccumulationErrors, TheCopiesThatAreInterleavedAreNamed) {
  Parallel interleaved = in_parts(2);
  interleaved.interleave = 3;
  EXPECT_THAT([&] { semi_auto(mlp_step(16), 1, interleaved); },
              testing::ThrowsMessage<Error>(HasSubstr(
                  "into 6 micro-batches (parallel.gradient_accumulation_steps = 2 x interleave = 3); leave the "
                  "interleaving out, or use a batch of 18")));
}

TEST(AccumulationErrors, MoreThanCanBeCompiledAreRefused) {
  EXPECT_THAT([] { compile(mlp_step(int64_t{1} << 21), {.ranks = 1, .parallel = in_parts(int64_t{1} << 20)}); },
              testing::ThrowsMessage<Error>(HasSubstr("are too many to be compiled; take fewer, larger ones")));
}

TEST(AccumulationErrors, ANumberBelowOneIsRefused) {
  EXPECT_THAT([] { semi_auto(mlp_step(), 1, in_parts(0)); },
              testing::ThrowsMessage<Error>(HasSubstr("0 micro-batches a step; it must be 1 or more")));
}

TEST(AccumulationErrors, AMeshThatSaysAnotherNumberIsRefused) {
  Parallel parallel = in_parts(2);
  parallel.mesh = "dp=1,micro_batch=3";
  EXPECT_THAT([&] { semi_auto(mlp_step(), 1, parallel); },
              testing::ThrowsMessage<Error>(HasSubstr("has 3 micro-batches, and 2 are set")));
}

TEST(AccumulationErrors, AParameterCutByMicroBatchesIsRefused) {
  Parallel parallel;
  parallel.mesh = "dp=1,micro_batch=2";
  parallel.parameters = {{"layers.0.weight", "[micro_batch, -]"}};
  EXPECT_THAT([&] { compile(mlp_step(), {.parallel = parallel}); },
              testing::ThrowsMessage<Error>(HasSubstr("no mesh axis named 'micro_batch' in mesh 'dp=1'")));
}

// A strategy file says the layouts of everything.
void expect_refused(const std::string& from, const std::string& to, const std::string& error) {
  const Graph graph = mlp_step();
  std::string text = to_string(graph, semi_auto(graph, 2, in_parts(2)));
  ASSERT_NE(text.find(from), std::string::npos) << text;
  text.replace(text.find(from), from.size(), to);
  EXPECT_THAT([&] { compile(graph, {.ranks = 2, .parallel = {.strategy = text}}); },
              testing::ThrowsMessage<Error>(HasSubstr(error)));
}

TEST(AccumulationErrors, AStrategyFileThatCutsAParameterByMicroBatchesIsRefused) {
  expect_refused("\"layers.0.weight\" f32[64,12] [-, -]", "\"layers.0.weight\" f32[64,12] [micro_batch, -]",
                 "the input \"layers.0.weight\" that it updates as [micro_batch, -]; give both one layout");
}

TEST(AccumulationErrors, AStrategyFileWithRanksInsideMicroBatchesIsRefused) {
  expect_refused(
      "input \"x\" f32[24,12] [dp*micro_batch, -]", "input \"x\" f32[24,12] [micro_batch*dp, -]",
      "data input 'x' lies as [micro_batch*dp, -]: the axis 'micro_batch' must be the last of its dimension");
}

}  // namespace
}  // namespace trireme::accumulation_test
