#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/multi/adam_layers.h"
#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/exec/analysis/virtual_time.h"
#include "trireme/exec/lowering/plan_execution.h"
#include "trireme/exec/run/executor.h"
#include "trireme/op/move.h"
#include "trireme/op/structural.h"
#include "trireme/ops/ops.h"
#include "trireme/parallel/parallel.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/passes.h"

namespace trireme::homes_test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kWeights = 5;
constexpr int64_t kSide = 64;
constexpr int64_t kBytes = kSide * kSide * 4;  // of a weight

Graph layers_with_state() {
  return adam_layers(kWeights, kSide, false);
}

Program program_with(const std::vector<HomeRule>& rules) {
  const Graph graph = layers_with_state();
  return run_passes(partition(graph, data_parallel(graph, 1)), {.homes = rules});
}

std::vector<HomeRule> all_on_host() {
  return {parse_home_rule("*/state = host")};
}

// What is borrowed between steps has the bytes of what is read, and of the disk takes no memory where the step has
// room.
void expect_borrowed_alike(Executor& executor) {
  for (const PlanInput& input : executor.plan().inputs) {
    if (input.role != Role::kParameter && input.role != Role::kState) continue;
    const HostPiece read = executor.read_input(input.name), borrowed = executor.borrow_input(input.name);
    EXPECT_TRUE(std::ranges::equal(read.view.raw(), borrowed.view.raw())) << input.name;
    const bool is_own = executor.input(input.name).memory == Memory::kDisk && executor.plan().device == "cpu";
    if (is_own) EXPECT_EQ(borrowed.copy.view().data, nullptr) << input.name;
  }
}

// Three steps; the bytes of all that stays.
std::vector<std::string> trained(const ExecutionPlan& plan, Device& device) {
  Executor executor(plan, {.device = &device});
  for (const PlanInput& input : plan.inputs) {
    if (input.role != Role::kParameter && input.role != Role::kState) continue;
    executor.fill_inputs(std::vector<std::string>{input.name}, [&](std::span<const View> views) {
      float value = input.role == Role::kState ? 0 : 0.3F;
      for (float& each : views[0].as<float>()) {
        each = value;
        if (input.role == Role::kParameter) value = value * -0.97F + 0.001F;
      }
    });
  }
  for (int64_t step = 1; step <= 3; ++step) {
    executor.fill_inputs(std::vector<std::string>{"x"}, [&](std::span<const View> views) {
      float value = static_cast<float>(step);
      for (float& each : views[0].as<float>()) each = value *= -0.9F;
    });
    executor.write_number<float>("lr", 0.01F);
    executor.write_number<int64_t>("step", step);
    expect_borrowed_alike(executor);  // and what the step is fed stays what it is
    executor.run();
  }
  std::vector<std::string> out;
  for (const PlanInput& input : plan.inputs) {
    if (input.role != Role::kParameter && input.role != Role::kState) continue;
    const HostPiece piece = executor.read_input(input.name);
    out.emplace_back(reinterpret_cast<const char*>(piece.view.raw().data()), piece.view.raw().size());
  }
  return out;
}

TEST(Homes, state_on_the_host_is_read_by_moves_alone) {
  const Program program = program_with(all_on_host());
  EXPECT_THAT(verify(program), IsEmpty());
  std::set<ValueId> states;
  for (const Input& input : program.graph.inputs()) {
    if (input.role == Role::kState) states.insert(input.value);
  }
  ASSERT_EQ(states.size(), 2U * kWeights);
  std::vector<std::string> ways;
  for (const Node& node : program.graph.nodes()) {
    const bool reads = std::ranges::any_of(node.inputs, [&](ValueId id) { return states.contains(id); });
    EXPECT_EQ(reads, is_move(def_of(node)) && node.inputs[0] < static_cast<ValueId>(program.graph.inputs().size()));
    if (is_move(def_of(node))) ways.push_back(node.attrs.text());
  }
  EXPECT_EQ(std::ranges::count(ways, attrs_of({Tier::kHost, Tier::kDevice}).text()), 2 * kWeights);
  EXPECT_EQ(std::ranges::count(ways, attrs_of({Tier::kDevice, Tier::kHost}).text()), 2 * kWeights);
}

