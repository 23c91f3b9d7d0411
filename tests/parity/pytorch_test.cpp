// The training step against PyTorch's: the same starting weights, batches and options (fixtures/,
// written by make_fixtures.py) must give the same loss at each of 20 steps and the same gradients
// at the first.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <ostream>

#include "tests/parity/pytorch_cases.h"
#include "tests/worst.h"
#include "trireme/comm/comm.h"
#include "trireme/exec/run/executor.h"
#include "trireme/grad/gradients.h"
#include "trireme/op/conformance.h"
#include "trireme/ops/ops.h"
#include "trireme/train/step/graphs/step.h"
#include "trireme/train/step/session/initialise.h"
#include "trireme/train/step/session/session.h"

namespace trireme::pytorch_test {
namespace {

using namespace testing_support;

constexpr double kUnitRoundoff = 0x1p-24;  // of f32
constexpr double kLossTolerance = 1e-5;    // relative, promised at every step

// The step's part of a field that a rank holds: rows of the batch, as the box says. Pixels are
// bytes over 255.
void fill_field(const View& to, const Box& box, const HostTensor& batches, int64_t step) {
  const int64_t per_step = batches.shape().elements() / batches.shape()[0];
  const int64_t per_row = per_step / batches.shape()[1];
  const auto from = static_cast<size_t>(step * per_step + box.start[0] * per_row);
  for (size_t i = 0; i < static_cast<size_t>(to.elements()); ++i) {
    if (to.type.dtype == DType::kF32) {
      to.as<float>()[i] = static_cast<float>(batches.as<uint8_t>()[from + i]) / 255.0F;
    } else {
      to.as<int32_t>()[i] = batches.as<int32_t>()[from + i];
    }
  }
}

void fill_batch(Executor& executor, const Case& c, int64_t step) {
  for (const BatchField& field : c.fields) {
    fill_field(executor.input(field.name), executor.input_box(field.name), c.fixture.tensor(field.name), step);
  }
}

// The fixture's weights, and the optimizer's state as it starts.
void start(Executor& executor, const Fixture& fixture) {
  size_t weights = 0;
  for (const PlanInput& input : executor.plan().inputs) {
    const View to = executor.input(input.name);
    if (input.role == Role::kState)
      initialise(to, executor.input_box(input.name), to.type.shape, input.init, 0, input.name);
    if (input.role != Role::kParameter) continue;
    const HostTensor& initial = fixture.tensor("init." + input.name);
    ASSERT_EQ(to.type.dtype, initial.type().dtype) << input.name;
    ASSERT_EQ(to.elements(), initial.view().elements()) << input.name;
    std::ranges::copy(initial.view().raw(), to.raw().begin());
    ++weights;
  }
  EXPECT_EQ(weights, fixture.names("init.").size());
}

Graph step_graph(const Case& c, DType compute = DType::kF32) {
  return training_step([&](const nn::Fields& batch) { return (*c.model)(batch); },
                       [](const nn::Fields& predicted, const nn::Fields& batch) {
                         return cross_entropy(predicted[nn::kPrediction], batch.back().second);
                       },
                       c.fields, c.fixture.optimizer(),
                       {.clip_norm = c.fixture.number("clip_norm"), .compute = compute});
}

// Outputs "loss" and "grad.<parameter>".
Graph gradient_graph(const Case& c, DType compute = DType::kF32) {
  Graph graph("gradients");
  nn::Fields fields;
  for (const BatchField& f : c.fields) fields.add(f.name, Tensor(graph, graph.add_input(f.name, f.type, Role::kData)));
  nn::Trace trace(graph, {.training = true, .compute = compute});
  const Tensor loss = mean(cross_entropy(cast((*c.model)(fields)[nn::kPrediction], DType::kF32), fields.back().second));
  graph.add_output("loss", loss.id());
  const std::vector<Tensor> grads = gradients(loss, trace.parameters());
  for (size_t i = 0; i < grads.size(); ++i) {
    const Value& parameter = graph.value(trace.parameters()[i].id());
    graph.add_output("grad." + graph.inputs()[static_cast<size_t>(parameter.index)].name, grads[i].id());
  }
  return graph;
}

using RankBody = std::function<void(comm::World* world, int64_t ranks)>;

void on_ranks(int ranks, const RankBody& body) {
  if (ranks == 1) return body(nullptr, 1);
  comm::spawn_ranks(ranks, "threads", [&](comm::World& world) { body(&world, ranks); });
}

// The largest error of a tensor's elements as a share of the largest element of the truth.
double relative_error(std::span<const float> got, std::span<const double> truth) {
  return worst_difference(got, truth) / largest_of(truth);
}

// What n roundings in a chain, each of a random sign, can do with all but the given probability to
// any of `elements` numbers, relative to the size of their terms (Higham and Mary, "A new approach
// to probabilistic rounding error analysis", 2019, theorem 2.4).
double rounding_bound(int64_t roundings, int64_t elements, double probability) {
  const auto n = static_cast<double>(roundings);
  const double lambda = std::sqrt(2 * std::log(2 * n * static_cast<double>(elements) / probability));
  return std::expm1(lambda * std::sqrt(n) * kUnitRoundoff + n * kUnitRoundoff * kUnitRoundoff / (1 - kUnitRoundoff));
}

double gradient_bound(const Case& c, const HostTensor& truth) {
  return rounding_bound(c.roundings, truth.shape().elements(), 1e-6);
}

struct Param {
  std::string model;
  int ranks = 1;
};

void PrintTo(const Param& param, std::ostream* out) {
  *out << param.model << " on " << param.ranks;
}

class PyTorchParity : public testing::TestWithParam<Param> {};
class GradientBound : public testing::TestWithParam<std::string> {};

// What the model's buffers are after the last step: within the losses' tolerance of the largest element.
void check_buffers(Executor& executor, const Fixture& fixture) {
  for (const std::string& name : fixture.names("last.")) {
    const HostTensor& truth = fixture.tensor("last." + name);
    EXPECT_LE(relative_error(executor.input(name).as<float>(), truth.as<double>()), kLossTolerance) << name;
  }
}

TEST_P(PyTorchParity, the_loss_is_the_same_at_each_of_20_steps) {
  const Case c = make_case(GetParam().model);
  const int64_t steps = c.fixture.count("steps");
  const Graph graph = step_graph(c);
  std::vector<std::vector<double>> losses(static_cast<size_t>(GetParam().ranks));
  on_ranks(GetParam().ranks, [&](comm::World* world, int64_t ranks) {
    const Compiled compiled = compile(graph, {.ranks = ranks});
    Executor executor(compiled.plan(), {.world = world});
    start(executor, c.fixture);
    std::vector<double>& mine = losses[world ? static_cast<size_t>(world->rank()) : 0];
    for (int64_t step = 0; step < steps; ++step) {
      fill_batch(executor, c, step);
      executor.input("lr").as<float>()[0] = static_cast<float>(c.fixture.number("lr"));
      executor.input("step").as<int64_t>()[0] = step + 1;
      executor.run();
      mine.push_back(executor.output("loss").as<float>()[0]);
    }
    check_buffers(executor, c.fixture);
  });
  const auto f32 = c.fixture.tensor("loss.f32").as<double>();
  const auto f64 = c.fixture.tensor("loss.f64").as<double>();
  for (const std::vector<double>& mine : losses) {
    ASSERT_EQ(mine.size(), f32.size());
    for (size_t step = 0; step < mine.size(); ++step) {
      EXPECT_NEAR(mine[step], f32[step], kLossTolerance * f32[step]) << "step " << step + 1 << ", PyTorch in f32";
      EXPECT_NEAR(mine[step], f64[step], kLossTolerance * f64[step]) << "step " << step + 1 << ", PyTorch in f64";
    }
  }
}

TEST_P(PyTorchParity, every_gradient_of_the_first_step_is_the_same) {
  const Case c = make_case(GetParam().model);
  const Graph graph = gradient_graph(c);
  const std::vector<std::string> names = c.fixture.names("grad.f64.");
  const int64_t zeros = c.fixture.has("without_gradient") ? c.fixture.count("without_gradient") : 0;
  EXPECT_EQ(std::ssize(graph.outputs()), std::ssize(names) + zeros + 1);
  std::mutex mutex;
  on_ranks(GetParam().ranks, [&](comm::World* world, int64_t ranks) {
    const Compiled compiled = compile(graph, {.ranks = ranks});
    Executor executor(compiled.plan(), {.world = world});
    start(executor, c.fixture);
    fill_batch(executor, c, 0);
    executor.run();
    const std::lock_guard lock(mutex);
    for (const std::string& name : names) {
      const HostTensor& truth = c.fixture.tensor("grad.f64." + name);
      ASSERT_EQ(executor.output("grad." + name).elements(), truth.view().elements()) << name;
      EXPECT_LE(relative_error(executor.output("grad." + name).as<float>(), truth.as<double>()),
                gradient_bound(c, truth))
          << name;
    }
  });
}

// The bound is one that f32 can keep, and no wider than it must be: PyTorch's own gradients keep
// it, and a weight that is off by one part in a thousand breaks it.
TEST_P(GradientBound, is_kept_by_pytorch_and_not_by_a_model_that_is_slightly_off) {
  const Case c = make_case(GetParam());
  const Compiled compiled = compile(gradient_graph(c), {});
  Executor executor(compiled.plan(), {});
  start(executor, c.fixture);
  fill_batch(executor, c, 0);
  const std::vector<std::string> names = c.fixture.names("grad.f64.");
  for (float& weight : executor.input(names.back()).as<float>()) weight *= 1.001F;
  executor.run();
  int broken = 0;
  for (const std::string& name : names) {
    const HostTensor& truth = c.fixture.tensor("grad.f64." + name);
    const double bound = gradient_bound(c, truth);
    EXPECT_LE(relative_error(c.fixture.tensor("grad.f32." + name).as<float>(), truth.as<double>()), bound) << name;
    if (relative_error(executor.output("grad." + name).as<float>(), truth.as<double>()) > bound) ++broken;
  }
  EXPECT_GT(broken, 0) << "of " << names.size();
}

// -- in bf16 ----------------------------------------------------------------------------------------------

class Bf16Parity : public testing::TestWithParam<std::string> {};

// The norm of a tensor's error.
double norm_off(const HostTensor& got, std::span<const double> truth) {
  double sum = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    const double off = conformance::element(got, static_cast<int64_t>(i)) - truth[i];
    sum += off * off;
  }
  return std::sqrt(sum);
}

// Gradients whose error, by its norm, is larger than twice PyTorch's in bf16: computations that round to bf16 at the
// same places err by different numbers of one size. `weight` scales the last parameter.
std::vector<std::string> worse_gradients(const std::string& model, float weight) {
  const Case c = make_case(model);
  const Fixture narrow(model + "_bf16");
  const Compiled compiled = compile(gradient_graph(c, DType::kBF16), {});
  Executor executor(compiled.plan(), {});
  start(executor, c.fixture);
  fill_batch(executor, c, 0);
  const std::vector<std::string> names = narrow.names("grad.bf16.");
  EXPECT_EQ(names.size(), c.fixture.names("grad.f64.").size());
  for (float& w : executor.input(names.back()).as<float>()) w *= weight;
  executor.run();
  std::vector<std::string> out;
  for (const std::string& name : names) {
    const auto truth = c.fixture.tensor("grad.f64." + name).as<double>();
    const View view = executor.output("grad." + name);
    const double theirs = norm_off(narrow.tensor("grad.bf16." + name), truth);
    const double ours = norm_off(HostTensor::of<float>(view.type.shape, view.as<float>()), truth);
    if (!(ours <= 2 * theirs)) out.push_back(fmt::format("{}: {} off, PyTorch's {}", name, ours, theirs));
  }
  return out;
}

TEST_P(Bf16Parity, gradients_err_as_pytorchs_do) {
  EXPECT_THAT(worse_gradients(GetParam(), 1), testing::IsEmpty());
  EXPECT_THAT(worse_gradients(GetParam(), 1.05F), testing::Not(testing::IsEmpty())) << "a weight that is 5 % off";
}

TEST_P(Bf16Parity, losses_of_20_steps_err_as_pytorchs_do) {
  const Case c = make_case(GetParam());
  const Fixture narrow(GetParam() + "_bf16");
  const Compiled compiled = compile(step_graph(c, DType::kBF16), {});
  Executor executor(compiled.plan(), {});
  start(executor, c.fixture);
  std::vector<double> ours;
  for (int64_t step = 0; step < narrow.count("steps"); ++step) {
    fill_batch(executor, c, step);
    executor.input("lr").as<float>()[0] = static_cast<float>(c.fixture.number("lr"));
    executor.input("step").as<int64_t>()[0] = step + 1;
    executor.run();
    ours.push_back(executor.output("loss").as<float>()[0]);
  }
  const auto truth = c.fixture.tensor("loss.f64").as<double>();
  // Errors of the steps go on into later ones, so that two curves' sizes differ by more than those of independent
  // numbers.
  const double allowed = 3 * norm_off(narrow.tensor("loss.bf16"), truth);
  EXPECT_LE(norm_off(HostTensor::of<double>({static_cast<int64_t>(ours.size())}, ours), truth), allowed);
  EXPECT_LT(allowed / std::sqrt(20), 0.2 * (truth.front() - truth.back())) << "a bound that anything would keep";
}

INSTANTIATE_TEST_SUITE_P(, Bf16Parity, testing::Values("gpt", "llama", "resnet"),
                         [](const auto& param) { return param.param; });
INSTANTIATE_TEST_SUITE_P(, GradientBound, testing::Values("gpt", "llama", "t5", "bert", "mlp", "lenet", "resnet"),
                         [](const auto& param) { return param.param; });
INSTANTIATE_TEST_SUITE_P(, PyTorchParity,
                         testing::Values(Param{"gpt", 1}, Param{"gpt", 2}, Param{"llama", 1}, Param{"llama", 2},
                                         Param{"t5", 1}, Param{"t5", 2}, Param{"bert", 1}, Param{"bert", 2},
                                         Param{"mlp", 1}, Param{"mlp", 2}, Param{"lenet", 1}, Param{"lenet", 2},
                                         Param{"resnet", 1}, Param{"resnet", 2}),
                         [](const auto& param) {
                           const Param& p = param.param;
                           return p.model + "_on_" + std::to_string(p.ranks) + (p.ranks == 1 ? "_rank" : "_ranks");
                         });

}  // namespace
}  // namespace trireme::pytorch_test
