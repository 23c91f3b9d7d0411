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

#include "tests/worst.h"
#include "trireme/ckpt/safetensors.h"
#include "trireme/comm/comm.h"
#include "trireme/exec/executor.h"
#include "trireme/grad/gradients.h"
#include "trireme/nn/models/gpt.h"
#include "trireme/nn/models/llama.h"
#include "trireme/nn/models/mlp.h"
#include "trireme/nn/models/resnet.h"
#include "trireme/op/conformance.h"
#include "trireme/ops/ops.h"
#include "trireme/train/step/initialise.h"
#include "trireme/train/step/session.h"
#include "trireme/train/step/step.h"

namespace trireme::pytorch_test {
namespace {

constexpr double kUnitRoundoff = 0x1p-24;  // of f32
constexpr double kLossTolerance = 1e-5;    // relative, promised at every step

class Fixture {
 public:
  explicit Fixture(const std::string& model)
      : file_(ckpt::read_safetensors(std::string(TRIREME_SOURCE_DIR) + "/tests/parity/fixtures/" + model +
                                     ".safetensors")) {}

  const HostTensor& tensor(const std::string& name) const {
    for (const ckpt::NamedTensor& t : file_.tensors) {
      if (t.name == name) return t.data;
    }
    fail(ErrorKind::kNotFound, "the fixture has no tensor '{}'", name);
  }
  // Without their prefix.
  std::vector<std::string> names(const std::string& prefix) const {
    std::vector<std::string> out;
    for (const ckpt::NamedTensor& t : file_.tensors) {
      if (t.name.starts_with(prefix)) out.push_back(t.name.substr(prefix.size()));
    }
    return out;
  }
  const std::string& text(const std::string& key) const { return file_.metadata.at(key); }
  bool has(const std::string& key) const { return file_.metadata.contains(key); }
  int64_t count(const std::string& key) const { return std::stoll(text(key)); }
  double number(const std::string& key) const { return std::stod(text(key)); }
  std::vector<int64_t> counts(const std::string& key) const {
    std::vector<int64_t> out;
    const std::string& all = text(key);
    for (size_t at = 0; at < all.size(); at = all.find_first_not_of(',', all.find(',', at))) {
      out.push_back(std::stoll(all.substr(at)));
    }
    return out;
  }
  Optimizer optimizer() const {
    if (has("momentum")) {
      return Sgd{.lr = number("lr"), .momentum = number("momentum"), .weight_decay = number("weight_decay")};
    }
    return AdamW{.lr = number("lr"),
                 .beta1 = number("beta1"),
                 .beta2 = number("beta2"),
                 .eps = number("eps"),
                 .weight_decay = number("weight_decay")};
  }

