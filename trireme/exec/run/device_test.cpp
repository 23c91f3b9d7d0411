// What runs on the CPU runs to the same bits on a device whose memory the host cannot touch and whose streams take
// their time, and within the bounds of its arithmetic on a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <mutex>

#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/exec/lowering/plan_execution.h"
#include "trireme/exec/run/executor.h"
#include "trireme/op/conformance.h"
#include "trireme/op/op_attrs.h"
#include "trireme/op/registry.h"
#include "trireme/ops/ops.h"
#include "trireme/parallel/parallel.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/passes.h"

namespace trireme::device_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::string device_bytes(const View& view) {
  return {reinterpret_cast<const char*>(view.raw().data()), view.raw().size()};
}

template <class Fn>
std::string device_error(Fn&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// -- every op ---------------------------------------------------------------------------------------

class DeviceWalk : public testing::TestWithParam<const OpDef*> {};

// A program of one node, whose operands are data and whose results are outputs.
ExecutionPlan plan_of_example(const Device& device, const OpDef& op, const Example& example) {
  Graph graph(std::string(op.name));
  std::vector<ValueId> in;
  for (size_t i = 0; i < example.in.size(); ++i) {
    in.push_back(graph.add_input(fmt::format("in{}", i), example.in[i], Role::kData));
  }
  const NodeId node = graph.add_node(op, example.attrs, in, conformance::results_of(op, example));
  const std::vector<ValueId> out = graph.nodes()[static_cast<size_t>(node)].outputs;
  for (size_t i = 0; i < out.size(); ++i) graph.add_output(fmt::format("out{}", i), out[i]);
  Program program{std::move(graph), Mesh(), {}, {}};
  for (const Value& value : program.graph.values()) {
    program.layouts.push_back(Layout::replicated(value.type->shape.rank()));
    program.whole.push_back(value.type->shape);
  }
  return plan_execution(program, {.device = &device});
}

std::vector<std::string> results_of_plan(Device& device, const ExecutionPlan& plan,
                                         std::span<const HostTensor> operands) {
  Executor executor(plan, {.device = &device});
  for (size_t i = 0; i < operands.size(); ++i) executor.write_input(fmt::format("in{}", i), operands[i].view());
  executor.run();
  std::vector<std::string> out;
  for (const PlanOutput& output : plan.outputs) out.push_back(device_bytes(executor.read_output(output.name).view));
  return out;
}

TEST_P(DeviceWalk, an_op_has_on_guarded_the_bits_that_it_has_on_the_cpu) {
  const OpDef& op = *GetParam();
  const std::shared_ptr<Device> guarded = make_device("guarded");
  for (const Example& example : op.examples()) {
    const std::vector<HostTensor> operands = conformance::operands_of(example, 1);
    const ExecutionPlan here = plan_of_example(cpu_device(), op, example);
    const ExecutionPlan there = plan_of_example(*guarded, op, example);
    EXPECT_EQ(results_of_plan(*guarded, there, operands), results_of_plan(cpu_device(), here, operands))
        << conformance::describe(op, example);
  }
}

std::vector<const OpDef*> ops_with_kernels() {
  std::vector<const OpDef*> out;
  for (const OpDef* op : all_ops()) {
    if (op->kernel && op->examples != nullptr) out.push_back(op);
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Ops, DeviceWalk, testing::ValuesIn(ops_with_kernels()),
                         [](const auto& test) { return std::string(test.param->name); });

// Null on a host without a GPU.
std::shared_ptr<Device> gpu_of_host() {
  try {
    return make_device("cuda");
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kUnsupported) throw;
    return nullptr;
  }
}

void expect_on_gpu_what_the_cpu_computes(Device& gpu, const OpDef& op, const std::vector<Example>& examples) {
  for (const Example& example : examples) {
    const std::vector<HostTensor> operands = conformance::operands_of(example, 1);
    const ExecutionPlan here = plan_of_example(cpu_device(), op, example);
    const ExecutionPlan there = plan_of_example(gpu, op, example);
    const std::vector<std::string> want = results_of_plan(cpu_device(), here, operands);
    const std::vector<std::string> got = results_of_plan(gpu, there, operands);
    EXPECT_EQ(results_of_plan(gpu, there, operands), got) << "other bits, " << conformance::describe(op, example);
    const std::vector<TensorType> types = conformance::results_of(op, example);
    int64_t length = 1;
    for (const TensorType& type : example.in) length = std::max(length, type.elements());
    for (size_t i = 0; i < types.size(); ++i) {
      const HostTensor expected(types[i]), found(types[i]);
      std::memcpy(expected.view().data, want[i].data(), want[i].size());
      std::memcpy(found.view().data, got[i].data(), got[i].size());
      const double size = std::max(conformance::magnitude(operands), conformance::magnitude({&expected, 1}));
      EXPECT_EQ(conformance::difference(found, expected, conformance::tolerance(types[i].dtype, length, size)), "")
          << "result " << i << " by " << std::string(there.actions[0].kernel) << " of "
          << conformance::describe(op, example);
    }
  }
}

TEST(OpsOnCuda, compute_what_their_references_do) {
  const std::shared_ptr<Device> gpu = gpu_of_host();
  if (gpu == nullptr) GTEST_SKIP() << "this host has no GPU";
  for (const OpDef* const op : ops_with_kernels()) expect_on_gpu_what_the_cpu_computes(*gpu, *op, op->examples());
}

// Sizes from which on other kernels are taken than for the small examples of ops.
TEST(ExecutorOnCuda, long_attention_and_long_sums_are_what_the_cpu_computes) {
  const std::shared_ptr<Device> gpu = gpu_of_host();
  if (gpu == nullptr) GTEST_SKIP() << "this host has no GPU";
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const TensorType q{dtype, {2, 256, 4, 24}}, k{dtype, {2, 300, 2, 24}}, alike{dtype, {2, 300, 4, 24}};
    const TensorType lse{DType::kF32, {2, 4, 256}};
    for (const bool causal : {false, true}) {
      const Attrs attrs = Attrs::of(AttentionAttrs{.causal = causal});
      expect_on_gpu_what_the_cpu_computes(*gpu, op("attention"), {{{q, k, k}, attrs}, {{q, alike, alike}, attrs}});
      const std::vector<Fill> fill(4);
      Example grad{{q, k, k, q, lse, q}, attrs, fill};
      grad.fill.push_back({Fill::Kind::kUniform, 6, 7});
      Example of_alike = grad;
      of_alike.in[1] = of_alike.in[2] = alike;
      expect_on_gpu_what_the_cpu_computes(*gpu, op("attention_grad"), {grad, of_alike});
    }
    const TensorType tall{dtype, {3000, 70}};
    expect_on_gpu_what_the_cpu_computes(
        *gpu, op("reduce_sum"),
        {{{tall}, Attrs::of(ReduceAttrs{{0}, false})}, {{{dtype, {2, 70000}}}, Attrs::of(ReduceAttrs{{1}, false})}});
  }
}

