// Random graphs, random layouts of their inputs, random meshes: what the ranks compute together is what one device
// computes. The seed of a failing case is in the message.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <random>

#include "trireme/comm/comm.h"
#include "trireme/exec/executor.h"
#include "trireme/grad/gradients.h"
#include "trireme/layout/simulate.h"
#include "trireme/op/build.h"
#include "trireme/op/interpret.h"
#include "trireme/ops/ops.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/pipeline.h"
#include "trireme/plan/strategy.h"

namespace trireme {
namespace {

using Draw = std::mt19937;

int64_t pick(Draw& draw, std::initializer_list<int64_t> choices) {
  return *(choices.begin() + static_cast<std::ptrdiff_t>(draw() % choices.size()));
}

// A chain of products, norms, activations and sums with skip connections, ending in a scalar; with its gradients.
Graph random_graph(Draw& draw) {
  Graph graph("random");
  const int64_t rows = pick(draw, {12, 24});
  int64_t width = pick(draw, {6, 8, 12});
  std::vector<Tensor> parameters;
  const auto parameter = [&](Shape shape) {
    const std::string name = fmt::format("w{}", parameters.size());
    parameters.emplace_back(graph, graph.add_input(name, {DType::kF32, shape}, Role::kParameter));
    return parameters.back();
  };
  Tensor x(graph, graph.add_input("x", {DType::kF32, {rows, width}}, Role::kData));
  std::vector<Tensor> seen{x};
  const int length = 2 + static_cast<int>(draw() % 5);
  for (int i = 0; i < length; ++i) {
    switch (draw() % 7) {
      case 0:
      case 1: {
        const int64_t next = pick(draw, {6, 8, 12});
        const bool transposed = draw() % 2 == 0;
        x = matmul(x, parameter(transposed ? Shape{next, width} : Shape{width, next}), false, transposed);
        width = next;
        break;
      }
      case 2: x = add(x, parameter({width})); break;
      case 3: x = gelu(x); break;
      case 4: x = layer_norm(x, parameter({width}), parameter({width})).y; break;
      case 5: x = softmax(x); break;
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
  graph.add_output("loss", loss.id());
  graph.add_output("last", x.id());
  const std::vector<Tensor> grads = gradients(loss, parameters);
  for (size_t i = 0; i < grads.size(); ++i) {
    if (grads[i]) graph.add_output(fmt::format("grad.w{}", i), grads[i].id());
  }
  return without_dead_nodes(graph);
}

Mesh random_mesh(Draw& draw) {
  switch (draw() % 5) {
    case 0: return Mesh({{"a", 2}});
    case 1: return Mesh({{"a", 3}});
    case 2: return Mesh({{"a", 2}, {"b", 2}});
    case 3: return Mesh({{"a", 4}});
    default: return Mesh({{"a", 2}, {"b", 3}});
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

std::map<std::string, HostTensor> random_inputs(Draw& draw, const Graph& graph) {
  std::map<std::string, HostTensor> out;
  std::uniform_real_distribution<float> value(-1, 1);
  for (const Input& input : graph.inputs()) {
    HostTensor tensor(graph.type(input.value));
    for (float& x : tensor.as<float>()) x = value(draw);
    out.emplace(input.name, std::move(tensor));
  }
  return out;
}

// For each output of the plan, every rank's piece.
std::vector<std::vector<HostTensor>> run_on_ranks(const ExecutionPlan& plan,
                                                  const std::map<std::string, HostTensor>& inputs) {
  const auto ranks = static_cast<int>(plan.mesh.devices());
  std::vector<std::vector<HostTensor>> outputs(plan.outputs.size());
  for (auto& pieces : outputs) pieces.resize(static_cast<size_t>(ranks));
  std::mutex mutex;
  comm::spawn_ranks(ranks, "threads", [&](comm::World& world) {
    Executor executor(plan, {.world = &world});
    for (const auto& [name, whole] : inputs) {
      const Box box = executor.input_box(name);
      copy_region(whole.view(), Box::whole(whole.shape()), executor.input(name), box, box);
    }
    executor.run();
    const std::lock_guard lock(mutex);
    for (size_t i = 0; i < plan.outputs.size(); ++i) {
      const View view = executor.output(plan.outputs[i].name);
      HostTensor piece(view.type);
      std::copy(view.raw().begin(), view.raw().end(), piece.view().raw().begin());
      outputs[i][static_cast<size_t>(world.rank())] = std::move(piece);
    }
  });
  return outputs;
}

TEST(RandomLayouts, ranks_compute_together_what_one_device_computes) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Draw draw(seed);
    const Graph graph = random_graph(draw);
    const Mesh mesh = random_mesh(draw);
    std::vector<Layout> layouts;
    for (const Input& input : graph.inputs()) {
      layouts.push_back(random_layout(draw, graph.type(input.value).shape, mesh));
    }
    const auto inputs = random_inputs(draw, graph);

    const Strategy strategy = propagate(graph, mesh, layouts);
    ASSERT_EQ(to_string(graph, parse_strategy(to_string(graph, strategy), graph)), to_string(graph, strategy));
    const Program program = run_passes(partition(graph, strategy));
    ASSERT_TRUE(verify(program).empty()) << verify(program).front();
    const ExecutionPlan plan = plan_execution(program);
    ASSERT_TRUE(verify(plan).empty()) << verify(plan).front() << to_string(plan);
    ASSERT_EQ(to_string(parse_plan(to_string(plan))), to_string(plan));

    const std::vector<std::vector<HostTensor>> outputs = run_on_ranks(plan, inputs);
    const auto expected = interpret(graph, inputs);
    for (size_t i = 0; i < plan.outputs.size(); ++i) {
      const std::string& name = plan.outputs[i].name;
      const HostTensor& want = expected.at(name);
      const Layout& layout = plan.values[static_cast<size_t>(plan.outputs[i].value)].layout;
      const HostTensor got = gather(outputs[i], layout, plan.mesh, want.type());
      double largest = 1;
      for (const float x : want.as<float>()) largest = std::max(largest, static_cast<double>(std::fabs(x)));
      for (int64_t k = 0; k < want.type().elements(); ++k) {
        // Sums of at most 24 x 12 terms at each of up to 7 stages, forward and backward.
        ASSERT_NEAR(got.as<float>()[static_cast<size_t>(k)], want.as<float>()[static_cast<size_t>(k)],
                    14 * 288 * 6e-8 * largest)
            << name << "[" << k << "]\n"
            << to_string(program);
      }
    }
  }
}

}  // namespace
}  // namespace trireme
