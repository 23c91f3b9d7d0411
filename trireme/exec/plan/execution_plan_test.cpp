#include "trireme/exec/plan/execution_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>

#include "trireme/base/error.h"
#include "trireme/base/hash.h"
#include "trireme/exec/lowering/plan_execution.h"
#include "trireme/exec/memory/memory_plan.h"
#include "trireme/ops/ops.h"
#include "trireme/parallel/parallel.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/passes.h"

namespace trireme::execution_plan_test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

Tensor input(Graph& graph, const std::string& name, Shape shape, Role role = Role::kParameter) {
  return {graph, graph.add_input(name, {DType::kF32, shape}, role, {Init::Kind::kNormal, 0, 0.02})};
}

// A weight trained on a batch cut over two ranks: views, updates in place, one communication.
ExecutionPlan small_plan(int64_t ranks = 2, const PlanOptions& options = {}) {
  Graph graph("small");
  const Tensor x = input(graph, "x", {8, 4}, Role::kData);
  const Tensor w = input(graph, "w", {4, 6});
  graph.set_scope("layer \"one\"");
  const Tensor y = gelu(matmul(x, w));
  const Tensor flat = reshape(y, {48});
  graph.add_output("loss", mean(square(flat)).id());
  const Tensor dw = linear_weight_grad(x, y);
  graph.add_output("w", sub(w, scale(dw, 0.1)).id(), w.id());
  return plan_execution(run_passes(partition(graph, data_parallel(graph, ranks))), options);
}

TEST(Plan, gradients_are_counted_by_what_they_are_and_not_by_the_names_of_scopes) {
  Graph graph("named");
  const Tensor x = input(graph, "x", {8, 4}, Role::kData);
  const Tensor w = input(graph, "w", {4, 6});
  graph.set_scope("grad/mine");
  const Tensor y = matmul(x, w);
  graph.set_phase(Phase::kBackward);
  graph.set_scope("mine");
  const Tensor g = matmul(y, w, false, true);
  graph.add_output("g", g.id());
  const ExecutionPlan plan = plan_execution(partition(graph, data_parallel(graph, 1)), {});
  const auto holds = [&](const Tensor& value) {
    return plan.buffers[static_cast<size_t>(plan.values[static_cast<size_t>(value.id())].buffer)].holding;
  };
  EXPECT_EQ(to_string(holds(y)), to_string(Holding::kActivation));
  EXPECT_EQ(to_string(holds(g)), to_string(Holding::kGradient));
}

int action_of(const ExecutionPlan& plan, std::string_view op) {
  for (size_t i = 0; i < plan.actions.size(); ++i) {
    if (plan.actions[i].op->name == op) return static_cast<int>(i);
  }
  ADD_FAILURE() << "no " << op;
  return 0;
}

std::string error_of(const std::string& text) {
  try {
    parse_plan(text);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInvalidArgument) << e.what();
    return e.what();
  }
  return "";
}

std::string edited(const std::string& from, const std::string& to) {
  std::string text = to_string(small_plan());
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " is not in\n" << text;
  return at == std::string::npos ? "" : text.replace(at, from.size(), to);
}

TEST(ExecutionPlan, what_is_planned_is_sound) {
  EXPECT_THAT(verify(small_plan(1)), IsEmpty());
  EXPECT_THAT(verify(small_plan(2)), IsEmpty());
}

TEST(ExecutionPlan, a_view_lies_where_its_operand_lies) {
  const ExecutionPlan plan = small_plan();
  const Action& view = plan.actions[static_cast<size_t>(action_of(plan, "reshape"))];
  EXPECT_EQ(plan.offset_of(view.in[0]), plan.offset_of(view.out[0]));
  EXPECT_EQ(view.in.size(), 1U);
}

TEST(ExecutionPlan, an_update_lies_where_the_parameter_lies) {
  const ExecutionPlan plan = small_plan();
  const PlanOutput& output = plan.output("w");
  EXPECT_EQ(output.updates, plan.input("w").value);
  EXPECT_EQ(plan.offset_of(output.value), plan.offset_of(output.updates));
}

TEST(ExecutionPlan, a_parameter_that_is_read_later_is_not_overwritten) {
  Graph graph;
  const Tensor w = input(graph, "w", {4});
  const Tensor next = scale(w, 2);
  graph.add_output("w", next.id(), w.id());
  graph.add_output("sum", add(next, w).id());
  const ExecutionPlan plan = plan_execution(partition(graph, data_parallel(graph, 1)));
  EXPECT_NE(plan.offset_of(plan.output("w").value), plan.offset_of(plan.input("w").value));
}

