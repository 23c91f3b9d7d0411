#include "trireme/partition/partition.h"
#include "trireme/parallel/parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "trireme/base/error.h"
#include "trireme/ops/ops.h"

namespace trireme::partition_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Tensor input(Graph& graph, const std::string& name, Shape shape, Role role = Role::kParameter) {
  return {graph, graph.add_input(name, {DType::kF32, shape}, role)};
}

Program cut(const Graph& graph, const Mesh& mesh, const std::vector<std::string>& layouts) {
  std::vector<Layout> inputs;
  for (const std::string& text : layouts) inputs.push_back(parse_layout(text, mesh));
  Program program = partition(graph, propagate(graph, mesh, inputs));
  EXPECT_THAT(verify(program), IsEmpty());
  return program;
}

int count(const Program& program, std::string_view op) {
  int out = 0;
  for (const Node& node : program.graph.nodes()) out += node.op->name == op ? 1 : 0;
  return out;
}

int collectives(const Program& program) {
  int out = 0;
  for (const Node& node : program.graph.nodes()) out += def_of(node).collective ? 1 : 0;
  return out;
}

Graph megatron_block() {
  Graph graph;
  const Tensor x = input(graph, "x", {8, 4}, Role::kData);
  const Tensor up = input(graph, "up", {4, 16});
  const Tensor down = input(graph, "down", {16, 4});
  graph.add_output("y", matmul(gelu(matmul(x, up)), down).id());
  return graph;
}

Program megatron_program() {
  return cut(megatron_block(), Mesh({{"tp", 2}}), {"[-, -]", "[-, tp]", "[tp, -]"});
}

TEST(Partition, values_have_the_shapes_of_their_pieces) {
  const Program program = megatron_program();
  EXPECT_EQ(to_string(program.graph.type(program.graph.input("up").value)), "f32[4,8]");
  EXPECT_EQ(to_string(program.graph.type(program.graph.node(0).outputs[0])), "f32[8,8]");
  EXPECT_EQ(to_string(program.whole[static_cast<size_t>(program.graph.node(0).outputs[0])]), "[8,16]");
  EXPECT_EQ(to_string(program.graph.type(program.graph.output("y").value)), "f32[8,4]");
}

TEST(Partition, column_then_row_parallel_products_take_one_all_reduce_and_nothing_else) {
  const Program program = megatron_program();
  EXPECT_EQ(count(program, "all_reduce"), 1);
  EXPECT_EQ(collectives(program), 1);
}

TEST(Partition, readers_that_ask_alike_share_one_reshard) {
  Graph graph;
  const Tensor x = input(graph, "x", {8, 4}, Role::kData);
  const Tensor w = input(graph, "w", {4, 4});
  const Tensor p = matmul(x, w);
  graph.add_output("a", gelu(p).id());
  graph.add_output("b", exp(p).id());
  graph.add_output("c", p.id());
  const Program program = cut(graph, Mesh({{"tp", 2}}), {"[-, tp]", "[tp, -]"});
  EXPECT_EQ(count(program, "all_reduce"), 1);
  EXPECT_EQ(collectives(program), 1);
}

TEST(Partition, on_one_device_nothing_is_added) {
  const Graph graph = megatron_block();
  const Program program = partition(graph, data_parallel(graph, 1));
  EXPECT_EQ(to_string(program.graph), to_string(graph));
}

TEST(Partition, an_illegal_choice_is_refused_with_its_place) {
  Graph graph;
  const Tensor x = input(graph, "x", {8, 4}, Role::kData);
  graph.set_scope("head");
  graph.add_output("y", softmax(x).id());
  Strategy strategy = propagate(graph, Mesh({{"tp", 2}}), {Layout::replicated(2)});
  strategy.nodes[0].axes.back() = {0};  // the dimension that softmax needs whole
  try {
    partition(graph, strategy);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("strategy of softmax at 'head': factor "));
  }
}

TEST(Partition, prints_each_value_with_its_layout) {
  EXPECT_THAT(to_string(megatron_program()), HasSubstr("// [-, tp] of [8,16]"));
}

