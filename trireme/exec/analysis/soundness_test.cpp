#include "trireme/exec/analysis/soundness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "trireme/base/error.h"
#include "trireme/exec/analysis/hand_plan_for_tests.h"
#include "trireme/exec/lowering/plan_execution.h"
#include "trireme/op/structural.h"
#include "trireme/ops/ops.h"
#include "trireme/parallel/parallel.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/passes.h"

namespace trireme::soundness_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Tensor input(Graph& graph, const std::string& name, Shape shape, Role role = Role::kParameter) {
  return {graph, graph.add_input(name, {DType::kF32, shape}, role)};
}

// Layers whose weights are cut over "tp" in turn along both dimensions, with a batch cut over "dp":
// reduces, gathers and scatters over both axes and over both at once.
// `growing`: every second layer gives twice as much, so that no two sums are of one size.
ExecutionPlan layers_plan(const std::string& mesh_text, int layers, int64_t width, bool growing = false) {
  Graph graph("layers");
  const Mesh mesh = parse_mesh(mesh_text);
  Tensor x = input(graph, "x", {64, width}, Role::kData);
  std::vector<Layout> layouts{parse_layout("[dp, -]", mesh)};
  for (int i = 0; i < layers; ++i) {
    graph.set_scope(fmt::format("layer{}", i));
    const int64_t next = growing && i % 2 == 1 ? 2 * width : width;
    x = gelu(matmul(x, input(graph, fmt::format("w{}", i), {width, next})));
    width = next;
    layouts.push_back(parse_layout(i % 2 == 0 ? "[-, tp]" : "[tp, -]", mesh));
  }
  graph.set_scope("loss");
  graph.add_output("loss", mean(square(x)).id());
  return plan_execution(run_passes(partition(graph, propagate(graph, mesh, layouts))));
}

Calls calls_of_all(const ExecutionPlan& plan) {
  Calls out;
  for (int64_t rank = 0; rank < plan.mesh.devices(); ++rank) out.push_back(calls_of(plan, rank));
  return out;
}

// A plan with one collective on the whole mesh, its attributes changed.
ExecutionPlan with_attrs(const std::function<void(CollectiveAttrs&)>& change) {
  ExecutionPlan plan = layers_plan("dp=2,tp=2", 2, 8);
  for (Action& action : plan.actions) {
    if (action.op->name != "all_reduce") continue;
    CollectiveAttrs attrs = action.attrs.as<CollectiveAttrs>();
    change(attrs);
    action.attrs = Attrs::of(attrs);
    return plan;
  }
  ADD_FAILURE() << "no all_reduce";
  return plan;
}

CommCall call(std::vector<int> ranks, std::string what, int action = 0, std::string scope = "") {
  return {.ranks = std::move(ranks), .what = std::move(what), .action = action, .scope = std::move(scope)};
}

CommCall message(int from, int to, CommCall::Kind kind, int64_t tag = 0, std::string what = "f32 x 4") {
  return {.ranks = {from, to}, .what = std::move(what), .kind = kind, .tag = tag};
}

// Each call ends before the next of its rank begins.
Calls one_after_the_other(Calls calls) {
  for (std::vector<CommCall>& of_rank : calls) {
    for (size_t i = 1; i < of_rank.size(); ++i) of_rank[i].waits = {static_cast<int>(i) - 1};
  }
  return calls;
}

TEST(CheckCommunication, a_plan_for_1024_ranks_is_sound) {
  const ExecutionPlan plan = layers_plan("dp=64,tp=16", 12, 64);
  EXPECT_GE(calls_of(plan, 0).size(), 6U);
  EXPECT_THAT(check_communication(plan), IsEmpty());
  EXPECT_THAT(check_communication(calls_of_all(plan)), IsEmpty());
}

TEST(CheckCommunication, names_the_axis_that_the_mesh_does_not_have) {
  const ExecutionPlan plan = with_attrs([](CollectiveAttrs& attrs) { attrs.axes = {7}; });
  EXPECT_THAT(check_communication(plan), ElementsAre(HasSubstr("the mesh 'dp=2,tp=2' has no axis 7")));
}

