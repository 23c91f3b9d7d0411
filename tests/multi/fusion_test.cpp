// Fusion of collectives, and their reuse: sections 15 and 16 of the contracts on models that train.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multi/loss_curve.h"
#include "tests/multi/small_graphs.h"
#include "tests/multi/training_support.h"
#include "trireme/base/log.h"
#include "trireme/op/registry.h"
#include "trireme/parallel/asked/fusion.h"

namespace trireme::fusion_test {
namespace {

using namespace testing_support;
using testing::ElementsAre;
using testing::HasSubstr;
using Mode = FusionOfKind::Mode;

// Two linear maps: four parameters.
class Layer : public nn::Module {
 public:
  Layer(const std::string& name, int64_t width)
      : Module(name), up_(width, 2 * width, {.name = "up"}), down_(2 * width, width, {.name = "down"}) {}
  Tensor forward(const Tensor& x) override { return down_(relu(up_(x))); }

 private:
  nn::Linear up_, down_;
};

// head, layer1, layer2 and layer3, as the contract's sample has them.
class Sample : public nn::Module {
 public:
  Tensor forward(const Tensor& x) override { return layer3(layer2(layer1(head(x)))); }
  nn::Linear head{12, 10, {.name = "head"}};
  Layer layer1{"layer1", 10}, layer2{"layer2", 10}, layer3{"layer3", 10};
};

Graph step_of(nn::Module& model) {
  return training_step([&](const Tensor& x) { return model(x); }, class_loss(), mlp_batch(), AdamW{}, {.name = "net"});
}

// Operands of each collective of the kind in the backward pass, in order.
std::vector<size_t> buckets(const Compiled& compiled, std::string_view op, Phase phase = Phase::kBackward) {
  std::vector<size_t> out;
  for (const Node& node : compiled.program().graph.nodes()) {
    if (node.op->name == op && node.phase == phase) out.push_back(node.inputs.size());
  }
  return out;
}

Sample& with_ids(Sample& model) {
  model.head.set_comm_fusion(0);
  model.layer1.set_comm_fusion(1);
  model.layer2.set_comm_fusion(2);
  model.layer3.set_comm_fusion(3);
  return model;
}

TEST(Fusion, contracts_15_4_1_ids_of_modules_make_two_operations_alone_and_three_fused) {
  Sample model;
  const Graph graph = step_of(with_ids(model));
  std::vector<int64_t> ids;
  const std::vector<FusionRule> rules = fusion_rules(graph, {});
  for (const Input& input : graph.inputs()) {
    if (input.role == Role::kParameter) ids.push_back(fusion_id(rules, input.name));
  }
  EXPECT_THAT(ids, ElementsAre(0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3));
  EXPECT_THAT(buckets(compile(graph, {.ranks = 2}), "all_reduce"), ElementsAre(4, 4, 4, 1, 1));
}

TEST(Fusion, ids_are_kept_in_the_graphs_text) {
  Sample model;
  const std::string text = to_string(step_of(with_ids(model)));
  EXPECT_THAT(text, HasSubstr("fusion \"head\" 0\nfusion \"layer1\" 1\n"));
  EXPECT_EQ(to_string(parse_graph(text, find_op_base)), text);
}

TEST(Fusion, later_calls_and_rules_of_the_configuration_win) {
  Sample model;
  model.layer1.set_comm_fusion(4);
  model.set_comm_fusion(7);  // later, of all
  model.layer2.set_comm_fusion(5);
  model.layer2.set_comm_fusion(6, false);  // of parameters of its own, which it has none of
  const Graph graph = step_of(model);
  const std::vector<FusionRule> asked{{"layer3", 9}};
  const std::vector<FusionRule> rules = fusion_rules(graph, asked);
  EXPECT_EQ(fusion_id(rules, "head.weight"), 7);
  EXPECT_EQ(fusion_id(rules, "layer1.up.weight"), 7);
  EXPECT_EQ(fusion_id(rules, "layer2.up.weight"), 7);
  EXPECT_EQ(fusion_id(rules, "layer3.up.weight"), 9);
  EXPECT_THAT(error_of([&] {
                fusion_rules(graph, std::vector<FusionRule>{{"layer4", 1}});
              }),
              HasSubstr("parallel.fusion 'layer4 = 1' matches no parameter of the model"));
  EXPECT_THAT(error_of([&] { model.set_comm_fusion(-1); }), HasSubstr("set_comm_fusion(-1)"));
}

// Both ways of the same collectives: a weight in slices has one gather for each pass, and one scatter.
TEST(Fusion, with_weights_in_slices_an_id_is_of_gathers_and_scatters) {
  Sample model;
  Parallel parallel{.optimizer = {.level = 3, .threshold_kb = 0}};
  parallel.communication.fusion.ids = {{"head", 0}, {"layer1", 1}, {"layer2", 2}, {"layer3", 3}};
  const Compiled compiled = compile(step_of(model), {.ranks = 2, .parallel = parallel});
  EXPECT_THAT(buckets(compiled, "all_gather", Phase::kForward), ElementsAre(1, 1, 4, 4, 4));
  EXPECT_THAT(buckets(compiled, "reduce_scatter"), ElementsAre(4, 4, 4, 1, 1));
  EXPECT_THAT(buckets(compiled, "all_gather"), ElementsAre(2, 2, 2)) << "weights alone are read again";
}

// The bucket of the next layer is under way while a layer computes.
TEST(Fusion, fused_gathers_of_weights_begin_ahead_of_their_readers) {
  Sample model;
  Parallel parallel{.optimizer = {.level = 3, .threshold_kb = 0}};
  parallel.communication.fusion.ids = {{"layer1", 1}, {"layer2", 2}, {"layer3", 3}};
  const Compiled compiled = compile(step_of(model), {.ranks = 2, .parallel = parallel});
  const ExecutionPlan& plan = compiled.plan();
  int ahead = 0;
  for (size_t i = 0; i < plan.actions.size(); ++i) {
    const Action& action = plan.actions[i];
    if (action.lane != Lane::kComm || action.op->collective->work != GroupWork::kAllGather || action.in.size() < 2)
      continue;
    const auto waits = std::find_if(plan.actions.begin(), plan.actions.end(), [&](const Action& later) {
      return std::ranges::count(later.waits, static_cast<int>(i)) > 0;
    });
    ahead += std::any_of(plan.actions.begin() + static_cast<std::ptrdiff_t>(i), waits, [](const Action& between) {
      return between.lane == Lane::kCompute && between.op->cost && !between.op->traits.zero_cost_view;
    });
  }
  EXPECT_GE(ahead, 3);
}

Parallel with(int zero, const Fusion& fusion, int64_t reuse = 0) {
  Parallel out{.optimizer = {.level = zero, .threshold_kb = 0}};
  out.communication.fusion = fusion;
  out.communication.reuse = reuse;
  return out;
}

Fusion all_of_size(int64_t bytes) {
  Fusion out;
  out.all_reduce.bytes = out.reduce_scatter.bytes = out.all_gather.bytes = bytes;
  return out;
}

TEST(Fusion, contracts_15_4_4_fused_and_unfused_training_have_the_same_bits) {
  for (const int zero : {0, 1, 2, 3}) {
    SCOPED_TRACE(zero);
    const Graph graph = gpt_step(AdamW{});
    const std::vector<Curve> apart = train_curves(graph, 4, with(zero, {.is_on = false}), 0.2F);
    Fusion by_ids;
    by_ids.ids = {{"h.*", 2}, {"wte", 0}};
    for (const Fusion& fusion : {Fusion(), all_of_size(1 << 20), all_of_size(3000), by_ids}) {
      EXPECT_EQ(other_bits(apart, train_curves(graph, 4, with(zero, fusion), 0.2F)), "");
    }
  }
}

TEST(Fusion, contracts_15_4_5_without_fusion_each_parameter_has_a_collective) {
  Sample model;
  const Compiled plain = compile(step_of(model), {.ranks = 2, .parallel = with(0, {.is_on = false})});
  EXPECT_EQ(buckets(plain, "all_reduce"), std::vector<size_t>(14, 1));
  const Compiled sliced = compile(step_of(model), {.ranks = 2, .parallel = with(3, {.is_on = false})});
  EXPECT_EQ(buckets(sliced, "reduce_scatter"), std::vector<size_t>(14, 1));
  EXPECT_EQ(buckets(sliced, "all_gather", Phase::kForward), std::vector<size_t>(14, 1));
}

TEST(Reuse, contracts_16_1_training_has_the_same_bits) {
  for (const int zero : {0, 3}) {
    const Graph graph = gpt_step(AdamW{});
    const std::vector<Curve> apart = train_curves(graph, 2, with(zero, {.is_on = false}), 0.2F);
    EXPECT_EQ(other_bits(apart, train_curves(graph, 2, with(zero, {.is_on = false}, -1), 0.2F)), "");
  }
}

TEST(Reuse, of_a_step_is_off_unless_asked_for) {
  const Graph graph = gpt_step(AdamW{});
  const auto calls = [&](int64_t reuse) {
    return compile(graph, {.ranks = 2, .parallel = with(0, {.is_on = false}, reuse)}).plan().calls.size();
  };
  EXPECT_EQ(calls(0), 0U);
  EXPECT_GT(calls(-1), 3U);
  EXPECT_EQ(calls(1), 1U);
}

TEST(Reuse, contracts_16_5_the_log_says_the_limit_where_reuse_is_on) {
  std::string lines;
  set_log_sink([&](std::string_view line) { lines += line; });
  set_log_levels("info");
  const Graph graph = gpt_step(AdamW{});
  compile(graph, {.ranks = 2, .parallel = with(0, {.is_on = false}, 0)});
  EXPECT_THAT(lines, testing::Not(HasSubstr("reuse of equal collectives")));
  compile(graph, {.ranks = 2, .parallel = with(0, {.is_on = false}, -1)});
  EXPECT_THAT(lines, HasSubstr("reuse of equal collectives, at most 1000: "));
  set_log_levels("warn");
  set_log_sink({});
}

TEST(Reuse, what_it_saves_of_binding_is_logged) {
  const Graph graph = gpt_step(AdamW{});
  const auto said = [&](int64_t reuse) {
    std::mutex mutex;
    std::string lines;
    set_log_sink([&](std::string_view line) {
      const std::lock_guard lock(mutex);
      lines += line;
    });
    set_log_levels("info");
    comm::spawn_ranks(2, "threads", [&](comm::World& world) {
      ThreadPool pool(1);
      const Session session(
          graph, std::nullopt,
          {.world = &world, .pool = &pool, .compile = {.parallel = with(0, {.is_on = false}, reuse)}});
      const Executor::Binding& bound = session.step().binding();
      const std::lock_guard lock(mutex);
      lines += fmt::format("[{} {}]", bound.collectives, bound.lookups);
    });
    set_log_levels("warn");
    set_log_sink({});
    return lines;
  };
  EXPECT_THAT(said(0), testing::Not(HasSubstr("look-ups of groups")));
  const std::string lines = said(-1);
  const size_t at = lines.find("bound ");
  ASSERT_NE(at, std::string::npos) << lines;
  int collectives = 0, lookups = 0;
  ASSERT_EQ(std::sscanf(lines.c_str() + at, "bound %d collectives with %d look-ups of groups", &collectives, &lookups),
            2);
  EXPECT_LT(lookups, collectives);
  EXPECT_THAT(lines, HasSubstr(fmt::format("[{} {}]", collectives, lookups)));
}

}  // namespace
}  // namespace trireme::fusion_test