// -- steps ----------------------------------------------------------------------------------------

struct Steps {
  std::vector<float> losses;
  std::string weight;
};

// Steps of a graph in data parallel; what rank 0 has.
Graph small_step() {
  Graph graph("small");
  const Tensor w(graph, graph.add_input("w", {DType::kF32, {24, 16}}, Role::kParameter));
  const Tensor x(graph, graph.add_input("x", {DType::kF32, {48, 24}}, Role::kData));
  const Tensor y = tanh(matmul(x, w));
  graph.add_output("loss", mean(square(y), {0, 1}).id());
  graph.add_output("w", sub(w, scale(matmul(x, y, true), 0.01)).id(), w.id());
  return graph;
}

Steps steps_on(Device& device, int ranks, const std::string& transport) {
  const Graph graph = small_step();
  const ExecutionPlan plan =
      plan_execution(run_passes(partition(graph, data_parallel(graph, ranks))), {.device = &device});
  EXPECT_THAT(verify(plan), IsEmpty());
  Steps out;
  std::mutex mutex;
  const auto run = [&](comm::World* world) {
    Executor executor(plan, {.world = world, .device = &device});
    const auto fill = [&](const std::string& name) {
      executor.fill_inputs({&name, 1}, [&](std::span<const View> views) {
        const Box box = executor.input_box(name);
        int64_t at = box.start[0] * 24;
        for (float& value : views[0].as<float>()) value = static_cast<float>(at++ % 17) / 17 - 0.4F;
      });
    };
    fill("w");
    std::vector<float> losses;
    for (int step = 0; step < 4; ++step) {
      fill("x");
      executor.run();
      losses.push_back(executor.read_number<float>("loss"));
    }
    const std::lock_guard lock(mutex);
    if (world == nullptr || world->rank() == 0) {
      out = {losses, device_bytes(executor.read_input("w").view)};
    }
  };
  if (ranks == 1) {
    run(nullptr);
  } else {
    comm::spawn_ranks(ranks, transport, [&](comm::World& world) { run(&world); });
  }
  return out;
}

