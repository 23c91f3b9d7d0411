#include "trireme/exec/run/tier_memory.h"

#include <gtest/gtest.h>

#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/comm/comm.h"
#include "trireme/exec/lowering/plan_execution.h"
#include "trireme/exec/run/executor.h"
#include "trireme/ops/ops.h"
#include "trireme/parallel/parallel.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/passes.h"

namespace trireme::tier_memory_test {
namespace {

// The CPU, which notes what pages it is asked to lock.
class LockingDevice : public Device {
 public:
  const std::string& name() const override { return cpu_device().name(); }
  KernelChoice choose(const KernelQuery& query) const override { return cpu_device().choose(query); }
  KernelFn* kernel(const OpDef& op, std::string_view name) const override { return cpu_device().kernel(op, name); }
  std::string bits(Numerics numerics) const override { return cpu_device().bits(numerics); }
  Memory memory() const override { return cpu_device().memory(); }
  bool sends_in_place() const override { return cpu_device().sends_in_place(); }
  int64_t memory_bytes() const override { return cpu_device().memory_bytes(); }
  int64_t alignment() const override { return cpu_device().alignment(); }
  DeviceMemory allocate(int64_t bytes) override { return cpu_device().allocate(bytes); }
  std::shared_ptr<void> lock_pages(std::span<std::byte> host) override {
    locked = static_cast<int64_t>(host.size());
    return {host.data(), [this](void*) { locked = 0; }};
  }
  std::unique_ptr<DeviceStream> stream() override { return cpu_device().stream(); }
  std::unique_ptr<DeviceStream> copy_stream() override { return cpu_device().copy_stream(); }
  std::unique_ptr<DeviceEvent> event() override { return cpu_device().event(); }

  int64_t locked = 0;
};

ExecutionPlan plan_of_square(const std::vector<HomeRule>& homes, Device& device) {
  Graph graph;
  const Tensor w(graph, graph.add_input("w", {DType::kF32, {64, 8}}, Role::kParameter));
  graph.add_output("w", square(w).id(), w.id());
  return plan_execution(run_passes(partition(graph, data_parallel(graph, 1)), {.homes = homes}), {.device = &device});
}

TEST(TierMemory, of_the_host_is_locked_for_the_device_as_long_as_it_is_there) {
  LockingDevice device;
  const ExecutionPlan plan = plan_of_square({parse_home_rule("w = host")}, device);
  {
    Executor executor(plan, {.device = &device});
    EXPECT_EQ(device.locked, plan.arena(Tier::kHost).bytes);
    EXPECT_GE(device.locked, 64 * 8 * 4);
    executor.run();
    const DeviceMemory given = device.allocate(plan.arena(Tier::kHost).bytes);
    device.locked = -1;
    const Executor beside(plan, {.device = &device, .host_arena = given.bytes});
    EXPECT_EQ(device.locked, -1) << "what is given is its owner's to lock";
  }
  EXPECT_EQ(device.locked, 0);
}

// Where messages are staged on the host, ranks share that memory. Here one of two crews needs none of it.
TEST(TierMemory, that_ranks_share_is_taken_by_those_too_that_need_none) {
  const std::shared_ptr<Device> device = make_device("guarded");
  ASSERT_FALSE(device->sends_in_place());
  ExecutionPlan with = plan_of_square({parse_home_rule("w = host")}, *device);
  ExecutionPlan without = plan_of_square({}, *device);
  with.crews = without.crews = 2;
  without.crew = 1;
  ASSERT_GT(with.arena(Tier::kHost).bytes, 0);
  ASSERT_EQ(without.arena(Tier::kHost).bytes, 0);
  comm::spawn_ranks(2, "shm", [&](comm::World& world) {
    Executor executor(world.rank() == 0 ? with : without, {.world = &world, .device = device.get()});
    executor.run();
    world.all().barrier().wait();
  });
}

TEST(TierMemory, of_the_host_that_is_given_and_too_small_is_refused) {
  LockingDevice device;
  const ExecutionPlan plan = plan_of_square({parse_home_rule("w = host")}, device);
  std::vector<std::byte> given(8);
  try {
    const Executor executor(plan, {.device = &device, .host_arena = given});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.text(), fmt::format("the plan needs an arena of {} bytes on the host; 8 are given",
                                    plan.arena(Tier::kHost).bytes));
  }
}

}  // namespace
}  // namespace trireme::tier_memory_test
