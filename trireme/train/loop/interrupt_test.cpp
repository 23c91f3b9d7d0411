#include "trireme/train/loop/interrupt.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "trireme/base/signal_stack.h"
#include "trireme/comm/transports/hangup.h"

namespace trireme::interrupt_test {
namespace {

constexpr int kAll[] = {SIGINT, SIGTERM, SIGHUP};

struct sigaction action_of(int signal) {
  struct sigaction now {};
  ::sigaction(signal, nullptr, &now);
  return now;
}

class InterruptGuardTest : public testing::Test {
 protected:
  InterruptGuardTest() { comm::take_hangup_from_ucx(); }
};

TEST_F(InterruptGuardTest, notes_the_first_signal) {
  for (const int signal : kAll) {
    const InterruptGuard guard;
    EXPECT_EQ(guard.take().stop, 0);
    ::raise(signal);
    EXPECT_EQ(guard.take().stop, signal);
    EXPECT_EQ(guard.take().stop, signal);  // it stays
  }
}

TEST_F(InterruptGuardTest, the_wish_to_save_is_taken_once_and_comes_again) {
  const InterruptGuard guard;
  EXPECT_FALSE(guard.take().save);
  for (int i = 0; i < 3; ++i) {
    ::raise(SIGUSR1);
    const Wishes wishes = guard.take();
    EXPECT_TRUE(wishes.save);
    EXPECT_EQ(wishes.stop, 0);
    EXPECT_FALSE(guard.take().save);
  }
}

TEST_F(InterruptGuardTest, all_ranks_agree_on_what_one_was_asked) {
  comm::spawn_ranks(3, "threads", [](comm::World& world) {
    Wishes all = agree(&world, {});
    EXPECT_EQ(all.stop, 0);
    EXPECT_FALSE(all.save);
    all = agree(&world, {.stop = 0, .save = world.rank() == 2});
    EXPECT_EQ(all.stop, 0);
    EXPECT_TRUE(all.save);
    all = agree(&world, {.stop = world.rank() == 1 ? SIGTERM : 0, .save = world.rank() == 0});
    EXPECT_EQ(all.stop, SIGTERM);
    EXPECT_TRUE(all.save);
  });
}

TEST_F(InterruptGuardTest, writes_on_no_stack_of_a_kernel) {
  const InterruptGuard guard;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1})
    EXPECT_NE(action_of(signal).sa_flags & SA_ONSTACK, 0) << signal;
}

// This program is linked with UCX, which catches what ends a program.
TEST_F(InterruptGuardTest, no_handler_of_a_library_writes_on_a_stack_of_a_kernel) {
  const InterruptGuard guard;
  std::thread([] { have_signal_stack(); }).join();
  for (int signal = 1; signal < NSIG; ++signal) {
    const struct sigaction now = action_of(signal);
    if (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN) continue;
    EXPECT_NE(now.sa_flags & SA_ONSTACK, 0) << signal;
  }
}

TEST_F(InterruptGuardTest, what_is_ignored_stays_so) {
  for (const int signal : kAll) {
    struct sigaction ignored {};
    ignored.sa_handler = SIG_IGN;
    struct sigaction before {};
    ::sigaction(signal, &ignored, &before);
    {
      const InterruptGuard guard;
      ::raise(signal);
      EXPECT_EQ(guard.take().stop, 0);
    }
    ::sigaction(signal, &before, nullptr);
  }
}

TEST_F(InterruptGuardTest, gives_the_signals_back) {
  for (const int signal : kAll) {
    const auto before = action_of(signal).sa_handler;
    { const InterruptGuard guard; }
    EXPECT_EQ(action_of(signal).sa_handler, before);
  }
  EXPECT_EQ(action_of(SIGUSR1).sa_handler, SIG_IGN);  // one that comes late ends nothing
}

TEST(InterruptGuardDeathTest, the_second_signal_ends_the_program) {
  for (const int signal : {SIGINT, SIGTERM}) {
    EXPECT_EXIT(
        {
          const InterruptGuard guard;
          ::raise(signal);
          ::raise(signal);
        },
        testing::KilledBySignal(signal), "");
  }
}

// A cluster sends a signal to every process, and the launcher passes the one that it got on.
TEST(InterruptGuardDeathTest, one_of_the_parents_and_one_of_another_are_the_same_wish) {
  EXPECT_EXIT(
      {
        int go[2];
        ASSERT_EQ(::pipe(go), 0);
        const pid_t child = ::fork();
        if (child == 0) {
          const InterruptGuard guard;
          ::raise(SIGTERM);
          (void)!::write(go[1], "x", 1);
          while (guard.take().save == false) ::usleep(1000);  // the parent sends SIGTERM, then SIGUSR1
          ::_exit(guard.take().stop == SIGTERM ? 7 : 1);
        }
        char byte = 0;
        (void)!::read(go[0], &byte, 1);
        ::kill(child, SIGTERM);
        ::kill(child, SIGUSR1);
        int status = 0;
        ::waitpid(child, &status, 0);
        ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
      },
      testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace trireme::interrupt_test