TEST(ExecutorOnGuarded, has_the_bits_of_the_cpu_on_any_number_of_ranks) {
  for (const int ranks : {1, 2, 3}) {
    for (const std::string transport : {"threads", "shm"}) {
      const std::shared_ptr<Device> guarded = make_device("guarded:5");
      const Steps here = steps_on(cpu_device(), ranks, transport);
      const Steps there = steps_on(*guarded, ranks, transport);
      EXPECT_EQ(there.losses, here.losses) << ranks << " over " << transport;
      EXPECT_EQ(there.weight, here.weight) << ranks << " over " << transport;
      EXPECT_LT(there.losses.back(), there.losses.front());
    }
  }
}

TEST(ExecutorOnCuda, computes_what_the_cpu_does_on_any_number_of_ranks) {
  const std::shared_ptr<Device> gpu = gpu_of_host();
  if (gpu == nullptr) GTEST_SKIP() << "this host has no GPU";
  for (const int ranks : {1, 2, 3}) {
    for (const std::string transport : {"threads", "shm"}) {
      const Steps here = steps_on(cpu_device(), ranks, transport);
      const Steps there = steps_on(*gpu, ranks, transport);
      EXPECT_THAT(there.losses, testing::Pointwise(testing::FloatNear(1e-5F), here.losses)) << ranks << transport;
    }
  }
}

TEST(ExecutorOnGuarded, what_is_sent_is_staged_on_the_host_and_the_plan_has_the_bytes) {
  const std::shared_ptr<Device> guarded = make_device("guarded");
  const Graph graph = small_step();
  const Program program = run_passes(partition(graph, data_parallel(graph, 2)));
  const ExecutionPlan here = plan_execution(program);
  const ExecutionPlan there = plan_execution(program, {.device = guarded.get()});
  EXPECT_EQ(here.arena(Tier::kHost).bytes, 0);
  EXPECT_GE(there.arena(Tier::kHost).bytes, 24 * 16 * 4);
  EXPECT_EQ(there.arena().persistent, here.arena().persistent);
  EXPECT_LE(there.arena().bytes, here.arena().bytes);
  const std::string text = to_string(there);
  EXPECT_THAT(text, HasSubstr("by_hand=false device=\"guarded\" alignment=64\n"));
  EXPECT_EQ(to_string(parse_plan(text)), text);
  EXPECT_THAT(to_string(here), Not(HasSubstr("device=")));
}

TEST(ExecutorOnGuarded, a_plan_runs_on_the_device_that_it_is_for) {
  const std::shared_ptr<Device> guarded = make_device("guarded");
  const Graph graph = small_step();
  const ExecutionPlan plan = plan_execution(run_passes(partition(graph, data_parallel(graph, 1))));
  EXPECT_THAT(device_error([&] { Executor executor(plan, {.device = guarded.get()}); }),
              HasSubstr("the plan is for device 'cpu'; it is to run on 'guarded'"));
}