TEST(Partition, prints_the_ranks_that_a_collective_joins) {
  EXPECT_THAT(to_string(megatron_program()), HasSubstr("// [-, -] of [8,4]; over tp, ranks {0,1}\n"));
  const Program pairs = cut(megatron_block(), Mesh({{"dp", 2}, {"tp", 2}}), {"[dp, -]", "[-, tp]", "[tp, -]"});
  EXPECT_THAT(to_string(pairs), HasSubstr(" of [8,4]; over tp, ranks {0,1} {2,3}\n"));
  const Program many =
      cut(megatron_block(), Mesh({{"tp", 2}, {"dp", 8}, {"more", 2}}), {"[dp, -]", "[-, tp]", "[tp, -]"});
  EXPECT_THAT(to_string(many), HasSubstr("{6,22} {7,23} and 8 more groups\n"));
}

TEST(Verify, a_shape_that_is_not_the_layouts_is_found) {
  Program program = megatron_program();
  program.layouts[1] = Layout::replicated(2);
  EXPECT_THAT(verify(program), testing::Contains(HasSubstr("%1 is f32[4,8] but layout [-, -] of [4,16] gives [4,16]")));
}

TEST(Verify, an_output_that_is_a_partial_sum_is_found) {
  Program program = megatron_program();
  Shared<Layout>& layout = program.layouts[static_cast<size_t>(program.graph.output("y").value)];
  Layout partial = layout;
  partial.add_partial(0, Reduction::kSum);
  layout = partial;
  EXPECT_THAT(verify(program), testing::Contains("output 'y' is a partial sum"));
}

TEST(Verify, an_update_in_another_layout_is_found) {
  Graph graph;
  const Tensor w = input(graph, "w", {4, 4});
  graph.add_output("w", scale(w, 2).id(), w.id());
  Program program = cut(graph, Mesh({{"a", 2}}), {"[a, -]"});
  program.layouts[1] = parse_layout("[-, a]", program.mesh);
  program.whole[1] = Shape{2, 8};
  EXPECT_THAT(verify(program), testing::Contains("output 'w' updates an input of another layout"));
}

TEST(Verify, a_missing_reduction_is_found) {
  // The program without its all-reduce: what reads the partial sum reads a term.
  Program program = megatron_program();
  Program broken{Graph("broken"), program.mesh, program.layouts, program.whole};
  for (const Input& in : program.graph.inputs()) {
    broken.graph.add_input(in.name, program.graph.type(in.value), in.role);
  }
  for (const Node& node : program.graph.nodes()) {
    if (node.op->name == "all_reduce") continue;
    const std::vector<TensorType> types{program.graph.type(node.outputs[0])};
    broken.graph.add_node(*node.op, node.attrs, node.inputs, types);
  }
  broken.graph.add_output("y", broken.graph.nodes().back().outputs[0]);
  broken.layouts.pop_back();
  broken.whole.pop_back();
  EXPECT_THAT(verify(broken), ElementsAre("output 'y' is a partial sum"));
}

// The first collective of a program with something about it changed.
Program with_collective(std::string_view op, const std::function<void(CollectiveAttrs&)>& change) {
  const Program sound = megatron_program();
  Program out{Graph("changed"), sound.mesh, sound.layouts, sound.whole};
  for (const Input& input : sound.graph.inputs()) {
    out.graph.add_input(input.name, sound.graph.type(input.value), input.role);
  }
  for (const Node& node : sound.graph.nodes()) {
    Attrs attrs = node.attrs;
    if (node.op->name == op) {
      CollectiveAttrs changed = attrs.as<CollectiveAttrs>();
      change(changed);
      attrs = Attrs::of(changed);
    }
    std::vector<TensorType> types;
    for (const ValueId id : node.outputs) types.push_back(sound.graph.type(id));
    out.graph.add_node(*node.op, attrs, node.inputs, types);
  }
  return out;
}