TEST(CheckCommunication, refuses_an_axis_named_twice) {
  const ExecutionPlan plan = with_attrs([](CollectiveAttrs& attrs) { attrs.axes = {1, 1}; });
  EXPECT_THAT(check_communication(plan), ElementsAre(HasSubstr("axis 'tp' is named twice")));
}

TEST(CheckCommunication, refuses_groups_of_another_size_than_the_action_says) {
  const ExecutionPlan plan = with_attrs([](CollectiveAttrs& attrs) { attrs.size = 4; });
  EXPECT_THAT(check_communication(plan),
              ElementsAre(AllOf(HasSubstr("all_reduce of f32 x"), HasSubstr("groups have 4 ranks; they have 2"))));
}

TEST(CheckCommunication, refuses_a_root_outside_the_group) {
  const ExecutionPlan plan = with_attrs([](CollectiveAttrs& attrs) { attrs.root = 2; });
  EXPECT_THAT(check_communication(plan), ElementsAre(HasSubstr("its root is 2 in groups of 2 ranks")));
}

TEST(CheckCommunication, refuses_results_of_other_types_than_the_operands) {
  ExecutionPlan plan = layers_plan("dp=2,tp=2", 2, 8);
  for (const Action& action : plan.actions) {
    if (action.op->name != "all_reduce") continue;
    plan.values[static_cast<size_t>(action.out[0])].type.dtype = DType::kF64;
    break;
  }
  EXPECT_THAT(check_communication(plan), ElementsAre(HasSubstr("makes f64[32,8] of f32[32,8] over 2 ranks")));
}

TEST(CheckCommunication, refuses_results_of_other_shapes_than_the_op_makes) {
  ExecutionPlan plan = layers_plan("dp=2,tp=2", 2, 8);
  for (const Action& action : plan.actions) {
    if (action.op->name != "all_reduce") continue;
    plan.values[static_cast<size_t>(action.out[0])].type.shape = {8, 32};
    break;
  }
  EXPECT_THAT(check_communication(plan), ElementsAre(HasSubstr("makes f32[8,32] of f32[32,8] over 2 ranks")));
}

TEST(Matching, ranks_of_different_plans_differ_in_their_counts) {
  Calls calls = calls_of_all(layers_plan("dp=2,tp=2", 2, 8));
  calls[3] = calls_of(layers_plan("dp=2,tp=2", 2, 16), 3);
  const std::vector<std::string> found = check_communication(calls);
  ASSERT_FALSE(found.empty());
  EXPECT_THAT(found[0], AllOf(HasSubstr("rank 2 starts action 3 (all_reduce of f32 x 256 by sum at 'layer1')"),
                              HasSubstr("rank 3 starts action 3 (all_reduce of f32 x 512 by sum at 'layer1')")));
}

TEST(Matching, names_the_first_operation_that_differs_in_kind) {
  EXPECT_THAT(check_communication(
                  {{call({0, 1}, "all_reduce of f32 x 4 by sum", 1), call({0, 1}, "all_gather of f32 x 2", 5)},
                   {call({0, 1}, "all_reduce of f32 x 4 by sum", 1), call({0, 1}, "all_reduce of f32 x 2 by sum", 6)}}),
              ElementsAre("operation 1 on the ranks 0,1: rank 0 starts action 5 (all_gather of f32 "
                          "x 2), rank 1 starts "
                          "action 6 (all_reduce of f32 x 2 by sum)"));
}

TEST(Matching, names_the_operation_that_a_rank_leaves_out) {
  EXPECT_THAT(check_communication({{call({0, 1}, "a", 1), call({0, 1}, "b", 2, "up")}, {call({0, 1}, "a", 1)}}),
              ElementsAre("operation 1 on the ranks 0,1: rank 0 starts action 2 (b at 'up'), rank "
                          "1 starts nothing"));
  EXPECT_THAT(check_communication({{}, {call({0, 1}, "a", 1)}}),
              ElementsAre("operation 0 on the ranks 0,1: rank 0 starts nothing, rank 1 starts action 1 (a)"));
}

