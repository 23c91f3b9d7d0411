#include "trireme/backend/cpu/device/cpu_peak.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/thread_pool.h"

namespace trireme::cpu_peak_test {
namespace {

TEST(Peak, EveryFigureIsMeasured) {
  ThreadPool pool(2);

  const Peak peak = measure_peak(pool, {.bytes = 1 << 20});

  EXPECT_EQ(peak.threads, 2);
  EXPECT_FALSE(peak.isa.empty());
  EXPECT_GT(peak.f32_flops_per_s, 0);
  EXPECT_GT(peak.bf16_flops_per_s, 0);
  EXPECT_GT(peak.memcpy_bytes_per_s, 0);
  EXPECT_GT(peak.triad_bytes_per_s, 0);
}

TEST(Peak, ArraysTooSmallAreRefused) {
  ThreadPool pool(2);
  try {
    measure_peak(pool, {.bytes = 4});
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.text(), "peak: arrays of 4 bytes for 2 threads; each thread needs an element");
  }
}

}  // namespace
}  // namespace trireme::cpu_peak_test
