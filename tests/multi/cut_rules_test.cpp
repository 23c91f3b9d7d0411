// What a job says about its cuts takes effect, or is refused, or is told: single ops among others of their name, the
// axis of the batch, optimizer parallelism.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/multi/small_graphs.h"
#include "tests/multi/training_support.h"
#include "trireme/parallel/asked/op_names.h"
#include "trireme/parallel/without_effect.h"
#include "trireme/partition/why.h"
#include "trireme/train/job/parallel_settings.h"
#include "trireme/train/step/compile/compile.h"

namespace trireme::cut_rules_test {
namespace {

using namespace testing_support;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

Graph deep_mlp() {
  nn::Mlp mlp({12, 16, 16, 16, 8});
  return training_step(mlp_model(mlp), class_loss(), mlp_batch(), AdamW{}, {.name = "mlp"});
}

Layout result_of(const Graph& graph, const Strategy& strategy, std::string_view op, int occurrence) {
  const std::vector<int> occurrences = occurrences_of(graph);
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (node.op->name != op || occurrences[i] != occurrence || !graph.scope_of(node).empty()) continue;
    return result_layouts(*rule_of(graph, node), strategy.nodes[i]).front();
  }
  return {};
}

// -- single ops --------------------------------------------------------------------------------------

TEST(CutRules, the_second_op_of_a_name_in_a_scope_is_cut_by_its_number) {
  const Graph graph = deep_mlp();
  const auto shown = [&](const std::string& pattern, int occurrence) {
    const Strategy strategy = semi_auto(graph, 4, {.mesh = "dp=2,tp=2", .ops = {{pattern, "[dp, tp]"}}});
    const std::string text = to_string(graph, strategy);
    EXPECT_EQ(to_string(graph, parse_strategy(text, graph)), text);
    return to_string(result_of(graph, strategy, "relu", occurrence), strategy.mesh);
  };
  EXPECT_EQ(shown("/relu", 0), "[dp, tp]");
  EXPECT_EQ(shown("/relu", 1), "[dp, -]");
  EXPECT_EQ(shown("/relu#0", 0), "[dp, tp]");
  EXPECT_EQ(shown("/relu#1", 0), "[dp, -]");
  EXPECT_EQ(shown("/relu#1", 1), "[dp, tp]");
  EXPECT_EQ(shown("/relu#1", 2), "[dp, -]");
  EXPECT_EQ(shown("/relu#2", 2), "[dp, tp]");
}

TEST(CutRules, an_attribute_goes_to_all_ops_of_a_name_or_to_one) {
  Graph graph;
  const Tensor x = testing_support::data_input(graph, "x", {8, 4});
  graph.set_scope("norm");
  graph.add_output("sums", mul(reduce_sum(x, {0}), reduce_sum(square(x), {0})).id());
  const auto vouched = [&](const std::string& pattern) {
    const Strategy strategy = semi_auto(graph, 2, {.ops = {{pattern, "cross_batch"}}});
    std::vector<bool> out;
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      if (graph.nodes()[i].op->name == "reduce_sum") out.push_back(strategy.nodes[i].vouched.has_value());
    }
    return out;
  };
  EXPECT_THAT(vouched("norm/reduce_sum"), ElementsAre(true, true));
  EXPECT_THAT(vouched("norm/reduce_sum#0"), ElementsAre(true, false));
  EXPECT_THAT(vouched("*/reduce_sum#1"), ElementsAre(false, true));
}

TEST(CutRules, an_op_that_is_not_there_is_refused_with_those_that_are) {
  const Graph graph = deep_mlp();
  const auto refused = [&](const std::string& pattern, const std::string& cuts) {
    return error_of([&] { semi_auto(graph, 2, {.ops = {{pattern, cuts}}}); });
  };
  EXPECT_THAT(refused("/relu#3", "[dp, -]"),
              testing::AllOf(HasSubstr("rule '/relu#3': '' has no op 'relu#3'; its ops are "),
                             HasSubstr("'relu', 'relu#1', 'relu#2'")));
  EXPECT_THAT(refused("/relu#one", "[dp, -]"),
              HasSubstr("'one' is not an occurrence of 'relu'; count from 0, as in relu#1 for the second"));
  EXPECT_THAT(refused("/relu#-1", "[dp, -]"), HasSubstr("'-1' is not an occurrence"));
  EXPECT_THAT(refused("layers.0/reduce_sum", "cross_batch"),
              HasSubstr("'layers.0' has no op 'reduce_sum'; its ops are 'matmul' or 'add'"));
  EXPECT_THAT(refused("layer.0/reduce_sum", "cross_batch"),
              HasSubstr("matches no part of the model. Did you mean 'layers.0'?"));
}