TEST(Matching, refuses_a_communicator_without_the_rank) {
  EXPECT_THAT(check_communication({{call({1, 2}, "a")}, {}, {}}),
              ElementsAre("rank 0: action 0 (a) is on the ranks 1,2, which it is none of"));
}

TEST(Matching, communicators_are_told_apart_by_the_order_of_their_ranks) {
  EXPECT_THAT(check_communication({{call({0, 1}, "a"), call({1, 0}, "b")}, {call({0, 1}, "a"), call({1, 0}, "b")}}),
              IsEmpty());
}

TEST(Deadlock, two_ranks_that_end_two_operations_in_other_orders_wait_for_each_other) {
  const Calls calls{{call({0, 1}, "a", 1), call({1, 0}, "b", 2)}, {call({1, 0}, "b", 1), call({0, 1}, "a", 2)}};
  EXPECT_THAT(check_communication(one_after_the_other(calls)),
              ElementsAre(AllOf(HasSubstr("in a circle"),
                                HasSubstr("rank 0 starts action 2 (b) on the ranks 1,0 only after the end of action 1 "
                                          "(a) on the ranks 0,1"),
                                HasSubstr("rank 1 starts action 2 (a) on the ranks 0,1 only after the end of action 1 "
                                          "(b) on the ranks 1,0"))));
  EXPECT_THAT(check_communication(calls), IsEmpty()) << "communicators run side by side";
}

TEST(Deadlock, a_ring_of_three_ranks_waits_although_every_communicator_matches) {
  const CommCall a = call({0, 1}, "a"), b = call({1, 2}, "b"), c = call({2, 0}, "c");
  EXPECT_THAT(check_communication(one_after_the_other({{a, c}, {b, a}, {c, b}})),
              ElementsAre(HasSubstr("in a circle")));
  EXPECT_THAT(check_communication(one_after_the_other({{a, c}, {a, b}, {b, c}})), IsEmpty());
}

TEST(Deadlock, a_turn_may_be_part_of_the_circle) {
  // Rank 1 must have seen the end of the second operation before it starts what the first needs of rank 2.
  const CommCall first = call({0, 1, 2}, "a", 1), second = call({0, 1, 2}, "b", 2);
  CommCall late = message(1, 2, CommCall::Kind::kSend), early = message(1, 2, CommCall::Kind::kRecv);
  late.waits = {1};
  CommCall after = first;
  after.waits = {0};
  const std::vector<std::string> found =
      check_communication({{first, second}, {first, second, late}, {early, after, second}});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0], HasSubstr("it is the turn of action 2 (b) on the ranks 0,1,2 only after that of action 1 (a)"));
  EXPECT_THAT(found[0],
              HasSubstr("rank 2 starts action 1 (a) on the ranks 0,1,2 only after the end of action 0 (recv of "
                        "f32 x 4 from rank 1 with tag 0)"));
}

TEST(Messages, one_without_a_partner_is_named) {
  using enum CommCall::Kind;
  EXPECT_THAT(
      check_communication({{message(0, 1, kSend, 5)}, {message(0, 1, kRecv, 6)}}),
      ElementsAre("rank 0: action 0 (send of f32 x 4 to rank 1 with tag 5) has no partner: rank 1 starts 0 such "
                  "receipts",
                  "rank 1: action 0 (recv of f32 x 4 from rank 0 with tag 6) has no partner: rank 0 starts 0 such "
                  "sends"));
}

TEST(Messages, both_sides_say_the_same_type) {
  using enum CommCall::Kind;
  EXPECT_THAT(
      check_communication({{message(0, 1, kSend, 5, "f32 x 4")}, {message(0, 1, kRecv, 5, "f32 x 8")}}),
      ElementsAre("rank 0 starts action 0 (send of f32 x 4 to rank 1 with tag 5), which meets rank 1's action 0 "
                  "(recv of f32 x 8 from rank 0 with tag 5)"));
}

