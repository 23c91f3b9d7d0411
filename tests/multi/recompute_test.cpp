// What the backward pass computes again or keeps otherwise, as modules ask for it: section 13 of the contracts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multi/loss_curve.h"
#include "tests/multi/small_graphs.h"
#include "tests/multi/training_support.h"
#include "trireme/op/registry.h"

namespace trireme::recompute_test {
namespace {

using namespace testing_support;
using testing::HasSubstr;

// Blocks of two products and a relu each, with dropout between, that are read by their names "blocks.0" and on.
class Block : public nn::Module {
 public:
  Block(const std::string& name, int64_t width)
      : Module(name), up_(width, 2 * width, {.name = "up"}), down_(2 * width, width, {.name = "down"}), drop_(0.2) {}
  Tensor forward(const Tensor& x) override { return add(x, drop_(down_(relu(up_(x))))); }
  nn::Linear up_, down_;
  nn::Dropout drop_;
};

class Blocks : public nn::Module {
 public:
  explicit Blocks(int count) {
    for (int i = 0; i < count; ++i) blocks.push_back(std::make_unique<Block>(fmt::format("blocks.{}", i), 12));
  }
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (const auto& block : blocks) y = (*block)(y);
    return head_(y);
  }
  std::vector<std::unique_ptr<Block>> blocks;