 private:
  ckpt::TensorFile file_;
};

// A model, its batch, and the longest chain of roundings between an input and an element of a
// gradient: the sum of the lengths of the sums on the way through the layers and back, and of the
// sum over the samples at its end.
struct Case {
  Fixture fixture;
  std::unique_ptr<nn::Module> model;
  std::vector<BatchField> fields;  // with the names of the fixture
  int64_t roundings = 0;
};

// A layer's share of the chain: its output sums over `in` products, the gradient of its input over
// `out`.
int64_t through_linear(int64_t in, int64_t out) {
  return in + out;
}
// Mean and variance, and in the gradient two sums more.
int64_t through_norm(int64_t width) {
  return 4 * width;
}
// Log-sum-exp, and one product in the gradient.
int64_t through_cross_entropy(int64_t classes) {
  return classes + 1;
}
// Scores over the head's width, the softmax's sum and the mix over positions; in the gradient the
// same three again.
int64_t through_attention(int64_t head_width, int64_t positions) {
  return 2 * (head_width + 2 * positions);
}

Case gpt_case() {
  Fixture f("gpt");
  const nn::GptConfig config{.vocabulary = f.count("vocabulary"),
                             .context = f.count("context"),
                             .layers = f.count("layers"),
                             .width = f.count("width"),
                             .heads = f.count("heads")};
  const int64_t d = config.width;
  const int64_t s = config.context;
  const int64_t block = 2 * through_norm(d) + through_linear(d, 3 * d) + through_attention(d / config.heads, s) +
                        through_linear(d, d) + 2 * through_linear(d, 4 * d);
  const int64_t roundings = config.layers * block + through_norm(d) + through_linear(d, config.vocabulary) +
                            through_cross_entropy(config.vocabulary) + f.count("batch") * s;
  const Shape tokens{f.count("batch"), s};
  auto model = std::make_unique<nn::Gpt>(config);
  return {std::move(f),
          std::move(model),
          {{"tokens", {DType::kI32, tokens}}, {"targets", {DType::kI32, tokens}}},
          roundings};
}

// Queries, keys and values are products of one x, as are gate and up: the longest of each counts. Their gradients meet
// in one sum. The head is a matrix of its own; rotations turn pairs.
Case llama_case() {
  Fixture f("llama");
  const nn::LlamaConfig config{.vocabulary = f.count("vocabulary"),
                               .context = f.count("context"),
                               .layers = f.count("layers"),
                               .width = f.count("width"),
                               .heads = f.count("heads"),
                               .kv_heads = f.count("kv_heads"),
                               .hidden = f.count("hidden"),
                               .rope_theta = f.number("rope_theta"),
                               .eps = f.number("norm_eps")};
  const int64_t d = config.width;
  const int64_t s = config.context;
  const int64_t rotations = 2 * 2;
  const int64_t shared_keys = config.heads / config.kv_heads;
  const int64_t block = 2 * through_norm(d) + through_linear(d, d) + 3 + rotations +
                        through_attention(d / config.heads, s) + shared_keys + through_linear(d, d) +
                        2 * through_linear(d, config.hidden) + 2;
  const int64_t roundings = config.layers * block + through_norm(d) + through_linear(d, config.vocabulary) +
                            through_cross_entropy(config.vocabulary) + f.count("batch") * s;
  const Shape tokens{f.count("batch"), s};
  auto model = std::make_unique<nn::Llama>(config);
  return {std::move(f),
          std::move(model),
          {{"tokens", {DType::kI32, tokens}}, {"targets", {DType::kI32, tokens}}},
          roundings};
}

Case mlp_case() {
  Fixture f("mlp");
  const std::vector<int64_t> sizes = f.counts("sizes");
  int64_t roundings = through_cross_entropy(sizes.back()) + f.count("batch");
  for (size_t i = 0; i + 1 < sizes.size(); ++i) roundings += through_linear(sizes[i], sizes[i + 1]);
  auto model = std::make_unique<nn::Mlp>(sizes);
  const int64_t batch = f.count("batch");
  return {std::move(f),
          std::move(model),
          {{"images", {DType::kF32, {batch, sizes[0]}}}, {"labels", {DType::kI32, {batch}}}},
          roundings};
}

Case lenet_case() {
  Fixture f("lenet");
  const int64_t batch = f.count("batch");
  const int64_t classes = f.count("classes");
  const int64_t kernel = 5 * 5;  // a convolution is linear in each window
  const int64_t roundings = through_linear(kernel, 6 * kernel) + through_linear(6 * kernel, 16 * kernel) +
                            through_linear(16 * 5 * 5, 120) + through_linear(120, 84) + through_linear(84, classes) +
                            through_cross_entropy(classes) + batch * 28 * 28;  // conv1's weight sums over all pixels
  auto model = std::make_unique<nn::LeNet>(classes);
  return {std::move(f),
          std::move(model),
          {{"images", {DType::kF32, {batch, 28, 28, 1}}}, {"labels", {DType::kI32, {batch}}}},
          roundings};
}

// Of a block the longest way through it; the residual joins in one addition.
Case resnet_case() {
  Fixture f("resnet");
  const nn::ResNetConfig config{.blocks = f.counts("blocks"),
                                .width = f.count("stem"),
                                .channels = f.count("channels"),
                                .classes = f.count("classes")};
  const int64_t batch = f.count("batch");
  const int64_t size = f.count("image");
  int64_t positions = batch * size * size / 4;
  int64_t roundings = through_linear(49 * config.channels, 49 * config.width) + through_norm(positions);
  positions /= 4;
  int64_t in = config.width;
  for (size_t stage = 0; stage < config.blocks.size(); ++stage) {
    const int64_t width = config.width << stage;
    if (stage > 0) positions /= 4;
    for (int64_t i = 0; i < config.blocks[stage]; ++i) {
      roundings += through_linear(in, width) + through_linear(9 * width, 9 * width) + through_linear(width, 4 * width) +
                   3 * through_norm(positions) + 1;
      in = 4 * width;
    }
  }
  roundings += positions / batch + through_linear(in, config.classes) + through_cross_entropy(config.classes) + batch;
  auto model = std::make_unique<nn::ResNet>(config);
  return {std::move(f),
          std::move(model),
          {{"images", {DType::kF32, {batch, size, size, config.channels}}}, {"labels", {DType::kI32, {batch}}}},
          roundings};
}

Case make_case(const std::string& model) {
  if (model == "gpt") return gpt_case();
  if (model == "llama") return llama_case();
  if (model == "resnet") return resnet_case();
  return model == "mlp" ? mlp_case() : lenet_case();
}

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
  return training_step([&](const Tensor& x) { return (*c.model)(x); },
                       [](const Tensor& y, const Tensor& t) { return cross_entropy(y, t); }, c.fields,
                       c.fixture.optimizer(), {.clip_norm = c.fixture.number("clip_norm"), .compute = compute});
}

// Outputs "loss" and "grad.<parameter>".
Graph gradient_graph(const Case& c, DType compute = DType::kF32) {
  Graph graph("gradients");
  std::vector<Tensor> fields;
  for (const BatchField& f : c.fields) fields.emplace_back(graph, graph.add_input(f.name, f.type, Role::kData));
  nn::Trace trace(graph, {.training = true, .compute = compute});
  const Tensor loss = mean(cross_entropy(cast((*c.model)(fields[0]), DType::kF32), fields[1]));
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
  return testing_support::worst_difference(got, truth) / testing_support::largest_of(truth);
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
  EXPECT_EQ(graph.outputs().size(), names.size() + 1);
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
INSTANTIATE_TEST_SUITE_P(, GradientBound, testing::Values("gpt", "llama", "mlp", "lenet", "resnet"),
                         [](const auto& param) { return param.param; });
INSTANTIATE_TEST_SUITE_P(, PyTorchParity,
                         testing::Values(Param{"gpt", 1}, Param{"gpt", 2}, Param{"llama", 1}, Param{"llama", 2},
                                         Param{"mlp", 1}, Param{"mlp", 2}, Param{"lenet", 1}, Param{"lenet", 2},
                                         Param{"resnet", 1}, Param{"resnet", 2}),
                         [](const auto& param) {
                           const Param& p = param.param;
                           return p.model + "_on_" + std::to_string(p.ranks) + (p.ranks == 1 ? "_rank" : "_ranks");
                         });

}  // namespace
}  // namespace trireme::pytorch_test