TEST(Homes, that_nothing_of_what_is_named_leaves_is_said) {
  const auto said = [](PassOptions options) {
    const Graph graph = layers_with_state();
    std::vector<PassRemark> remarks;
    options.remarks = &remarks;
    (void)run_passes(partition(graph, data_parallel(graph, 1)), options);
    return remarks.empty() ? "" : remarks.front().text;
  };
  using Keep = Recompute::Rule::Keep;
  const Recompute::Rule kept{.pattern = "", .keep = Keep::kDisk};
  EXPECT_THAT(said({.recompute = {.rules = {kept}}}), HasSubstr("parallel.keep: nothing goes to the host or the disk"));
  EXPECT_EQ(said({.recompute = {.rules = {kept}, .fewest_bytes = 1}}), "");
  EXPECT_THAT(said({.homes = {parse_home_rule("*/gradient = host")}}),
              HasSubstr("parallel.home: no gradient leaves the device"));
  EXPECT_EQ(said({.homes = all_on_host()}), "");
}

TEST(Homes, the_state_of_an_update_comes_while_the_update_before_it_is_computed) {
  const Program program = program_with(all_on_host());
  int on_device = 0, most = 0, updates = 0;
  for (const Node& node : program.graph.nodes()) {
    if (is_move(def_of(node))) {
      on_device += move_of(node.attrs).to == Tier::kDevice ? 1 : -1;
      most = std::max(most, on_device);
    }
    if (node.op->name != "adam_update") continue;
    EXPECT_EQ(on_device, ++updates < kWeights ? 4 : 2) << "of this parameter and of the next";
  }
  EXPECT_EQ(most, 4);
}

TEST(Homes, take_the_state_out_of_the_devices_memory) {
  const ExecutionPlan usual = plan_execution(program_with({}));
  const ExecutionPlan plan = plan_execution(program_with(all_on_host()));
  EXPECT_THAT(verify(plan), IsEmpty());
  EXPECT_EQ(to_string(parse_plan(to_string(plan))), to_string(plan));
  EXPECT_EQ(plan.arena().persistent, kWeights * kBytes);
  EXPECT_EQ(plan.arena(Tier::kHost), (Arena{2 * kWeights * kBytes, 2 * kWeights * kBytes, 2 * kWeights * kBytes}));
  EXPECT_LT(plan.arena().bytes, usual.arena().bytes - 2 * kBytes);
  // No more of it is there than that of three parameters: it leaves, is used, comes.
  EXPECT_LE(plan.arena().bytes - usual.arena().bytes + 2 * kWeights * kBytes, 6 * kBytes);
}

TEST(Homes, on_the_disk_are_whole_sectors_and_staged_in_blocks) {
  const ExecutionPlan plan = plan_execution(program_with({parse_home_rule("*/state = disk")}));
  EXPECT_THAT(verify(plan), IsEmpty());
  EXPECT_EQ(to_string(parse_plan(to_string(plan))), to_string(plan));
  EXPECT_EQ(plan.arena(Tier::kDisk), (Arena{2 * kWeights * kBytes, 2 * kWeights * kBytes, 2 * kWeights * kBytes}));
  EXPECT_EQ(plan.arena().persistent, kWeights * kBytes);
  for (const Action& action : plan.actions) {
    if (!is_move(*action.op)) continue;
    EXPECT_EQ(action.lane, move_of(action.attrs).from == Tier::kDisk ? Lane::kLoad : Lane::kStore);
    const Buffer& staging = plan.buffers[static_cast<size_t>(action.scratch)];
    EXPECT_EQ(staging.tier, Tier::kHost);
    EXPECT_EQ(staging.bytes, kBytes + 4096);
  }
  // The modelled time goes by the disk's rate where that is the lower one.
  const Machine machine{.memory_bytes_per_s = 1e12, .disk_bytes_per_s = 1e9, .flops_per_s = {{"f32", 1e12}}};
  const std::vector<double> seconds = action_seconds(plan, {.machine = machine});
  for (size_t i = 0; i < plan.actions.size(); ++i) {
    if (is_move(*plan.actions[i].op)) EXPECT_NEAR(seconds[i], kBytes / 1e9, 1e-12);
  }
}