TEST(ExecutionPlan, persistent_buffers_come_first_and_never_move) {
  const ExecutionPlan plan = small_plan();
  EXPECT_EQ(plan.arena().persistent, align_buffer(4 * 6 * 4));
  for (const Buffer& buffer : plan.buffers) {
    const bool kept = buffer.holding == Holding::kParameter || buffer.holding == Holding::kState;
    EXPECT_EQ(buffer.offset < plan.arena().persistent, kept);
    if (kept) EXPECT_EQ(buffer.last, static_cast<int>(plan.actions.size()));
  }
}

TEST(ExecutionPlan, parameters_held_elsewhere_take_no_bytes) {
  const ExecutionPlan plan = small_plan(1, {.external_parameters = true});
  EXPECT_EQ(plan.arena().persistent, 0);
  EXPECT_EQ(plan.offset_of(plan.input("w").value), -1);
}

// What a plan lays out does not depend on what else it could have laid out.
TEST(ExecutionPlan, a_parameter_with_a_home_on_the_host_lies_in_that_arena) {
  const ExecutionPlan usual = small_plan();
  const ExecutionPlan plan = small_plan(2, {.homes = {{"w", Tier::kHost}}});
  EXPECT_THAT(verify(plan), IsEmpty());
  EXPECT_EQ(plan.arena(Tier::kHost),
            (Arena{align_buffer(4 * 6 * 4), align_buffer(4 * 6 * 4), align_buffer(4 * 6 * 4)}));
  EXPECT_EQ(plan.arena().persistent, 0);
  EXPECT_EQ(plan.arena().bytes, usual.arena().bytes - align_buffer(4 * 6 * 4));
  EXPECT_EQ(usual.arena(Tier::kHost), Arena{});
  const Buffer& w = plan.buffers[static_cast<size_t>(plan.values[static_cast<size_t>(plan.input("w").value)].buffer)];
  EXPECT_EQ(w.tier, Tier::kHost);
  EXPECT_EQ(w.offset, 0);
  EXPECT_EQ(bytes_by_holding(plan)[static_cast<size_t>(Holding::kParameter)], 0);
  EXPECT_EQ(bytes_by_holding(plan, Tier::kHost)[static_cast<size_t>(Holding::kParameter)], align_buffer(4 * 6 * 4));
  const std::string text = to_string(plan);
  EXPECT_THAT(text, HasSubstr("\narena host bytes=128 persistent=128 lower_bound=128\n"));
  EXPECT_THAT(text, HasSubstr("\nbuffer parameter host bytes=96 offset=0 "));
  EXPECT_EQ(to_string(parse_plan(text)), text);
}

TEST(ExecutionPlan, only_what_stays_from_step_to_step_has_a_home) {
  try {
    small_plan(2, {.homes = {{"x", Tier::kHost}}});
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(),
                HasSubstr("plan 'small': a home is given for 'x', which is data; parameters and state have homes"));
  }
}

TEST(VerifyPlan, buffers_of_two_arenas_do_not_share_bytes_whatever_their_offsets) {
  ExecutionPlan plan = small_plan(2, {.homes = {{"w", Tier::kHost}}});
  EXPECT_THAT(verify(plan), IsEmpty());
  plan.buffers[static_cast<size_t>(plan.values[static_cast<size_t>(plan.input("w").value)].buffer)].offset = 64;
  EXPECT_THAT(verify(plan), Contains(HasSubstr("past the arena of 128 bytes")));
}

TEST(ExecutionPlan, bytes_by_holding_add_up_to_the_lower_bound) {
  const ExecutionPlan plan = small_plan();
  int64_t sum = 0;
  for (const int64_t bytes : bytes_by_holding(plan)) sum += bytes;
  EXPECT_EQ(sum, plan.arena().lower_bound);
  EXPECT_GE(plan.arena().bytes, plan.arena().lower_bound);
}

TEST(ExecutionPlan, operands_of_one_collective_lie_side_by_side) {
  Graph graph;
  const Tensor x = input(graph, "x", {8, 4}, Role::kData);
  const Tensor y = input(graph, "y", {8, 5}, Role::kData);
  graph.add_output("a", linear_weight_grad(x, y).id());
  graph.add_output("b", linear_weight_grad(y, x).id());
  const ExecutionPlan plan = plan_execution(run_passes(partition(graph, data_parallel(graph, 2))));
  const Action& sum = plan.actions[static_cast<size_t>(action_of(plan, "all_reduce"))];
  ASSERT_EQ(sum.in.size(), 2U);
  EXPECT_EQ(plan.offset_of(sum.in[0]) + align_buffer(80), plan.offset_of(sum.in[1]));
}

