// The highest rates that a device reaches, measured on request (Device::measure_peak): the bounds against which speeds
// are quoted.
#pragma once

#include <cstdint>
#include <string>

namespace trireme {

struct Peak {
  int threads = 1;
  std::string isa;                // the instruction set the figures hold for
  double f32_flops_per_s = 0;     // independent fused multiply-adds in registers; an addition and a multiplication each
  double bf16_flops_per_s = 0;    // the same of bf16, added up in f32; where no instruction does it, those of f32
  double memcpy_bytes_per_s = 0;  // bytes copied, each read once and written once
  double triad_bytes_per_s = 0;   // STREAM's a = b + s c: three times the bytes of one array
};

struct PeakOptions {
  int64_t bytes = int64_t{256} << 20;  // of each array, to be chosen well above the caches
  int64_t turns = 4'000'000;           // of the multiply-add loop: some tens of milliseconds
  int repetitions = 5;                 // of which the best counts
};

}  // namespace trireme
