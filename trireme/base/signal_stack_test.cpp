#include "trireme/base/signal_stack.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdint>
#include <thread>

namespace trireme::signal_stack_test {
namespace {

thread_local uintptr_t handler_ran_at = 0;

void note_place(int) {
  const char here = 0;
  handler_ran_at = reinterpret_cast<uintptr_t>(&here);
}

// Raises a signal whose handler asks for the other stack: whether it ran on it.
bool runs_on_signal_stack() {
  stack_t stack{};
  sigaltstack(nullptr, &stack);
  handler_ran_at = 0;
  std::raise(SIGUSR1);
  const auto first = reinterpret_cast<uintptr_t>(stack.ss_sp);
  return (stack.ss_flags & SS_DISABLE) == 0 && handler_ran_at >= first && handler_ran_at < first + stack.ss_size;
}

class SignalStackTest : public testing::Test {
 protected:
  SignalStackTest() {
    struct sigaction action {};
    action.sa_handler = note_place;
    action.sa_flags = SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGUSR1, &action, &before_);
  }
  ~SignalStackTest() override { sigaction(SIGUSR1, &before_, nullptr); }

 private:
  struct sigaction before_ {};
};

TEST_F(SignalStackTest, a_thread_has_one_when_it_asks) {
  std::thread([] {
    have_signal_stack();
    EXPECT_TRUE(runs_on_signal_stack());
    stack_t first{}, second{};
    sigaltstack(nullptr, &first);
    have_signal_stack();
    sigaltstack(nullptr, &second);
    EXPECT_EQ(first.ss_sp, second.ss_sp);
  }).join();
}

TEST_F(SignalStackTest, handlers_of_others_are_moved_to_it) {
  struct sigaction action {};
  action.sa_handler = note_place;  // as a library does that knows of no other stack
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGUSR1, &action, nullptr);
  std::thread([] {
    have_signal_stack();
    EXPECT_TRUE(runs_on_signal_stack());
    struct sigaction now {};
    sigaction(SIGUSR1, nullptr, &now);
    EXPECT_NE(now.sa_flags & SA_RESTART, 0);
    sigaction(SIGUSR2, nullptr, &now);
    EXPECT_EQ(now.sa_handler, SIG_DFL);
  }).join();
}

TEST_F(SignalStackTest, one_that_a_thread_has_stays) {
  std::thread([] {
    alignas(16) static char own[128 << 10];
    stack_t before{};
    const stack_t stack{.ss_sp = own, .ss_flags = 0, .ss_size = sizeof own};
    sigaltstack(&stack, &before);
    have_signal_stack();
    stack_t now{};
    sigaltstack(nullptr, &now);
    EXPECT_EQ(now.ss_sp, own);
    sigaltstack(&before, nullptr);
  }).join();
}

}  // namespace
}  // namespace trireme::signal_stack_test