TEST(Messages, are_between_two_ranks_one_of_which_is_the_callers) {
  using enum CommCall::Kind;
  EXPECT_THAT(check_communication({{message(1, 0, kSend)}, {}}),
              ElementsAre(HasSubstr("is on the ranks 1,0, between which it sends nothing")));
  EXPECT_THAT(check_communication({{message(0, 0, kSend)}}), ElementsAre(HasSubstr("it sends nothing")));
}

// Two stages in one forward and one backward by turns. The first sends its second activation before it receives its
// first gradient, the second sends that gradient before it receives that activation.
std::vector<ExecutionPlan> two_stages(std::string_view mesh, bool waits_for_sends = false) {
  HandPlan first(mesh, 0, 2), second(mesh, 1, 2);
  const auto ended = [&](HandPlan& plan) {
    const int send = plan.last();
    plan.compute({}, "idle");
    if (waits_for_sends) plan.wait(send);
  };
  first.send(first.compute({}, "F0.0"), 1, 0, "F0.0");
  ended(first);
  first.send(first.compute({}, "F0.1"), 1, 1, "F0.1");
  ended(first);
  first.compute({first.recv(1, 2, "B0.0")}, "B0.0");
  first.compute({first.recv(1, 3, "B0.1")}, "B0.1");
  for (const int part : {0, 1}) {
    const int gradient = second.compute({second.recv(0, part, fmt::format("F1.{}", part))});
    second.send(gradient, 0, 2 + part, fmt::format("B1.{}", part));
    ended(second);
  }
  return {first.finish(), second.finish()};
}

TEST(Crews, two_stages_whose_messages_cross_are_sound) {
  for (const char* mesh : {"", "dp=4"}) {
    const std::vector<ExecutionPlan> plans = two_stages(mesh);
    for (const ExecutionPlan& plan : plans) EXPECT_THAT(verify(plan), IsEmpty());
    EXPECT_THAT(check_crews(plans), IsEmpty());
    EXPECT_THAT(check_communication(calls_of_ranks(plans)), IsEmpty());
  }
}

TEST(Crews, two_stages_that_see_each_send_through_wait_for_each_other) {
  EXPECT_THAT(
      check_crews(two_stages("", true)),
      ElementsAre("operations wait for each other in a circle: rank 1 starts action 4 (recv of f32 x 4 from rank 0 "
                  "with tag 1 at 'F1.1') only after the end of action 2 (send of f32 x 4 to rank 0 with tag 2 at "
                  "'B1.0'); rank 0 starts action 6 (recv of f32 x 4 from rank 1 with tag 2 at 'B0.0') only after the "
                  "end of action 4 (send of f32 x 4 to rank 1 with tag 1 at 'F0.1')"));
  EXPECT_THAT(
      check_crews(two_stages("dp=2", true)),
      ElementsAre(AllOf(HasSubstr("crew 0 (ranks 0 to 1) starts action 6"), HasSubstr("crew 1 (ranks 2 to 3)"))));
  EXPECT_THAT(check_communication(calls_of_ranks(two_stages("dp=2", true))), ElementsAre(HasSubstr("in a circle")));
}

TEST(Crews, one_plan_does_not_say_what_another_waits_for) {
  std::vector<ExecutionPlan> plans = two_stages("");
  std::erase_if(plans[1].actions, [](const Action& action) { return action.scope == "B1.1"; });
  EXPECT_THAT(check_crews(plans),
              ElementsAre(HasSubstr("rank 0: action 8 (recv of f32 x 4 from rank 1 with tag 3 at 'B0.1') has "
                                    "no partner: rank 1 starts 0 such sends")));
}