TEST(VerifyProgram, a_collective_must_do_what_the_layouts_say) {
  EXPECT_THAT(verify(with_collective("all_reduce", [](CollectiveAttrs&) {})), IsEmpty());
  EXPECT_THAT(verify(with_collective("all_reduce", [](CollectiveAttrs& a) { a.reduction = "max"; })),
              ElementsAre(HasSubstr("cannot be done to [-, -] partial(sum: tp)")));
  EXPECT_THAT(verify(with_collective("all_reduce", [](CollectiveAttrs& a) { a.size = 4; })),
              ElementsAre(HasSubstr("claims a group of 4 ranks; over tp of the mesh")));
  EXPECT_THAT(verify(with_collective("all_reduce",
                                     [](CollectiveAttrs& a) {
                                       a.axes = {};
                                       a.size = 1;
                                     })),
              ElementsAre(HasSubstr("makes [-, -] partial(sum: tp) of [-, -] partial(sum: tp), and its result is taken "
                                    "for [-, -]")));
}

TEST(VerifyProgram, a_result_that_is_taken_for_another_layout_is_found) {
  Program program = megatron_program();
  const auto sum = static_cast<size_t>(program.graph.output("y").value);
  program.layouts[sum] = parse_layout("[-, -] partial(sum: tp)", program.mesh);
  EXPECT_THAT(verify(program), Contains(HasSubstr("all_reduce that makes %")));
  program.layouts[sum] = parse_layout("[-, -]", program.mesh);
  program.whole[sum] = Shape{8, 5};
  EXPECT_THAT(verify(program), Contains(HasSubstr("makes [8,5] of a whole [8,4]")));
}

std::vector<std::string_view> ops_of(const Program& program) {
  std::vector<std::string_view> out;
  for (const Node& node : program.graph.nodes()) out.push_back(node.op->name);
  return out;
}

// The partial product of 3 columns is laid out for 2 times 2 before it is summed, in whichever type.
TEST(Partition, a_sum_to_uneven_parts_is_of_the_padded_value) {
  Graph graph;
  const Tensor x = input(graph, "x", {4, 6}, Role::kData);
  const Tensor w = input(graph, "w", {6, 3});
  const Tensor y = matmul(x, w);
  graph.add_output("y", y.id());
  const Mesh mesh({{"a", 2}});
  Strategy strategy = propagate(graph, mesh, {parse_layout("[-, a]", mesh), parse_layout("[a, -]", mesh)});
  strategy.outputs[0] = parse_layout("[-, a]", mesh);
  for (const bool in_f64 : {false, true}) {
    PartitionOptions options;
    if (in_f64) options.sum_types[y.id()] = DType::kF64;
    const Program program = partition(graph, strategy, options);
    EXPECT_THAT(verify(program), IsEmpty());
    if (in_f64)
      EXPECT_THAT(ops_of(program), ElementsAre("matmul", "pad", "cast", "reduce_scatter", "cast"));
    else
      EXPECT_THAT(ops_of(program), ElementsAre("matmul", "pad", "reduce_scatter"));
    EXPECT_EQ(program.graph.type(program.graph.outputs()[0].value).shape, (Shape{4, 2}));
  }
}

// Of the 7 rows both ranks have 4, of which the last one's end is cleared after an op that makes something of zeros; a
// maximum over rows does not see it.
TEST(Partition, what_lies_beyond_the_end_is_cleared_and_no_candidate) {
  Graph graph;
  const Tensor x = input(graph, "x", {7, 3});
  graph.add_output("largest", reduce_max(exp(scale(x, 2)), {0}).id());
  const Mesh mesh({{"a", 2}});
  const Program program = cut(graph, mesh, {"[a, -]"});
  EXPECT_THAT(ops_of(program), ElementsAre("scale", "exp", "fill_beyond", "fill_beyond", "reduce_max", "all_reduce"));
  EXPECT_EQ(program.graph.type(program.graph.node(0).outputs[0]).shape, (Shape{4, 3}));
}

}  // namespace
}  // namespace trireme::partition_test