TEST(Homes, change_no_bits) {
  const std::vector<std::string> usual = trained(plan_execution(program_with({})), cpu_device());
  EXPECT_EQ(trained(plan_execution(program_with(all_on_host())), cpu_device()), usual);
  EXPECT_EQ(
      trained(plan_execution(program_with({parse_home_rule("w1/state = host"), parse_home_rule("w3/state=host")})),
              cpu_device()),
      usual);
  const std::vector<HomeRule> on_disk{parse_home_rule("*/state = disk"), parse_home_rule("w2/state = host")};
  EXPECT_EQ(trained(plan_execution(program_with(on_disk)), cpu_device()), usual);
  for (const char* const name : {"guarded:1", "guarded:2", "guarded:3"}) {
    const std::shared_ptr<Device> device = make_device(name);
    EXPECT_EQ(trained(plan_execution(program_with(all_on_host()), {.device = device.get()}), *device), usual) << name;
    EXPECT_EQ(trained(plan_execution(program_with(on_disk), {.device = device.get()}), *device), usual) << name;
  }
}

// Everything but gradients, and updates of so many bytes of a tensor at a time.
Program program_in_parts(Tier tier, std::string_view part, const std::vector<PrefetchRule>& prefetch = {}) {
  const Graph graph = layers_with_state();
  const std::vector<HomeRule> homes{parse_home_rule(fmt::format("* = {}", to_string(tier))),
                                    parse_home_rule(fmt::format("*/state = {}", to_string(tier))),
                                    parse_home_rule("w4 = device"), parse_home_rule("w1/state = device")};
  return run_passes(partition(graph, data_parallel(graph, 1)),
                    {.homes = homes, .tier_ways = {.update_part = part, .prefetch = prefetch}});
}

// Of each parameter and its state, on the device or not, each part of an update reads a part and makes one in its
// place.
TEST(UpdatesInParts, have_their_rows_alone_on_the_device) {
  for (const Tier tier : {Tier::kHost, Tier::kDisk}) {
    const Program program = program_in_parts(tier, "4KiB");
    EXPECT_THAT(verify(program), IsEmpty());
    const ExecutionPlan plan = plan_execution(program);
    EXPECT_THAT(verify(plan), IsEmpty());
    EXPECT_EQ(to_string(parse_plan(to_string(plan))), to_string(plan));
    int updates = 0;
    for (const Action& action : plan.actions) {
      if (action.op->name != "adam_update") continue;
      ++updates;
      for (const int id : action.out) EXPECT_EQ(plan.values[static_cast<size_t>(id)].type.bytes(), kBytes / 4);
    }
    EXPECT_EQ(updates, 4 * kWeights);
    EXPECT_EQ(plan.arena(tier).persistent, (kWeights - 1) * kBytes + (2 * kWeights - 2) * kBytes) << "w4, and of w1";
  }
  const auto device_bytes = [](const Program& program) { return plan_execution(program).arena().bytes; };
  EXPECT_LT(device_bytes(program_in_parts(Tier::kDisk, "2KiB")), device_bytes(program_in_parts(Tier::kDisk, "0")));
}

TEST(UpdatesInParts, change_no_bits) {
  const std::vector<std::string> usual = trained(plan_execution(program_with({})), cpu_device());
  for (const Tier tier : {Tier::kHost, Tier::kDisk}) {
    for (const char* const part : {"4KiB", "5KiB", "1KiB"})
      EXPECT_EQ(trained(plan_execution(program_in_parts(tier, part)), cpu_device()), usual) << part;
    const std::shared_ptr<Device> device = make_device("guarded:2");
    EXPECT_EQ(trained(plan_execution(program_in_parts(tier, "4KiB"), {.device = device.get()}), *device), usual);
    const ExecutionPlan plan =
        plan_execution(program_in_parts(tier, "7KiB"), {.disk_blocks = {.bytes = 4096, .under_way = 2}});
    EXPECT_EQ(to_string(parse_plan(to_string(plan))), to_string(plan));
    EXPECT_EQ(trained(plan, cpu_device()), usual) << "in small blocks";
  }
}

TEST(UpdatesInParts, a_plan_whose_parts_lie_elsewhere_is_unsound) {
  ExecutionPlan plan = plan_execution(program_in_parts(Tier::kHost, "4KiB"));
  const auto look = std::ranges::find_if(plan.actions, [](const Action& action) {
    return action.op == &structural().part && action.attrs.as<PartAttrs>().first > 0;
  });
  ASSERT_NE(look, plan.actions.end());
  plan.values[static_cast<size_t>(look->out[0])].offset += 256;
  EXPECT_THAT(verify(plan), testing::Contains(HasSubstr("does not lie where its rows of value")));
}

