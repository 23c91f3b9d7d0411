// Operator-level parallelism by hand: the requirements that users of such systems are promised, one test each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multi/contract_support.h"
#include "tests/multi/small_graphs.h"
#include "tests/worst.h"
#include "trireme/base/error.h"
#include "trireme/grad/gradients.h"
#include "trireme/nn/parallel_layers.h"
#include "trireme/op/registry.h"

namespace trireme::operator_parallel_test {
namespace {

using namespace testing_support;
using testing::HasSubstr;

Parallel by_hand(std::string mesh, std::vector<OpRule> ops) {
  Parallel out;
  out.mesh = std::move(mesh);
  out.dataset = "full_batch";
  out.ops = std::move(ops);
  return out;
}

// Sums of `terms` products in another order: a unit of rounding for each term, of the largest result's size.
void expect_equal(const OnRanks& ranks, const OnRanks& one, double terms) {
  for (const auto& [name, expected] : one.outputs) {
    const double largest = largest_of(expected);
    const std::vector<float>& found = ranks.outputs.at(name);
    ASSERT_EQ(found.size(), expected.size()) << name;
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(found[i], expected[i], terms * 0x1p-24 * largest) << name;
  }
}

// What a local type in the program is, by the op that makes it.
std::vector<std::string> local_types(const Program& program, std::string_view op) {
  std::vector<std::string> out;
  for (const Node& node : program.graph.nodes()) {
    if (node.op->name != op) continue;
    for (const ValueId id : node.inputs) out.push_back(to_string(program.graph.type(id)));
    for (const ValueId id : node.outputs) out.push_back(to_string(program.graph.type(id)));
  }
  return out;
}
int count(const Program& program, std::string_view op) {
  int out = 0;
  for (const Node& node : program.graph.nodes()) out += node.op->name == op ? 1 : 0;
  return out;
}

TEST(OperatorParallel, contracts_5_9_1_a_product_cut_2_by_4_has_the_documented_local_shapes) {
  Graph graph;
  const Tensor x = data_input(graph, "x", {256, 784});
  const Tensor w = parameter(graph, "w", {784, 64});
  graph.add_output("y", in_scope(graph, "fc", [&] { return matmul(x, w); }).id());
  const OnRanks eight = run_on_ranks(graph, 8, by_hand("", {{"fc", "{{2,1},{1,4}}"}}));
  EXPECT_THAT(local_types(eight.program, "matmul"), testing::ElementsAre("f32[128,784]", "f32[784,16]", "f32[128,16]"));
  expect_equal(eight, run_on_ranks(graph, 1, {}), 784);
  // Ranks 0 to 3 hold the first rows of x; ranks 0 and 4 the first columns of w.
  const Layout product = value_layouts(graph, eight.strategy)[static_cast<size_t>(graph.output("y").value)];
  EXPECT_EQ(to_string(product, eight.strategy.mesh), "[dp.0, dp.1*dp.2]");
  const Layout w_layout = eight.strategy.inputs[1];
  const Mesh& mesh = eight.strategy.mesh;
  for (int64_t rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(local_box(Shape{784, 64}, w_layout, mesh, rank).start[1], rank % 4 * 16) << rank;
  }
}

TEST(OperatorParallel, contracts_5_9_2_a_contracted_cut_is_reduced_in_the_documented_groups_and_then_sliced) {
  Graph graph;
  const Tensor x = data_input(graph, "x", {64, 64});
  const Tensor w = parameter(graph, "w", {64, 64});
  const Tensor y = in_scope(graph, "fc", [&] { return matmul(x, w); });
  graph.add_output("y", in_scope(graph, "act", [&] { return relu(y); }).id());
  const Parallel cuts = by_hand("", {{"fc", "{{2,4},{4,1}}"}, {"act", "{{8,1}}"}});
  const OnRanks eight = run_on_ranks(graph, 8, cuts);
  expect_equal(eight, run_on_ranks(graph, 1, {}), 64);
  EXPECT_EQ(count(eight.program, "all_to_all"), 0);
  // The sum over the contracted axes and the slice after it are one reduce-scatter here.
  EXPECT_EQ(count(eight.program, "reduce_scatter"), 1);
  for (const Node& node : eight.program.graph.nodes()) {
    if (node.op->name != "reduce_scatter") continue;
    std::vector<int> axes;
    for (const int64_t axis : node.attrs.as<CollectiveAttrs>().axes) axes.push_back(static_cast<int>(axis));
    EXPECT_EQ(eight.strategy.mesh.groups(axes), (std::vector<std::vector<int64_t>>{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  }
}

Graph three_products() {
  Graph graph;
  const Tensor x = data_input(graph, "x", {16, 64});
  Tensor h = in_scope(graph, "fc1", [&] { return matmul(x, parameter(graph, "fc1.weight", {64, 32})); });
  h = in_scope(graph, "relu1", [&] { return relu(h); });
  h = in_scope(graph, "fc2", [&] { return matmul(h, parameter(graph, "fc2.weight", {32, 32})); });
  h = in_scope(graph, "relu2", [&] { return relu(h); });
  h = in_scope(graph, "fc3", [&] { return matmul(h, parameter(graph, "fc3.weight", {32, 8})); });
  const Tensor loss = mean(square(h));
  graph.add_output("loss", loss.id());
  std::vector<Tensor> parameters;
  for (const Input& input : graph.inputs()) {
    if (input.role == Role::kParameter) parameters.emplace_back(graph, input.value);
  }
  const std::vector<Tensor> grads = gradients(loss, parameters);
  for (size_t i = 0; i < grads.size(); ++i) graph.add_output(fmt::format("grad{}", i), grads[i].id());
  return graph;
}

TEST(OperatorParallel,
     contracts_5_9_3_three_products_with_the_documented_strategies_have_one_devices_loss_and_gradients) {
  const Graph graph = three_products();
  const Parallel cuts =
      by_hand("", {{"fc1", "{{2,4},{4,1}}"}, {"relu1", "{{4,1}}"}, {"fc2", "{{1,8},{8,1}}"}, {"relu2", "{{8,1}}"}});
  expect_equal(run_on_ranks(graph, 8, cuts), run_on_ranks(graph, 1, {}), 64);
}

TEST(OperatorParallel, contracts_5_9_6_every_legal_cut_of_a_chain_of_products_has_one_devices_gradients) {
  const Graph graph = three_products();
  const OnRanks one = run_on_ranks(graph, 1, {});
  const uint64_t seed = 11;
  for (uint64_t i = 0; i < 24; ++i) {
    SCOPED_TRACE(fmt::format("seed {} case {}", seed, i));
    std::vector<OpRule> rules;
    for (int fc = 1; fc <= 3; ++fc) {
      int64_t left = 8;
      int64_t parts[3] = {1, 1, 1};
      for (int64_t& part : parts) {
        const auto draw = random_bits({seed, i}, static_cast<uint64_t>(fc * 3 + (&part - parts)), 0);
        part = int64_t{1} << (draw % 4);
        while (part > left) part /= 2;
        left /= part;
      }
      rules.push_back(
          {fmt::format("fc{}", fc), fmt::format("{{{{{},{}}},{{{},{}}}}}", parts[0], parts[1], parts[1], parts[2])});
    }
    expect_equal(run_on_ranks(graph, 8, by_hand("", rules)), one, 128);
  }
}

TEST(OperatorParallel, contracts_5_9_7_fewer_parts_than_ranks_are_computed_repeatedly_and_counted_once) {
  const Graph graph = three_products();
  const OnRanks eight = run_on_ranks(graph, 8, by_hand("", {{"fc1", "{{2,2},{2,1}}"}}));
  expect_equal(eight, run_on_ranks(graph, 1, {}), 64);
}

TEST(OperatorParallel, contracts_5_9_4_one_parameter_in_two_layouts_is_an_error_that_names_both) {
  Graph graph;
  const Tensor x = data_input(graph, "x", {8, 8});
  const Tensor w = parameter(graph, "shared.weight", {8, 8});
  const Tensor h = in_scope(graph, "first", [&] { return matmul(x, w); });
  graph.add_output("y", in_scope(graph, "second", [&] { return matmul(h, w); }).id());
  const std::string error = error_of([&] {
    semi_auto(graph, 4, by_hand("", {{"first", "{{1,1},{1,4}}"}, {"second", "{{1,4},{4,1}}"}}));
  });
  EXPECT_THAT(error, HasSubstr("parameter 'shared.weight' is asked for in two layouts: [-, dp] by rule 'first', and "
                               "[dp, -] by rule 'second'"));
}

TEST(OperatorParallel, contracts_5_9_5_what_does_not_fit_is_refused_with_what_would) {
  Graph graph;
  const Tensor x = data_input(graph, "x", {64, 64});
  const Tensor w = parameter(graph, "fc.weight", {64, 64});
  graph.add_output("y", in_scope(graph, "fc", [&] { return matmul(x, w); }).id());
  const auto refused = [&](const std::string& cuts, int ranks, const std::string& mesh = "") {
    return error_of([&] { semi_auto(graph, ranks, by_hand(mesh, {{"fc", cuts}})); });
  };
  EXPECT_THAT(refused("{{40,1},{1,1}}", 40),
              HasSubstr("dimension 0 of operand 0 (f32[64,64]) cannot be divided into 40 parts; use 1, 2, 4"));
  EXPECT_THAT(refused("{{4,1},{1,4}}", 8), HasSubstr("need 16 devices"));
  EXPECT_THAT(refused("{{2,2},{4,1}}", 8), HasSubstr("must be cut alike"));
  EXPECT_THAT(refused("{{2,2}}", 8), HasSubstr("'fc' has no op whose operands have 2 dimensions"));
  EXPECT_THAT(refused("{{2,2,1},{1,1}}", 8),
              HasSubstr("'fc' has no op whose operands have 3, 2 dimensions; its ops are 'matmul'"));
  EXPECT_THAT(refused("[dp, mp], [mp, -]", 8, "dp=4,tp=2"), HasSubstr("'mp'"));
  EXPECT_THAT(refused("[dp, dp], [dp, -]", 4), HasSubstr("dp"));
  EXPECT_THAT(refused("[dp, tp], [-, -]", 8, "dp=4,tp=2"), HasSubstr("they are one (factor 'k'"));
  EXPECT_THAT(error_of([&] {
                semi_auto(graph, 8, by_hand("", {{"fd", "{{2,1},{1,1}}"}}));
              }),
              HasSubstr("rule 'fd' matches no part of the model. Did you mean 'fc'?"));
  EXPECT_THAT(error_of([&] {
                semi_auto(graph, 8, by_hand("", {{"fc/conv2d", "{{2,1},{1,1}}"}}));
              }),
              HasSubstr("'fc' has no op 'conv2d'; its ops are 'matmul'"));
  EXPECT_THAT(error_of([&] { semi_auto(graph, 8, by_hand("dp=4", {})); }),
              HasSubstr("mesh 'dp=4' has 4 devices but the job has 8 ranks"));
  Parallel stored = by_hand("dp=8", {});
  stored.parameters = {{"fc.wight", "[dp, -]"}};
  EXPECT_THAT(error_of([&] { semi_auto(graph, 8, stored); }),
              HasSubstr("parameter rule 'fc.wight' matches no parameter. Did you mean 'fc.weight'?"));
}

TEST(OperatorParallel, a_collective_in_the_models_code_must_fit_the_mesh) {
  const auto error_with = [](const CollectiveAttrs& attrs) {
    Graph graph;
    graph.add_output("y", all_gather(data_input(graph, "x", {4, 4}), attrs).id());
    return error_of([&] { semi_auto(graph, 4, by_hand("dp=2,tp=2", {})); });
  };
  EXPECT_THAT(error_with({.axes = {2}, .size = 2}),
              HasSubstr("is over axis 2 of the mesh 'dp=2,tp=2', which has 2 prime axes"));
  EXPECT_THAT(error_with({.axes = {1}, .size = 4}),
              HasSubstr("claims a group of 4 ranks; over tp of the mesh 'dp=2,tp=2' it has 2"));
}

struct Pair : nn::Module {
  nn::Linear up{16, 32, {.name = "up"}}, down{32, 8, {.name = "down"}};
  Tensor forward(const Tensor& x) override { return down(relu(up(x))); }
};

// The loss and the gradients of the model.
Graph graph_of(Pair& model) {
  Graph graph;
  const Tensor x = data_input(graph, "x", {8, 16});
  nn::Trace trace(graph);
  const Tensor loss = mean(square(model(x)));
  graph.add_output("loss", loss.id());
  const std::vector<Tensor> grads = gradients(loss, trace.parameters());
  for (size_t i = 0; i < grads.size(); ++i) graph.add_output(fmt::format("grad{}", i), grads[i].id());
  return graph;
}

TEST(OperatorParallel, a_module_says_how_its_product_is_cut) {
  Pair plain;
  const OnRanks one = run_on_ranks(graph_of(plain), 1, {});
  Pair cut;
  cut.up.shard({{2, 1}, {2, 1}});  // weights are [out, in]
  cut.down.shard("[dp, tp], [-, tp] -> [dp*tp, -]");
  const Graph graph = graph_of(cut);
  EXPECT_EQ(
      to_string(parse_graph(to_string(graph), [](std::string_view name) -> const OpBase* { return find_op(name); })),
      to_string(graph));
  const OnRanks four = run_on_ranks(graph, 4, by_hand("dp=2,tp=2", {}));
  expect_equal(four, one, 64);
  EXPECT_EQ(to_string(four.strategy.inputs[1], four.strategy.mesh), "[tp, -]") << "up.weight";
  EXPECT_EQ(to_string(four.strategy.inputs[3], four.strategy.mesh), "[-, tp]") << "down.weight";
  EXPECT_EQ(four.strategy.why_nodes[0], "asked for by shard() of 'up'");
  expect_equal(run_on_ranks(graph, 1, {}), one, 1);  // one rank has no such axes, and needs none
}

// A block of building blocks: tokens cut by vocabulary, a column and a row product, logits and loss by vocabulary
// again.
struct Blocks : nn::Module {
  explicit Blocks(bool scatter) : down(16, 8, {.name = "down"}, {}, {.scatter = scatter}) {}
  nn::VocabularyEmbedding words{12, 8, {.name = "words"}};
  nn::ColumnLinear up{8, 16, {.name = "up"}};
  nn::RowLinear down;
  nn::ColumnLinear head{8, 12, {.name = "head", .bias = false}};
  Tensor forward(const Tensor& ids) override {
    const Tensor x = words(ids);
    return head(add(x, down(relu(up(x)))));
  }
};
struct PlainBlocks : nn::Module {
  nn::Embedding words{12, 8, {.name = "words"}};
  nn::Linear up{8, 16, {.name = "up"}}, down{16, 8, {.name = "down"}}, head{8, 12, {.name = "head", .bias = false}};
  Tensor forward(const Tensor& ids) override {
    const Tensor x = words(ids);
    return head(add(x, down(relu(up(x)))));
  }
};

template <class Model>
Graph token_graph(Model& model, Tensor (*loss_of)(const Tensor&, const Tensor&)) {
  Graph graph;
  const Tensor ids(graph, graph.add_input("ids", {DType::kI32, {4, 6}}, Role::kData));
  const Tensor targets(graph, graph.add_input("targets", {DType::kI32, {4, 6}}, Role::kData));
  nn::Trace trace(graph);
  const Tensor loss = mean(loss_of(model(ids), targets));
  graph.add_output("loss", loss.id());
  const std::vector<Tensor> grads = gradients(loss, trace.parameters());
  for (size_t i = 0; i < grads.size(); ++i) graph.add_output(fmt::format("grad{}", i), grads[i].id());
  return graph;
}

TEST(ParallelLayers, compute_what_the_plain_layers_do_with_their_weights_cut) {
  PlainBlocks plain;
  const OnRanks one = run_on_ranks(token_graph(plain, cross_entropy), 1, {});
  for (const bool scatter : {false, true}) {
    SCOPED_TRACE(scatter ? "scattered along positions" : "reduced");
    Blocks blocks(scatter);
    Parallel parallel = by_hand("dp=2,tp=2", {});
    parallel.dataset = "data_parallel";
    const OnRanks four = run_on_ranks(token_graph(blocks, cross_entropy_in_parts), 4, parallel);
    expect_equal(four, one, 256);
    for (const char* name : {"words.weight", "up.weight", "up.bias", "head.weight"}) {
      const Input& input = four.program.graph.input(name);
      EXPECT_EQ(four.program.layouts[static_cast<size_t>(input.value)]->cuts(0, four.strategy.mesh), 2) << name;
    }
  }
}

// Contracts 5.7, a table cut by hand in parts of 10, 20, 30 and 4 rows.
TEST(ParallelLayers, a_table_in_unequal_parts_is_looked_up_as_the_whole_one) {
  const std::vector<int64_t> rows{10, 20, 30, 4};
  std::vector<int64_t> row_of;  // in the padded table, by token
  for (int64_t k = 0; k < 4; ++k) {
    for (int64_t i = 0; i < rows[static_cast<size_t>(k)]; ++i) row_of.push_back(k * 30 + i);
  }
  nn::SplitEmbedding table(rows, 4, {.name = "table"});
  Graph graph;
  const Tensor all = cast(reshape(iota(graph, {DType::kI32, {64}}, 0), {8, 8}), DType::kI32);
  nn::Trace trace(graph);
  const Tensor y = table(all);
  graph.add_output("y", y.id());
  graph.add_output("grad", gradients(mean(square(y)), trace.parameters())[0].id());
  Parallel parallel = by_hand("dp=1,tp=4", {});
  const OnRanks four = run_on_ranks(graph, 4, parallel);
  const Input& weight = four.program.graph.input("table.weight");
  EXPECT_EQ(to_string(four.program.graph.type(weight.value)), "f32[30,4]");
  std::vector<float> expected;
  std::vector<float> gradient(4 * 30 * 4, 0.0F);
  for (const int64_t row : row_of) {
    for (int64_t i = 0; i < 4; ++i) {
      expected.push_back(element_of("table.weight", row * 4 + i));
      gradient[static_cast<size_t>(row * 4 + i)] = 2 * expected.back() / 256;
    }
  }
  EXPECT_EQ(four.outputs.at("y"), expected);
  for (size_t i = 0; i < gradient.size(); ++i) ASSERT_NEAR(four.outputs.at("grad")[i], gradient[i], 1e-7F) << i;
  EXPECT_THAT(error_of([] {
                nn::SplitEmbedding({10, 0}, 4);
              }),
              HasSubstr("part 1 has 0 rows; each must have 1 or more"));
  EXPECT_THAT(error_of([] { nn::SplitEmbedding({}, 4); }), HasSubstr("SplitEmbedding of no parts"));
}

// Named axes: the order of the axes in a dimension is the order of significance.
TEST(NamedLayouts, contracts_6_5_1_two_axes_in_a_dimension_place_the_documented_rows) {
  const Mesh mesh = parse_mesh("dp=2,sp=2,mp=2");
  const Layout layout = parse_layout("[mp, sp*dp]", mesh);
  std::vector<std::vector<int64_t>> holders(2, std::vector<int64_t>(4));
  for (int64_t rank = 0; rank < 8; ++rank) {
    const Box box = local_box(Shape{2, 4}, layout, mesh, rank);
    holders[static_cast<size_t>(box.start[0])][static_cast<size_t>(box.start[1])] = rank;
  }
  EXPECT_THAT(holders[0], testing::ElementsAre(0, 4, 2, 6));
  EXPECT_THAT(holders[1], testing::ElementsAre(1, 5, 3, 7));
}

TEST(NamedLayouts, contracts_6_5_3_a_result_wanted_cut_over_the_contracted_axes_is_a_reduce_scatter) {
  Graph graph;
  const Tensor x = data_input(graph, "x", {16, 8});
  const Tensor w = parameter(graph, "w", {8, 4});
  graph.add_output("y", in_scope(graph, "fc", [&] { return relu(matmul(x, w)); }).id());
  const OnRanks eight =
      run_on_ranks(graph, 8, by_hand("dp=2,sp=2,mp=2", {{"fc", "[mp, sp*dp], [sp*dp, -] -> [mp*sp*dp, -]"}}));
  expect_equal(eight, run_on_ranks(graph, 1, {}), 8);
  EXPECT_EQ(count(eight.program, "reduce_scatter"), 1);
  EXPECT_EQ(count(eight.program, "all_reduce"), 0);
}

// A block of two products, bs=1024 h=256 e=512 over 8 ranks, sends what its formula says (in elements).
struct TensorParallelCase {
  std::string name, mesh, x, w1, w2, up, down;
  int64_t elements;
};

class TensorParallel : public testing::TestWithParam<TensorParallelCase> {};

TEST_P(TensorParallel, contracts_6_5_6_sends_what_its_formula_says) {
  const TensorParallelCase& c = GetParam();
  Graph graph;
  const Tensor x = data_input(graph, "x", {1024, 256});
  const Tensor w1 = parameter(graph, "w1", {256, 512});
  const Tensor w2 = parameter(graph, "w2", {512, 256});
  const Tensor h = in_scope(graph, "up", [&] { return matmul(x, w1); });
  const Tensor y = in_scope(graph, "down", [&] { return matmul(h, w2); });
  graph.add_output("sum", in_scope(graph, "end", [&] { return reduce_sum(y); }).id());
  Parallel cuts = by_hand(c.mesh, {{"up", c.up}, {"down", c.down}});
  cuts.dataset = c.x;
  cuts.parameters = {{"w1", c.w1}, {"w2", c.w2}};
  const OnRanks eight = run_on_ranks(graph, 8, cuts);
  // The scalar at the end is reduced too.
  EXPECT_NEAR(static_cast<double>(eight.total_bytes()) / 4, static_cast<double>(c.elements), 8);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, TensorParallel,
    testing::Values(TensorParallelCase{"one_d", "x=8", "full_batch", "[-, x]", "[x, -]", "[-, -], [-, x]",
                                       "[-, x], [x, -] -> [-, -]", 458752},
                    TensorParallelCase{"two_d", "x=2,y=4", "[-, x*y]", "[x, y]", "[y, x]", "[-, x], [x, y] -> [-, y*x]",
                                       "[-, y], [y, x] -> [-, x*y]", 327680},
                    TensorParallelCase{"three_d", "x=2,y=2,z=2", "[z*y, x]", "[x*z, y]", "[y*z, x]",
                                       "[z, x], [x, y] -> [z*x, y]", "[z, y], [y, x] -> [z*y, x]", 229376}),
    [](const auto& about) { return about.param.name; });

}  // namespace
}  // namespace trireme::operator_parallel_test
