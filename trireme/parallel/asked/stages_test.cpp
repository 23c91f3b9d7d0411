// Which op of a model is of which stage.
#include "trireme/parallel/asked/stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "trireme/base/error.h"
#include "trireme/grad/gradients.h"
#include "trireme/nn/optimizer.h"
#include "trireme/op/structural.h"
#include "trireme/ops/ops.h"

namespace trireme::stages_test {
namespace {

using testing::HasSubstr;

TEST(Stages, rules_match_modules_and_what_is_inside_them) {
  EXPECT_TRUE(ScopePattern("h.3").matches("h.3"));
  EXPECT_TRUE(ScopePattern("h.3").matches("h.3.mlp.c_fc"));
  EXPECT_FALSE(ScopePattern("h.3").matches("h.31"));
  EXPECT_FALSE(ScopePattern("h.3.mlp").matches("h.3"));
  EXPECT_TRUE(ScopePattern("h.*").matches("h.12.attn"));
  EXPECT_FALSE(ScopePattern("h.*").matches("h"));
  EXPECT_TRUE(ScopePattern("h.0..5").matches("h.5.attn"));
  EXPECT_FALSE(ScopePattern("h.0..5").matches("h.6"));
  EXPECT_FALSE(ScopePattern("h.0..5").matches("h.ln"));
  EXPECT_TRUE(ScopePattern("h.0..5.mlp").matches("h.4.mlp.c_fc"));
}

TEST(Stages, a_star_in_rules_stands_for_any_characters) {
  EXPECT_TRUE(ScopePattern("*.bias").matches("h.0.attn.c_attn.bias"));
  EXPECT_FALSE(ScopePattern("*.bias").matches("bias"));
  EXPECT_TRUE(ScopePattern("*ln_*.weight").matches("h.0.ln_1.weight"));
  EXPECT_TRUE(ScopePattern("*ln_*.weight").matches("ln_f.weight"));
  EXPECT_FALSE(ScopePattern("*ln_*.weight").matches("ln_f.weights"));
  EXPECT_TRUE(ScopePattern("*.0..1.mlp").matches("model.layers.1.mlp.up"));
  EXPECT_FALSE(ScopePattern("*.0..1.mlp").matches("model.layers.11.mlp"));
  EXPECT_TRUE(ScopePattern("*").matches("wte"));
  EXPECT_FALSE(ScopePattern("*").matches(""));
  EXPECT_FALSE(ScopePattern("*.weight").matches("h.0.weights"));
  EXPECT_TRUE(ScopePattern("h.*_fc").matches("h.0.mlp.c_fc.bias"));
  EXPECT_FALSE(ScopePattern("h.*_fc").matches("h.0.mlp"));
  EXPECT_FALSE(ScopePattern("*.0..1.mlp").matches("model.layers.2.mlp.up"));
  EXPECT_TRUE(ScopePattern("*.0..1.*.2..3").matches("a.1.b.4.c.3.d"));
  EXPECT_FALSE(ScopePattern("*.0..1.*.2..3").matches("a.1.b.4.c.5.d"));
}

TEST(Stages, rules_may_name_a_module_alone_and_say_which_part_of_a_path_they_name) {
  EXPECT_TRUE(ScopePattern("h.0..5").names("h.5"));
  EXPECT_FALSE(ScopePattern("h.0..5").names("h.5.attn"));
  EXPECT_TRUE(ScopePattern("h.*").names("h.5.attn"));
  EXPECT_TRUE(ScopePattern("*").names(""));
  EXPECT_EQ(ScopePattern("h.*").outermost("h.3.mlp"), "h.3");
  EXPECT_EQ(ScopePattern("h.0..5").outermost("h.3.mlp"), "h.3");
  EXPECT_EQ(ScopePattern("h.0..5.mlp").outermost("h.3.mlp.c_fc"), "h.3.mlp");
  EXPECT_EQ(ScopePattern("h.0..2").outermost("h.3.mlp"), "");
}

TEST(Stages, many_stars_in_rules_take_no_longer) {
  std::string pattern;
  for (int i = 0; i < 40; ++i) pattern += "a*";
  EXPECT_FALSE(ScopePattern(pattern + "b").matches(std::string(200, 'a')));
  EXPECT_TRUE(ScopePattern(pattern + "b").matches(std::string(200, 'a') + "b.c"));
}

// A chain of products, each in a module of its own, of these widths; the last one reads the first's weight, too.
struct Chain {
  Graph graph{"chain"};
  std::vector<Tensor> weights;