TEST(ExecutionPlan, a_sum_does_not_overwrite_what_a_collective_of_other_ranks_still_reads) {
  // p is partial over a and cut by b: one reader wants it summed, another wants the term whole.
  Program program{Graph("race"), Mesh({{"a", 2}, {"b", 2}}), {}, {}};
  const auto note = [&](const Tensor& value, const char* layout, Shape whole) {
    program.layouts.push_back(parse_layout(layout, program.mesh));
    program.whole.push_back(whole);
    return value;
  };
  Graph& graph = program.graph;
  const Tensor x = note({graph, graph.add_input("x", {DType::kF32, {4}}, Role::kData)}, "[b]", {8});
  const Tensor p = note(exp(x), "[b]", {8});
  const Tensor whole = note(all_gather(p, {.axes = {1}, .dim = 0, .size = 2}), "[-]", {8});
  const Tensor sum = note(all_reduce(std::vector<Tensor>{p}, {.axes = {0}, .size = 2})[0], "[b]", {8});
  graph.add_output("whole", note(exp(whole), "[-]", {8}).id());
  graph.add_output("sum", note(exp(sum), "[b]", {8}).id());
  const ExecutionPlan plan = plan_execution(program);
  EXPECT_NE(plan.offset_of(p.id()), plan.offset_of(sum.id())) << to_string(plan);
}

TEST(VerifyPlan, live_buffers_that_share_bytes_are_found) {
  ExecutionPlan plan = small_plan();
  const int a = plan.values[static_cast<size_t>(plan.input("x").value)].buffer;
  const int b = plan.values[static_cast<size_t>(plan.input("w").value)].buffer;
  Buffer &of_a = plan.buffers[static_cast<size_t>(a)], &of_b = plan.buffers[static_cast<size_t>(b)];
  of_a.offset = of_b.offset;
  for (const Tier tier : kEveryTier) {
    of_a.tier = of_b.tier = tier;
    EXPECT_THAT(verify(plan), Contains(HasSubstr("share bytes at 0 while both are live"))) << to_string(tier);
  }
}

TEST(VerifyPlan, a_value_of_no_buffer_is_found) {
  ExecutionPlan plan = small_plan();
  const size_t buffers = plan.buffers.size();
  plan.values[0].buffer = static_cast<int>(buffers);
  EXPECT_THAT(verify(plan), Contains(fmt::format("value 0 lies in buffer {}; the plan has {}", buffers, buffers)));
  plan.values[0].buffer = -1;
  EXPECT_THAT(verify(plan), Contains(fmt::format("value 0 lies in buffer -1; the plan has {}", buffers)));
}

TEST(VerifyPlan, a_buffer_past_the_arena_is_found) {
  ExecutionPlan plan = small_plan();
  plan.buffers[0].offset = plan.arena().bytes;
  EXPECT_THAT(verify(plan), Contains(HasSubstr(fmt::format("past the arena of {} bytes", plan.arena().bytes))));
}

TEST(VerifyPlan, a_result_read_before_it_has_arrived_is_found) {
  ExecutionPlan plan = small_plan();
  for (Action& action : plan.actions) action.waits.clear();
  EXPECT_THAT(
      verify(plan),
      Contains(HasSubstr(fmt::format("reads bytes that action {} (all_reduce) writes in the background; it must wait",
                                     action_of(plan, "all_reduce")))));
}

TEST(VerifyPlan, a_wait_for_what_is_no_earlier_communication_is_found) {
  ExecutionPlan plan = small_plan();
  plan.actions[1].waits = {0};
  plan.actions[0].waits = {1};
  EXPECT_THAT(verify(plan), Contains("action 1 waits for 0, which is not an earlier action in the background"));
  EXPECT_THAT(verify(plan), Contains("action 0 waits for 1, which is not an earlier action in the background"));
}

TEST(VerifyPlan, a_value_larger_than_its_buffer_is_found) {
  ExecutionPlan plan = small_plan();
  plan.buffers[static_cast<size_t>(plan.values[0].buffer)].bytes = 8;
  EXPECT_THAT(verify(plan), Contains("value 0 of 64 bytes at 0 does not lie inside its buffer of 8"));
}

TEST(PlanText, reads_back_identical) {
  const std::string text = to_string(small_plan());
  EXPECT_EQ(to_string(parse_plan(text)), text);
  EXPECT_EQ(hash(parse_plan(text)), hash(small_plan()));
}

TEST(PlanText, has_the_hash_of_a_plan_of_any_length) {
  ExecutionPlan plan = small_plan();
  EXPECT_EQ(hash(plan), hash64(std::string_view(to_string(plan))));
  plan.buffers.resize(5000, plan.buffers[0]);
  EXPECT_EQ(hash(plan), hash64(std::string_view(to_string(plan))));
}