TEST(Crews, plans_that_do_not_belong_together_are_refused) {
  const std::vector<ExecutionPlan> plans = two_stages("");
  EXPECT_THAT(check_crews({plans[1], plans[0]}),
              ElementsAre("plan 0 of 2 is for crew 1 of 2", "plan 1 of 2 is for crew 0 of 2"));
  EXPECT_THAT(check_crews({plans[0], two_stages("dp=2")[1]}),
              ElementsAre("crew 1 has the mesh 'dp=2' of 2 ranks, crew 0 '' of 1; all have as many"));
}

TEST(Crews, a_message_goes_to_another_crew) {
  for (const int to : {0, 2}) {
    HandPlan plan("", 0, 2);
    plan.send(plan.compute({}), to, 0);
    EXPECT_THAT(
        check_communication(plan.finish()),
        ElementsAre(fmt::format("action 1 (send of f32 x 4): names crew {}; this is the plan of crew 0 of 2, whose "
                                "messages go to and come from the others",
                                to)));
  }
}

// 64 stages of 16 ranks, each with sums over its ranks and 512 micro-batches that go through all.
TEST(Crews, plans_of_1024_ranks_are_checked_by_their_crews) {
  constexpr int kStages = 64;
  std::vector<ExecutionPlan> plans;
  for (int stage = 0; stage < kStages; ++stage) {
    HandPlan plan("dp=4,tp=4", stage, kStages);
    for (int part = 0; part < 512; ++part) {
      const int x = stage > 0 ? plan.recv(stage - 1, part) : plan.compute({});
      const int y = plan.compute({plan.all_reduce(plan.compute({x}), {2, 3})});
      if (stage + 1 < kStages) plan.send(y, stage + 1, part);
    }
    plan.all_reduce(plan.compute({}), {0, 1});
    plans.push_back(plan.finish());
  }
  EXPECT_THAT(check_crews(plans), IsEmpty());
}

// -- against running them -------------------------------------------------------------------------

// Whether the step ends when each rank does what it can.
bool ends(const Calls& calls) {
  const EventGraph graph(calls);
  const auto operation = [&](size_t who, int call) {
    return static_cast<size_t>(graph.operation_of({static_cast<int>(who), call}));
  };
  std::vector<size_t> members(static_cast<size_t>(graph.operations()), 0), started(members), next(calls.size(), 0);
  std::vector<char> ended(members.size(), 0);
  for (size_t who = 0; who < calls.size(); ++who) {
    for (size_t k = 0; k < calls[who].size(); ++k) ++members[operation(who, static_cast<int>(k))];
  }
  for (bool moves = true; moves;) {
    moves = false;
    for (size_t who = 0; who < calls.size(); ++who) {
      if (next[who] == calls[who].size()) continue;
      const CommCall& call = calls[who][next[who]];
      if (!std::ranges::all_of(call.waits, [&](int wait) { return ended[operation(who, wait)] != 0; })) continue;
      ++started[operation(who, static_cast<int>(next[who]++))];
      moves = true;
    }
    for (size_t who = 0; who < calls.size(); ++who) {  // the first of each communicator that has not ended
      std::set<std::vector<int>> waiting;
      for (size_t k = 0; k < calls[who].size(); ++k) {
        const size_t op = operation(who, static_cast<int>(k));
        const bool takes_turns = calls[who][k].kind == CommCall::Kind::kCollective;
        if (ended[op] != 0 || (takes_turns && waiting.contains(calls[who][k].ranks))) continue;
        if (takes_turns) waiting.insert(calls[who][k].ranks);
        if (started[op] < members[op]) continue;
        ended[op] = 1;
        moves = true;
      }
    }
  }
  return std::ranges::all_of(ended, [](char e) { return e != 0; });
}

