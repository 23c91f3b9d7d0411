#include "trireme/launch/supervise/outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace trireme::launch::outcome_test {
namespace {

using testing::HasSubstr;

Worker ended(int rank) {
  Worker out;
  out.rank = rank;
  out.pid = 1000 + rank;
  out.page = std::make_shared<SharedPage>();
  out.running = false;
  return out;
}

// Rank 0 has lost rank 1, and the launcher, which does not know why yet, asked rank 1 to end.
std::vector<Worker> lost_rank(bool killed_by_launcher) {
  std::vector<Worker> out{ended(0), ended(1)};
  out[0].exit_code = 3;
  out[0].said = encode({ErrorKind::kComm, "[rank 0 of 2] all_reduce: rank 1 (pid 1001) is gone"});
  out[1].asked = true;
  out[1].signal = SIGKILL;
  out[1].killed = killed_by_launcher;
  return out;
}

TEST(Outcome, OfARankThatWasKilledWhileItWasAskedToEndNamesTheSignal) {
  const LaunchResult result = outcome_of(lost_rank(false), 0, 0);
  EXPECT_EQ(result.failed_rank, 1);
  EXPECT_THAT(result.cause, HasSubstr("rank 1 (pid 1001) was killed by signal 9 (SIGKILL)"));
  EXPECT_FALSE(result.may_be_consequence);
}

TEST(Outcome, OfARankThatTheLauncherKilledNamesAnother) {
  const LaunchResult result = outcome_of(lost_rank(true), 0, 0);
  EXPECT_EQ(result.failed_rank, 0);
  EXPECT_THAT(result.cause, HasSubstr("rank 1 (pid 1001) is gone"));
  EXPECT_THAT(result.report, HasSubstr("the launcher ended rank 1"));
}

}  // namespace
}  // namespace trireme::launch::outcome_test