TEST(CutRules, explain_and_strategy_files_name_ops_by_their_number) {
  const Graph graph = deep_mlp();
  const Strategy strategy = semi_auto(graph, 2, {});
  const std::string text = to_string(graph, strategy);
  EXPECT_THAT(text, HasSubstr("\nnode \"/relu\" *0=dp\n"));
  EXPECT_THAT(text, HasSubstr("\nnode \"/relu#1\" *0=dp\n"));
  EXPECT_EQ(to_string(graph, parse_strategy(text, graph)), text);
  const std::string about = why(graph, strategy, "/relu#1", {});
  EXPECT_THAT(about, HasSubstr("relu#1 of ''\n  why: "));
  EXPECT_THAT(about, Not(HasSubstr("relu#2 of")));
  EXPECT_THAT(why(graph, strategy, "layers.1.weight", {}), HasSubstr("by matmul of 'layers.1'"));
}

// The graph of an evaluation has fewer ops.
TEST(CutRules, rules_for_ops_of_the_training_step_alone_leave_its_evaluation_be) {
  const auto graphs = [](const std::string& pattern, const std::string& cuts) {
    nn::Gpt gpt({.vocabulary = 20, .context = 8, .layers = 1, .width = 16, .heads = 2, .dropout = 0.1});
    const ModelFn model = [&](const Tensor& x) { return gpt(x); };
    return compile(training_step(model, class_loss(), gpt_batch(), AdamW{}, {.name = "gpt"}),
                   evaluation(model, class_loss(), gpt_batch(), {.name = "gpt"}),
                   {.ranks = 2, .parallel = {.ops = {{pattern, cuts}}}});
  };
  EXPECT_TRUE(graphs("h.0.attn.resid_dropout/dropout", "[dp, -, -], []").evaluation);
  EXPECT_THAT(error_of([&] { graphs("h.0.attn.resid_dropout/dropouts", "[dp, -, -], []"); }),
              HasSubstr("has no op 'dropouts'"));
}

// -- the axis of the batch -------------------------------------------------------------------------------

TEST(CutRules, a_mesh_without_dp_does_not_repeat_the_whole_batch_unsaid) {
  const Graph graph = mlp_step(AdamW{});
  const auto layout = [&](const std::string& mesh, const std::string& dataset) {
    const Strategy strategy = semi_auto(graph, 2, {.mesh = mesh, .dataset = dataset});
    return to_string(strategy.inputs[0], strategy.mesh);
  };
  EXPECT_EQ(error_of([&] { layout("data=2", "data_parallel"); }),
            "the mesh 'data=2' has no axis 'dp', over which the dataset strategy data_parallel cuts the batch; name "
            "the axis 'dp', or set how the batch is cut: parallel.dataset = '[data]', or 'full_batch' where every rank "
            "works on all of it");
  EXPECT_EQ(layout("data=2", "[data]"), "[data, -]");
  EXPECT_EQ(layout("data=2", "full_batch"), "[-, -]");
  EXPECT_EQ(layout("dp=1,tp=2", "data_parallel"), "[-, -]") << "dp is said, of one rank";
  EXPECT_EQ(layout("dp=2", "data_parallel"), "[dp, -]");
  EXPECT_NO_THROW(semi_auto(graph, 1, {.mesh = "data=1"}));
}

TEST(CutRules, an_evaluation_cuts_its_batch_as_the_strategy_file_of_the_step_does) {
  const Graph step = mlp_step(AdamW{});
  const Strategy strategy = semi_auto(step, 2, {.mesh = "data=2", .dataset = "[data]"});
  const CompiledJob job =
      compile(mlp_step(AdamW{}), mlp_evaluation(), {.ranks = 2, .parallel = {.strategy = to_string(step, strategy)}});
  EXPECT_EQ(to_string(job.evaluation->strategy.inputs[0], job.evaluation->strategy.mesh), "[data, -]");
}

TEST(CutRules, axes_that_cut_nothing_are_told) {
  const Graph graph = mlp_step(AdamW{});
  const auto told = [&](const Parallel& parallel) {
    return without_effect(graph, semi_auto(graph, 4, parallel), parallel.optimizer);
  };
  EXPECT_THAT(told({}), IsEmpty());
  EXPECT_THAT(told({.mesh = "dp=2,tp=2"}),
              ElementsAre("axis 'tp' of the mesh 'dp=2,tp=2' cuts nothing: its 2 ranks repeat each other's work"));
  EXPECT_THAT(told({.mesh = "dp=2,tp=2", .ops = {{"layers.0", "[dp, -], [tp, -]"}}}), IsEmpty());
  EXPECT_THAT(told({.dataset = "full_batch"}), ElementsAre(HasSubstr("axis 'dp' of the mesh 'dp=4' cuts nothing")));
  EXPECT_THAT(told({.accumulation = 2}), IsEmpty());
}

