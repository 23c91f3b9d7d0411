// Sections 9.4 to 9.6 and 27 of the contracts, item by item, on plans and on steps that run. Of orders and their times
// as such: trireme/parallel/timetable/timetable_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <mutex>

#include "tests/multi/loss_curve.h"
#include "tests/multi/small_graphs.h"
#include "trireme/exec/analysis/soundness.h"
#include "trireme/op/structural.h"
#include "trireme/train/job/parallel_settings.h"
#include "trireme/train/report/timeline.h"

namespace trireme::pipeline_contracts_test {
namespace {

using namespace testing_support;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr float kRate = 0.1F;
constexpr int kBlocks = 8;

class Block : public nn::Module {
 public:
  Block(const std::string& name, int64_t width)
      : Module(name), up_(width, width, {.name = "up"}), down_(width, width, {.name = "down"}) {}
  Tensor forward(const Tensor& x) override { return add(x, down_(relu(up_(x)))); }

 private:
  nn::Linear up_, down_;
};

class Blocks : public nn::Module {
 public:
  Blocks() {
    for (int i = 0; i < kBlocks; ++i) blocks_.push_back(std::make_unique<Block>(fmt::format("blocks.{}", i), 12));
  }
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (const auto& block : blocks_) y = (*block)(y);
    return head_(y);
  }

