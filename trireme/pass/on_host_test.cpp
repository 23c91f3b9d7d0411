#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/multi/adam_layers.h"
#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/base/thread_pool.h"
#include "trireme/exec/analysis/virtual_time.h"
#include "trireme/exec/lowering/plan_execution.h"
#include "trireme/exec/plan/step_border.h"
#include "trireme/exec/run/executor.h"
#include "trireme/op/move.h"
#include "trireme/op/registry.h"
#include "trireme/ops/ops.h"
#include "trireme/parallel/parallel.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/passes.h"

namespace trireme::on_host_test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr int kLayers = 4;
constexpr int64_t kSide = 64;

Program program_with(const OnHost& on_host, const std::vector<HomeRule>& homes = {}, const TierWays& ways = {},
                     DType dtype = DType::kF32) {
  const Graph graph = adam_layers(kLayers, kSide, true, dtype);
  Program out =
      run_passes(partition(graph, data_parallel(graph, 1)), {.on_host = on_host, .homes = homes, .tier_ways = ways});
  EXPECT_THAT(verify(out), IsEmpty());
  return out;
}

ExecutionPlan plan_with(const OnHost& on_host, const std::vector<HomeRule>& homes = {}, Device* device = nullptr,
                        const TierWays& ways = {}, DType dtype = DType::kF32) {
  ExecutionPlan out = plan_execution(program_with(on_host, homes, ways, dtype), {.device = device});
  EXPECT_THAT(verify(out), IsEmpty());
  return out;
}

const OnHost kUpdates{.updates = true};
OnHost rules(const std::vector<std::string>& texts) {
  OnHost out;
  for (const std::string& text : texts) out.rules.push_back(parse_host_rule(text));
  return out;
}

// Three steps; the bytes of all that stays, and of the loss.
std::vector<std::string> trained(const ExecutionPlan& plan, Device& device) {
  ThreadPool pool(2);
  Executor executor(plan, {.pool = &pool, .device = &device});
  const auto is_kept = [](const PlanInput& input) {
    return input.role == Role::kParameter || input.role == Role::kState;
  };
  for (const PlanInput& input : plan.inputs) {
    if (!is_kept(input)) continue;
    executor.fill_inputs(std::vector<std::string>{input.name}, [&](std::span<const View> views) {
      float value = input.role == Role::kState ? 0 : 0.3F;
      for (float& each : views[0].as<float>()) {
        each = value;
        if (input.role == Role::kParameter) value = value * -0.97F + 0.001F;
      }
    });
  }
  std::vector<std::string> out;
  const auto take = [&](const HostPiece& piece) {
    out.emplace_back(reinterpret_cast<const char*>(piece.view.raw().data()), piece.view.raw().size());
  };
  for (int64_t step = 1; step <= 3; ++step) {
    executor.fill_inputs(std::vector<std::string>{"x"}, [&](std::span<const View> views) {
      float value = static_cast<float>(step);
      for (float& each : views[0].as<float>()) each = value *= -0.9F;
    });
    executor.write_number<float>("lr", 0.01F);
    executor.write_number<int64_t>("step", step);
    executor.run();
    take(executor.read_output("loss"));
  }
  for (const PlanInput& input : plan.inputs) {
    if (is_kept(input)) take(executor.read_input(input.name));
  }
  return out;
}

Tier tier_of(const ExecutionPlan& plan, const std::string& input) {
  return plan.buffers[static_cast<size_t>(plan.values[static_cast<size_t>(plan.input(input).value)].buffer)].tier;
}

std::vector<std::string> names_on_host(const ExecutionPlan& plan) {
  std::vector<std::string> out;
  for (const Action& action : plan.actions) {
    if (action.lane == Lane::kHost) out.emplace_back(action.op->name);
  }
  return out;
}

struct WayCase {
  std::string name;
  OnHost on_host;
  std::vector<std::string> homes = {};
  TierWays ways = {};
};
void PrintTo(const WayCase& of, std::ostream* out) {
  *out << of.name;
}

class OnHostWays : public testing::TestWithParam<WayCase> {};

