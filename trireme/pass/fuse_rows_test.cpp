#include "trireme/pass/fuse_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/rng.h"
#include "trireme/base/thread_pool.h"
#include "trireme/exec/lowering/plan_execution.h"
#include "trireme/exec/run/executor.h"
#include "trireme/ops/ops.h"
#include "trireme/parallel/parallel.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/passes.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::fuse_rows_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Tensor input(Graph& graph, const std::string& name, Shape shape, Role role = Role::kData) {
  return {graph, graph.add_input(name, {DType::kF32, shape}, role)};
}

Program program_of(const Graph& graph) {
  return partition(graph, data_parallel(graph, 1));
}

Program fused(const Graph& graph, const PassOptions& options = {}) {
  Program out = find_pass("fuse_rows").run(program_of(graph), options);
  EXPECT_THAT(verify(out), IsEmpty());
  return out;
}

std::vector<std::string> ops_of(const Program& program) {
  std::vector<std::string> out;
  for (const Node& node : program.graph.nodes()) out.emplace_back(node.op->name);
  return out;
}

TEST(FuseRows, a_bias_and_what_follows_are_one_op_and_what_others_read_is_a_result) {
  Graph graph;
  const Tensor x = input(graph, "x", {6, 8});
  const Tensor bias = input(graph, "bias", {8}, Role::kParameter);
  graph.set_scope("up");
  const Tensor biased = add(matmul(x, input(graph, "w", {8, 8}, Role::kParameter)), bias);
  graph.add_output("y", gelu(biased, true).id());
  graph.add_output("biased", biased.id());
  const Program after = fused(graph);
  EXPECT_THAT(ops_of(after), ElementsAre("matmul", "fused_rows"));
  EXPECT_EQ(after.graph.node(1).attrs.text(),
            "{row_dims=1, steps=\"2=add(0,1){}; 3=gelu(2){approximate=true}\", results=[2,3]}");
  EXPECT_EQ(fused_text(after), "fused 2 ops at 'up': add, gelu\n");
}

Graph a_layer() {
  Graph graph;
  const Tensor x = input(graph, "x", {6, 8});
  const Tensor bias = input(graph, "bias", {4}, Role::kParameter);
  const Tensor product = matmul(scale(x, 2), input(graph, "w", {8, 4}, Role::kParameter));
  graph.add_output("y", gelu(add(product, bias), true).id());
  return graph;
}

TEST(FuseRows, a_product_with_a_large_result_is_one_with_what_follows) {
  const Program after = fused(a_layer(), {.fused_product_bytes = 6 * 4 * 4});
  EXPECT_THAT(ops_of(after), ElementsAre("scale", "fused_rows"));
  EXPECT_EQ(after.graph.node(1).attrs.text(),
            "{row_dims=1, steps=\"3=matmul(0,1){transpose_a=false, transpose_b=false}; 4=add(3,2){}; "
            "5=gelu(4){approximate=true}\", results=[5]}");
}

TEST(FuseRows, a_product_of_bf16_is_one_with_what_follows) {
  Graph graph;
  const auto bf16 = [&](const char* name, Shape shape, Role role) {
    return Tensor{graph, graph.add_input(name, {DType::kBF16, shape}, role)};
  };
  const Tensor x = bf16("x", {6, 8}, Role::kData);
  graph.add_output("y", gelu(matmul(x, bf16("w", {8, 4}, Role::kParameter)), true).id());
  EXPECT_THAT(ops_of(fused(graph, {.fused_product_bytes = 6 * 4 * 2})), ElementsAre("fused_rows"));
  EXPECT_THAT(ops_of(fused(graph, {.fused_product_bytes = 6 * 4 * 2 + 1})), ElementsAre("matmul", "gelu"));
  // Not where the device would have them as ops of their own.
  EXPECT_THAT(ops_of(fused(graph, {.fused_product_bytes = 1, .fused_products = {DType::kF32}})),
              ElementsAre("matmul", "gelu"));
}

TEST(FuseRows, a_product_with_a_small_result_stays_by_itself) {
  EXPECT_THAT(ops_of(fused(a_layer(), {.fused_product_bytes = 6 * 4 * 4 + 1})),
              ElementsAre("scale", "matmul", "fused_rows"));
}

TEST(FuseRows, a_product_stays_by_itself_where_rules_ask_for_single_ops) {
  const PassOptions on_host{.on_host = {.rules = {{}}}, .fused_product_bytes = 1};
  EXPECT_THAT(ops_of(fused(a_layer(), on_host)), ElementsAre("scale", "matmul", "fused_rows"));
  const PassOptions at_home{.homes = {{}}, .fused_product_bytes = 1};
  EXPECT_THAT(ops_of(fused(a_layer(), at_home)), ElementsAre("scale", "matmul", "fused_rows"));
}

