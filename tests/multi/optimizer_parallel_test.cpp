// Optimizer parallelism and dataset slicing: the requirements that users of such systems are promised, one test each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "tests/multi/loss_curve.h"
#include "tests/multi/training_support.h"
#include "trireme/base/error.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/comm/comm.h"
#include "trireme/parallel/parallel.h"
#include "trireme/train/checkpoints/checkpointing.h"

namespace trireme::optimizer_parallel_test {
namespace {

using namespace testing_support;
using testing::HasSubstr;

std::vector<BatchField> batch() {
  return {{"x", {DType::kF32, {kBatch, 12}}}, {"y", {DType::kI32, {kBatch}}}};
}

// Weights [512,12], [512,512] and [10,512], as large as those of the documented example but for the first.
Graph step(const Optimizer& optimizer) {
  nn::Mlp mlp({12, 512, 512, 10});
  return training_step(mlp_model(mlp), class_loss(), batch(), optimizer, {.name = "mlp"});
}

Parallel sliced(int level, int64_t threshold_kb = 64, int64_t shard_size = -1) {
  Parallel out;
  out.optimizer = {.level = level, .threshold_kb = threshold_kb, .shard_size = shard_size};
  return out;
}

const Layout& layout_of(const Graph& graph, const Strategy& strategy, const std::string& name) {
  return strategy.inputs[static_cast<size_t>(graph.value(graph.input(name).value).index)];
}

std::string shown(const Graph& graph, const Strategy& strategy, const std::string& name) {
  return to_string(layout_of(graph, strategy, name), strategy.mesh);
}

// Nor are parameters and state others. The ranks' own gradients are the same; their sum has eight terms.
TEST(OptimizerParallel, contracts_8_5_1_the_loss_over_100_steps_is_the_one_without) {
  const Graph graph = step(Sgd{.momentum = 0.9});
  constexpr int kLong = 100;
  const Curve plain = std::move(train_curves(graph, 8, {}, 0.01F, {}, kLong)[0]);
  for (const int level : {1, 2, 3}) {
    const std::vector<Curve> found = train_curves(graph, 8, sliced(level), 0.01F, {}, kLong);
    EXPECT_EQ(difference_from(plain, found, rounding_share(8, kLong)), "") << "level " << level;
  }
}

TEST(OptimizerParallel, only_parameters_that_are_large_enough_are_sliced) {
  const Graph graph = step(AdamW{});
  const Strategy strategy = semi_auto(graph, 8, sliced(3));
  EXPECT_EQ(shown(graph, strategy, "layers.1.weight"), "[dp, -]");  // 1024 KiB
  EXPECT_EQ(shown(graph, strategy, "layers.1.weight.m"), "[dp, -]");
  EXPECT_EQ(shown(graph, strategy, "layers.2.weight"), "[-, -]");  // 20 KiB
  EXPECT_EQ(shown(graph, strategy, "layers.1.bias"), "[-]");       // 2 KiB
  EXPECT_EQ(local_shape(Shape{512, 512}, layout_of(graph, strategy, "layers.1.weight"), strategy.mesh),
            (Shape{64, 512}));
}

// Weights [11,12], [15,11] and [10,15], and biases: 2 and 4 ranks divide one dimension of a weight, or none.
Graph odd_step(const Optimizer& optimizer, double clip_norm = 0, Numerics numerics = Numerics::kFast) {
  nn::Mlp mlp({12, 11, 15, 10});
  return training_step(mlp_model(mlp), class_loss(), batch(), optimizer,
                       {.name = "odd", .clip_norm = clip_norm, .numerics = numerics});
}

TEST(OptimizerParallel, what_the_ranks_do_not_divide_is_sliced_along_another_dimension_or_in_uneven_parts) {
  const Graph graph = odd_step(AdamW{});
  const Strategy two = semi_auto(graph, 2, sliced(1, 0));
  EXPECT_EQ(shown(graph, two, "layers.0.weight.m"), "[-, dp]") << "12 columns divide, 11 rows do not";
  EXPECT_EQ(shown(graph, two, "layers.1.weight.m"), "[dp, -]") << "8 rows of 11 are fewer elements than 15 of 6";
  EXPECT_EQ(shown(graph, two, "layers.2.weight.m"), "[dp, -]");
  EXPECT_EQ(shown(graph, two, "layers.1.bias.m"), "[dp]");
  EXPECT_EQ(shown(graph, two, "layers.1.weight"), "[-, -]");
  EXPECT_EQ(shown(graph, semi_auto(graph, 2, sliced(3, 0)), "layers.1.weight"), "[dp, -]");
  // 8 parts of 2 leave some of 10 elements empty, 4 parts do not.
  const Strategy eight = semi_auto(graph, 8, sliced(1, 0));
  EXPECT_EQ(shown(graph, eight, "layers.2.bias.m"), "[dp.1*dp.2]");
}

// A piece of an uneven part has the size of the longest.
TEST(OptimizerParallel, memory_of_uneven_slices_is_that_of_the_longest) {
  const Graph graph = odd_step(AdamW{});
  const auto persistent = [&](int level) {
    return compile(graph, {.ranks = 2, .parallel = sliced(level, 0)}).plan().arena().persistent;
  };
  const int64_t whole = 11 * 12 + 11 + 15 * 11 + 15 + 10 * 15 + 10, pieces = 11 * 6 + 6 + 8 * 11 + 8 + 5 * 15 + 5;
  // Each buffer begins at a multiple of 64 bytes.
  const auto padded = [](int64_t elements) { return (elements * 4 + 63) / 64 * 64; };
  int64_t saved = 0;
  for (const auto& [all, piece] : std::vector<std::pair<int64_t, int64_t>>{
           {11 * 12, 11 * 6}, {11, 6}, {15 * 11, 8 * 11}, {15, 8}, {10 * 15, 5 * 15}, {10, 5}})
    saved += padded(all) - padded(piece);
  EXPECT_GT(whole, pieces);
  EXPECT_EQ(persistent(0) - persistent(1), 2 * saved);
  EXPECT_EQ(persistent(0) - persistent(3), 3 * saved);
}

TEST(OptimizerParallel, uneven_slices_train_as_whole_parameters_do) {
  for (const int64_t ranks : {2, 4, 8}) {
    for (const double clip : {0.0, 0.5}) {
      const Graph graph = odd_step(AdamW{}, clip);
      const Curve plain = std::move(train_curves(graph, static_cast<int>(ranks), {}, 0.01F)[0]);
      for (const int level : {1, 2, 3}) {
        const std::vector<Curve> found = train_curves(graph, static_cast<int>(ranks), sliced(level, 0), 0.01F);
        EXPECT_EQ(difference_from(plain, found, rounding_share(ranks)), "") << ranks << " ranks, level " << level;
      }
    }
  }
}

// Level 3 of a model in bf16: a weight [15, 11] is cast in slices and gathered for each pass.
TEST(OptimizerParallel, uneven_slices_of_weights_that_are_read_in_bf16_are_gathered_in_bf16) {
  nn::Mlp mlp({12, 15, 11, 10});
  const Graph graph = training_step(mlp_model(mlp), class_loss(), batch(), AdamW{}, {.compute = DType::kBF16});
  const Compiled compiled = compile(graph, {.ranks = 2, .parallel = sliced(3, 0)});
  int gathers = 0;
  for (const Node& node : compiled.partitioned.graph.nodes()) {
    if (node.op->name != "all_gather" || node.phase == Phase::kUpdate) continue;
    const TensorType& type = compiled.partitioned.graph.type(node.outputs[0]);
    if (type.shape.rank() != 2) continue;
    EXPECT_EQ(type.dtype, DType::kBF16) << to_string(type);
    ++gathers;
  }
  EXPECT_EQ(gathers, 5) << "three forward, two backward";
}

TEST(OptimizerParallel, a_checkpoint_of_uneven_slices_is_read_by_other_numbers_of_ranks_and_levels) {
  const std::string folder = testing::TempDir() + "uneven_slices";
  std::filesystem::remove_all(folder);
  const Graph graph = odd_step(AdamW{}, 0.5, Numerics::kInvariant);
  const auto options = [&](comm::World* world, int level) {
    return Session::Options{
        .world = world, .seed = 3, .compile = {.parallel = sliced(level, 0), .numerics = Numerics::kInvariant}};
  };
  const auto losses = [](Session& session, int from, int to) {
    std::vector<float> out;
    for (int step = from; step <= to; ++step) out.push_back(train_step(session, step, 0.05F));
    return out;
  };
  Session alone(graph, std::nullopt, options(nullptr, 0));
  alone.initialise();
  const std::vector<float> expected = losses(alone, 1, 5);
  comm::spawn_ranks(4, "threads", [&](comm::World& world) {
    Session session(graph, std::nullopt, options(&world, 3));
    session.initialise();
    losses(session, 1, 3);
    save_session(session, &world, {.root = folder, .step = 3});
  });
  for (const auto& [ranks, level] : std::vector<std::pair<int, int>>{{2, 1}, {4, 2}, {8, 3}, {2, 0}}) {
    comm::spawn_ranks(ranks, "threads", [&, level = level](comm::World& world) {
      Session session(graph, std::nullopt, options(&world, level));
      load_session(session, ckpt::Reader(folder));
      EXPECT_EQ(losses(session, 4, 5), std::vector<float>(expected.begin() + 3, expected.end())) << "level " << level;
    });
  }
  std::filesystem::remove_all(folder);
}

TEST(OptimizerParallel, contracts_8_5_4_a_parameter_exactly_at_the_threshold_is_sliced) {
  const Graph graph = step(AdamW{});
  EXPECT_EQ(shown(graph, semi_auto(graph, 8, sliced(1, 1024)), "layers.1.weight.m"), "[dp, -]");
  EXPECT_EQ(shown(graph, semi_auto(graph, 8, sliced(1, 1025)), "layers.1.weight.m"), "[-, -]");
}

TEST(OptimizerParallel, contracts_8_5_2_state_of_sliced_parameters_is_an_eighth_on_each_rank) {
  const Graph graph = step(AdamW{});
  const Compiled plain = compile(graph, {.ranks = 8});
  const Compiled first = compile(graph, {.ranks = 8, .parallel = sliced(1)});
  const Compiled third = compile(graph, {.ranks = 8, .parallel = sliced(3)});
  const int64_t weight = int64_t{512} * 512 * 4;
  EXPECT_EQ(plain.plan().arena().persistent - first.plan().arena().persistent, 2 * weight * 7 / 8);
  EXPECT_EQ(plain.plan().arena().persistent - third.plan().arena().persistent, 3 * weight * 7 / 8);
}

TEST(OptimizerParallel,
     contracts_8_5_3_slices_shared_by_2_of_8_ranks_repeat_4_times_and_a_size_that_makes_no_group_is_ignored) {
  const Graph graph = step(AdamW{});
  const Strategy pairs = semi_auto(graph, 8, sliced(1, 64, 2));
  const Layout& layout = layout_of(graph, pairs, "layers.1.weight.m");
  for (int64_t rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(local_box(Shape{512, 512}, layout, pairs.mesh, rank).start[0], rank % 2 * 256) << rank;
  }
  EXPECT_EQ(shown(graph, semi_auto(graph, 8, sliced(1, 64, 3)), "layers.1.weight.m"), "[dp, -]");
}

TEST(OptimizerParallel, a_parameter_that_is_left_out_by_name_stays_whole) {
  const Graph graph = step(AdamW{});
  Parallel parallel = sliced(3);
  parallel.optimizer.except = {"layers.1.*"};
  EXPECT_EQ(shown(graph, semi_auto(graph, 8, parallel), "layers.1.weight"), "[-, -]");
}

TEST(OptimizerParallel, levels_2_and_3_scatter_gradients_and_level_3_gathers_weights_for_each_pass) {
  const Graph graph = step(AdamW{});
  const auto calls = [&](int level) {
    const Compiled compiled = compile(graph, {.ranks = 8, .parallel = sliced(level)});
    std::map<std::string, int> out;
    for (const Node& node : compiled.partitioned.graph.nodes()) {
      for (const ValueId id : node.outputs) {
        if (compiled.partitioned.whole[static_cast<size_t>(id)] == Shape{512, 512}) ++out[std::string(node.op->name)];
      }
    }
    return out;
  };
  EXPECT_EQ(calls(0)["all_reduce"], 1);
  for (const int level : {2, 3}) {
    EXPECT_EQ(calls(level)["all_reduce"], 0) << level;
    EXPECT_EQ(calls(level)["reduce_scatter"], 1) << level;
  }
  EXPECT_EQ(calls(2)["all_gather"], 1);  // of the updated weight
  EXPECT_EQ(calls(3)["all_gather"], 2);  // forward, and again for the backward pass
}

// Seven layers, whose gradients of the weights are 256 KiB each.
Graph deep_step(double clip_norm) {
  nn::Mlp mlp({12, 256, 256, 256, 256, 256, 256, 256, 10});
  return training_step(mlp_model(mlp), class_loss(), batch(), AdamW{}, {.name = "deep", .clip_norm = clip_norm});
}

// The clip waits for all gradients: nothing but the bound on sums in flight frees those that are whole.
TEST(OptimizerParallel, clipped_gradients_are_whole_only_until_their_slices_are_summed) {
  for (const int level : {2, 3}) {
    const ExecutionPlan plan = compile(deep_step(1), {.ranks = 4, .parallel = sliced(level)}).plan();
    std::vector<Buffer> whole;
    for (const Action& action : plan.actions) {
      if (action.op->name != "reduce_scatter") continue;
      whole.push_back(plan.buffers[static_cast<size_t>(plan.values[static_cast<size_t>(action.in[0])].buffer)]);
    }
    EXPECT_EQ(whole.size(), 6);
    for (int i = 0; i < static_cast<int>(plan.actions.size()); ++i) {
      EXPECT_LE(std::ranges::count_if(whole, [&](const Buffer& b) { return b.first <= i && i <= b.last; }), 3)
          << "level " << level << ", action " << i << ": two are summed while the next is computed";
    }
  }
}

TEST(OptimizerParallel, gathered_parameters_are_written_over_the_old_ones) {
  for (const double clip : {0.0, 1.0}) {
    const ExecutionPlan plan = compile(deep_step(clip), {.ranks = 4, .parallel = sliced(2)}).plan();
    int gathered = 0;
    for (const Action& action : plan.actions) {
      if (action.op->name != "all_gather") continue;
      for (const int id : action.out) {
        const Buffer& buffer = plan.buffers[static_cast<size_t>(plan.values[static_cast<size_t>(id)].buffer)];
        EXPECT_EQ(buffer.holding, Holding::kParameter) << "clip " << clip << ", value " << id;
        ++gathered;
      }
    }
    EXPECT_EQ(gathered, 6) << "clip " << clip;
    for (const PlanOutput& output : plan.outputs) {
      if (output.updates < 0) continue;
      EXPECT_EQ(plan.values[static_cast<size_t>(output.value)].buffer,
                plan.values[static_cast<size_t>(output.updates)].buffer)
          << output.name;
    }
  }
}

TEST(OptimizerParallel, options_out_of_range_are_refused) {
  const Graph graph = step(AdamW{});
  const auto error_of = [&](const Parallel& parallel) -> std::string {
    try {
      semi_auto(graph, 8, parallel);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_of(sliced(4)), HasSubstr("optimizer parallelism of level 4; it must be 0, 1, 2 or 3"));
  EXPECT_THAT(error_of(sliced(1, -1)), HasSubstr("a threshold of -1 KiB; it must be 0 or more"));
  EXPECT_THAT(error_of(sliced(1, 64, 9)),
              HasSubstr("a shard size of 9; it must be from 1 to 8, the number of ranks, or -1"));
}

TEST(StrategyFile, a_strategy_that_was_written_down_trains_alike_and_fits_its_model_and_ranks_only) {
  const Graph graph = step(Sgd{.momentum = 0.9});
  Parallel tensor;
  tensor.mesh = "dp=2,tp=2";
  tensor.ops = {{"layers.1", "[dp, -], [tp, -]"}, {"layers.2", "[dp, tp], [-, tp]"}};
  Parallel file;
  const std::string text = to_string(graph, semi_auto(graph, 4, tensor));
  file.strategy = text;
  EXPECT_EQ(to_string(graph, semi_auto(graph, 4, file)), text);
  EXPECT_EQ(other_bits(train_curves(graph, 4, file, 0.01F), train_curves(graph, 4, tensor, 0.01F)), "");
  const auto error_of = [&](const Graph& other, int64_t ranks) -> std::string {
    try {
      semi_auto(other, ranks, file);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_of(graph, 8), HasSubstr("the strategy is for 4 ranks (mesh 'dp=2,tp=2') but the job has 8"));
  EXPECT_THAT(error_of(mlp_step(Sgd{}), 4), HasSubstr("the strategy is for another model than 'mlp'"));
}

// Contracts 21.
TEST(StrategyFile, with_the_trained_parameters_only_everything_else_follows) {
  const Graph graph = step(Sgd{.momentum = 0.9});
  Parallel tensor;
  tensor.mesh = "dp=2,tp=2";
  tensor.ops = {{"layers.1", "[dp, -], [tp, -]"}, {"layers.2", "[dp, tp], [-, tp]"}};
  Parallel file;
  const std::string text = trained_parameters_to_string(graph, semi_auto(graph, 4, tensor));
  file.strategy = text;
  EXPECT_THAT(text, HasSubstr("strategy mesh=\"dp=2,tp=2\" only=parameters\n"));
  EXPECT_THAT(text, HasSubstr("input \"layers.1.weight\" "));
  EXPECT_THAT(text, testing::Not(HasSubstr("node ")));
  EXPECT_EQ(trained_parameters_to_string(graph, semi_auto(graph, 4, file)), text);
  EXPECT_EQ(other_bits(train_curves(graph, 4, file, 0.01F), train_curves(graph, 4, tensor, 0.01F)), "");
  const auto error_with = [&](const std::string& from, const std::string& to) -> std::string {
    std::string changed = text;
    changed.replace(text.find(from), from.size(), to);
    try {
      semi_auto(graph, 4, {.strategy = changed});
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_with("layers.1.weight", "layers.1.wieght"),
              HasSubstr("the model trains no parameter 'layers.1.wieght'. Did you mean"));
  EXPECT_THAT(error_with("\ninput \"layers.1.weight\"", "\nnode \"layers.1.weight\""),
              HasSubstr("unexpected 'node' in a file of parameters only"));
  EXPECT_THAT(error_with("layers.1.weight\" f32[", "layers.1.weight\" f32[9"), HasSubstr("in the model, and f32[9"));
  EXPECT_THAT(error_with("mesh=\"dp=2,tp=2\"", "mesh=\"dp=2,tp=4\""),
              HasSubstr("the strategy is for 8 ranks (mesh 'dp=2,tp=4') but the job has 4"));
  const size_t first = text.find("input");
  EXPECT_THAT(error_with(text.substr(first, text.find('\n', first) + 1 - first), ""), HasSubstr("is missing"));
}

TEST(DatasetStrategy, contracts_4_3_1_the_full_batch_on_every_rank_and_slices_of_it_train_alike) {
  const Graph graph = step(Sgd{.momentum = 0.9});
  Parallel full;
  full.dataset = "full_batch";
  const Curve whole = train_curve(graph, nullptr, {}, 0.05F);
  const double share = 4 * rounding_share(graph);  // terms of both signs: sums of 512 are small beside them
  EXPECT_EQ(difference_from(whole, train_curves(graph, 8, full, 0.05F), share), "");
  EXPECT_EQ(difference_from(whole, train_curves(graph, 8, {}, 0.05F), share), "");
}

TEST(DatasetStrategy, contracts_4_3_2_a_tile_of_each_image_lies_on_the_documented_ranks) {
  nn::LeNet lenet(10);
  const Graph graph = training_step([&](const Tensor& x) { return lenet(x); }, class_loss(),
                                    {{"x", {DType::kF32, {4, 28, 28, 1}}}, {"y", {DType::kI32, {4}}}}, Sgd{});
  Parallel tiles;
  tiles.dataset = "{{1,1,4,1},{1}}";
  const Strategy strategy = semi_auto(graph, 8, tiles);
  const Layout& image = layout_of(graph, strategy, "x");
  const Shape whole{4, 28, 28, 1};
  EXPECT_EQ(local_shape(whole, image, strategy.mesh), (Shape{4, 28, 7, 1}));
  EXPECT_EQ(local_box(whole, image, strategy.mesh, 5), local_box(whole, image, strategy.mesh, 1));
  EXPECT_NE(local_box(whole, image, strategy.mesh, 5), local_box(whole, image, strategy.mesh, 4));

  EXPECT_EQ(difference_on(8, graph, tiles, 0.01F), "");
}

TEST(DatasetStrategy, contracts_4_3_3_several_dimensions_of_one_input_may_be_cut) {
  nn::LeNet lenet(10);
  const Graph graph = training_step([&](const Tensor& x) { return lenet(x); }, class_loss(),
                                    {{"x", {DType::kF32, {4, 28, 28, 1}}}, {"y", {DType::kI32, {4}}}}, Sgd{});
  Parallel tiles;
  tiles.dataset = "{{1,4,2,1},{1}}";
  const Strategy strategy = semi_auto(graph, 8, tiles);
  EXPECT_EQ(local_shape(Shape{4, 28, 28, 1}, layout_of(graph, strategy, "x"), strategy.mesh), (Shape{4, 7, 14, 1}));
  Parallel labels;
  labels.dataset = "{{1,1,1,1},{4}}";
  EXPECT_NO_THROW(semi_auto(graph, 8, labels));
}

TEST(DatasetStrategy, contracts_4_3_4_what_does_not_divide_is_refused) {
  nn::Mlp mlp({12, 16, 10});
  const Graph graph = training_step(mlp_model(mlp), class_loss(), mlp_batch(30), Sgd{});
  const auto error_of = [&](const std::string& dataset) -> std::string {
    try {
      semi_auto(graph, 8, {.dataset = dataset});
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_of("data_parallel"),
              HasSubstr("the batch of 30 samples ('x' f32[30,12]) does not divide over 8 ranks"));
  EXPECT_THAT(error_of("{{4,1},{4}}"), HasSubstr("'x'"));
  EXPECT_THAT(error_of("{{2,1}}"), HasSubstr("dataset strategy '{{2,1}}' has 1 input; 'y' is one more"));
  EXPECT_THAT(error_of("{{2},{2}}"), HasSubstr("'x' has 2 dimensions (f32[30,12]), not 1"));
  EXPECT_THAT(error_of("halves"), HasSubstr("it must be data_parallel, full_batch, a layout"));
}

}  // namespace
}  // namespace trireme::optimizer_parallel_test