// A part is on the device earlier, the more readers before its own it may begin.
TEST(Prefetch, begins_as_many_readers_before_as_is_said) {
  const auto most_here = [](const std::vector<PrefetchRule>& rules) {
    int64_t here = 0, most = 0;
    const Program program = program_in_parts(Tier::kHost, "0", rules);
    for (const Node& node : program.graph.nodes()) {
      if (!is_move(def_of(node))) continue;
      here += move_of(node.attrs).to == Tier::kDevice ? 1 : -1;
      most = std::max(most, here);
    }
    return most;
  };
  const int64_t one = most_here({parse_prefetch_rule("* = 1")});
  EXPECT_LE(one, most_here({parse_prefetch_rule("* = 2")}));
  EXPECT_LT(one, most_here({parse_prefetch_rule("* = 9")}));
  EXPECT_EQ(one, most_here({parse_prefetch_rule("* = 9"), parse_prefetch_rule("* = 1")})) << "the last counts";
  const std::vector<PrefetchRule> rules{parse_prefetch_rule("h.* = 2"), parse_prefetch_rule("h.0..1/matmul = 7")};
  EXPECT_EQ(readers_ahead(rules, "h.1.mlp", "matmul"), 7);
  EXPECT_EQ(readers_ahead(rules, "h.1.mlp", "gelu"), 2);
  EXPECT_EQ(readers_ahead(rules, "wte", "matmul"), 4);
  EXPECT_EQ(to_string(rules[1]), "h.0..1/matmul = 7");
  for (const char* const wrong : {"h.*", "= 2", "h.* = ", "h.* = 0", "h.* = 65", "h.* = 2x", "h.*/ = 2"})
    EXPECT_THROW(parse_prefetch_rule(wrong), Error) << wrong;
}

TEST(Prefetch, contracts_14_2_of_what_there_is_not_is_refused) {
  const auto refusal = [](const char* text) {
    try {
      check_prefetch_rules(layers_with_state(), std::vector{parse_prefetch_rule(text)});
    } catch (const Error& e) {
      return e.text();
    }
    return std::string();
  };
  EXPECT_EQ(refusal("* = 2"), "");
  EXPECT_EQ(refusal("*/fused_rows = 2"), "") << "which passes make";
  EXPECT_THAT(refusal("x.* = 2"), HasSubstr("parallel.prefetch 'x.* = 2' matches no part of the model"));
  EXPECT_THAT(refusal("*/matmull = 2"), AllOf(HasSubstr("there is no op of that name"), HasSubstr("'matmul'")));
}

TEST(Homes, moves_hide_under_ops_but_for_the_last) {
  const ExecutionPlan plan = plan_execution(program_with(all_on_host()));
  std::vector<double> seconds;
  for (const Action& action : plan.actions) seconds.push_back(is_move(*action.op) ? 0.1 : 1);
  const ExecutionPlan* const crew = &plan;
  const VirtualTime time = virtual_time({&crew, 1}, {.seconds = {seconds}});
  const RankTime& rank = time.ranks[0];
  EXPECT_NEAR(rank.lane(Lane::kIn).busy_s, 0.1 * 2 * kWeights, 1e-9);
  EXPECT_NEAR(rank.lane(Lane::kIn).exposed_s, 0, 1e-9);
  EXPECT_NEAR(rank.lane(Lane::kOut).busy_s, 0.1 * 2 * kWeights, 1e-9);
  EXPECT_NEAR(rank.lane(Lane::kOut).exposed_s, 0.2, 1e-9);  // of the state that is updated last
  EXPECT_NEAR(time.makespan_s, rank.lane(Lane::kCompute).busy_s + 0.2, 1e-9);
  const double rate = 1e9;
  const std::vector<double> modelled =
      action_seconds(plan, {.machine = Machine{.memory_bytes_per_s = rate, .flops_per_s = {{"f32", 1e12}}}});
  for (size_t i = 0; i < plan.actions.size(); ++i) {
    if (is_move(*plan.actions[i].op)) EXPECT_NEAR(modelled[i], 2 * kBytes / rate, 1e-12);  // read and written
  }
}