// A weight's update stands between the product that reads the weight and what follows it.
Graph a_layer_with_an_update(bool reads_what_comes_later) {
  Graph graph;
  const Tensor x = input(graph, "x", {6, 8});
  const Tensor w = input(graph, "w", {8, 8}, Role::kParameter);
  const Tensor product = matmul(x, w);
  graph.set_phase(Phase::kUpdate);
  graph.add_output("w", scale(w, 0.5).id(), w.id());
  graph.set_phase(Phase::kForward);
  const Tensor beside = reads_what_comes_later ? matmul(x, input(graph, "v", {8, 8}, Role::kParameter)) : x;
  graph.add_output("y", mul(square(product), beside).id());
  return graph;
}

TEST(FuseRows, what_follows_a_product_comes_to_it_where_the_product_may_not_wait) {
  EXPECT_THAT(ops_of(fused(a_layer_with_an_update(false), {.fused_product_bytes = 1})),
              ElementsAre("fused_rows", "scale"));
  // The first product and its square; the other reads one that is made later.
  EXPECT_THAT(ops_of(fused(a_layer_with_an_update(true), {.fused_product_bytes = 1})),
              ElementsAre("fused_rows", "scale", "fused_rows"));
}

TEST(FuseRows, a_product_over_rows_stays_by_itself) {
  Graph graph;
  const Tensor x = input(graph, "x", {6, 8});
  graph.add_output("y", square(linear_weight_grad(x, x)).id());
  EXPECT_THAT(ops_of(fused(graph, {.fused_product_bytes = 1})), ElementsAre("linear_weight_grad", "square"));
}

TEST(FuseRows, a_product_whose_terms_are_cut_stays_by_itself) {
  Graph graph;
  const Tensor x = input(graph, "x", {6, 8});
  const Tensor w = input(graph, "w", {8, 4}, Role::kParameter);
  graph.add_output("y", scale(matmul(x, w), 2).id());
  Program program = program_of(graph);
  program.whole[static_cast<size_t>(x.id())] = Shape{6, 16};  // here is half of each row
  const Program after = find_pass("fuse_rows").run(program, {.fused_product_bytes = 1});
  EXPECT_THAT(ops_of(after), ElementsAre("matmul", "scale"));
}

TEST(FuseRows, what_nobody_else_reads_is_no_result) {
  Graph graph;
  const Tensor x = input(graph, "x", {6, 8});
  const Tensor gamma = input(graph, "gamma", {8}, Role::kParameter);
  const Tensor sum = add(scale(x, 2), gamma);
  graph.add_output("y", layer_norm(sum, gamma, gamma).y.id());
  const Program after = fused(graph);
  EXPECT_THAT(ops_of(after), ElementsAre("fused_rows"));
  EXPECT_EQ(after.graph.node(0).outputs.size(), 1u);
}

TEST(FuseRows, sums_over_rows_and_what_they_give_stay_as_they_are) {
  Graph graph;
  const Tensor x = input(graph, "x", {6, 8});
  graph.add_output("y", add(x, reduce_sum(square(x), {0})).id());
  EXPECT_THAT(ops_of(fused(graph)), ElementsAre("square", "reduce_sum", "add"));
}

TEST(FuseRows, an_op_that_reads_all_rows_does_not_join_the_one_that_makes_them) {
  Graph graph;
  const Tensor bias = scale(input(graph, "bias", {8}, Role::kParameter), 2);
  graph.add_output("y", add(input(graph, "x", {6, 8}), bias).id());
  EXPECT_THAT(ops_of(fused(graph)), ElementsAre("scale", "add"));
}

TEST(FuseRows, names_of_the_model_that_begin_like_those_of_gradients_and_updates_change_nothing) {
  Graph graph;
  const Tensor x = input(graph, "x", {8, 8});
  const Tensor h = matmul(x, x);
  graph.set_scope("grad/mine");
  const Tensor a = scale(h, 2);
  graph.set_scope("update/x");
  const Tensor b = gelu(a, true);
  graph.set_scope("head");
  graph.add_output("y", square(b).id());
  EXPECT_THAT(ops_of(fused(graph)), ElementsAre("matmul", "fused_rows"));
}

TEST(FuseRows, what_is_of_the_backward_pass_joins_nothing_of_the_forward_pass) {
  Graph graph;
  const Tensor x = input(graph, "x", {8, 8});
  const Tensor a = scale(matmul(x, x), 2);
  graph.set_phase(Phase::kBackward);
  graph.add_output("y", square(a).id());
  EXPECT_THAT(ops_of(fused(graph)), ElementsAre("matmul", "scale", "square"));
}

TEST(FuseRows, an_op_does_not_wait_where_another_needs_it_earlier) {
  Graph graph;
  const Tensor x = input(graph, "x", {8, 8});
  const Tensor y = scale(x, 2);
  graph.add_output("z", add(y, matmul(y, y)).id());
  EXPECT_THAT(ops_of(fused(graph)), ElementsAre("scale", "matmul", "add"));
}

TEST(FuseRows, an_op_does_not_wait_past_the_update_of_what_it_reads) {
  Graph graph;
  const Tensor w = input(graph, "w", {8, 8}, Role::kParameter);
  const Tensor y = add(w, w);
  graph.set_phase(Phase::kUpdate);
  graph.add_output("w", scale(w, 0.5).id(), w.id());
  graph.set_phase(Phase::kForward);
  graph.add_output("y", square(y).id());
  EXPECT_THAT(ops_of(fused(graph)), ElementsAre("add", "scale", "square"));
}

