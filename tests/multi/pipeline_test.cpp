// Pipelines: a step whose stages run on several crews is the step of one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/multi/loss_curve.h"
#include "tests/multi/small_graphs.h"
#include "trireme/base/error.h"
#include "trireme/nn/layers.h"
#include "trireme/nn/models/gpt.h"
#include "trireme/nn/models/t5.h"
#include "trireme/train/job/parallel_settings.h"

namespace trireme::pipeline_test {
namespace {

using namespace testing_support;
using testing::AllOf;
using testing::HasSubstr;

constexpr float kRate = 0.1F;

Graph text_step(const nn::GptConfig& given = {}, DType compute = DType::kF32) {
  nn::GptConfig config = given;
  config.vocabulary = 20;
  config.context = 8;
  config.width = 16;
  config.heads = 4;
  nn::Gpt gpt(config);
  return training_step([&](const Tensor& x) { return gpt(x); }, class_loss(), gpt_batch(), Sgd{.momentum = 0.9},
                       {.name = "gpt", .seed = 3, .clip_norm = 0.5, .compute = compute});
}

Parallel pipeline(int64_t crews, int64_t micro_batches, const std::string& schedule = "1f1b", int64_t tp = 1,
                  int64_t zero = 0, int64_t ranks = 0, int64_t seq_chunks = 0, bool sp = false) {
  JobConfig config;
  config.parallel.mode = Mode::kSemiAuto;
  config.parallel.pp = crews;
  config.parallel.schedule = schedule;
  config.parallel.seq_chunks = seq_chunks;
  config.parallel.sp = sp;
  config.parallel.tp = tp;
  config.parallel.zero.level = zero;
  config.parallel.zero.threshold_kb = 0;
  config.parallel.gradient_accumulation_steps = micro_batches;
  return parallel_of(config, std::max(ranks, crews * tp));
}

// What is wrong with curves of all ranks that should be one device's.
std::string difference_on(int ranks, const Graph& graph, const Parallel& parallel) {
  return difference_of_crews(train_curve(graph, nullptr, {}, kRate), train_curves(graph, ranks, parallel, kRate),
                             rounding_share(graph));
}

struct Case {
  std::string name;
  int ranks = 2;
  int64_t crews = 2, micro_batches = 4;
  std::string schedule = "1f1b";
  int64_t tp = 1, zero = 0, seq_chunks = 0;
  bool sp = false;
};

class Pipeline : public testing::TestWithParam<Case> {};

// contracts 9.6: stages, schedules, and what they go together with.
TEST_P(Pipeline, trains_as_one_rank_does) {
  const Case& c = GetParam();
  const Graph graph = text_step({.layers = 4, .dropout = 0.1});
  EXPECT_EQ(difference_on(c.ranks, graph,
                          pipeline(c.crews, c.micro_batches, c.schedule, c.tp, c.zero, c.ranks, c.seq_chunks, c.sp)),
            "");
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, Pipeline,
    testing::Values(Case{"gpipe", 2, 2, 4, "gpipe"}, Case{"one_f_one_b", 4, 4, 6}, Case{"zb_h1", 4, 4, 8, "zb-h1"},
                    Case{"zb_h2", 2, 2, 4, "zb-h2"}, Case{"interleaved", 2, 2, 4, "interleaved"},
                    Case{"interleaved_delayed", 2, 2, 4, "interleaved-delayed"}, Case{"zb_v", 2, 2, 4, "zb-v"},
                    Case{"v_half", 2, 2, 4, "v-half"}, Case{"v_min", 2, 2, 8, "v-min"},
                    Case{"dualpipe_v", 2, 2, 4, "dualpipe-v"}, Case{"dp2", 4, 2, 4}, Case{"tp2", 4, 2, 4, "1f1b", 2},
                    Case{"dp2_zero3", 4, 2, 2, "1f1b", 1, 3}, Case{"dp2_tp2", 8, 2, 4, "zb-h1", 2},
                    Case{"dp2_tp2_zero2", 8, 2, 2, "1f1b", 2, 2}, Case{"seq_1f1b", 2, 2, 2, "seq-1f1b"},
                    Case{"seq_1f1b_four_chunks", 4, 4, 4, "seq-1f1b", 1, 0, 4},
                    Case{"seq_1f1b_three_of_eight", 2, 2, 3, "seq-1f1b", 1, 0, 8},
                    Case{"seq_1f1b_dp2_zero3", 4, 2, 2, "seq-1f1b", 1, 3, 4},
                    Case{"seq_1f1b_tp2_sp", 4, 2, 2, "seq-1f1b", 2, 0, 2, true}),
    [](const auto& each) { return each.param.name; });

TEST(PipelineOfExperts, aligned_groups_without_a_loss_of_all_go_by_any_schedule) {
  const Graph graph = text_step({.layers = 2, .experts = 4, .top_k = 2, .aux_loss_factor = 0, .expert_groups = 4});
  EXPECT_EQ(difference_on(2, graph, pipeline(2, 4)), "");
}

TEST(PipelineOfExperts, places_in_the_whole_batch_need_gpipe) {
  const Graph graph = text_step({.layers = 2, .experts = 4, .top_k = 2, .capacity_factor = 0.75});
  EXPECT_EQ(difference_on(2, graph, pipeline(2, 4, "gpipe")), "");
  try {
    compile(text_step({.layers = 2, .experts = 4, .top_k = 2, .capacity_factor = 0.75}),
            {.ranks = 2, .parallel = pipeline(2, 4)});
    ADD_FAILURE() << "nothing is refused";
  } catch (const Error& e) {
    EXPECT_THAT(e.text(), AllOf(HasSubstr("works on all micro-batches at once"), HasSubstr("schedule '1f1b'"),
                                HasSubstr("use the schedule gpipe")));
  }
}

// Each is refused by all schedules but the one that is named, and trains by that.
TEST(PipelineOfExperts, a_loss_of_the_whole_batch_needs_gpipe) {
  const Graph graph = text_step({.layers = 2, .experts = 4, .top_k = 2, .aux_loss_factor = 0.1, .expert_groups = 4});
  EXPECT_EQ(difference_on(2, graph, pipeline(2, 4, "gpipe")), "");
  for (const std::string schedule : {"1f1b", "zb-h1"}) {
    try {
      compile(graph, {.ranks = 2, .parallel = pipeline(2, 4, schedule)});
      ADD_FAILURE() << "nothing is refused";
    } catch (const Error& e) {
      EXPECT_THAT(e.text(),
                  AllOf(HasSubstr("works on all micro-batches at once"),
                        HasSubstr(fmt::format("schedule '{}'", schedule)), HasSubstr("use the schedule gpipe")));
    }
  }
}

// Ranks share the experts, and exchange tokens within a micro-batch.
struct SharedExperts {
  std::string name;
  int ranks = 4;
  int64_t crews = 2, micro_batches = 4;
  std::string schedule = "1f1b";
  int64_t tp = 1, zero = 0, interleave = 1;
};

Parallel by_experts(const SharedExperts& c, int64_t groups) {
  JobConfig config;
  set_keys(config,
           {"model.kind=gpt", "model.heads=4", "model.experts=4", fmt::format("model.expert_groups={}", groups)});
  config.parallel.mode = Mode::kSemiAuto;
  config.parallel.pp = c.crews;
  config.parallel.ep = 2;
  config.parallel.tp = c.tp;
  config.parallel.schedule = c.schedule;
  config.parallel.zero.level = c.zero;
  config.parallel.zero.threshold_kb = 0;
  config.parallel.gradient_accumulation_steps = c.micro_batches;
  config.parallel.interleave = c.interleave;
  return parallel_of(config, c.ranks);
}

Graph step_of_experts(int64_t groups) {
  return text_step({.layers = 4,
                    .dropout = 0.1,
                    .experts = 4,
                    .top_k = 2,
                    .capacity_factor = 0.75,
                    .aux_loss_factor = 0,
                    .expert_groups = groups});
}

class PipelineOfSharedExperts : public testing::TestWithParam<SharedExperts> {};

TEST_P(PipelineOfSharedExperts, trains_as_one_rank_does) {
  const SharedExperts& c = GetParam();
  const int64_t groups = c.ranks / c.crews / c.tp * c.micro_batches * c.interleave;
  EXPECT_EQ(difference_on(c.ranks, step_of_experts(groups), by_experts(c, groups)), "");
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, PipelineOfSharedExperts,
    testing::Values(SharedExperts{"no_pipeline", 2, 1}, SharedExperts{"no_pipeline_dp2", 4, 1, 2},
                    SharedExperts{"gpipe", 4, 2, 4, "gpipe"}, SharedExperts{"one_f_one_b"},
                    SharedExperts{"zb_h1", 4, 2, 4, "zb-h1"}, SharedExperts{"zb_h2", 4, 2, 4, "zb-h2"},
                    SharedExperts{"interleaved", 4, 2, 4, "interleaved"},
                    SharedExperts{"interleaved_delayed", 4, 2, 4, "interleaved-delayed"},
                    SharedExperts{"zb_v", 4, 2, 4, "zb-v"}, SharedExperts{"v_half", 4, 2, 4, "v-half"},
                    SharedExperts{"v_min", 4, 2, 6, "v-min"}, SharedExperts{"dualpipe_v", 4, 2, 4, "dualpipe-v"},
                    SharedExperts{"dp2_zero3", 8, 2, 2, "1f1b", 1, 3}, SharedExperts{"tp2", 8, 2, 4, "zb-h1", 2, 1},
                    SharedExperts{"interleave2", 4, 2, 2, "1f1b", 1, 0, 2}),
    [](const auto& each) { return each.param.name; });

// What a rank keeps for the backward pass is of one micro-batch, not of all that wait for their exchange.
TEST(PipelineOfSharedExperts, keeps_as_many_micro_batches_as_the_schedule_says) {
  const auto bytes = [](const SharedExperts& c) {
    const ExecutionPlan plan = compile(step_of_experts(12), {.ranks = c.ranks, .parallel = by_experts(c, 12)}).plan(0);
    return plan.arena().bytes - plan.arena().persistent;
  };
  EXPECT_GT(10 * bytes({"", 4, 2, 6, "gpipe"}), 13 * bytes({"", 4, 2, 6, "1f1b"}));
  EXPECT_GT(10 * bytes({"", 2, 1, 2}), 13 * bytes({"", 2, 1, 6}));
}

// Groups of tokens that go over several micro-batches, or several chunks of positions.
TEST(PipelineOfSharedExperts, is_refused_where_an_exchange_needs_more_than_a_micro_batch) {
  const auto refused = [](const SharedExperts& c, int64_t groups) -> std::string {
    try {
      compile(step_of_experts(groups), {.ranks = 4, .parallel = by_experts(c, groups)});
    } catch (const Error& e) {
      return e.text();
    }
    return "";
  };
  const auto by_gpipe = AllOf(HasSubstr("works on all micro-batches at once"), HasSubstr("use the schedule gpipe"));
  EXPECT_THAT(refused({}, 2), by_gpipe);
  EXPECT_THAT(refused({"", 4, 2, 4, "seq-1f1b"}, 8), HasSubstr("take another schedule than seq-1f1b"));
}

TEST(PipelineInBf16, stays_as_near_as_its_rounding) {
  const Graph graph = text_step({.layers = 4}, DType::kBF16);
  const Curve whole = train_curve(graph, nullptr, {}, kRate);
  for (const Curve& curve : train_curves(graph, 2, pipeline(2, 4), kRate)) {
    for (size_t i = 0; i < whole.losses.size(); ++i) EXPECT_NEAR(curve.losses[i], whole.losses[i], 0.02F);
  }
}

// LAMB's norms of parameters are summed over ranks together with the norm of all gradients, for which crews wait.
TEST(PipelineWithLamb, crews_wait_for_no_update_of_another) {
  nn::T5 t5({.vocabulary = 20, .layers = 1, .width = 16, .heads = 2});
  const auto loss = [](const nn::Fields& predicted, const nn::Fields& batch) {
    return cross_entropy(predicted[nn::kPrediction], batch["targets"]);
  };
  const TensorType ids{DType::kI32, {kBatch, 8}}, written{DType::kI32, {kBatch, 6}};
  const Graph graph = training_step([&](const nn::Fields& batch) { return t5(batch); }, loss,
                                    {{"tokens", ids}, {"decoder_tokens", written}, {"targets", written}}, Lamb{},
                                    {.name = "t5", .clip_norm = 0.5});
  JobConfig config;
  set_keys(config, {"model.kind=t5", "model.layers=1", "model.width=16", "model.heads=2", "parallel.tp=2",
                    "parallel.pp=2", "parallel.gradient_accumulation_steps=4", "parallel.mode=semi_auto_parallel"});
  for (const std::string schedule : {"1f1b", "gpipe", "zb-h1"}) {
    config.parallel.schedule = schedule;
    EXPECT_EQ(error_of([&] { compile(graph, {.ranks = 4, .parallel = parallel_of(config, 4)}); }), "no error")
        << schedule;
  }
}

// -- where things are -----------------------------------------------------------------------------

std::set<std::string> inputs_of(const ExecutionPlan& plan, Role role) {
  std::set<std::string> out;
  for (const PlanInput& input : plan.inputs) {
    if (input.role == role) out.insert(input.name);
  }
  return out;
}

TEST(PipelinePlans, a_crew_has_what_its_stages_read_and_a_tied_weight_has_one_owner) {
  const Compiled made = compile(text_step({.layers = 2}), {.ranks = 2, .parallel = pipeline(2, 4)});
  ASSERT_EQ(made.crews.size(), 2U);
  const std::set<std::string> first = inputs_of(made.plan(0), Role::kParameter);
  const std::set<std::string> last = inputs_of(made.plan(1), Role::kParameter);
  EXPECT_TRUE(first.contains("wte.weight"));
  for (const std::string& name : first) EXPECT_FALSE(last.contains(name)) << name;
  EXPECT_EQ(first.size() + last.size(),
            inputs_of(compile(text_step({.layers = 2}), {}).plan(), Role::kParameter).size());
  EXPECT_EQ(inputs_of(made.plan(0), Role::kData), std::set<std::string>{"x"});
  EXPECT_EQ(inputs_of(made.plan(1), Role::kData), std::set<std::string>{"y"});
}

int count(const ExecutionPlan& plan, std::string_view op) {
  return static_cast<int>(std::ranges::count(plan.actions, op, [](const Action& action) { return action.op->name; }));
}

// The tied weight goes there and its gradient back once a step, activations and their gradients once a micro-batch, and
// of the norm of all gradients one term goes on and the factor comes back; the loss is told.
// The first crew has less to do than the last, which has the head.
TEST(PipelinePlans, the_arithmetic_of_a_step_and_the_largest_arena_are_of_all_crews) {
  const Graph graph = text_step({.layers = 3});
  const Compiled one = compile(graph, {});
  const Compiled two = compile(graph, {.ranks = 2, .parallel = pipeline(2, 2)});
  const double flops = flops_per_step(one, 1);
  EXPECT_NEAR(flops_per_step(two, 2) / flops, 1, 0.02);
  EXPECT_GT(std::abs(2 * flops_per_step(two.plan(0)) / flops - 1), 0.05);
  EXPECT_EQ(largest_plan(two).arena().bytes, std::max(two.plan(0).arena().bytes, two.plan(1).arena().bytes));
  EXPECT_NE(two.plan(0).arena().bytes, two.plan(1).arena().bytes);
}

TEST(PipelinePlans, send_no_more_than_they_must) {
  for (const int64_t micro_batches : {2, 4, 8}) {
    const Compiled made = compile(text_step({.layers = 2}), {.ranks = 2, .parallel = pipeline(2, micro_batches)});
    EXPECT_EQ(count(made.plan(0), "send"), micro_batches + 2) << micro_batches;
    EXPECT_EQ(count(made.plan(0), "send"), count(made.plan(1), "recv"));
    EXPECT_EQ(count(made.plan(1), "send"), count(made.plan(0), "recv"));
    EXPECT_LE(count(made.plan(1), "send"), micro_batches + 4) << micro_batches;
  }
}

// 1F1B keeps as many micro-batches as there are stages from a stage on, GPipe all.
TEST(PipelinePlans, keep_as_many_micro_batches_as_the_schedule_says) {
  const auto bytes = [](const std::string& schedule, int64_t micro_batches) {
    const Compiled made =
        compile(text_step({.layers = 4}), {.ranks = 2, .parallel = pipeline(2, micro_batches, schedule)});
    return made.plan(0).arena().bytes - made.plan(0).arena().persistent;
  };
  EXPECT_LT(bytes("1f1b", 8), bytes("1f1b", 4));
  EXPECT_GT(10 * bytes("gpipe", 8), 17 * bytes("1f1b", 8));
}

std::string refusal(const Graph& graph, int64_t ranks, const Parallel& parallel) {
  try {
    compile(graph, {.ranks = ranks, .parallel = parallel});
  } catch (const Error& e) {
    return e.text();
  }
  return "";
}

// A chunk's forward pass reads keys and values of the chunks before it, and nothing of those after.
TEST(PipelineOfChunks, attend_to_what_came_before) {
  const Compiled made =
      compile(text_step({.layers = 2}),
              {.ranks = 2, .parallel = pipeline(2, 2, "seq-1f1b", 1, 0, 0, 4), .passes = {.disabled = {"fuse_rows"}}});
  std::map<int64_t, int> by_keys;  // attentions of the first crew, by how many keys they see
  for (const Action& action : made.plan(0).actions) {
    if (action.op->name == "attention") ++by_keys[made.plan(0).values[static_cast<size_t>(action.in[1])].type.shape[1]];
  }
  EXPECT_EQ(by_keys, (std::map<int64_t, int>{{2, 2}, {4, 2}, {6, 2}, {8, 2}}));  // of 2 micro-batches and 4 chunks
}

// Keys are turned by their positions, and the gradients of a chunk's own keys turned back by the same.
TEST(PipelineOfChunks, turn_keys_by_their_places_in_the_whole_sequence) {
  EXPECT_EQ(difference_on(2, llama_step(Sgd{.momentum = 0.9}), pipeline(2, 2, "seq-1f1b", 1, 0, 0, 4)), "");
}

// A table whose rows stand for tokens, for positions, and for what is predicted.
class OneTable : public nn::Module {
 public:
  Tensor forward(const Tensor& tokens) override {
    const Tensor words = table_(tokens);
    Tensor x = add(words, table_(iota(tokens.graph(), {DType::kI32, {tokens.size(1)}}, 0)));
    for (nn::GptBlock* block : {&first_, &second_}) x = (*block)(x);
    return matmul(x, table_.weight(), false, true);
  }