TEST(PlanText, any_other_number_in_it_is_another_hash) {
  const std::string text = to_string(small_plan());
  const uint64_t whole = hash(small_plan());
  int changes = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (std::isdigit(static_cast<unsigned char>(text[i])) == 0) continue;
    std::string other = text;
    other[i] = text[i] == '9' ? '1' : static_cast<char>(text[i] + 1);
    try {
      const ExecutionPlan plan = parse_plan(other);
      if (to_string(plan) == text) continue;  // "+0" and the like
      EXPECT_NE(hash(plan), whole) << i;
      ++changes;
    } catch (const Error&) {  // what cannot be a plan has no hash
    }
  }
  EXPECT_GT(changes, 50);
}

TEST(PlanText, mistakes_are_refused_with_their_line) {
  EXPECT_THAT(error_of(""),
              HasSubstr("plan text, line 1: the text is empty; a plan begins with one line 'plan 2 ...'"));
  EXPECT_THAT(error_of("buffer data bytes=1 offset=0 live=[0,1]\n"), HasSubstr("line 1: a plan begins with one line"));
  EXPECT_THAT(error_of(to_string(small_plan()) + to_string(small_plan())), HasSubstr("a plan begins with one line"));
  EXPECT_THAT(error_of(edited("plan 2", "plan 1")), HasSubstr("line 1: this version reads plans of version 2"));
  EXPECT_THAT(error_of(edited("dp=2", "dp=x")), HasSubstr("plan text, line 1: "));
  EXPECT_THAT(error_of(edited("threads=1", "threads=0")), HasSubstr("threads=0 is not in [1,4096)"));
  EXPECT_THAT(error_of(edited("threads=1", "thraeds=1")), HasSubstr("expected threads=..., found 'thraeds=1'"));
  EXPECT_THAT(error_of(edited("buffer data", "buffer date")), HasSubstr("line 3: unknown word 'date'"));
  EXPECT_THAT(error_of(edited("arena device bytes=", "arena device bytes=-")),
              HasSubstr("line 2: an arena that cannot be"));
  EXPECT_THAT(error_of(edited("\nbuffer", "\narena device bytes=1 persistent=0 lower_bound=1\nbuffer")),
              HasSubstr("line 3: this arena stands above already"));
  EXPECT_THAT(error_of(edited("data device", "data devise")), HasSubstr("line 3: unknown word 'devise'"));
  EXPECT_THAT(error_of(edited("data device bytes=", "data device bytes=-")),
              HasSubstr("line 3: a buffer that cannot be"));
  EXPECT_THAT(error_of(edited("live=[-1,", "live=[-1,2,")), HasSubstr("line 3: a buffer that cannot be"));
  EXPECT_THAT(error_of(edited("\nvalue ", "\nvlaue ")), HasSubstr("unknown record 'vlaue'"));
  EXPECT_THAT(error_of(edited("value f32", "value f33")), HasSubstr("plan text, line "));
  EXPECT_THAT(error_of(edited("layout=\"[dp, -]\"", "layout=\"[dq, -]\"")), HasSubstr("no mesh axis named 'dq'"));
  EXPECT_THAT(error_of(edited("buffer=0", "buffer=99")), HasSubstr("buffer=99 is not in [0,"));
  EXPECT_THAT(error_of(edited("init=\"normal(0,0.02)\"", "init=\"normal(0)\"")),
              HasSubstr("cannot read initialiser 'normal(0)'"));
  EXPECT_THAT(error_of(edited("init=\"normal(0,0.02)\"", "init=\"normal\"")), HasSubstr("expected an initialiser"));
  EXPECT_THAT(error_of(edited("action compute matmul", "action compute matmull")),
              HasSubstr("no op named 'matmull'. Did you mean 'matmul'?"));
  EXPECT_THAT(error_of(edited("in=[0,1]", "in=[0,77]")), HasSubstr("in: no index 77"));
  EXPECT_THAT(error_of(edited("in=[0,1]", "in=[0,]")), HasSubstr("cannot read '[0,]'"));
  EXPECT_THAT(error_of(edited("transpose_b", "transpose_c")), HasSubstr("no attribute 'transpose_c'"));
  EXPECT_THAT(error_of(edited("updates=-1", "updates=-1 x")), HasSubstr("unexpected text at 'x'"));
  EXPECT_THAT(error_of(edited(" updates=-1", "")), HasSubstr("the line ends too early"));
}

TEST(PlanText, a_cut_off_text_never_reads_as_something_else) {
  const std::string text = to_string(small_plan());
  for (size_t length = 0; length + 1 < text.size(); length += 7) {
    try {
      EXPECT_NE(to_string(parse_plan(std::string_view(text).substr(0, length))), text);
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("plan text, line "));
    }
  }
}

TEST(ExecutionPlan, a_name_it_does_not_have_is_refused_with_the_likely_one) {
  const ExecutionPlan plan = small_plan();
  try {
    plan.output("los");
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("plan 'small' has no output 'los'. Did you mean 'loss'?"));
  }
}

}  // namespace
}  // namespace trireme::execution_plan_test
