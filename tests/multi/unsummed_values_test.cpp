// Ranks that keep their own terms of sums over ranks (cross_batch, self_define_shard): gradients are those of what they
// so compute.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/multi/contract_support.h"
#include "tests/multi/small_graphs.h"
#include "tests/multi/training_support.h"
#include "tests/worst.h"
#include "trireme/grad/gradients.h"
#include "trireme/nn/models/resnet.h"
#include "trireme/op/build.h"
#include "trireme/op/conformance.h"
#include "trireme/op/registry.h"

namespace trireme::unsummed_values_test {
namespace {

using namespace testing_support;
using testing::Contains;
using testing::HasSubstr;

void expect_near(const std::vector<float>& found, const std::vector<float>& expected, double allowed,
                 const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (size_t i = 0; i < found.size(); ++i) {
    // Not a number is near nothing.
    ASSERT_TRUE(std::fabs(found[i] - expected[i]) <= allowed * worse(1, std::fabs(expected[i])))
        << what << " [" << i << "]: " << found[i] << " for " << expected[i];
  }
}

void expect_reads_back(const Graph& graph, const Strategy& strategy) {
  const std::string text = to_string(graph, strategy);
  EXPECT_EQ(to_string(graph, parse_strategy(text, graph)), text);
}

// -- nn::BatchNorm ---------------------------------------------------------------------------------------

struct Net {
  bool relu = false, residual = false;
};

// A layer whose statistics are of rows first to first + batch of 8 images, and what it is trained by.
Graph batch_norm_net(const Net& net, int64_t batch, int64_t first) {
  constexpr int64_t kWhole = 8;
  Graph graph;
  nn::Trace trace(graph, {.training = true});
  const Tensor all = data_input(graph, "x", {kWhole, 3, 3, 4});
  const Tensor x = batch == kWhole ? all : slice(all, 0, first, batch);
  const Tensor w = parameter(graph, "w", {4, 4});
  nn::BatchNorm norm(4, {.name = "bn1", .relu = net.relu});
  const Tensor h = matmul(x, w);
  const Tensor y = net.residual ? norm.add_to(scale(x, 0.5), h) : norm(h);
  const Tensor loss = mean(square(add_scalar(y, 0.5)) * 0.25 + mul(y, sigmoid(h)));
  graph.add_output("loss", loss.id());
  std::vector<Tensor> of{w};
  for (const Tensor& parameter : trace.parameters()) of.push_back(parameter);
  const std::vector<Tensor> grads = gradients(loss, of);
  for (size_t i = 0; i < of.size(); ++i) graph.add_output(fmt::format("grad{}", i), grads[i].id());
  for (const auto& [buffer, next] : trace.buffer_values()) {
    graph.add_output(graph.inputs()[static_cast<size_t>(graph.value(buffer.id()).index)].name, next.id(), buffer.id());
  }
  return graph;
}

TEST(UnsummedValues, batch_norm_by_cross_batch_is_the_mean_of_what_each_rank_does_with_its_own_samples) {
  for (const Net& net : {Net{}, Net{.relu = true}, Net{.relu = true, .residual = true}}) {
    for (const int ranks : {2, 4}) {
      for (const char* how : {"cross_batch mean", "cross_batch"}) {
        const Graph graph = batch_norm_net(net, 8, 0);
        const OnRanks found = run_on_ranks(graph, ranks, {.ops = {{"bn1/channel_sums", how}}});
        std::map<std::string, std::vector<float>> expected;
        for (int rank = 0; rank < ranks; ++rank) {
          const OnRanks own = run_on_ranks(batch_norm_net(net, 8 / ranks, rank * 8 / ranks), 1, {});
          for (const auto& [name, values] : own.outputs) {
            std::vector<float>& sum = expected[name];
            sum.resize(values.size());
            for (size_t i = 0; i < values.size(); ++i) sum[i] += values[i] / static_cast<float>(ranks);
          }
        }
        for (const auto& [name, values] : expected) expect_near(found.outputs.at(name), values, 2e-6, name);
        const OnRanks together = run_on_ranks(graph, 1, {});
        EXPECT_GT(std::fabs(found.outputs.at("grad0")[0] - together.outputs.at("grad0")[0]), 1e-4F)
            << "it makes no difference here";
        expect_reads_back(graph, found.strategy);
        EXPECT_THAT(to_string(graph, found.strategy), HasSubstr("output \"bn1.running_mean\" f32[4] [-] mean=dp\n"));
        EXPECT_EQ(run_on_ranks(graph, ranks, {.strategy = to_string(graph, found.strategy)}).outputs, found.outputs);
      }
    }
  }
}

// The rank's part of the batch is one, however many parts it works through it in.
TEST(UnsummedValues, batch_norm_of_a_resnet_trains_by_cross_batch_with_and_without_accumulation) {
  std::vector<std::vector<float>> losses, means;
  for (const int64_t accumulation : {1, 2}) {
    Parallel parallel{.accumulation = accumulation,
                      .ops = {{"bn1/channel_sums", "cross_batch mean"}, {"*.bn*/channel_sums", "cross_batch mean"}}};
    const std::vector<BatchField> batch{{"x", {DType::kF32, {8, 16, 16, 3}}}, {"y", {DType::kI32, {8}}}};
    const LossFn loss = [](const Tensor& y, const Tensor& t) { return cross_entropy(y, t); };
    std::vector<float> of_ranks[2], mean_of[2];
    comm::spawn_ranks(2, "threads", [&](comm::World& world) {
      nn::ResNet net({.blocks = {1, 1}, .width = 4, .channels = 3, .classes = 10});
      const ModelFn model = [&](const Tensor& x) { return net(x); };
      Session session(training_step(model, loss, batch, Sgd{}), evaluation(model, loss, batch),
                      {.world = &world, .compile = {.parallel = parallel}});
      session.initialise();
      for (int64_t step = 1; step <= 3; ++step) {
        of_ranks[world.rank()].push_back(train_step(session, step, 0.1F));
      }
      const auto mean = session.step().input("bn1.running_mean").as<float>();
      mean_of[world.rank()].assign(mean.begin(), mean.end());
    });
    EXPECT_EQ(of_ranks[0], of_ranks[1]);
    EXPECT_EQ(mean_of[0], mean_of[1]) << "running statistics are one value";
    losses.push_back(of_ranks[0]);
    means.push_back(mean_of[0]);
  }
  expect_near(losses[1], losses[0], 1e-4, "loss");
  expect_near(means[1], means[0], 1e-4, "running mean");
}

// -- values of ranks' own on their way ----------------------------------------------------------------------

// A parameter that is added to a statistic gets the very gradient that the statistic does.
Graph shared_gradient(int64_t batch, int64_t first) {
  Graph graph;
  const Tensor all = data_input(graph, "x", {8, 4});
  const Tensor x = batch == 8 ? all : slice(all, 0, first, batch);
  const Tensor w = parameter(graph, "w", {4, 4});
  const Tensor shift = parameter(graph, "shift", {4});
  const Tensor factor = parameter(graph, "factor", {4});
  const Tensor h = matmul(x, w);
  const Tensor stat = in_scope(graph, "norm", [&] { return mean(h, {0}); });
  const Tensor centred = sub(h, add(mul(stat, factor), shift));
  const Tensor wide = mul(broadcast_to(unsqueeze(stat, 0), h.shape()), sigmoid(h));
  const Tensor loss = mean(mul(square(centred), sigmoid(centred)) + wide) + mean(square(stat));
  graph.add_output("loss", mean(square(centred)).id());
  const std::vector<Tensor> of{w, shift, factor};
  const std::vector<Tensor> grads = gradients(loss, of);
  for (size_t i = 0; i < of.size(); ++i) graph.add_output(fmt::format("grad{}", i), grads[i].id());
  return graph;
}

TEST(UnsummedValues, what_ranks_share_sums_the_terms_that_each_has_of_its_own) {
  const Graph graph = shared_gradient(8, 0);
  const OnRanks two = run_on_ranks(graph, 2, {.ops = {{"norm/reduce_sum", "cross_batch mean"}}});
  const OnRanks first = run_on_ranks(shared_gradient(4, 0), 1, {});
  const OnRanks second = run_on_ranks(shared_gradient(4, 4), 1, {});
  for (const auto& [name, values] : first.outputs) {
    std::vector<float> expected = values;
    for (size_t i = 0; i < expected.size(); ++i) expected[i] = (expected[i] + second.outputs.at(name)[i]) / 2;
    expect_near(two.outputs.at(name), expected, 1e-6, name);
  }
}

TEST(UnsummedValues, what_each_rank_has_of_its_own_is_not_mixed) {
  Graph graph;
  const Tensor x = data_input(graph, "x", {8, 4});
  const Tensor w = parameter(graph, "w", {4, 4});
  const Tensor stat = in_scope(graph, "norm", [&] { return mean(matmul(x, w), {0}); });
  const Tensor cut = in_scope(graph, "cut", [&] { return sigmoid(stat); });
  graph.add_output("y", mean(cut).id());
  const std::string error = error_of([&] {
    semi_auto(graph, 2, {.ops = {{"norm/reduce_sum", "cross_batch"}, {"norm/scale", "[dp]"}}});
  });
  EXPECT_THAT(error, HasSubstr("scale of 'norm' would mix values of which each rank of 'dp' has its own"));
}

// -- every op ------------------------------------------------------------------------------------------

void fill_with(Executor& executor, const std::map<std::string, HostTensor>& values) {
  const ExecutionPlan& plan = executor.plan();
  for (const PlanInput& input : plan.inputs) {
    const View view = executor.input(input.name);
    const HostTensor& from = values.at(input.name);
    const auto size = static_cast<size_t>(size_of(view.type.dtype));
    for (int64_t i = 0; i < view.elements(); ++i) {
      const auto at = static_cast<size_t>(whole_index(from.type().shape, executor.input_box(input.name), i));
      std::memcpy(view.data + static_cast<size_t>(i) * size, from.view().data + at * size, size);
    }
  }
}

// One op on one example, cut in two along one factor of its rule.
struct Case {
  const OpDef& op;
  Example example;
  ShardingRule rule;
  int factor = 0;
  std::vector<TensorType> results;