 private:
  nn::GptConfig config_{.vocabulary = 20, .context = 8, .layers = 2, .width = 16, .heads = 4};
  nn::Embedding table_{20, 16, {.name = "table", .init_std = 0.2}};
  nn::GptBlock first_{config_, "h.0"}, second_{config_, "h.1"};
};

TEST(PipelineOfChunks, one_table_of_tokens_and_positions_gets_the_gradients_of_both) {
  OneTable model;
  const Graph graph = training_step([&](const Tensor& x) { return model(x); }, class_loss(), gpt_batch(),
                                    Sgd{.momentum = 0.9}, {.name = "one_table", .seed = 3, .clip_norm = 0.5});
  EXPECT_EQ(difference_on(2, graph, pipeline(2, 4)), "");
  EXPECT_EQ(difference_on(2, graph, pipeline(2, 2, "seq-1f1b", 1, 0, 0, 4)), "");
  EXPECT_EQ(difference_on(4, graph, pipeline(2, 2, "seq-1f1b", 1, 3, 4, 2)), "");
}

TEST(PipelineOfChunks, refuses_what_needs_all_positions) {
  const Graph graph = text_step({.layers = 2});
  EXPECT_THAT(refusal(graph, 2, pipeline(2, 2, "seq-1f1b", 1, 0, 0, 3)),
              HasSubstr("a rank's 8 positions ('x' i32[24,8]) cannot be divided into 3 chunks; use 2"));
  EXPECT_THAT(refusal(graph, 2, pipeline(2, 2, "1f1b", 1, 0, 0, 2)), HasSubstr("only seq-1f1b cuts them"));
  Parallel alone = pipeline(2, 2);
  alone.pipeline = {.seq_chunks = 2};
  EXPECT_THAT(refusal(graph, 2, alone), HasSubstr("2 chunks of positions (seq_chunks) are for pipelines"));
  Parallel both = pipeline(2, 2, "seq-1f1b");
  both.interleave = 2;
  EXPECT_THAT(refusal(graph, 2, both), HasSubstr("2 interleaved copies or 2 chunks of positions, not both"));
  EXPECT_THAT(
      refusal(mlp_step(Sgd{}), 2, pipeline(2, 2, "seq-1f1b")),
      HasSubstr("has no positions that could be cut into 2 chunks; use the schedule 'gpipe', '1f1b', 'zb-h1' or "
                "'zb-h2'"));
  try {
    compile(graph, {.ranks = 2, .parallel = pipeline(2, 2, "seq-1f1b"), .numerics = Numerics::kInvariant});
    ADD_FAILURE() << "nothing is refused";
  } catch (const Error& e) {
    EXPECT_THAT(e.text(), HasSubstr("2 chunks of positions (seq_chunks) in another; leave one out"));
  }
}

// -- what crosses in slices ----------------------------------------------------------------------

// What each rank of the first crew sends to the next in a step, in bytes.
int64_t bytes_sent(const Compiled& made) {
  int64_t out = 0;
  const ExecutionPlan& plan = made.plan(0);
  for (const Action& action : plan.actions) {
    if (action.op->name == "send") out += plan.values[static_cast<size_t>(action.in[0])].type.bytes();
  }
  return out;
}

Parallel in_slices(Parallel parallel, SliceCrossings how) {
  parallel.pipeline.slice_crossings = how;
  return parallel;
}

TEST(PipelineInSlices, trains_as_one_rank_does_and_sends_half) {
  const Graph graph = text_step({.layers = 2});
  for (const Parallel& parallel : {pipeline(2, 4, "1f1b", 2), pipeline(2, 2, "zb-h1", 2, 3, 8)}) {
    const int ranks = parallel.optimizer.level == 0 ? 4 : 8;
    const Parallel slices = in_slices(parallel, SliceCrossings::kAlways);
    EXPECT_EQ(difference_on(ranks, graph, slices), "");
    const Compiled whole = compile(graph, {.ranks = ranks, .parallel = in_slices(parallel, SliceCrossings::kNever)});
    const Compiled cut = compile(graph, {.ranks = ranks, .parallel = slices});
    EXPECT_LE(10 * bytes_sent(cut), 6 * bytes_sent(whole));  // but for numbers and the tied weight's odd rows
  }
}

// Samples less a statistic that the first stage takes and the second one reads.
struct Centred : nn::Module {
  nn::Module first{"first"}, second{"second"};
  nn::Linear up{12, 16, {.name = "up"}}, down{16, 10, {.name = "down"}};
  Tensor forward(const Tensor& x) override {
    Tensor h, mean_of_all;
    {
      const nn::Scope scope(first);
      h = up(x);
      mean_of_all = mean(h, {0}, true);
    }
    const nn::Scope scope(second);
    return down(relu(sub(h, mean_of_all)));
  }
};

// Ranks have statistics of their own samples (cross_batch), which are not the same though they lie uncut.
TEST(PipelineInSlices, statistics_of_each_ranks_own_samples_go_whole) {
  Centred model;
  const Graph graph =
      training_step([&](const Tensor& x) { return model(x); }, class_loss(), mlp_batch(), Sgd{}, {.name = "centred"});
  Parallel parallel = pipeline(2, 2, "gpipe", 1, 0, 4);
  parallel.pipeline.rules = {{"first", 0}, {"second", 1}};
  parallel.ops.push_back({"first/reduce_sum", "cross_batch mean"});
  const auto trained = [&](SliceCrossings how) { return train_curves(graph, 4, in_slices(parallel, how), kRate); };
  EXPECT_EQ(other_bits(trained(SliceCrossings::kAlways), trained(SliceCrossings::kNever)), "");
}

TEST(PipelineInSlices, that_nothing_can_be_cut_is_said) {
  const auto remarks = [](const Parallel& parallel, int ranks) {
    return compile(text_step({.layers = 2}), {.ranks = ranks, .parallel = parallel}).remarks;
  };
  const Parallel alone = in_slices(pipeline(2, 4, "1f1b"), SliceCrossings::kAlways);
  EXPECT_THAT(remarks(alone, 2),
              testing::ElementsAre(HasSubstr("parallel.slice_crossings: nothing but single numbers goes to another")));
  EXPECT_THAT(remarks(in_slices(pipeline(2, 4, "1f1b"), SliceCrossings::kAuto), 2), testing::IsEmpty());
}

// Links between crews are as quick as those inside one, or a hundred times slower.
TEST(PipelineInSlices, are_chosen_where_links_between_crews_are_slower) {
  const auto sent = [](double bytes_per_s) {
    Machine machine{.name = "two hosts",
                    .hosts = 2,
                    .devices_per_host = 2,
                    .memory_bytes = 1 << 30,
                    .memory_bytes_per_s = 1e10,
                    .flops_per_s = {{"f32", 1e11}},
                    .levels = {{"host", 2, 1e-6, 1e10}, {"cable", 4, 1e-6, bytes_per_s}}};
    Parallel parallel = pipeline(2, 4, "1f1b", 2);
    parallel.communication.machine = machine;
    return bytes_sent(compile(text_step({.layers = 2}), {.ranks = 4, .parallel = parallel}));
  };
  EXPECT_EQ(sent(1e10), bytes_sent(compile(
                            text_step({.layers = 2}),
                            {.ranks = 4, .parallel = in_slices(pipeline(2, 4, "1f1b", 2), SliceCrossings::kNever)})));
  EXPECT_LE(10 * sent(1e8), 6 * sent(1e10));
}

// -- refused --------------------------------------------------------------------------------------

TEST(PipelineErrors, say_what_does_not_fit) {
  const Graph graph = text_step({.layers = 2});
  EXPECT_THAT(refusal(graph, 3, pipeline(2, 4, "1f1b", 1, 0, 2)), HasSubstr("the job has 3 ranks; start 4"));
  EXPECT_THAT(refusal(graph, 8, pipeline(8, 8)), HasSubstr("there are 8 stages; use fewer"));
  EXPECT_THAT(refusal(graph, 2, pipeline(2, 1)), HasSubstr("with 1 micro-batch for 2 crews"));
  Parallel late = pipeline(2, 4);
  late.pipeline.rules = {{"h.0", 1}, {"h.1", 0}};
  EXPECT_THAT(refusal(graph, 2, late),
              AllOf(HasSubstr("values go forward only"), HasSubstr("'h.1"), HasSubstr("'h.0")));
  late.pipeline.rules = {{"h.0", 2}};
  EXPECT_THAT(refusal(graph, 2, late), HasSubstr("there is no stage 2; the pipeline has the stages 0 to 1"));
  late.pipeline.rules = {{"h.7", 1}};
  EXPECT_THAT(refusal(graph, 2, late), HasSubstr("'h.7 = 1' matches no part of the model"));
  late.pipeline.rules = {{"h.0..1", 0}, {"ln_f", 0}};
  EXPECT_THAT(refusal(graph, 2, late), HasSubstr("no part of the model is of stage 1"));
}

TEST(PipelineRules, uneven_stages_and_those_that_the_model_asks_for) {
  const Graph graph = text_step({.layers = 4});
  Parallel uneven = pipeline(2, 4);
  uneven.pipeline.rules = {{"h.0..2", 0}, {"h.3", 1}, {"ln_f", 1}};
  EXPECT_EQ(difference_on(2, graph, uneven), "");
}

}  // namespace
}  // namespace trireme::pipeline_test