// Operations among a few ranks, each rank with an order of its own, in which those of one communicator stand in one
// order.
Calls random_calls(std::mt19937& draw) {
  using enum CommCall::Kind;
  const int ranks = 2 + static_cast<int>(draw() % 3);
  Calls calls(static_cast<size_t>(ranks));
  const int count = 2 + static_cast<int>(draw() % 8);
  std::vector<std::vector<std::pair<uint32_t, CommCall>>> keyed(calls.size());
  std::map<std::vector<int>, uint32_t> last;
  for (int i = 0; i < count; ++i) {
    const int a = static_cast<int>(draw() % static_cast<uint32_t>(ranks));
    const int b = (a + 1 + static_cast<int>(draw() % static_cast<uint32_t>(ranks - 1))) % ranks;
    if (draw() % 2 == 0) {
      keyed[static_cast<size_t>(a)].emplace_back(draw() % 100, message(a, b, kSend, i));
      keyed[static_cast<size_t>(b)].emplace_back(draw() % 100, message(a, b, kRecv, i));
    } else {
      const std::vector<int> group{std::min(a, b), std::max(a, b)};
      last[group] += draw() % 60;
      for (const int rank : group) keyed[static_cast<size_t>(rank)].emplace_back(last[group], call(group, "a"));
    }
  }
  for (size_t rank = 0; rank < calls.size(); ++rank) {
    std::ranges::stable_sort(keyed[rank], {}, [](const auto& entry) { return entry.first; });
    for (const auto& [key, each] : keyed[rank]) {
      calls[rank].push_back(each);
      for (int before = 0; before + 1 < static_cast<int>(calls[rank].size()); ++before) {
        if (draw() % 3 == 0) calls[rank].back().waits.push_back(before);
      }
    }
  }
  return calls;
}

TEST(Deadlock, is_found_exactly_where_running_comes_to_no_end) {
  int deadlocks = 0;
  constexpr int kCases = 3000;
  for (uint32_t seed = 0; seed < kCases; ++seed) {
    std::mt19937 draw(seed);
    const Calls calls = random_calls(draw);
    const std::vector<std::string> found = check_communication(calls);
    ASSERT_EQ(found.empty(), ends(calls)) << "seed " << seed << (found.empty() ? "" : ": " + found[0]);
    deadlocks += found.empty() ? 0 : 1;
  }
  EXPECT_GT(deadlocks, kCases / 20);
  EXPECT_LT(deadlocks, kCases * 19 / 20);
}

// -- mistakes that are put in ---------------------------------------------------------------------

TEST(PutInMistakes, a_wait_that_is_left_out_is_found) {
  const ExecutionPlan plan = layers_plan("dp=2,tp=2", 8, 8, true);
  std::set<int> ended;
  int removed = 0;
  for (size_t i = 0; i < plan.actions.size(); ++i) {
    for (const int wait : plan.actions[i].waits) {
      const Few<int, 4>& made = plan.actions[static_cast<size_t>(wait)].out;
      const bool reads =
          std::ranges::any_of(plan.actions[i].in, [&](int id) { return std::ranges::find(made, id) != made.end(); });
      if (!ended.insert(wait).second || !reads) continue;
      ExecutionPlan without = plan;
      Few<int, 2>& waits = without.actions[i].waits;
      waits.erase(std::ranges::find(waits, wait));
      EXPECT_FALSE(verify(without).empty()) << "action " << i << " does not wait for " << wait;
      ++removed;
    }
  }
  EXPECT_GE(removed, 4);
}

TEST(PutInMistakes, operations_that_one_rank_starts_in_another_order_are_found) {
  const ExecutionPlan plan = layers_plan("dp=2,tp=2", 8, 8, true);
  int swapped = 0;
  for (size_t i = 0; i < calls_of(plan, 2).size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      Calls calls = calls_of_all(plan);
      std::vector<CommCall>& one = calls[2];
      // Of one communicator, and such that anybody can tell them apart.
      if (one[k].ranks != one[i].ranks || one[k].what == one[i].what) continue;
      std::swap(one[k], one[i]);
      std::swap(one[k].waits, one[i].waits);
      EXPECT_THAT(check_communication(calls), Not(IsEmpty())) << "calls " << k << " and " << i;
      ++swapped;
    }
  }
  EXPECT_GE(swapped, 2);
}

}  // namespace
}  // namespace trireme::soundness_test