TEST(ExecutorOnGuarded, views_of_its_memory_are_not_the_hosts) {
  const std::shared_ptr<Device> guarded = make_device("guarded");
  const Graph graph = small_step();
  const ExecutionPlan plan =
      plan_execution(run_passes(partition(graph, data_parallel(graph, 1))), {.device = guarded.get()});
  Executor executor(plan, {.device = guarded.get()});
  EXPECT_THAT(device_error([&] { executor.input("w").as<float>()[0] = 1; }),
              HasSubstr("a view of f32[24,16] lies in device memory"));
  const HostTensor narrow(TensorType{DType::kF32, {2}});
  EXPECT_THAT(device_error([&] { executor.write_input("w", narrow.view()); }),
              HasSubstr("input 'w' is f32[24,16]; it cannot be written from f32[2]"));
}

std::string error_of_a_wrong_id(Device& device) {
  Graph graph;
  const Tensor table(graph, graph.add_input("table", {DType::kF32, {4, 2}}, Role::kParameter));
  const Tensor ids(graph, graph.add_input("ids", {DType::kI32, {3}}, Role::kData));
  graph.set_scope("wte");
  const Tensor rows = embedding(table, ids);
  graph.set_scope("");
  graph.add_output("y", exp(rows).id());
  const ExecutionPlan plan = plan_execution(run_passes(partition(graph, data_parallel(graph, 1))), {.device = &device});
  Executor executor(plan, {.device = &device});
  executor.write_input("table", HostTensor(TensorType{DType::kF32, {4, 2}}).view());
  executor.write_input("ids", HostTensor::of<int32_t>({3}, std::vector<int32_t>{0, 9, 1}).view());
  return device_error([&] { executor.run(); });
}

TEST(ExecutorOnGuarded, an_error_of_a_kernel_says_which_one) {
  EXPECT_THAT(error_of_a_wrong_id(*make_device("guarded")), HasSubstr("in embedding at 'wte'"));
}

TEST(ExecutorOnCuda, an_error_of_a_kernel_says_which_one) {
  const std::shared_ptr<Device> gpu = gpu_of_host();
  if (gpu == nullptr) GTEST_SKIP() << "this host has no GPU";
  EXPECT_THAT(error_of_a_wrong_id(*gpu), testing::AllOf(HasSubstr("in embedding at 'wte'"), HasSubstr("id 9")));
}

// -- messages -------------------------------------------------------------------------------------

TEST(ExecutorOnGuarded, messages_between_crews_are_carried_too) {
  const std::shared_ptr<Device> guarded = make_device("guarded:2");
  std::mutex mutex;
  std::vector<std::vector<float>> results(2);
  comm::spawn_ranks(2, "threads", [&](comm::World& world) {
    const int crew = world.rank();
    Graph graph(fmt::format("crew{}", crew));
    const TensorType type{DType::kF32, {4}};
    const Tensor x(graph, graph.add_input("x", type, Role::kData));
    send(exp(x), 1 - crew, 1);
    graph.add_output("y", add(recv(graph, type, 1 - crew, 1), x).id());
    Program program{std::move(graph), Mesh(), {}, {}};
    for (const Value& value : program.graph.values()) {
      program.layouts.push_back(Layout::replicated(value.type->shape.rank()));
      program.whole.push_back(value.type->shape);
    }
    const ExecutionPlan plan = plan_execution(program, {.device = guarded.get(), .crew = crew, .crews = 2});
    EXPECT_THAT(verify(plan), IsEmpty());
    Executor executor(plan, {.world = &world, .device = guarded.get()});
    for (int step = 0; step < 20; ++step) {
      executor.write_input("x", HostTensor::of<float>({4}, std::vector<float>(4, static_cast<float>(crew))).view());
      executor.run();
      const HostPiece y = executor.read_output("y");
      const std::lock_guard lock(mutex);
      results[static_cast<size_t>(crew)] = {y.as<float>().begin(), y.as<float>().end()};
      EXPECT_THAT(results[static_cast<size_t>(crew)],
                  testing::Each(testing::FloatNear(crew == 0 ? 2.7182817F : 2.0F, 1e-6F)))
          << step;
    }
  });
}

}  // namespace
}  // namespace trireme::device_test
