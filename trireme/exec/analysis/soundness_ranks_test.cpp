// The check of all ranks' communication where there are many: 16 crews of 64 ranks, in one forward and one backward by
// turns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/exec/analysis/hand_plan_for_tests.h"
#include "trireme/exec/analysis/soundness.h"

namespace trireme::soundness_ranks_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kCrews = 16, kMicroBatches = 32, kRanksOfCrew = 64;

// What one crew does: activations go to the next crew, gradients to the one before.
class CrewPlan {
 public:
  explicit CrewPlan(int crew) : crew_(crew), plan_("dp=8,tp=8", crew, kCrews) {}

  // `asks_first`: the crew asks for its first gradient, and waits for it, before it sends its first activation.
  ExecutionPlan plan(bool asks_first) {
    const int ahead = std::min(kCrews - crew_ - 1, kMicroBatches);
    for (int m = 0; m < kMicroBatches + ahead; ++m) {
      if (m < kMicroBatches) forward(m, asks_first && m == 0);
      if (m >= ahead) backward(m - ahead);
    }
    return plan_.finish();
  }

 private:
  static int tag_of(bool forward, int micro_batch) { return (forward ? 0 : kMicroBatches) + micro_batch; }

  void forward(int m, bool asks_first) {
    const std::string scope = fmt::format("F{}.{}", crew_, m);
    const int in = crew_ > 0 ? plan_.recv(crew_ - 1, tag_of(true, m), scope) : plan_.compute({}, scope);
    const int out = plan_.all_reduce(plan_.compute({in}, scope), {1}, scope);
    if (asks_first) first_gradient_ = plan_.compute({plan_.recv(crew_ + 1, tag_of(false, m), scope)}, scope);
    if (crew_ + 1 < kCrews) plan_.send(out, crew_ + 1, tag_of(true, m), scope);
  }
  void backward(int m) {
    const std::string scope = fmt::format("B{}.{}", crew_, m);
    int in = m == 0 ? first_gradient_ : -1;
    if (in < 0) in = crew_ + 1 < kCrews ? plan_.recv(crew_ + 1, tag_of(false, m), scope) : plan_.compute({}, scope);
    const int out = plan_.all_reduce(plan_.compute({in}, scope), {1}, scope);
    if (crew_ > 0) plan_.send(out, crew_ - 1, tag_of(false, m), scope);
  }

  int crew_;
  int first_gradient_ = -1;
  HandPlan plan_;
};

std::vector<ExecutionPlan> plans_of_crews(int crew_that_asks_first = -1) {
  std::vector<ExecutionPlan> out;
  for (int crew = 0; crew < kCrews; ++crew) out.push_back(CrewPlan(crew).plan(crew == crew_that_asks_first));
  return out;
}

TEST(ManyRanks, all_sends_of_1024_ranks_meet_their_receipts_and_end) {
  const std::vector<ExecutionPlan> plans = plans_of_crews();
  EXPECT_THAT(check_crews(plans), IsEmpty());
  const Calls calls = calls_of_ranks(plans);
  ASSERT_EQ(calls.size(), 1024U);
  EXPECT_THAT(check_communication(calls), IsEmpty()) << "what holds of crews holds of their ranks";
  const int messages = 2 * (kCrews - 1) * kMicroBatches * kRanksOfCrew;
  const auto groups = kRanksOfCrew / static_cast<int>(plans[0].mesh.size_of(std::vector<int>{1}));
  const int sums = 2 * kCrews * kMicroBatches * groups;
  EXPECT_EQ(EventGraph(calls).operations(), messages + sums) << "each message is one operation of two ranks";
}

TEST(ManyRanks, a_message_that_another_crew_does_not_expect_is_named) {
  std::vector<ExecutionPlan> plans = plans_of_crews();
  for (Action& action : plans[9].actions) {
    if (action.op->name != "send" || action.scope != "F9.20") continue;
    SendAttrs attrs = action.attrs.as<SendAttrs>();
    attrs.tag = 5000;
    action.attrs = Attrs::of(attrs);
  }
  EXPECT_THAT(check_crews(plans),
              testing::Contains(AllOf(HasSubstr("crew 9 (ranks 576 to 639)"), HasSubstr("with tag 5000"),
                                      HasSubstr("'F9.20'"), HasSubstr("has no partner"))));
}

TEST(ManyRanks, one_crew_that_asks_before_it_sends_is_a_circle) {
  const std::vector<ExecutionPlan> plans = plans_of_crews(7);
  EXPECT_THAT(check_crews(plans),
              ElementsAre(AllOf(HasSubstr("wait for each other in a circle"), HasSubstr("crew 7 (ranks 448 to 511)"))));
  EXPECT_THAT(check_communication(calls_of_ranks(plans)), ElementsAre(HasSubstr("in a circle")));
}

}  // namespace
}  // namespace trireme::soundness_ranks_test
