#include "trireme/backend/cpu/products/gemm.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

namespace trireme::cpu::gemm_test {
namespace {

constexpr int kSignals = 300;
volatile std::sig_atomic_t answered = 0;

// Writes all over the stack that it has.
void scribble(int) {
  volatile char mine[16 << 10];
  for (volatile char& c : mine) c = 0x5a;
  answered = answered + 1;
}

// In a process of its own, whose first use of oneDNN comes while a test has capped the instruction set.
TEST(OneDnn, has_the_processs_instruction_set_whatever_was_capped_when_it_was_first_used) {
  if (process_isa() < Isa::kAvx2) GTEST_SKIP() << "this process has no more than the baseline";
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto use_while_capped = [] {
    set_isa(Isa::kBaseline);
    prepare_onednn();
    set_isa(process_isa());
    std::exit(onednn_has(Isa::kAvx2) ? 0 : 1);
  };
  EXPECT_EXIT(use_while_capped(), testing::ExitedWithCode(0), "");
}

TEST(Gemm, a_signal_that_meets_a_product_writes_over_nothing) {
  struct sigaction action {
  }, before{};
  action.sa_handler = scribble;
  action.sa_flags = SA_ONSTACK | SA_RESTART;
  sigemptyset(&action.sa_mask);
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  answered = 0;

  constexpr int64_t kSize = 192;
  std::vector<float> a(kSize * kSize), b(kSize * kSize), plain(kSize * kSize), signalled(kSize * kSize);
  std::iota(a.begin(), a.end(), 1.0F);
  std::iota(b.begin(), b.end(), -7.0F);
  const auto multiply = [&](bool transpose_a, bool transpose_b, std::vector<float>& c) {
    gemm({.m = kSize,
          .n = kSize,
          .k = kSize,
          .a = a.data(),
          .b = b.data(),
          .c = c.data(),
          .lda = kSize,
          .ldb = kSize,
          .ldc = kSize,
          .transpose_a = transpose_a,
          .transpose_b = transpose_b});
  };
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      multiply(transpose_a, transpose_b, plain);
      const int until = answered + kSignals;
      const pthread_t here = pthread_self();
      std::atomic<bool> enough = false;
      std::thread sender([&] {
        while (!enough) {
          pthread_kill(here, SIGUSR1);
          std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
      });
      while (answered < until) {
        multiply(transpose_a, transpose_b, signalled);
        EXPECT_EQ(std::memcmp(plain.data(), signalled.data(), plain.size() * sizeof(float)), 0);
      }
      enough = true;
      sender.join();
    }
  }
  sigaction(SIGUSR1, &before, nullptr);
}

}  // namespace
}  // namespace trireme::cpu::gemm_test