TEST(FuseRows, an_op_does_not_wait_where_that_keeps_more_bytes) {
  Graph graph;
  const Tensor x = input(graph, "x", {8, 8});
  const Tensor a = matmul(x, x);
  const Tensor b = matmul(a, x);
  const Tensor sum = add(a, b);  // nobody reads a and b after it
  const Tensor more = matmul(x, x);
  graph.add_output("y", mul(sum, more).id());
  EXPECT_THAT(ops_of(fused(graph)), ElementsAre("matmul", "matmul", "add", "matmul", "mul"));
}

// -- to the bit
// ---------------------------------------------------------------------------------------------------------------

class Draw {
 public:
  explicit Draw(uint64_t seed) : stream_{seed, 3} {}
  size_t below(size_t n) { return random_bits(stream_, at_++, 0) % n; }

 private:
  Stream stream_;
  uint64_t at_ = 0;
};

Tensor random_op(Draw& draw, const Tensor& x, const Tensor& other, const std::vector<Tensor>& lines) {
  const Tensor line = cast(lines[draw.below(lines.size())], x.dtype());
  const Tensor like = cast(other, x.dtype());
  switch (draw.below(13)) {
    case 0:
      return add(x, line);
    case 1:
      return mul(x, like);
    case 2:
      return sub(line, x);
    case 3:
      return gelu(x, draw.below(2) == 0);
    case 4:
      return gelu_grad(x, like, true);
    case 5:
      return layer_norm(x, lines[0], lines[1]).y;
    case 6:
      return cast(x, x.dtype() == DType::kF32 ? DType::kBF16 : DType::kF32);
    case 7:
      return scale(x, 0.75);
    case 8:
      return softmax(x);
    case 9:
      return select(less(x, like), x, like);
    case 10:
      return silu(x);
    case 11:
      return concat({split(x, -1, {1, x.size(-1) - 1})[1], split(like, -1, {1, x.size(-1) - 1})[0]}, -1);
    default:
      return tanh(add(x, like));
  }
}

Graph random_graph(uint64_t seed) {
  Draw draw(seed);
  Graph graph("random");
  const Shape shape = draw.below(2) == 0 ? Shape{static_cast<int64_t>(1 + draw.below(700)), 37}
                                         : Shape{static_cast<int64_t>(1 + draw.below(20)), 5, 130};
  const Shape line{shape[shape.rank() - 1]};
  std::vector<Tensor> values{input(graph, "x0", shape), input(graph, "x1", shape)};
  const std::vector<Tensor> lines{input(graph, "line0", line, Role::kParameter),
                                  input(graph, "line1", line, Role::kParameter)};
  const size_t steps = 2 + draw.below(12);
  for (size_t i = 0; i < steps; ++i) {
    const Tensor& x = values[values.size() - 1 - draw.below(std::min<size_t>(values.size(), 3))];
    const Tensor& other = values[draw.below(values.size())];
    values.push_back(random_op(draw, x, other, lines));
    if (draw.below(4) == 0) graph.add_output(fmt::format("y{}", i), values.back().id());
  }
  graph.add_output("last", values.back().id());
  return graph;
}

std::vector<std::byte> bytes_of(const Program& program, uint64_t seed, ThreadPool* pool) {
  const ExecutionPlan plan = plan_execution(program, {.threads = pool == nullptr ? 1 : pool->size()});
  EXPECT_THAT(verify(plan), IsEmpty());
  Executor executor(plan, {.pool = pool});
  for (const PlanInput& in : plan.inputs) {
    const auto x = executor.input(in.name).as<float>();
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(3 * uniform01({seed, 9}, i, static_cast<uint64_t>(in.value))) - 1.5F;
  }
  executor.run();
  std::vector<std::byte> out;
  for (const PlanOutput& result : plan.outputs) {
    const auto raw = executor.output(result.name).raw();
    out.insert(out.end(), raw.begin(), raw.end());
  }
  return out;
}

TEST(FuseRows, random_graphs_give_the_same_bits_fused) {
  constexpr uint64_t kGraphs = 150;
  size_t groups = 0;
  ThreadPool pool(3);
  for (uint64_t seed = 1; seed <= kGraphs; ++seed) {
    const Graph graph = random_graph(seed);
    const Program before = program_of(graph);
    const Program after = fused(graph, {.fused_product_bytes = 1});
    for (const std::string& op : ops_of(after)) groups += op == "fused_rows" ? 1 : 0;
    const std::vector<std::byte> want = bytes_of(before, seed, nullptr);
    ASSERT_TRUE(bytes_of(after, seed, nullptr) == want) << "seed " << seed << "\n" << to_string(after.graph);
    ASSERT_TRUE(bytes_of(after, seed, &pool) == want) << "3 threads, seed " << seed << "\n" << to_string(after.graph);
  }
  EXPECT_GT(groups, kGraphs / 2) << "few graphs had anything to fuse";
}

}  // namespace
}  // namespace trireme::fuse_rows_test
