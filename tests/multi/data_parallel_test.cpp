// Data parallel training of a small model over ranks that are threads, against one rank on the
// whole batch.
#include <gtest/gtest.h>

#include <span>

#include "tests/multi/loss_curve.h"
#include "trireme/base/rng.h"
#include "trireme/comm/comm.h"
#include "trireme/exec/lowering/plan_execution.h"
#include "trireme/exec/plan/execution_plan.h"
#include "trireme/exec/run/agree.h"
#include "trireme/exec/run/executor.h"
#include "trireme/nn/models/mlp.h"
#include "trireme/op/build.h"
#include "trireme/ops/ops.h"
#include "trireme/parallel/parallel.h"
#include "trireme/partition/partition.h"
#include "trireme/train/step/graphs/step.h"

namespace trireme::data_parallel_test {
namespace {

using namespace testing_support;

Graph step_of(const Optimizer& optimizer) {
  nn::Mlp mlp({12, 16, 10});
  return training_step([&](const Tensor& x) { return mlp(x); },
                       [](const Tensor& y, const Tensor& t) { return cross_entropy(y, t); },
                       {{"image", {DType::kF32, {kBatch, 12}}}, {"label", {DType::kI32, {kBatch}}}}, optimizer,
                       {.name = "mlp", .clip_norm = 1.0});
}

void fill_local(const View& view, const Box& box, uint64_t id) {
  for (int64_t row = 0; row < view.type.shape[0]; ++row) {
    const int64_t width = view.elements() / view.type.shape[0];
    for (int64_t i = 0; i < width; ++i) {
      const auto index = static_cast<uint64_t>((box.start[0] + row) * width + i);
      const auto at = static_cast<size_t>(row * width + i);
      if (view.type.dtype == DType::kF32) {
        view.as<float>()[at] = normal({7, id}, index, 0);
      } else {
        view.as<int32_t>()[at] = static_cast<int32_t>(random_bits({7, id}, index, 0) % 10);
      }
    }
  }
}

Curve train(const Graph& graph, comm::World* world, int64_t ranks) {
  EXPECT_TRUE(verify(graph).empty()) << verify(graph).front();
  const Program program = partition(graph, data_parallel(graph, ranks));
  EXPECT_TRUE(verify(program).empty()) << verify(program).front();
  const ExecutionPlan plan = plan_execution(program);
  EXPECT_TRUE(verify(plan).empty()) << verify(plan).front();
  EXPECT_EQ(to_string(parse_plan(to_string(plan))), to_string(plan));
  if (world) agree({&plan}, *world);
  Executor executor(plan, {.world = world});
  for (const PlanInput& input : plan.inputs) {
    const View view = executor.input(input.name);
    if (input.role == Role::kParameter) {
      fill_normal({1, input.name.size()}, 0, 0, view.as<float>());
      for (float& x : view.as<float>()) x *= 0.3F;
    } else if (input.role == Role::kState) {
      std::fill(view.raw().begin(), view.raw().end(), std::byte{0});
    }
  }
  Curve out;
  note_start(executor, out);
  for (int step = 1; step <= kSteps; ++step) {
    fill_local(executor.input("image"), executor.input_box("image"), 100 + static_cast<uint64_t>(step));
    fill_local(executor.input("label"), executor.input_box("label"), 200 + static_cast<uint64_t>(step));
    executor.input("lr").as<float>()[0] = 1e-2F;
    executor.input("step").as<int64_t>()[0] = step;
    executor.run();
    out.losses.push_back(executor.output("loss").as<float>()[0]);
  }
  note_end(executor, out);
  return out;
}

std::string difference_over(int ranks, const Graph& graph, double share) {
  std::vector<Curve> curves(static_cast<size_t>(ranks));
  comm::spawn_ranks(ranks, "threads", [&](comm::World& world) {
    curves[static_cast<size_t>(world.rank())] = train(graph, &world, ranks);
  });
  EXPECT_EQ(other_bits({curves.data(), curves.size() - 1}, {curves.data() + 1, curves.size() - 1}), "")
      << "ranks hold different bits";
  return difference_from(train(graph, nullptr, 1), curves, share);
}

// Sums over the batch of 24, and of the products of 12 and 16 on the way to them.
TEST(DataParallel, ranks_train_as_one_rank_on_the_whole_batch) {
  const Graph graph = step_of(Sgd{.momentum = 0.9});
  for (const int ranks : {2, 3, 4}) EXPECT_EQ(difference_over(ranks, graph, rounding_share(kBatch + 12 + 16)), "");
}

// Adam divides a gradient by its own size, so what is small among the terms of its sum moves as far as all else, and is
// known the worse.
TEST(DataParallel, ranks_train_by_adam_as_one_rank_on_the_whole_batch) {
  const Graph graph = step_of(AdamW{.lr = 1e-2});
  for (const int ranks : {2, 3, 4})
    EXPECT_EQ(difference_over(ranks, graph, 100 * rounding_share(kBatch + 12 + 16)), "");
}

}  // namespace
}  // namespace trireme::data_parallel_test