TEST_P(OnHostWays, contracts_14_1_3_have_the_bits_of_the_device) {
  const WayCase& of = GetParam();
  std::vector<HomeRule> homes;
  for (const std::string& home : of.homes) homes.push_back(parse_home_rule(home));
  const auto usual = trained(plan_with({}), cpu_device());
  const ExecutionPlan plan = plan_with(of.on_host, homes, nullptr, of.ways);
  EXPECT_THAT(names_on_host(plan), Not(IsEmpty()));
  EXPECT_EQ(trained(plan, cpu_device()), usual);
  for (const std::string name : {"guarded:1", "guarded:2", "guarded:3"}) {
    const std::shared_ptr<Device> device = make_device(name);
    EXPECT_EQ(trained(plan_with(of.on_host, homes, device.get(), of.ways), *device), usual) << name;
  }
}

// Of 16 rows of a weight.
const TierWays kInParts{.update_part = MemorySize(kSide * 16 * 4)};

INSTANTIATE_TEST_SUITE_P(
    All, OnHostWays,
    testing::Values(WayCase{"updates", kUpdates}, WayCase{"updates_of_weights_at_home", kUpdates, {"* = host"}},
                    WayCase{"updates_of_weights_on_the_device", kUpdates, {"* = device"}},
                    WayCase{"updates_in_parts", kUpdates, {}, kInParts},
                    WayCase{"updates_in_parts_of_weights_on_the_device", kUpdates, {"* = device"}, kInParts},
                    WayCase{"updates_in_parts_of_weights_on_disk", kUpdates, {"* = disk", "*/state = disk"}, kInParts},
                    WayCase{"updates_in_parts_of_state_on_disk", kUpdates, {"*/state = disk"}, kInParts},
                    WayCase{"updates_of_weights_on_disk", kUpdates, {"* = disk", "*/state = disk"}},
                    WayCase{"updates_of_gradients_at_home", kUpdates, {"*/gradient = host", "*/state = device"}},
                    WayCase{"first", rules({"h.0 = host"})}, WayCase{"middle", rules({"h.1..2 = host"})},
                    WayCase{"products", rules({"*/matmul = host"}), {"h.1 = device", "h.2 = disk"}},
                    WayCase{"all", rules({"* = host"})},
                    WayCase{"all_and_updates", {rules({"* = host", "h.2 = device"}).rules, true}}),
    [](const auto& about) { return about.param.name; });

TEST(OnHost, updates_leave_no_state_in_the_device_arena) {
  const ExecutionPlan usual = plan_with({}), plan = plan_with(kUpdates);
  EXPECT_THAT(names_on_host(plan), testing::Contains("adam_update").Times(kLayers));
  EXPECT_EQ(plan.arena().persistent, 0);
  EXPECT_EQ(plan.arena(Tier::kHost).persistent, usual.arena().persistent);
  const ExecutionPlan on_device = plan_with(kUpdates, {parse_home_rule("* = device")});
  EXPECT_EQ(on_device.arena().persistent, kLayers * kSide * kSide * 4);
  EXPECT_EQ(on_device.arena(Tier::kHost).persistent, usual.arena().persistent - on_device.arena().persistent);
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.holding == Holding::kState) EXPECT_EQ(buffer.tier, Tier::kHost);
  }
}

int64_t moves_of(const ExecutionPlan& plan, const std::string& input) {
  return std::ranges::count_if(plan.actions, [&](const Action& action) {
    return is_move(*action.op) && action.in[0] == plan.input(input).value;
  });
}

// A weight comes once, stays for the backward pass, and does not go; a rule lets it come for each pass.
TEST(OnHost, weights_of_updates_there_come_once_a_step) {
  const ExecutionPlan plan = plan_with(kUpdates);
  for (int layer = 0; layer < kLayers; ++layer) EXPECT_EQ(moves_of(plan, fmt::format("h.{}.w", layer)), 1) << layer;
  EXPECT_EQ(std::ranges::count(plan.actions, Lane::kIn, &Action::lane), kLayers);
  EXPECT_EQ(moves_of(plan_with(kUpdates, {parse_home_rule("* = host")}), "h.0.w"), 1) << "few others are between";
}