// -- optimizer parallelism ---------------------------------------------------------------------------------

Parallel sliced(int64_t shard_size, int64_t threshold_kb = 0) {
  return {.optimizer = {.level = 1, .threshold_kb = threshold_kb, .shard_size = shard_size}};
}

TEST(CutRules, a_shard_size_that_divides_makes_groups_on_any_number_of_ranks) {
  nn::Mlp mlp({24, 48, 12});
  const Graph graph = training_step(mlp_model(mlp), class_loss(),
                                    {{"x", {DType::kF32, {24, 24}}}, {"y", {DType::kI32, {24}}}}, AdamW{}, {});
  const auto slices = [&](int64_t ranks, int64_t size) {
    const Strategy strategy = semi_auto(graph, ranks, sliced(size));
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
      if (graph.inputs()[i].name == "layers.0.weight.m") return strategy.inputs[i].cuts(0, strategy.mesh);
    }
    return int64_t{0};
  };
  for (const auto& [ranks, sizes] :
       std::map<int64_t, std::vector<int64_t>>{{6, {1, 2, 3, 6}}, {12, {1, 2, 3, 4, 6, 12}}, {8, {2, 4, 8}}}) {
    for (const int64_t size : sizes) EXPECT_EQ(slices(ranks, size), size) << ranks;
  }
  EXPECT_EQ(slices(6, 4), 6) << "4 makes no group of 6";
  const auto told = [&](int64_t size) {
    return without_effect(graph, semi_auto(graph, 6, sliced(size)), sliced(size).optimizer);
  };
  EXPECT_THAT(told(3), IsEmpty());
  EXPECT_THAT(
      told(4),
      ElementsAre(
          "optimizer parallelism: a shard size of 4 is ignored for 4 parameters, the first 'layers.0.weight', whose "
          "gradient is summed over 6 ranks; use a divisor of that"));
  Parallel none_divides = sliced(4);
  none_divides.optimizer.threshold_kb = 64;
  EXPECT_THAT(without_effect(graph, semi_auto(graph, 6, none_divides), none_divides.optimizer),
              ElementsAre("optimizer parallelism of level 1 slices nothing: a shard size of 4 makes no groups of the 6 "
                          "ranks that gradients are summed over; use a divisor of that"));
}

TEST(CutRules, an_optimizer_parallelism_that_slices_nothing_is_told) {
  const auto told = [](const Graph& graph, int64_t level, int64_t threshold_kb, const std::string& mesh) {
    const Parallel parallel{.mesh = mesh,
                            .dataset = mesh.starts_with("dp") ? "data_parallel" : "full_batch",
                            .optimizer = {.level = level, .threshold_kb = threshold_kb}};
    std::vector<std::string> out = without_effect(graph, semi_auto(graph, 2, parallel), parallel.optimizer);
    std::erase_if(out, [](const std::string& text) { return text.starts_with("axis "); });
    return out;
  };
  const Graph graph = mlp_step(AdamW{});
  for (const int64_t level : {1, 2, 3}) {
    EXPECT_THAT(told(graph, level, 0, "dp=2"), IsEmpty()) << level;
    EXPECT_THAT(told(graph, level, 64, "dp=2"),
                ElementsAre(AllOf(HasSubstr("slices nothing: no parameter that is not excepted has 64 KiB or more"),
                                  StartsWith(fmt::format("optimizer parallelism of level {} ", level)))));
    EXPECT_THAT(told(graph, level, 0, "tp=2"), ElementsAre(HasSubstr("slices nothing: no gradient is summed")));
  }
  EXPECT_THAT(told(graph, 0, 64, "dp=2"), IsEmpty());
  EXPECT_THAT(told(mlp_evaluation(), 1, 64, "dp=2"), IsEmpty()) << "an evaluation has nothing to slice";
  EXPECT_THAT(told(mlp_step(Sgd{}), 2, 0, "dp=2"), IsEmpty()) << "gradients are sliced where there is no state";
}

