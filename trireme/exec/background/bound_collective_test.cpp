// Gathers and scatters of several operands at once.
#include "trireme/exec/background/bound_collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/comm/comm.h"
#include "trireme/exec/analysis/soundness.h"
#include "trireme/exec/analysis/traffic.h"
#include "trireme/exec/lowering/plan_execution.h"
#include "trireme/exec/run/executor.h"
#include "trireme/ops/ops.h"

namespace trireme::bound_collective_test {
namespace {

using testing::IsEmpty;

constexpr int64_t kRanks = 3;

// Inputs a [3,4], b [6,2] and c [3,1,5], of each rank, through both collectives along `dim`, together or one by one.
ExecutionPlan plan_of(DType dtype, int64_t dim, bool together) {
  Graph graph("several");
  std::vector<Tensor> x;
  for (const auto& [name, shape] : {std::pair{"a", Shape{3, 6}}, {"b", Shape{6, 3}}, {"c", Shape{3, 9, 5}}}) {
    x.emplace_back(graph, graph.add_input(name, {dtype, shape}, Role::kData));
  }
  const CollectiveAttrs attrs{.axes = {0}, .dim = dim, .size = kRanks};
  std::vector<Tensor> gathered, scattered;
  if (together) {
    gathered = all_gather(x, attrs);
    scattered = reduce_scatter(x, attrs);
  } else {
    for (const Tensor& each : x) {
      gathered.push_back(all_gather(each, attrs));
      scattered.push_back(reduce_scatter(each, attrs));
    }
  }
  for (size_t i = 0; i < x.size(); ++i) {
    graph.add_output(fmt::format("gathered {}", i), gathered[i].id());
    graph.add_output(fmt::format("scattered {}", i), scattered[i].id());
  }
  Program program{std::move(graph), parse_mesh("dp=3"), {}, {}, true};
  for (const Value& value : program.graph.values()) {
    program.layouts.push_back(Layout::replicated(value.type->shape.rank()));
    program.whole.push_back(value.type->shape);
  }
  return plan_execution(program);
}

void fill(Executor& executor, int rank) {
  uint32_t at = static_cast<uint32_t>(rank) * 7919;
  for (const PlanInput& input : executor.plan().inputs) {
    const View view = executor.input(input.name);
    if (view.type.dtype == DType::kF32) {
      for (float& each : view.as<float>()) each = static_cast<float>((at = at * 1664525 + 1013904223) >> 8) * 1e-5F;
    } else {
      for (auto& each : view.raw()) each = static_cast<std::byte>((at = at * 1664525 + 1013904223) >> 27);
    }
  }
}

// Of the world's counts since the start: operations and bytes.
std::pair<int64_t, int64_t> sent(const comm::World& world) {
  std::pair<int64_t, int64_t> out;
  for (const comm::World::Traffic& t : world.traffic()) {
    out.first += t.calls;
    out.second += t.bytes;
  }
  return out;
}

class Several : public testing::TestWithParam<std::tuple<std::string, DType, int64_t>> {};

TEST_P(Several, are_one_operation_with_the_bits_of_each) {
  const auto& [transport, dtype, dim] = GetParam();
  const ExecutionPlan apart = plan_of(dtype, dim, false), together = plan_of(dtype, dim, true);
  EXPECT_THAT(verify(together), IsEmpty());
  EXPECT_THAT(check_communication(together), IsEmpty());
  int64_t planned = 0;
  for (const PlanTraffic& t : traffic_per_step(together, 0)) planned += t.bytes;
  comm::spawn_ranks(kRanks, transport, [&, &planned = planned](comm::World& world) {
    Executor one_by_one(apart, {.world = &world}), at_once(together, {.world = &world});
    fill(one_by_one, world.rank());
    fill(at_once, world.rank());
    one_by_one.run();
    const auto before = sent(world);
    at_once.run();
    const auto after = sent(world);
    EXPECT_EQ(after.first - before.first, 2);
    EXPECT_EQ(after.second - before.second, planned);
    EXPECT_EQ(before.second, planned) << "what is sent apart";
    for (const PlanOutput& output : together.outputs) {
      EXPECT_TRUE(std::ranges::equal(at_once.output(output.name).raw(), one_by_one.output(output.name).raw()))
          << output.name;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Several,
                         testing::Combine(testing::ValuesIn(comm::transports_of_threads()),
                                          testing::Values(DType::kF32, DType::kI32), testing::Values(0, 1)));

TEST(Several, operands_of_other_element_types_are_refused) {
  Graph graph("mixed");
  const Tensor a(graph, graph.add_input("a", {DType::kF32, {3}}, Role::kData));
  const Tensor b(graph, graph.add_input("b", {DType::kI32, {3}}, Role::kData));
  EXPECT_ANY_THROW(all_gather(std::vector<Tensor>{a, b}, {.axes = {0}, .size = 3}));
  EXPECT_ANY_THROW(reduce_scatter(std::vector<Tensor>{a, b}, {.axes = {0}, .size = 3}));
}

}  // namespace
}  // namespace trireme::bound_collective_test