// A weight that the device reads in bf16 alone comes in bf16: half the bytes of the way, and of the device.
TEST(OnHost, weights_that_are_read_in_bf16_come_in_bf16) {
  const auto plan_in_bf16 = [](const OnHost& on_host, Device* device = nullptr,
                               const std::vector<HomeRule>& homes = {}) {
    return plan_with(on_host, homes, device, kInParts, DType::kBF16);
  };
  const TensorType kInBf16{DType::kBF16, {kSide, kSide}};
  const std::vector<std::string> usual = trained(plan_in_bf16({}), cpu_device());
  const std::vector<std::vector<HomeRule>> ways{{}, {parse_home_rule("* = host")}};
  for (const std::vector<HomeRule>& homes : ways) {
    for (const char* const name : {"cpu", "guarded:1", "guarded:2"}) {
      const std::shared_ptr<Device> device = make_device(name);
      const ExecutionPlan plan = plan_in_bf16(kUpdates, device.get(), homes);
      EXPECT_EQ(to_string(parse_plan(to_string(plan))), to_string(plan));
      int casts = 0, comes = 0;
      for (const Action& action : plan.actions) {
        const auto type_of = [&](int value) { return plan.values[static_cast<size_t>(value)].type; };
        const bool casts_weight = action.op->name == "cast" && type_of(action.out[0]) == kInBf16;
        casts += casts_weight ? 1 : 0;
        if (action.lane != Lane::kIn) continue;
        ++comes;
        EXPECT_EQ(action.op->name, "move_in_bf16");
        EXPECT_EQ(type_of(action.out[0]), kInBf16);
        EXPECT_EQ(action.scratch >= 0, device->memory() == Memory::kDevice) << "staging";
      }
      EXPECT_EQ(comes, kLayers);
      EXPECT_EQ(casts, 0);
      EXPECT_EQ(trained(plan, *device), usual) << name;
    }
  }
  const ExecutionPlan plan = plan_in_bf16(kUpdates);
  const auto come_s = [&](const Machine& machine) {
    const std::vector<double> seconds = action_seconds(plan, {.links = {}, .machine = machine});
    for (size_t i = 0; i < plan.actions.size(); ++i) {
      if (plan.actions[i].lane == Lane::kIn) return seconds[i];
    }
    return 0.0;
  };
  const Machine in_memory{.memory_bytes_per_s = 1e9, .flops_per_s = {{"f32", 1e12}}};
  EXPECT_NEAR(come_s(in_memory), kSide * kSide * 2 * 2 / 1e9, 1e-12);
  Machine linked = in_memory;
  linked.from_host_bytes_per_s = 1e8;
  EXPECT_NEAR(come_s(linked), kSide * kSide * 2 / 1e8, 1e-12);
}

// A gradient leaves beside what makes the next one, and the last updates run under the next forward pass.
TEST(OnHost, updates_run_beside_both_passes) {
  const ExecutionPlan plan = plan_with(kUpdates);
  const auto last_product = std::ranges::find_if(plan.actions.rbegin(), plan.actions.rend(), [](const Action& action) {
    return action.lane == Lane::kCompute && action.op->name == "matmul";
  });
  const auto begun =
      std::count_if(last_product, plan.actions.rend(), [](const Action& action) { return action.lane == Lane::kHost; });
  EXPECT_GE(begun, 1);
  EXPECT_THAT(step_border(plan).left, Not(IsEmpty()));
  const VirtualTime time = virtual_time(std::array{&plan}, {.seconds = {action_seconds(plan, {})}});
  EXPECT_GT(time.ranks[0].lane(Lane::kHost).busy_s, 0);
  EXPECT_LT(time.ranks[0].lane(Lane::kHost).exposed_s, time.ranks[0].lane(Lane::kHost).busy_s);
}

// Where a layer's update takes longer than both its passes, so that the host is what is waited for.
TEST(OnHost, a_step_is_shorter_where_the_last_updates_go_on_under_the_next) {
  const Graph graph = adam_layers(12, kSide, true);
  const Rates rates{.links = {}, .machine = Machine{.memory_bytes_per_s = 4e9, .flops_per_s = {{"f32", 2e9}}}};
  const auto plan_on = [&](std::string_view home) {
    std::vector<HomeRule> homes;
    if (!home.empty()) homes.push_back(parse_home_rule(fmt::format("* = {}", home)));
    return plan_execution(
        run_passes(partition(graph, data_parallel(graph, 1)), {.rates = rates, .on_host = kUpdates, .homes = homes}));
  };
  const auto modelled_s = [&](const ExecutionPlan& plan) {
    return virtual_time(std::array{&plan}, {.seconds = {action_seconds(plan, rates)}}).makespan_s;
  };
  const ExecutionPlan under = plan_on(""), returning = plan_on("device");
  EXPECT_THAT(step_border(under).left, Not(IsEmpty()));
  EXPECT_THAT(step_border(returning).left, IsEmpty()) << "weights return to the device in their step";
  EXPECT_LT(modelled_s(under), 0.9 * modelled_s(returning));
}