 private:
  nn::Linear head_{12, 10, {.name = "head"}};
};

Graph step_of(nn::Module& model) {
  return training_step([&](const Tensor& x) { return model(x); }, class_loss(), mlp_batch(), AdamW{},
                       {.name = "blocks", .seed = 3});
}
Graph step_of(int count, const std::function<void(Blocks&)>& ask = {}) {
  Blocks model(count);
  if (ask) ask(model);
  return step_of(model);
}
void recompute_all(Blocks& model) {
  for (const auto& block : model.blocks) block->recompute();
}

// Its ops one by one.
Compiled unfused(const Graph& graph, const ::trireme::Recompute& how = {}) {
  return compile(graph, {.passes = {.recompute = how, .disabled = {"fuse_rows"}}});
}

int times(const Compiled& compiled, std::string_view op, bool again) {
  int out = 0;
  for (const Node& node : compiled.program().graph.nodes()) out += node.op->name == op && node.again == again ? 1 : 0;
  return out;
}

TEST(Recompute, contracts_13_3_1_and_5_losses_and_masks_of_dropout_are_the_same) {
  const std::vector<Curve> plain = train_curves(step_of(4), 1, {}, 0.2F);
  EXPECT_EQ(other_bits(plain, train_curves(step_of(4, recompute_all), 1, {}, 0.2F)), "");
}

TEST(Recompute, contracts_13_3_2_what_is_made_again_is_marked_in_dumps) {
  const Compiled compiled = unfused(step_of(3, [](Blocks& model) {
    model.blocks[0]->recompute();
    model.blocks[1]->recompute();
  }));
  EXPECT_EQ(times(compiled, "relu", false) + times(compiled, "relu", true), 3 + 2);
  EXPECT_EQ(times(compiled, "relu", true), 2);
  const Graph& graph = compiled.program().graph;
  int read = 0;
  for (const Node& node : graph.nodes()) {
    if (node.op->name != "relu_grad") continue;
    const NodeId producer = graph.value(node.inputs[0]).producer;
    read += producer >= 0 && graph.node(producer).again ? 1 : 0;
  }
  EXPECT_EQ(read, 2);
  EXPECT_THAT(to_string(graph), HasSubstr("@\"blocks.0\" again"));
}

// Without weights and state, which are the same.
TEST(Recompute, contracts_13_3_3_ten_blocks_take_less_memory) {
  const auto bytes_of = [](const std::function<void(Blocks&)>& ask) {
    const Arena arena = compile(step_of(10, ask), {}).plan().arena();
    return arena.bytes - arena.persistent;
  };
  EXPECT_LT(bytes_of(recompute_all), bytes_of({}));
}

TEST(Recompute, a_module_inside_another_may_be_kept) {
  const Compiled compiled = unfused(step_of(3, [](Blocks& model) {
    model.recompute();
    model.blocks[1]->recompute({.again = false});
  }));
  EXPECT_EQ(times(compiled, "relu", true), 2);
}

TEST(Recompute, rules_of_the_configuration_win) {
  using Keep = ::trireme::Recompute::Rule::Keep;
  const Compiled compiled = unfused(step_of(3, recompute_all), {.rules = {{"blocks.2", Keep::kMemory}}});
  EXPECT_EQ(times(compiled, "relu", true), 2);
}

TEST(Recompute, requests_are_kept_in_the_graphs_text) {
  const std::string text = to_string(step_of(2, [](Blocks& model) {
    model.blocks[0]->recompute({.mp_comm = false, .optimizer_comm = false, .slice = true});
    model.blocks[1]->recompute({.again = false});
  }));
  EXPECT_THAT(text, HasSubstr("recompute \"blocks.0\" without mp_comm without optimizer_comm in slices\n"
                              "recompute \"blocks.1\" kept\n"));
  EXPECT_EQ(to_string(parse_graph(text, find_op_base)), text);
}

// A product of cut rows and columns, whose sum over ranks the second product of a block needs again.
Parallel cut_blocks() {
  return {.mesh = "dp=1,tp=2", .ops = {{"blocks.*.up/matmul", "[dp, tp], [-, tp]"}}};
}

// The contract's implementation makes all again, so that half of the sums are saved; here, what is needed.
TEST(Recompute, contracts_13_3_4_without_mp_comm_no_sum_over_ranks_is_taken_again) {
  const auto of = [](bool mp_comm) {
    const Graph graph = step_of(4, [&](Blocks& model) {
      for (const auto& block : model.blocks) block->recompute({.mp_comm = mp_comm});
    });
    return compile(graph, {.ranks = 2, .parallel = cut_blocks()});
  };
  const Compiled with = of(true), without = of(false);
  EXPECT_EQ(times(with, "all_reduce", true), 4);
  EXPECT_EQ(times(without, "all_reduce", true), 0);
  EXPECT_EQ(times(with, "all_reduce", false), times(without, "all_reduce", false));
  const Graph graph = step_of(4);
  const std::vector<Curve> plain = train_curves(graph, 2, cut_blocks(), 0.2F);
  for (const bool mp_comm : {true, false}) {
    const Graph again = step_of(4, [&](Blocks& model) {
      for (const auto& block : model.blocks) block->recompute({.mp_comm = mp_comm});
    });
    EXPECT_EQ(other_bits(plain, train_curves(again, 2, cut_blocks(), 0.2F)), "");
  }
}

Parallel sliced_weights() {
  return {.optimizer = {.level = 3, .threshold_kb = 0}};
}

TEST(Recompute, without_optimizer_comm_weights_in_slices_are_gathered_once) {
  const auto gathered = [](const Graph& graph, const ::trireme::Recompute& how) {
    Parallel parallel = sliced_weights();
    parallel.communication.fusion.is_on = false;
    const Compiled compiled = compile(graph, {.ranks = 2, .parallel = parallel, .passes = {.recompute = how}});
    return times(compiled, "all_gather", false) + times(compiled, "all_gather", true);
  };
  const int twice = gathered(step_of(4), {});
  EXPECT_EQ(gathered(step_of(4), {.optimizer_communication = false}), 4 * 4 + 2);
  EXPECT_GT(twice, 4 * 4 + 2 + 6);
  const Graph one_module = step_of(4, [](Blocks& model) { model.blocks[1]->recompute({.optimizer_comm = false}); });
  EXPECT_EQ(gathered(one_module, {}), twice - 2) << "its two weights";
  const std::vector<Curve> plain = train_curves(step_of(4), 2, sliced_weights(), 0.2F);
  const std::vector<Curve> kept =
      train_curves(step_of(4), 2, sliced_weights(), 0.2F, {.recompute = {.optimizer_communication = false}});
  EXPECT_EQ(other_bits(plain, kept), "");
}

TEST(Recompute, what_is_kept_in_slices_has_the_same_bits_and_takes_less_memory) {
  const Parallel parallel{.mesh = "dp=2,tp=2"};  // ranks of tp have the same
  const auto slice = [](Blocks& model) {
    for (const auto& block : model.blocks) block->recompute({.slice = true});
  };
  const ::trireme::Recompute small{.fewest_bytes = 1};
  const std::vector<Curve> plain = train_curves(step_of(4), 4, parallel, 0.2F);
  EXPECT_EQ(other_bits(plain, train_curves(step_of(4, slice), 4, parallel, 0.2F, {.recompute = small})), "");
  const auto compiled = [&](const std::function<void(Blocks&)>& ask) {
    return compile(step_of(10, ask), {.ranks = 4, .parallel = parallel, .passes = {.recompute = small}});
  };
  const Compiled whole = compiled(recompute_all), cut = compiled(slice);
  EXPECT_EQ(times(whole, "all_gather", true), 0);
  EXPECT_EQ(times(cut, "all_gather", true), 10);
  const auto step_bytes = [](const Compiled& of) { return of.plan().arena().bytes - of.plan().arena().persistent; };
  EXPECT_LT(step_bytes(cut), step_bytes(whole));
}

TEST(Recompute, with_everything_at_once_the_bits_are_the_same) {
  Parallel parallel{.mesh = "dp=2,tp=2", .optimizer = {.level = 3, .threshold_kb = 0}};
  parallel.accumulation = 3;
  const auto all = [](Blocks& model) {
    for (const auto& block : model.blocks) block->recompute({.mp_comm = false, .optimizer_comm = false, .slice = true});
  };
  const std::vector<Curve> plain = train_curves(step_of(4), 4, parallel, 0.2F);
  EXPECT_EQ(other_bits(plain, train_curves(step_of(4, all), 4, parallel, 0.2F, {.recompute = {.fewest_bytes = 1}})),
            "");
}

}  // namespace
}  // namespace trireme::recompute_test
