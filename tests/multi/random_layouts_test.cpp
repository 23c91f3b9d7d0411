// Random graphs, random layouts of their inputs, random meshes: what the ranks compute together is
// what one device computes. The seed of a failing case is in the message.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <random>

#include "trireme/comm/comm.h"
#include "trireme/exec/executor.h"
#include "trireme/grad/gradients.h"
#include "trireme/layout/simulate.h"
#include "trireme/nn/optimizer.h"
#include "trireme/op/build.h"
#include "trireme/op/interpret.h"
#include "trireme/ops/ops.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/pipeline.h"
#include "trireme/plan/parallel.h"

namespace trireme {
namespace {

using Draw = std::mt19937;

int64_t pick(Draw& draw, std::initializer_list<int64_t> choices) {
  return *(choices.begin() + static_cast<std::ptrdiff_t>(draw() % choices.size()));
}

// A graph under construction: parameters are made where they are needed.
struct Builder {
  Graph graph{"random"};
  std::vector<Tensor> parameters;

  Tensor data(const std::string& name, DType dtype, Shape shape) {
    return {graph, graph.add_input(name, {dtype, shape}, Role::kData)};
  }
  Tensor schedule(const std::string& name, DType dtype) {
    return {graph, graph.add_input(name, {dtype, {}}, Role::kSchedule)};
  }
  Tensor parameter(Shape shape) {
    const std::string name = fmt::format("w{}", parameters.size());
    parameters.emplace_back(graph, graph.add_input(name, {DType::kF32, shape}, Role::kParameter));
    return parameters.back();
  }
};

// A chain of products, norms, activations and sums with skip connections, ending in a scalar; with
// its gradients.
Graph random_matrix_graph(Draw& draw) {
  Builder b;
  const int64_t rows = pick(draw, {12, 24});
  int64_t width = pick(draw, {6, 8, 12});
  Tensor x = b.data("x", DType::kF32, {rows, width});
  std::vector<Tensor> seen{x};
  const int length = 2 + static_cast<int>(draw() % 5);
  for (int i = 0; i < length; ++i) {
    switch (draw() % 7) {
      case 0:
      case 1: {
        const int64_t next = pick(draw, {6, 8, 12});
        const bool transposed = draw() % 2 == 0;
        x = matmul(x, b.parameter(transposed ? Shape{next, width} : Shape{width, next}), false,
                   transposed);
        width = next;
        break;
      }
      case 2:
        x = add(x, b.parameter({width}));
        break;
      case 3:
        x = gelu(x);
        break;
      case 4:
        x = layer_norm(x, b.parameter({width}), b.parameter({width})).y;
        break;
      case 5:
        x = softmax(x);
        break;
      default:
        for (const Tensor& other : seen) {
          if (other.shape() == x.shape()) {
            x = mul(x, other);
            break;
          }
        }
    }
    seen.push_back(x);
  }
  const Tensor loss = mean(square(x));
  b.graph.add_output("loss", loss.id());
  b.graph.add_output("last", x.id());
  const std::vector<Tensor> grads = gradients(loss, b.parameters);
  for (size_t i = 0; i < grads.size(); ++i) {
    if (grads[i]) b.graph.add_output(fmt::format("grad.w{}", i), grads[i].id());
  }
  return without_dead_nodes(b.graph);
}

// One step of a block of a language model: x is [batch, positions, width].
Tensor random_block(Draw& draw, Builder& b, const Tensor& x, const Tensor& step) {
  const int64_t width = x.size(2);
  const Tensor normed =
      draw() % 2 == 0 ? x : layer_norm(x, b.parameter({width}), b.parameter({width})).y;
  switch (draw() % 7) {
    case 0: {
      const Shape heads{x.size(0), x.size(1), 2, width / 2};
      const Tensor q = reshape(matmul(normed, b.parameter({width, width})), heads);
      const Tensor k = reshape(matmul(normed, b.parameter({width, width})), heads);
      return add(x, reshape(attention(q, k, reshape(normed, heads), {.causal = draw() % 2 == 0}),
                            x.shape()));
    }
    case 1:
      return dropout(normed, step, 0.25, 11, static_cast<int64_t>(b.parameters.size()));
    case 2: {  // the halves of the width trade places
      const std::vector<Tensor> halves = split(normed, -1, 2);
      return concat({gelu(halves[1]), halves[0]}, -1);
    }
    case 3: {
      const Tensor turned = transpose(normed, {1, 0, 2});
      return add(x, transpose(matmul(turned, b.parameter({width, width})), {1, 0, 2}));
    }
    case 4:
      return add(x, reduce_sum(normed, {draw() % 2 == 0 ? 0 : 1}, true) * 0.1);
    case 5: {
      const Tensor rows = reshape(normed, {x.size(0) * x.size(1), width});
      return reshape(gelu(add(matmul(rows, b.parameter({width, width})), b.parameter({width}))),
                     x.shape());
    }
    default:
      return mul(x, sigmoid(matmul(normed, b.parameter({width, width}))));
  }
}

Optimizer random_optimizer(Draw& draw) {
  switch (draw() % 4) {  // with eps 1 the updates are as smooth as the gradients
    case 0:
      return Sgd{.weight_decay = 0.01};
    case 1:
      return Sgd{.momentum = 0.9};
    case 2:
      return AdamW{.eps = 1};
    default:
      return Lamb{.eps = 1};
  }
}

// Embedding, some blocks, a head tied or not, cross entropy, and the update of every parameter.
Graph random_language_step(Draw& draw) {
  Builder b;
  const int64_t batch = pick(draw, {4, 6, 12});
  const int64_t positions = pick(draw, {4, 6});
  const int64_t width = pick(draw, {8, 12});
  const int64_t vocabulary = pick(draw, {6, 12});
  const Tensor ids = b.data("ids", DType::kI32, {batch, positions});
  const Tensor labels = b.data("labels", DType::kI32, {batch, positions});
  const Tensor step = b.schedule("step", DType::kI64);
  const Tensor lr = b.schedule("lr", DType::kF32);
  const Tensor table = b.parameter({vocabulary, width});
  Tensor x = embedding(table, ids);
  const int blocks = 1 + static_cast<int>(draw() % 3);
  for (int i = 0; i < blocks; ++i) x = random_block(draw, b, x, step);
  const Tensor logits =
      draw() % 2 == 0 ? matmul(x, table, false, true) : matmul(x, b.parameter({width, vocabulary}));
  const Tensor loss = mean(cross_entropy(logits, labels));
  b.graph.add_output("loss", loss.id());
  const std::vector<Tensor> grads = gradients(loss, b.parameters);
  const Tensor factor = constant(b.graph, {DType::kF32, {}}, 1);
  const Optimizer optimizer = random_optimizer(draw);
  for (size_t i = 0; i < grads.size(); ++i) {
    if (grads[i])
      nn::add_update(optimizer,
                     {fmt::format("w{}", i), b.parameters[i], grads[i], lr, step, factor});
  }
  return without_dead_nodes(b.graph);
}

Mesh random_mesh(Draw& draw) {
  switch (draw() % 5) {
    case 0:
      return Mesh({{"a", 2}});
    case 1:
      return Mesh({{"a", 3}});
    case 2:
      return Mesh({{"a", 2}, {"b", 2}});
    case 3:
      return Mesh({{"a", 4}});
    default:
      return Mesh({{"a", 2}, {"b", 3}});
  }
}

// Each axis cuts a random dimension that it divides, or none.
Layout random_layout(Draw& draw, const Shape& shape, const Mesh& mesh) {
  Layout layout = Layout::replicated(shape.rank());
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    const auto dim = static_cast<size_t>(draw() % static_cast<unsigned>(shape.rank() + 1));
    if (dim == layout.dims.size()) continue;
    layout.dims[dim].push_back(axis);
    if (!fits(layout, shape, mesh)) layout.dims[dim].pop_back();
  }
  return layout;
}

using Tensors = std::map<std::string, HostTensor>;

// New values of everything, or of the batch only. Whole numbers are ids below 6; "step" counts.
void fill_inputs(Draw& draw, const Graph& graph, int64_t step, Tensors& tensors) {
  std::uniform_real_distribution<float> value(-1, 1);
  for (const Input& input : graph.inputs()) {
    const bool kept = input.role == Role::kParameter || input.role == Role::kState;
    if (kept && step > 1) continue;
    HostTensor tensor(graph.type(input.value));
    if (input.name == "step") {
      tensor.as<int64_t>()[0] = step;
    } else if (input.name == "lr") {
      tensor.as<float>()[0] = 0.1F;
    } else if (tensor.type().dtype == DType::kI32) {
      for (int32_t& x : tensor.as<int32_t>()) x = static_cast<int32_t>(draw() % 6);
    } else if (input.role != Role::kState) {
      for (float& x : tensor.as<float>()) x = value(draw);
    }
    tensors.insert_or_assign(input.name, std::move(tensor));
  }
}

struct Case {
  Graph graph;
  ExecutionPlan plan;
  std::string program;
  std::vector<Tensors> inputs;  // per step; parameters and state in the first
};

Case make_case(uint32_t seed) {
  Draw draw(seed);
  Case out;
  const bool language = seed % 2 == 0;
  out.graph = language ? random_language_step(draw) : random_matrix_graph(draw);
  const Mesh mesh = random_mesh(draw);
  std::vector<Layout> layouts;
  for (const Input& input : out.graph.inputs()) {
    layouts.push_back(input.role == Role::kState
                          ? Layout{}
                          : random_layout(draw, out.graph.type(input.value).shape, mesh));
    if (input.role == Role::kState) {  // as its parameter's: "w3.m" after "w3"
      const std::string parameter = input.name.substr(0, input.name.find('.'));
      layouts.back() =
          layouts[static_cast<size_t>(out.graph.value(out.graph.input(parameter).value).index)];
    }
  }
  for (int64_t step = 1; step <= (language ? 3 : 1); ++step) {
    out.inputs.emplace_back();
    fill_inputs(draw, out.graph, step, out.inputs.back());
  }
  const Strategy strategy = propagate(out.graph, mesh, layouts);
  EXPECT_EQ(to_string(out.graph, parse_strategy(to_string(out.graph, strategy), out.graph)),
            to_string(out.graph, strategy));
  const Program program = run_passes(partition(out.graph, strategy));
  EXPECT_TRUE(verify(program).empty()) << verify(program).front();
  out.program = to_string(program);
  out.plan = plan_execution(program);
  EXPECT_TRUE(verify(out.plan).empty()) << verify(out.plan).front() << to_string(out.plan);
  EXPECT_EQ(to_string(parse_plan(to_string(out.plan))), to_string(out.plan));
  return out;
}

// For each output of the plan, every rank's piece after the last step.
std::vector<std::vector<HostTensor>> run_on_ranks(const Case& test) {
  const auto ranks = static_cast<int>(test.plan.mesh.devices());
  std::vector<std::vector<HostTensor>> outputs(test.plan.outputs.size());
  for (auto& pieces : outputs) pieces.resize(static_cast<size_t>(ranks));
  std::mutex mutex;
  comm::spawn_ranks(ranks, "threads", [&](comm::World& world) {
    Executor executor(test.plan, {.world = &world});
    for (const Tensors& inputs : test.inputs) {
      for (const auto& [name, whole] : inputs) {
        const Box box = executor.input_box(name);
        copy_region(whole.view(), Box::whole(whole.shape()), executor.input(name), box, box);
      }
      executor.run();
    }
    const std::lock_guard lock(mutex);
    for (size_t i = 0; i < test.plan.outputs.size(); ++i) {
      const View view = executor.output(test.plan.outputs[i].name);
      HostTensor piece(view.type);
      std::copy(view.raw().begin(), view.raw().end(), piece.view().raw().begin());
      outputs[i][static_cast<size_t>(world.rank())] = std::move(piece);
    }
  });
  return outputs;
}

Tensors run_on_one(const Case& test) {
  Tensors now;
  Tensors results;
  for (const Tensors& inputs : test.inputs) {
    for (const auto& [name, tensor] : inputs) now.insert_or_assign(name, tensor.clone());
    results = interpret(test.graph, now);
    for (const Output& output : test.graph.outputs()) {
      if (output.updates != kNoValue)
        now.insert_or_assign(output.name, results.at(output.name).clone());
    }
  }
  return results;
}

void compare(const Case& test) {
  const std::vector<std::vector<HostTensor>> outputs = run_on_ranks(test);
  const Tensors expected = run_on_one(test);
  for (size_t i = 0; i < test.plan.outputs.size(); ++i) {
    const std::string& name = test.plan.outputs[i].name;
    const HostTensor& want = expected.at(name);
    const Layout& layout = test.plan.values[static_cast<size_t>(test.plan.outputs[i].value)].layout;
    const HostTensor got = gather(outputs[i], layout, test.plan.mesh, want.type());
    double largest = 1;
    for (const float x : want.as<float>())
      largest = std::max(largest, static_cast<double>(std::fabs(x)));
    for (int64_t k = 0; k < want.type().elements(); ++k) {
      // Sums of at most 288 terms at each of up to 7 stages, forward and backward.
      ASSERT_NEAR(got.as<float>()[static_cast<size_t>(k)], want.as<float>()[static_cast<size_t>(k)],
                  14 * 288 * 6e-8 * largest)
          << name << "[" << k << "]\n"
          << test.program;
    }
  }
}

class RandomLayouts : public testing::TestWithParam<uint32_t> {};

TEST_P(RandomLayouts, ranks_compute_together_what_one_device_computes) {
  constexpr uint32_t kCases = 40;
  for (uint32_t seed = GetParam() * kCases + 1; seed <= (GetParam() + 1) * kCases; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    try {
      compare(make_case(seed));
    } catch (const std::exception& e) {
      FAIL() << e.what();
    }
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomLayouts, testing::Range(0U, 4U));

}  // namespace
}  // namespace trireme