TEST(Homes, a_plan_whose_moves_are_not_waited_for_or_lie_elsewhere_is_unsound) {
  ExecutionPlan plan = plan_execution(program_with(all_on_host()));
  ExecutionPlan hasty = plan;
  for (Action& action : hasty.actions) action.waits.clear();
  EXPECT_THAT(verify(hasty), Each(HasSubstr("it must wait for it")));
  EXPECT_GE(verify(hasty).size(), 2U * kWeights);
  for (Action& action : plan.actions) {
    if (action.lane == Lane::kOut) action.attrs = attrs_of({Tier::kHost, Tier::kDevice});
  }
  EXPECT_THAT(verify(plan), testing::Contains(HasSubstr("is a move from 'host' to 'device'; its values lie in 'device' "
                                                        "and 'host'")));
}

PassOptions kept_on_host() {
  return {.recompute = {.rules = {{.pattern = "*", .keep = Recompute::Rule::Keep::kHost}}, .fewest_bytes = 1},
          .disabled = {"fuse_rows"}};
}

TEST(Homes, what_is_kept_for_the_backward_pass_leaves_and_comes_back_once) {
  const Graph graph = layers_with_state();
  const Program program = run_passes(partition(graph, data_parallel(graph, 1)), kept_on_host());
  EXPECT_THAT(verify(program), IsEmpty());
  std::set<ValueId> at_home;
  int left = 0;
  for (const Node& node : program.graph.nodes()) {
    if (!is_move(def_of(node))) continue;
    if (move_of(node.attrs).to == Tier::kHost) {
      EXPECT_EQ(node.phase, Phase::kForward);
      at_home.insert(node.outputs[0]);
      ++left;
    } else {
      EXPECT_EQ(node.phase, Phase::kBackward);
      EXPECT_EQ(at_home.erase(node.inputs[0]), 1U);
    }
  }
  EXPECT_THAT(at_home, IsEmpty());
  EXPECT_GE(left, kWeights - 1);
  const std::vector<std::string> usual = trained(plan_execution(program_with({})), cpu_device());
  EXPECT_EQ(trained(plan_execution(program), cpu_device()), usual);
  const std::shared_ptr<Device> device = make_device("guarded:4");
  EXPECT_EQ(trained(plan_execution(program, {.device = device.get()}), *device), usual);
}

TEST(Homes, rules_are_of_the_state_of_parameters_and_the_last_counts) {
  const std::vector<HomeRule> rules{parse_home_rule("h.*/state=host"), parse_home_rule("h.1/state=device")};
  EXPECT_EQ(to_string(rules[0]), "h.*/state = host");
  EXPECT_EQ(home_of(rules, Held::kState, "h.0.w"), Tier::kHost);
  EXPECT_EQ(home_of(rules, Held::kState, "h.1.w"), Tier::kDevice);
  EXPECT_EQ(home_of(rules, Held::kState, "wte"), Tier::kDevice);
  EXPECT_EQ(home_of(rules, Held::kParameter, "h.0.w"), Tier::kDevice);
  EXPECT_EQ(to_string(parse_home_rule("wte=disk")), "wte = disk");
  EXPECT_EQ(to_string(parse_home_rule("*/gradient = host")), "*/gradient = host");
  const auto refusal = [](auto&& call) {
    try {
      call();
    } catch (const Error& e) {
      return e.text();
    }
    return std::string();
  };
  for (const char* const text : {"wte/value = host", "/state = host", "wte/state", "= host"})
    EXPECT_THAT(refusal([&] { parse_home_rule(text); }),
                HasSubstr("is not \"parameters = tier\", \"parameters/state = tier\""))
        << text;
  EXPECT_THAT(refusal([&] { parse_home_rule("wte/state = moon"); }), HasSubstr("no tier of memory 'moon'"));
  const std::vector<HomeRule> other{parse_home_rule("v*/state = host")};
  EXPECT_THAT(refusal([&] { check_homes(layers_with_state(), other); }),
              HasSubstr("parallel.home 'v*/state = host' matches no parameter that the optimizer has state of"));
}

}  // namespace
}  // namespace trireme::homes_test
