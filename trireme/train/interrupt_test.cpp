#include "trireme/train/interrupt.h"

#include <gtest/gtest.h>

#include <csignal>

namespace trireme {
namespace {

TEST(InterruptGuard, notes_the_first_signal) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const InterruptGuard guard;
    EXPECT_FALSE(guard.asked());
    ::raise(signal);
    EXPECT_TRUE(guard.asked());
  }
}

TEST(InterruptGuard, writes_on_no_stack_of_a_kernel) {
  const InterruptGuard guard;
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction now {};
    ::sigaction(signal, nullptr, &now);
    EXPECT_NE(now.sa_flags & SA_ONSTACK, 0) << signal;
  }
}

TEST(InterruptGuardDeathTest, the_second_signal_ends_the_program) {
  EXPECT_EXIT(
      {
        const InterruptGuard guard;
        ::raise(SIGINT);
        ::raise(SIGINT);
      },
      testing::KilledBySignal(SIGINT), "");
}

TEST(InterruptGuard, gives_the_signals_back) {
  struct sigaction before {};
  ::sigaction(SIGINT, nullptr, &before);
  { const InterruptGuard guard; }
  struct sigaction after {};
  ::sigaction(SIGINT, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

}  // namespace
}  // namespace trireme
