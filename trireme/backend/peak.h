// The machine's own limits on one core, measured: what kernels and steps are compared with.
#pragma once

namespace trireme {

struct Peak {
  double fma_gflops_per_s = 0;  // f32 fused multiply-adds on registers, two operations each
  double memcpy_gb_per_s = 0;   // bytes copied, of buffers far larger than the caches
  double triad_gb_per_s = 0;    // STREAM's a = b + s c: bytes read and written
};

// Takes about a second; the best of several runs of each.
Peak measure_peak();

}  // namespace trireme