  bool is_sum() const { return is_summed(rule, factor); }
  int dim_of(const DimFactors& tensor) const {
    for (size_t dim = 0; dim < tensor.size(); ++dim) {
      if (tensor[dim] == std::vector<int>{factor}) return static_cast<int>(dim);
    }
    return -1;
  }
  std::string layouts(const std::vector<DimFactors>& tensors) const {
    std::string out;
    for (const DimFactors& tensor : tensors) {
      std::string one;
      for (size_t dim = 0; dim < tensor.size(); ++dim) {
        one += fmt::format("{}{}", dim > 0 ? ", " : "", static_cast<int>(dim) == dim_of(tensor) ? "dp" : "-");
      }
      out += fmt::format("{}[{}]", out.empty() ? "" : ", ", one);
    }
    return out;
  }
};

// Whether every tensor has the factor as a dimension of its own or not at all, and both halves are alike.
bool is_plain(const Case& c) {
  const Factor& factor = c.rule.factors[static_cast<size_t>(c.factor)];
  if (!factor.can_cut || factor.size % 2 != 0 || factor.size < 2) return false;
  if (c.rule.ring && (c.factor == c.rule.ring->first || c.factor == c.rule.ring->second)) return false;
  for (const WindowedDim& window : c.rule.windows) {
    if (window.factor == c.factor) return false;
  }
  bool in_operands = false;
  for (const std::vector<DimFactors>* side : {&c.rule.in, &c.rule.out}) {
    for (const DimFactors& tensor : *side) {
      if (!stands_in(tensor, c.factor)) continue;
      if (c.dim_of(tensor) < 0) return false;
      in_operands = in_operands || side == &c.rule.in;
    }
  }
  return in_operands;
}

std::vector<Case> all_cases() {
  std::vector<Case> out;
  for (const OpDef* op : all_ops()) {
    if (!op->shard || !op->grad || op->collective || op->examples == nullptr) continue;
    for (const Example& example : op->examples()) {
      const bool narrow = std::ranges::all_of(
          example.in, [](const TensorType& type) { return type.dtype == DType::kF32 || !is_floating(type.dtype); });
      if (!narrow || !example.skip_gradient.empty()) continue;
      Case c{*op, example, {}, 0, conformance::results_of(*op, example)};
      c.rule = op->shard.get()({example.in, c.results, example.attrs});
      for (size_t f = 0; f < c.rule.factors.size(); ++f) {
        c.factor = static_cast<int>(f);
        if (is_plain(c)) out.push_back(c);
      }
    }
  }
  return out;
}

Shape with_ranks(const Shape& shape, bool own) {
  std::vector<int64_t> sizes(shape.begin(), shape.end());
  if (own) sizes.insert(sizes.begin(), 2);
  return Shape(std::span<const int64_t>(sizes));
}

// The sum of the op's results times `weights`, whose first dimension counts the ranks where each has results of its
// own, and its gradients. `parts`: the op is applied to each half by itself, as the ranks do.
Graph functional(const Case& c, bool own, bool parts) {
  Graph graph;
  std::vector<Tensor> x;
  for (size_t i = 0; i < c.example.in.size(); ++i)
    x.push_back(data_input(graph, fmt::format("x{}", i), c.example.in[i].shape, c.example.in[i].dtype));
  Tensor loss;
  const auto add_terms = [&](const std::vector<Tensor>& y, int64_t rank) {
    for (size_t r = 0; r < y.size(); ++r) {
      if (!is_floating(y[r].dtype())) continue;
      const Shape shape = with_ranks(c.results[r].shape, own);
      const std::string name = fmt::format("weights{}", r);
      Tensor weights;
      for (const Input& input : graph.inputs()) {
        if (input.name == name) weights = Tensor(graph, input.value);
      }
      if (!weights) weights = data_input(graph, name, shape, y[r].dtype());
      Tensor mine = y[r];
      if (own && parts) weights = reshape(slice(weights, 0, rank, 1), y[r].shape());
      if (own && !parts) mine = broadcast_to(unsqueeze(mine, 0), shape);
      graph.set_scope("weigh");
      const Tensor product = mul(mine, weights);
      graph.set_scope("");
      const Tensor in_f32 = cast(reduce_sum(product), DType::kF32);
      loss = loss ? add(loss, in_f32) : in_f32;
    }
  };
  for (int64_t rank = 0; rank < (parts ? 2 : 1); ++rank) {
    std::vector<Tensor> in = x;
    for (size_t i = 0; parts && i < in.size(); ++i) {
      const int dim = c.dim_of(c.rule.in[i]);
      const int64_t half = dim < 0 ? 0 : in[i].size(dim) / 2;
      if (dim >= 0) in[i] = slice(in[i], dim, rank * half, half);
    }
    graph.set_scope("it");
    const std::vector<Tensor> y = apply(c.op, in, c.example.attrs);
    graph.set_scope("");
    add_terms(y, rank);
  }
  if (!loss) return graph;
  graph.add_output("loss", loss.id());
  std::vector<Tensor> wanted;
  for (const Tensor& operand : x) {
    if (is_floating(operand.dtype())) wanted.push_back(operand);
  }
  const std::vector<Tensor> grads = gradients(loss, wanted);
  for (size_t i = 0; i < grads.size(); ++i) {
    if (grads[i]) graph.add_output(fmt::format("grad{}", i), grads[i].id());
  }
  return graph;
}

std::map<std::string, HostTensor> values_for(const Case& c, bool own) {
  std::map<std::string, HostTensor> out;
  std::vector<HostTensor> operands = conformance::operands_of(c.example, 3);
  for (size_t i = 0; i < operands.size(); ++i) out.emplace(fmt::format("x{}", i), std::move(operands[i]));
  for (size_t r = 0; r < c.results.size(); ++r) {
    const TensorType type{c.results[r].dtype, with_ranks(c.results[r].shape, own)};
    if (is_floating(type.dtype)) out.emplace(fmt::format("weights{}", r), conformance::filled(type, {}, 11 + r));
  }
  return out;
}

// Whether the case could be tried.
bool check_case(const Case& c, bool cross_batch, std::vector<std::string>& refused) {
  if (std::ranges::any_of(c.example.in, [](const TensorType& type) { return type.shape.rank() == 0; })) return false;
  const bool own = c.is_sum();
  if (own && c.op.traits.reads_place) return false;  // by itself it takes its half for the whole
  Graph oracle;
  try {
    oracle = functional(c, own, own);
  } catch (const Error&) {
    return false;  // the op does not take halves
  }
  if (oracle.outputs().size() < 2) return false;
  const Graph graph = functional(c, own, false);
  Parallel parallel{.dataset = "full_batch"};
  const std::string name = fmt::format("it/{}", c.op.name);
  if (cross_batch) {
    parallel.ops = {{name, c.layouts(c.rule.in)}, {name, "cross_batch"}};
  } else {
    parallel.ops = {{name, fmt::format("self_define_shard {} -> {}", c.layouts(c.rule.in), c.layouts(c.rule.out))}};
  }
  for (size_t r = 0; own && r < c.results.size(); ++r) {
    std::string cut = "[dp";
    for (int dim = 0; dim < c.results[r].shape.rank(); ++dim) cut += ", -";
    parallel.ops.push_back({fmt::format("weigh/mul#{}", r), fmt::format("{0}], {0}]", cut)});
  }
  const std::string what = fmt::format("{} cut along '{}' of {}{}", conformance::describe(c.op, c.example),
                                       c.rule.factors[static_cast<size_t>(c.factor)].name, to_string(c.rule),
                                       cross_batch ? ", cross_batch" : ", self_define_shard");
  const auto values = values_for(c, own);
  const auto fill = [&](Executor& executor) { fill_with(executor, values); };
  const OnRanks expected = run_on_ranks(oracle, 1, {}, fill);
  OnRanks found;
  try {
    found = run_on_ranks(graph, 2, parallel, fill);
  } catch (const Error& e) {
    EXPECT_NE(e.kind(), ErrorKind::kInternal) << what << ": " << e.what();
    refused.push_back(fmt::format("{}: {}", what, e.what()));
    return true;
  }
  for (const auto& [output, wanted] : expected.outputs)
    expect_near(found.outputs.at(output), wanted, 1e-4, what + ", " + output);
  expect_reads_back(graph, found.strategy);
  return true;
}

TEST(UnsummedValues, cross_batch_of_every_op_that_sums_reaches_its_gradient) {
  std::vector<std::string> tried, refused;
  for (const Case& c : all_cases()) {
    if (c.is_sum() && check_case(c, true, refused)) tried.emplace_back(c.op.name);
  }
  for (const char* op : {"reduce_sum", "reduce_max", "reduce_min", "square_sum", "matmul", "conv2d"})
    EXPECT_THAT(tried, Contains(op));
  EXPECT_THAT(refused, testing::IsEmpty());
}

// Layouts that the rule gives too change nothing; sums that are said to be whole are ranks' own.
TEST(UnsummedValues, self_define_shard_of_every_op_reaches_its_gradient) {
  std::vector<std::string> tried, refused;
  for (const Case& c : all_cases()) {
    if (check_case(c, false, refused)) tried.emplace_back(c.op.name);
  }
  for (const char* op : {"add", "mul", "matmul", "reduce_sum", "softmax", "layer_norm", "cross_entropy"})
    EXPECT_THAT(tried, Contains(op));
  EXPECT_THAT(refused, testing::IsEmpty());
}

}  // namespace
}  // namespace trireme::unsummed_values_test