TEST(CutRules, what_optimizer_parallelism_leaves_whole_is_told_with_its_reasons) {
  nn::Mlp mlp({12, 128, 128, 1});
  const Graph graph = training_step(mlp_model(mlp), class_loss(), mlp_batch(), AdamW{}, {});
  const auto told = [&](const OptimizerParallel& zero) {
    return stays_whole(graph, semi_auto(graph, 2, {.optimizer = zero}), zero);
  };
  EXPECT_EQ(told({.level = 1}),
            "optimizer parallelism of level 1 leaves 5 of 6 parameters whole, 7.50 KiB on every rank: 5 (7.50 KiB) are "
            "below 64 KiB");
  EXPECT_EQ(told({.level = 3, .threshold_kb = 1, .except = {"layers.0.*"}}),
            "optimizer parallelism of level 3 leaves 5 of 6 parameters whole, 7.50 KiB on every rank: 3 (1.00 KiB) are "
            "below 1 KiB; 2 (6.50 KiB) are named by zero_except");
  EXPECT_EQ(told({.level = 2, .threshold_kb = 0}),
            "optimizer parallelism of level 2 leaves 1 of 6 parameters whole, 4 B on every rank: 1 (4 B) have "
            "no dimension that falls in parts over the ranks, the largest is 'layers.2.bias'");
  EXPECT_EQ(told({}), "") << "not asked for";
  // Of a layer that is computed alike by all, nobody sums a gradient.
  const OptimizerParallel zero{.level = 1, .threshold_kb = 1};
  const Parallel alike{.ops = {{"layers.1", "[-, -], [-, -]"}}, .optimizer = zero};
  EXPECT_THAT(stays_whole(graph, semi_auto(graph, 2, alike), zero),
              HasSubstr("of 1 (64.0 KiB) each rank computes the whole gradient, which none sum, the largest is "
                        "'layers.1.weight'"));
  const OptimizerParallel large{.level = 1, .threshold_kb = 60};
  const Parallel alone{.ops = {{"layers.1", "[-, -], [-, -]"}}, .optimizer = large};
  EXPECT_THAT(without_effect(graph, semi_auto(graph, 2, alone), large),
              ElementsAre(HasSubstr("in parts; of 1 as large each rank computes the whole gradient")));
  const OptimizerParallel misspelt{.level = 1, .threshold_kb = 1, .except = {"layers.0.*", "layers.1.wieght"}};
  EXPECT_THAT(
      without_effect(graph, semi_auto(graph, 2, {.optimizer = misspelt}), misspelt),
      ElementsAre(HasSubstr("parallel.zero_except 'layers.1.wieght' names no parameter that is trained. Did you "
                            "mean 'layers.1.weight'?")));
}

TEST(CutRules, a_threshold_of_any_size_is_compared_exactly) {
  const Graph graph = mlp_step(AdamW{});
  const auto is_plain = [&](int64_t threshold) {
    return to_string(graph, semi_auto(graph, 2, sliced(-1, threshold))) == to_string(graph, semi_auto(graph, 2, {}));
  };
  EXPECT_FALSE(is_plain(0));
  for (const int64_t threshold :
       {int64_t{1} << 20, int64_t{1} << 53, (int64_t{1} << 54) + 1, std::numeric_limits<int64_t>::max()}) {
    EXPECT_TRUE(is_plain(threshold)) << threshold;
  }
}

TEST(CutRules, what_a_model_that_is_cut_by_hand_cannot_follow_is_refused) {
  const auto error = [](Parallel parallel) {
    parallel.by_hand = true;
    return error_of([&] { compile(mlp_step(AdamW{}), {.ranks = 2, .parallel = parallel}); });
  };
  EXPECT_EQ(error({}), "no error");
  EXPECT_THAT(
      error(sliced(-1)),
      HasSubstr("optimizer parallelism of level 1 (zero) is for what the compiler cuts; this model is cut by hand"));
  EXPECT_THAT(error({.ops = {{"layers.0", "[dp, -], [-, -]"}}}),
              HasSubstr("the rule for ops 'layers.0' is for what the compiler cuts"));
  EXPECT_THAT(error({.parameters = {{"layers.0.*", "[dp]"}}}), HasSubstr("the rule for parameters 'layers.0.*'"));
  EXPECT_THAT(error({.communication = {.all_in_f32 = true}}), HasSubstr("force_fp32_communication is for what"));
  EXPECT_THAT(error({.accumulation = 2, .pipeline = {.crews = 2}}),
              HasSubstr("a pipeline of 2 parts (pp) is for what"));
  JobConfig config;
  set_keys(config, {"model.kind=mlp"});
  config.parallel.zero.level = 1;
  config.parallel.layerwise = {{"layers.1.bias", kOwnPiece}};
  EXPECT_THAT(error_of([&] { parallel_of(config, 2); }),
              HasSubstr("parallel.zero = 1 slices parameters that the compiler cuts, and parallel.layerwise has ranks "
                        "run the model as its code cuts it"));
}

}  // namespace
}  // namespace trireme::cut_rules_test