 private:
  std::vector<std::unique_ptr<Block>> blocks_;
  nn::Linear head_{12, 10, {.name = "head"}};
};

Graph blocks_step(int64_t batch = kBatch) {
  Blocks model;
  return training_step([&](const Tensor& x) { return model(x); }, class_loss(), mlp_batch(batch), Sgd{},
                       {.name = "blocks"});
}

// As many blocks to each stage.
Parallel blocks_in(const std::string& schedule, int64_t crews, int64_t micro_batches, int stages_per_crew = 1) {
  Parallel out{.accumulation = micro_batches,
               .pipeline = {.crews = crews, .stages_per_crew = stages_per_crew, .schedule = schedule}};
  const int stages = static_cast<int>(crews) * stages_per_crew;
  for (int i = 0; i < kBlocks; ++i) out.pipeline.rules.push_back({fmt::format("blocks.{}", i), i * stages / kBlocks});
  out.pipeline.rules.push_back({"head", stages - 1});
  return out;
}

std::string refusal(const Graph& graph, int64_t ranks, const Parallel& parallel) {
  return error_of([&] { compile(graph, {.ranks = ranks, .parallel = parallel}); });
}

// -- 9.5: errors ----------------------------------------------------------------------------------

TEST(PipelineContracts, contracts_9_5_and_9_6_4_fewer_micro_batches_than_stages_are_refused) {
  EXPECT_THAT(refusal(blocks_step(), 4, blocks_in("1f1b", 4, 3)),
              AllOf(HasSubstr("with 3 micro-batches for 4 crews"), HasSubstr("give at least 4")));
}

TEST(PipelineContracts, contracts_9_5_stages_out_of_range_are_refused_by_rules_and_in_code) {
  Parallel parallel = blocks_in("1f1b", 2, 4);
  parallel.pipeline.rules = {{"blocks.0", 2}};
  EXPECT_THAT(refusal(blocks_step(), 2, parallel),
              HasSubstr("'blocks.0 = 2': there is no stage 2; the pipeline has the stages 0 to 1"));
  nn::Linear model(12, 10, {.name = "only"});
  model.pipeline_stage(3);
  const Graph asked = training_step([&](const Tensor& x) { return model(x); }, class_loss(), mlp_batch(), Sgd{});
  EXPECT_THAT(refusal(asked, 2, {.accumulation = 4, .pipeline = {.crews = 2}}), HasSubstr("there is no stage 3"));
  EXPECT_THAT(error_of([&] { model.pipeline_stage(-1); }), HasSubstr("pipeline_stage(-1)"));
}

TEST(PipelineContracts, contracts_9_5_ranks_that_do_not_divide_into_stages_are_refused) {
  EXPECT_THAT(refusal(blocks_step(), 6, blocks_in("1f1b", 4, 4)), HasSubstr("6 ranks"));
}

// The contract leaves open what a cell without a stage is; here its ops are of the last stage that they read from.
TEST(PipelineContracts, contracts_9_5_a_module_without_a_stage_is_of_the_last_stage_that_it_reads) {
  Parallel parallel = blocks_in("1f1b", 2, 4);
  parallel.pipeline.rules.pop_back();  // that of the head
  const Compiled made = compile(blocks_step(), {.ranks = 2, .parallel = parallel});
  EXPECT_EQ(made.plan(1).input("head.weight").role, Role::kParameter);
}

TEST(PipelineContracts, contracts_9_5_a_batch_that_micro_batches_do_not_divide_is_refused) {
  EXPECT_THAT(refusal(blocks_step(24), 2, blocks_in("1f1b", 2, 5)),
              AllOf(HasSubstr("24 samples"), HasSubstr("cannot be divided into 5 micro-batches; use 4 micro-batches")));
  // One micro-batch would do for the batch, and not for the schedule.
  EXPECT_THAT(refusal(blocks_step(15), 2, blocks_in("1f1b", 2, 2)), HasSubstr("2 micro-batches; use a batch of 16"));
  // 3 would, and these schedules take multiples of 2, and 4 or more.
  for (const std::string schedule : {"interleaved", "dualpipe-v"}) {
    EXPECT_THAT(refusal(blocks_step(15), 2, blocks_in(schedule, 2, 4, 2)),
                HasSubstr("4 micro-batches; use a batch of 16"));
  }
  EXPECT_THAT(refusal(blocks_step(18), 2, blocks_in("interleaved", 2, 8, 2)),
              HasSubstr("8 micro-batches; use 6 micro-batches, or a batch of 24"));
}

// -- 9.6.1: what is computed ----------------------------------------------------------------------

Graph wide_step(int64_t summed_parts) {
  nn::Mlp mlp({12, 512, 512, 10});
  return training_step(mlp_model(mlp), class_loss(), mlp_batch(4 * 32), Sgd{},
                       {.name = "mlp", .summed_parts = summed_parts});
}

// 2 stages of 4 data parallel ranks with 32 samples each, in 4 micro-batches.
Parallel two_stages_of_four() {
  return {.mesh = "dp=4", .accumulation = 4, .pipeline = {.crews = 2}};
}

TEST(PipelineContracts, contracts_9_6_1_a_micro_batch_of_32_samples_has_8_rows_on_a_rank) {
  const Compiled made =
      compile(wide_step(4), {.ranks = 8, .parallel = two_stages_of_four(), .passes = {.disabled = {"fuse_rows"}}});
  std::map<std::string, int> relus;
  for (const CompiledCrew& crew : made.crews) {
    for (const Action& action : crew.plan.actions) {
      if (action.op->name == "relu") ++relus[to_string(crew.plan.values[static_cast<size_t>(action.out[0])].type)];
    }
  }
  EXPECT_THAT(relus, ElementsAre(std::pair("f32[8,512]", 2 * 4)));
}

// Losses of micro-batches as large as each other add up to as many times the mean, and so do gradients.
TEST(PipelineContracts, contracts_9_6_1_trains_on_the_sum_of_the_micro_batches_losses) {
  const Curve mean = train_curve(wide_step(1), nullptr, {}, 4 * kRate);
  const Curve sum = with_losses_times(4, mean);
  const Graph graph = wide_step(4);
  EXPECT_EQ(difference_of_crews(sum, train_curves(graph, 8, two_stages_of_four(), kRate), rounding_share(graph)), "");
}

// -- 9.6.2: orders --------------------------------------------------------------------------------

// The passes of micro-batches that the first rank of each crew computed in the second step, in their order.
std::vector<std::vector<std::string>> ran(const Graph& graph, int ranks, const Parallel& parallel) {
  std::vector<std::vector<std::string>> out;
  comm::spawn_ranks(ranks, "threads", [&](comm::World& world) {
    Session session(graph, std::nullopt, {.world = &world, .seed = 5, .compile = {.parallel = parallel}});
    session.initialise();
    TimelineRecorder recorder(session.compiled(), session.step(), &world, 2);
    for (int64_t step = 1; step <= 2; ++step) {
      recorder.begin(step, false);
      train_step(session, step, kRate);
      recorder.end(step, false);
    }
    if (world.rank() != 0) return;
    for (const std::vector<PassSpan>& spans : recorder.timeline()->crews) {
      std::vector<std::string>& units = out.emplace_back();
      for (const PassSpan& span : spans) {
        if (span.micro_batch < 0 || span.stage < 0) continue;  // of no unit: what the batch alone gives, and updates
        const Unit::Pass pass = span.phase == Phase::kForward ? Unit::Pass::kForward : Unit::Pass::kBackward;
        const std::string unit = to_string(Unit{pass, span.stage, span.micro_batch});
        if (units.empty() || units.back() != unit) units.push_back(unit);
      }
    }
  });
  return out;
}

std::vector<std::vector<std::string>> orders_of(const Timetable& timetable) {
  std::vector<std::vector<std::string>> out;
  for (const std::vector<Unit>& units : timetable.crews) {
    out.emplace_back();
    for (const Unit& unit : units) out.back().push_back(to_string(unit));
  }
  return out;
}

TEST(PipelineContracts, contracts_9_6_2_each_stage_runs_its_passes_in_the_documented_order) {
  const auto lines = [](const std::vector<std::vector<std::string>>& crews) {
    std::vector<std::string> out;
    for (const std::vector<std::string>& units : crews) {
      std::string& line = out.emplace_back();
      for (const std::string& unit : units)
        line += fmt::format("{}{}{}", line.empty() ? "" : " ", unit[0], unit.substr(unit.find('.') + 1));
    }
    return out;
  };
  EXPECT_THAT(lines(ran(blocks_step(), 4, blocks_in("1f1b", 4, 4))),
              ElementsAre("F0 F1 F2 F3 B0 B1 B2 B3", "F0 F1 F2 B0 F3 B1 B2 B3", "F0 F1 B0 F2 B1 F3 B2 B3",
                          "F0 B0 F1 B1 F2 B2 F3 B3"));
  for (const std::string schedule : {"gpipe", "1f1b"}) {
    for (const auto& [crews, micro_batches] : {std::pair{4, 4}, {4, 8}, {2, 6}}) {
      EXPECT_EQ(ran(blocks_step(), crews, blocks_in(schedule, crews, micro_batches)),
                orders_of(make_timetable(schedule, {.crews = crews, .micro_batches = micro_batches})))
          << schedule << " of " << crews << " stages and " << micro_batches << " micro-batches";
    }
  }
}

TEST(PipelineContracts, contracts_9_6_2_interleaved_stages_warm_up_with_8_7_6_and_5_forward_passes) {
  const auto warm_ups = [](const std::string& schedule) {
    std::vector<int> out;
    for (const std::vector<std::string>& units : ran(blocks_step(), 4, blocks_in(schedule, 4, 8, 2))) {
      const auto is_backward = [](const std::string& unit) { return unit.starts_with('B'); };
      out.push_back(static_cast<int>(std::ranges::find_if(units, is_backward) - units.begin()));
    }
    return out;
  };
  EXPECT_THAT(warm_ups("interleaved-delayed"), ElementsAre(8, 7, 6, 5));
  EXPECT_THAT(warm_ups("interleaved"), ElementsAre(11, 9, 7, 5));
}

// -- 9.6.3: what is kept --------------------------------------------------------------------------

// The most buffers at once that hold one activation of a stage, by crew: of the relu in each stage's first block.
std::vector<int> kept(const std::string& schedule, int64_t crews, int64_t micro_batches, int stages_per_crew = 1) {
  const Parallel parallel = blocks_in(schedule, crews, micro_batches, stages_per_crew);
  const Compiled made =
      compile(blocks_step(), {.ranks = crews, .parallel = parallel, .passes = {.disabled = {"fuse_rows"}}});
  const int per_stage = kBlocks / static_cast<int>(crews) / stages_per_crew;
  std::vector<int> out;
  for (const CompiledCrew& crew : made.crews) {
    std::vector<const Buffer*> buffers;
    for (const Action& action : crew.plan.actions) {
      const std::string scope(action.scope.view());
      if (action.op->name != "relu" || std::stoi(scope.substr(scope.find('.') + 1)) % per_stage != 0) continue;
      buffers.push_back(
          &crew.plan.buffers[static_cast<size_t>(crew.plan.values[static_cast<size_t>(action.out[0])].buffer)]);
    }
    int most = 0;
    for (const Buffer* one : buffers) {
      most = std::max(most, static_cast<int>(std::ranges::count_if(buffers, [&](const Buffer* other) {
                        return other->first <= one->first && one->first <= other->last;
                      })));
    }
    out.push_back(most);
  }
  return out;
}

TEST(PipelineContracts, contracts_9_6_3_as_many_activations_are_kept_as_the_schedules_say) {
  EXPECT_THAT(kept("gpipe", 4, 8), ElementsAre(8, 8, 8, 8));
  EXPECT_THAT(kept("1f1b", 4, 8), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(kept("1f1b", 2, 6), ElementsAre(2, 1));
  EXPECT_EQ(std::ranges::max(kept("zb-h1", 4, 8)), 4);
  // Of stages half as long, two to a crew.
  EXPECT_EQ(kept("interleaved-delayed", 4, 8, 2)[0], 8);
  EXPECT_EQ(kept("interleaved", 4, 8, 2)[0], 11);
  EXPECT_EQ(std::ranges::max(kept("zb-v", 4, 8, 2)), 2 * 4);
  EXPECT_EQ(std::ranges::max(kept("v-half", 4, 8, 2)), 2 * 3);  // 2 (S + 2) / 2 and 2 (S + 4) / 3
  EXPECT_EQ(std::ranges::max(kept("v-min", 4, 8, 2)), 2 * 2);
}

// -- 9.6.5 and 9.6.6 ------------------------------------------------------------------------------

Graph tied_step(int64_t layers, const Optimizer& optimizer = Sgd{.momentum = 0.9}) {
  nn::Gpt gpt({.vocabulary = 20, .context = 8, .layers = layers, .width = 16, .heads = 4});
  return training_step([&](const Tensor& x) { return gpt(x); }, class_loss(), gpt_batch(), optimizer,
                       {.name = "gpt", .seed = 3});
}

// Where the contract has a copy on each stage, whose gradients are summed, here the first stage has the weight: the
// last is sent it once a step and sends its gradient back, so that both always read the same.
TEST(PipelineContracts, contracts_9_6_5_an_embedding_of_stages_0_and_3_has_one_owner_and_gets_both_gradients) {
  const Parallel parallel{.accumulation = 4, .pipeline = {.crews = 4}};
  const Graph graph = tied_step(4);
  const Compiled made = compile(graph, {.ranks = 4, .parallel = parallel});
  std::vector<int> owners, sent, received;  // messages of its shape, by crew
  for (const CompiledCrew& crew : made.crews) {
    const auto is_it = [](const PlanInput& input) { return input.name == "wte.weight"; };
    owners.push_back(static_cast<int>(std::ranges::count_if(crew.plan.inputs, is_it)));
    int to = 0, from = 0;
    for (const Action& action : crew.plan.actions) {
      if (action.lane != Lane::kMessage) continue;
      const int value = action.in.empty() ? action.out[0] : action.in[0];
      if (crew.plan.values[static_cast<size_t>(value)].type.shape != Shape{20, 16}) continue;
      ++(action.in.empty() ? from : to);
    }
    sent.push_back(to);
    received.push_back(from);
  }
  EXPECT_THAT(owners, ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(sent, ElementsAre(1, 0, 0, 1));
  EXPECT_THAT(received, ElementsAre(1, 0, 0, 1));
  EXPECT_EQ(difference_of_crews(train_curve(graph, nullptr, {}, kRate), train_curves(graph, 4, parallel, kRate),
                                rounding_share(graph)),
            "");
}

TEST(PipelineContracts, contracts_9_6_6_all_ranks_have_the_result_of_the_last_stage) {
  const auto model = [] {
    nn::Mlp mlp({1, 16, 16, 16, 32});
    return inference(mlp_model(mlp), {{"x", {DType::kF32, {8, 1}}}});
  };
  const auto result_of = [&](comm::World* world, const Parallel& parallel) {
    Session session(model(), std::nullopt, {.world = world, .seed = 5, .compile = {.parallel = parallel}});
    session.initialise();
    fill_batch(session.step(), "x", 1);
    session.step().run();
    return copy_of(session.step().output("prediction"));
  };
  const HostTensor whole = result_of(nullptr, {});
  ASSERT_EQ(whole.shape(), (Shape{8, 32}));
  std::mutex mutex;
  comm::spawn_ranks(4, "threads", [&](comm::World& world) {
    const HostTensor result = result_of(&world, {.accumulation = 4, .pipeline = {.crews = 4}});
    const std::lock_guard lock(mutex);
    ASSERT_EQ(result.shape(), whole.shape());
    EXPECT_LT(worst_difference(result.as<float>(), whole.as<float>()), 1e-6) << "rank " << world.rank();
  });
}

// -- 27: the recipe for a transformer -------------------------------------------------------------

// dp 2, tp 2, pp 2, with optimizer parallel ranks.
Parallel recipe(int level) {
  JobConfig config;
  set_keys(config, {"model.kind=gpt", "model.heads=4"});
  config.parallel.mode = Mode::kSemiAuto;
  config.parallel.pp = 2;
  config.parallel.tp = 2;
  config.parallel.zero.level = level;
  config.parallel.zero.threshold_kb = 0;
  config.parallel.gradient_accumulation_steps = 4;
  return parallel_of(config, 8);
}

TEST(HybridRecipe, contracts_27_a_transformer_on_8_ranks_trains_as_on_one) {
  for (const int level : {1, 2, 3}) {
    const AdamW adam;
    const Graph graph = tied_step(2, adam);
    EXPECT_EQ(difference_of_crews(train_curve(graph, nullptr, {}, 0.01F), train_curves(graph, 8, recipe(level), 0.01F),
                                  rounding_share(graph, adam)),
              "")
        << level;
  }
}

TEST(HybridRecipe, contracts_27_a_layer_sums_twice_over_tensor_parallel_ranks_and_not_between_its_two_products) {
  const Compiled made = compile(tied_step(2), {.ranks = 8, .parallel = recipe(1)});
  const Graph& graph = made.partitioned.graph;
  constexpr int64_t tp = 1;  // of the mesh dp=2,tp=2
  std::map<std::string, int> sums;
  for (const Node& node : graph.nodes()) {
    const OpDef& op = def_of(node);
    if (node.phase != Phase::kForward || !op.collective || !graph.scope_of(node).starts_with("h.")) continue;
    EXPECT_EQ(op.collective->work, GroupWork::kAllReduce) << op.name << " of " << graph.scope_of(node);
    EXPECT_THAT(node.attrs.as<CollectiveAttrs>().axes, ElementsAre(tp));
    ++sums[std::string(graph.scope_of(node))];
  }
  EXPECT_EQ(sums, (std::map<std::string, int>{
                      {"h.0.attn.c_proj", 1}, {"h.0.mlp.c_proj", 1}, {"h.1.attn.c_proj", 1}, {"h.1.mlp.c_proj", 1}}));
}

// -- the check of many ranks ----------------------------------------------------------------------

double cpu_seconds_of(const std::function<void()>& work) {
  const std::clock_t begin = std::clock();
  work();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

// 16 stages of 64 ranks: data parallel 8, tensor parallel 8. All ranks with all they start, and the crews alone, which
// is what a job does before it begins.
TEST(PipelineSoundness, all_messages_of_1024_ranks_in_16_stages_meet_and_none_wait_in_a_circle) {
  nn::Gpt gpt({.vocabulary = 32, .context = 8, .layers = 16, .width = 32, .heads = 8});
  const std::vector<BatchField> batch{{"x", {DType::kI32, {256, 8}}}, {"y", {DType::kI32, {256, 8}}}};
  const Graph graph =
      training_step([&](const Tensor& x) { return gpt(x); }, class_loss(), batch, Sgd{}, {.name = "gpt"});
  JobConfig config;
  set_keys(config, {"model.kind=gpt", "model.heads=8"});
  config.parallel.mode = Mode::kSemiAuto;
  config.parallel.pp = 16;
  config.parallel.tp = 8;
  config.parallel.gradient_accumulation_steps = 32;
  const Compiled made = compile(graph, {.ranks = 1024, .parallel = parallel_of(config, 1024)});
  const double of_crews_s = cpu_seconds_of([&] {
    EXPECT_THAT(check_communication(std::span<const ExecutionPlan* const>(made.plans())), testing::IsEmpty());
  });
  size_t starts = 0;
  const double of_ranks_s = cpu_seconds_of([&] {
    Calls calls;
    for (const ExecutionPlan* plan : made.plans()) {
      for (int64_t rank = 0; rank < plan->mesh.devices(); ++rank)
        starts += calls.emplace_back(calls_of(*plan, rank)).size();
    }
    EXPECT_THAT(check_communication(calls), testing::IsEmpty());
  });
  fmt::print("1,024 ranks in 16 stages: {} starts checked in {:.2f} s of CPU time; by crews in {:.3f} s\n", starts,
             of_ranks_s, of_crews_s);
  EXPECT_LT(of_crews_s, 2);
}

}  // namespace
}  // namespace trireme::pipeline_contracts_test