  explicit Chain(const std::vector<int64_t>& widths, const std::vector<std::string>& scopes) {
    Tensor x(graph, graph.add_input("x", {DType::kF32, {8, widths[0]}}, Role::kData));
    for (size_t i = 0; i + 1 < widths.size(); ++i) {
      graph.set_scope(scopes[i]);
      weights.emplace_back(
          graph, graph.add_input(scopes[i] + ".weight", {DType::kF32, {widths[i], widths[i + 1]}}, Role::kParameter));
      x = relu(matmul(x, weights.back()));
    }
    graph.set_scope("tied");
    x = matmul(x, weights[0]);
    graph.set_scope("");
    const Tensor loss = mean(square(x));
    graph.add_output("loss", loss.id());
    const std::vector<Tensor> grads = gradients(loss, weights);
    const Tensor lr(graph, graph.add_input("lr", {DType::kF32, {}}, Role::kSchedule));
    const Tensor step(graph, graph.add_input("step", {DType::kI64, {}}, Role::kSchedule));
    const Tensor one = constant(graph, {DType::kF32, {}}, 1);
    for (size_t i = 0; i < weights.size(); ++i)
      nn::add_update(Sgd{.momentum = 0.9}, {scopes[i], weights[i], grads[i], lr, step, one});
  }
  int stage_of_input(const ScopeStages& stages, const std::string& name) const {
    const std::vector<int> all = stages_of_inputs(graph, stages_of(graph, stages));
    return all[static_cast<size_t>(graph.value(graph.input(name).value).index)];
  }
};

TEST(Stages, are_cut_where_they_take_about_as_long) {
  const Chain chain({512, 512, 512, 16, 512}, {"a.0", "a.1", "narrow", "out"});
  const ScopeStages two = choose_stages(chain.graph, 2, {});
  EXPECT_EQ(two.at("a.0"), 0);
  EXPECT_EQ(two.at("out"), 1);
  EXPECT_EQ(two.at("tied"), 1);
  const ScopeStages four = choose_stages(chain.graph, 4, {});
  std::set<int> all;
  for (const auto& [scope, stage] : four) all.insert(stage);
  EXPECT_EQ(all, (std::set<int>{0, 1, 2, 3}));
}

TEST(Stages, are_cut_inside_a_block_where_the_slowest_is_then_a_good_deal_quicker) {
  // Products of three passes, but for the first, which has no gradient of its operand: 11 and 6 between blocks.
  const Chain odd({512, 512, 512, 512, 512, 512}, {"h.0.a", "h.0.b", "h.1.a", "h.1.b", "h.2.a"});
  const ScopeStages inside = choose_stages(odd.graph, 2, {});
  EXPECT_EQ(inside.at("h.1.a"), 0);
  EXPECT_EQ(inside.at("h.1.b"), 1);
  // 5 and 6.
  const Chain even({512, 512, 512, 512}, {"h.0.a", "h.0.b", "h.1.a"});
  const ScopeStages between = choose_stages(even.graph, 2, {});
  EXPECT_EQ(between.at("h.0.b"), 0);
  EXPECT_EQ(between.at("h.1.a"), 1);
}

TEST(Stages, of_gradients_state_and_updates_follow_from_those_of_ops) {
  const Chain chain({64, 64, 64}, {"first", "second"});
  const ScopeStages stages{{"first", 0}, {"second", 1}, {"tied", 2}};
  EXPECT_EQ(chain.stage_of_input(stages, "first.weight"), 0) << "though the last stage reads it, too";
  EXPECT_EQ(chain.stage_of_input(stages, "first.velocity"), 0);
  EXPECT_EQ(chain.stage_of_input(stages, "second.weight"), 1);
  EXPECT_EQ(chain.stage_of_input(stages, "second.velocity"), 1);
  EXPECT_EQ(chain.stage_of_input(stages, "x"), -1);
  const std::vector<int> nodes = stages_of(chain.graph, stages);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = chain.graph.nodes()[i];
    if (node.gradient_of >= 0) EXPECT_EQ(nodes[i], nodes[static_cast<size_t>(node.gradient_of)]) << node.op->name;
    if (node.phase == Phase::kForward && chain.graph.scope_of(node).empty() && !node.inputs.empty())
      EXPECT_EQ(nodes[i], 2) << node.op->name;
  }
  EXPECT_FALSE(nodes_across_stages(chain.graph, stages).empty());
  EXPECT_TRUE(nodes_across_stages(chain.graph, {}).empty());
}

// A table that the first stage reads as it is and the last one casts, or reads as it is, too.
TEST(Stages, a_parameter_is_cast_where_it_lies_if_later_stages_read_nothing_but_casts) {
  const auto stages_of_casts = [](bool is_read_wide, DType narrow) {
    Graph graph("tied");
    const Tensor x(graph, graph.add_input("x", {DType::kF32, {8, 8}}, Role::kData));
    const Tensor table(graph, graph.add_input("table", {DType::kF32, {8, 8}}, Role::kParameter));
    graph.set_scope("first");
    Tensor y = matmul(x, table);
    graph.set_scope("last");
    if (is_read_wide) y = add(y, table);
    y = matmul(cast_to(y, narrow), cast_to(table, narrow));
    const std::vector<Tensor> grads = gradients(mean(square(cast_to(y, DType::kF32))), {&table, 1});
    graph.add_output("g", grads[0].id());
    const std::vector<int> stages = stages_of(graph, {{"first", 0}, {"last", 1}});
    std::vector<int> out;
    for (size_t i = 0; i < stages.size(); ++i) {
      const Node& node = graph.nodes()[i];
      if (is_cast(node) && node.inputs[0] == table.id()) out.push_back(stages[i]);
    }
    return out;
  };
  EXPECT_EQ(stages_of_casts(false, DType::kBF16), std::vector<int>{0});
  EXPECT_EQ(stages_of_casts(true, DType::kBF16), std::vector<int>{1});
  EXPECT_EQ(stages_of_casts(false, DType::kF64), std::vector<int>{1}) << "more bytes";
}

TEST(Stages, that_go_back_are_refused_with_both_ops) {
  const Chain chain({64, 64, 64}, {"first", "second"});
  try {
    stages_of(chain.graph, {{"first", 1}, {"second", 0}});
    ADD_FAILURE() << "nothing is refused";
  } catch (const Error& e) {
    EXPECT_THAT(e.text(),
                HasSubstr("matmul of 'second' is of stage 0 and reads what relu of 'first' of stage 1 makes"));
  }
}

TEST(Stages, of_forward_passes_alone_keep_the_order) {
  const Timetable timetable = timetable_of({.crews = 2, .stages_per_crew = 2, .schedule = "interleaved"}, 4);
  const Timetable forward = forward_only(timetable, 4);
  for (size_t crew = 0; crew < 2; ++crew) {
    std::vector<Unit> expected;
    for (const Unit& unit : timetable.crews[crew]) {
      if (unit.pass == Unit::Pass::kForward) expected.push_back(unit);
    }
    EXPECT_EQ(forward.crews[crew], expected);
  }
  EXPECT_EQ(forward_only(timetable, 1).crews[1].size(), 2U);
}

}  // namespace
}  // namespace trireme::stages_test