// What the next step reads first is updated first of what has come.
TEST(OnHost, the_last_updates_stand_as_the_next_step_needs_them) {
  const ExecutionPlan plan = plan_with(kUpdates);
  std::vector<std::string> last;
  for (const int action : step_border(plan).left) last.emplace_back(plan.actions[static_cast<size_t>(action)].scope);
  // That of the last layer begins when no other gradient has come.
  EXPECT_THAT(last, testing::ElementsAre("update/h.3.w", "update/h.0.w", "update/h.1.w", "update/h.2.w"));
}

TEST(OnHost, updates_of_large_tensors_begin_with_the_first_rows) {
  const ExecutionPlan plan = plan_with(kUpdates, {}, nullptr, kInParts);
  EXPECT_THAT(names_on_host(plan), testing::Contains("adam_update").Times(kLayers * 4));
  EXPECT_LT(plan.arena(Tier::kHost).bytes, plan_with(kUpdates).arena(Tier::kHost).bytes + 1);
  EXPECT_EQ(plan.arena(Tier::kHost).persistent, plan_with({}).arena().persistent);
  EXPECT_EQ(to_string(parse_plan(to_string(plan))), to_string(plan));
}

TEST(OnHost, parameters_that_the_host_alone_reads_lie_there_and_are_updated_there) {
  const ExecutionPlan plan = plan_with(rules({"h.0 = host"}));
  EXPECT_EQ(tier_of(plan, "h.0.w"), Tier::kHost);
  EXPECT_EQ(tier_of(plan, "h.1.w"), Tier::kDevice);
  EXPECT_EQ(tier_of(plan, "x"), Tier::kHost);
  EXPECT_THAT(names_on_host(plan), testing::Contains("adam_update").Times(1));
  EXPECT_THAT(host_ops_text(plan), AllOf(HasSubstr("tanh at 'h.0'"), HasSubstr("adam_update at 'update/h.0.w'")));
}

TEST(OnHost, a_rule_for_a_home_counts_before_who_reads_it) {
  const ExecutionPlan plan = plan_with(rules({"h.0 = host"}), {parse_home_rule("h.0.w = device")});
  EXPECT_EQ(tier_of(plan, "h.0.w"), Tier::kDevice);
}

TEST(OnHost, the_plan_reads_back_and_says_what_lies_elsewhere) {
  ExecutionPlan plan = plan_with(kUpdates);
  EXPECT_EQ(to_string(parse_plan(to_string(plan))), to_string(plan));
  const auto update = std::ranges::find_if(
      plan.actions, [](const Action& action) { return action.lane == Lane::kHost && !action.in.empty(); });
  ASSERT_NE(update, plan.actions.end());
  const int buffer = plan.values[static_cast<size_t>(update->in[0])].buffer;
  plan.buffers[static_cast<size_t>(buffer)].tier = Tier::kDevice;
  EXPECT_THAT(verify(plan), testing::Contains(AllOf(HasSubstr("runs on the host; value"), HasSubstr("'device'"))));
}

TEST(OnHost, the_program_reads_back) {
  const Program program = program_with(rules({"h.1 = host"}));
  const std::string text = to_string(program.graph);
  EXPECT_THAT(text, HasSubstr("@\"h.1\" on host"));
  EXPECT_EQ(to_string(parse_graph(text, find_op_base)), text);
}

TEST(OnHost, what_is_no_rule_is_refused) {
  const auto refusal = [](const std::string& text) {
    try {
      check_host_rules(adam_layers(kLayers, kSide, true), std::vector{parse_host_rule(text)});
    } catch (const Error& e) {
      return e.text();
    }
    return std::string();
  };
  EXPECT_EQ(refusal("h.0 = host"), "");
  EXPECT_EQ(refusal("h.*/matmul = device"), "");
  EXPECT_THAT(refusal("h.0 = disk"), HasSubstr("ops run on the 'host' or the 'device'"));
  EXPECT_THAT(refusal("h.0"), HasSubstr("is not \"scope = host\""));
  EXPECT_THAT(refusal("h.0/ = host"), HasSubstr("names no op after '/'"));
  EXPECT_THAT(refusal("g.0 = host"), HasSubstr("parallel.on 'g.0 = host' matches no part of the model"));
  EXPECT_THAT(refusal("h.0/matmull = host"), AllOf(HasSubstr("matches no op there"), HasSubstr("matmul")));
}

}  // namespace
}  // namespace trireme::on_host_test
