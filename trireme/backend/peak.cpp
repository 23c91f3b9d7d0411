#include "trireme/backend/peak.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "trireme/backend/cpu/isa.h"
#include "trireme/base/clock.h"

namespace trireme {
namespace {

constexpr int kRuns = 5;
constexpr int64_t kRounds = 4'000'000;
constexpr int kChains = 16;  // independent accumulators: more than latency times units of any core

// Each returns a value that depends on every operation, so that none can be left out.
__attribute__((target("avx512f"))) float fma_avx512() {
  __m512 sum[kChains];
  for (int i = 0; i < kChains; ++i) sum[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512 a = _mm512_set1_ps(0.999F);
  const __m512 b = _mm512_set1_ps(1e-3F);
  for (int64_t round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kChains; ++i) sum[i] = _mm512_fmadd_ps(sum[i], a, b);
  }
  float out = 0;
  for (int i = 0; i < kChains; ++i) {
    float lanes[16];
    _mm512_storeu_ps(lanes, sum[i]);
    for (const float lane : lanes) out += lane;
  }
  return out;
}

__attribute__((target("avx2,fma"))) float fma_avx2() {
  constexpr int kAvx2Chains = 12;  // with the two constants, all sixteen registers but two
  __m256 sum[kAvx2Chains];
  for (int i = 0; i < kAvx2Chains; ++i) sum[i] = _mm256_set1_ps(static_cast<float>(i));
  const __m256 a = _mm256_set1_ps(0.999F);
  const __m256 b = _mm256_set1_ps(1e-3F);
  for (int64_t round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kAvx2Chains; ++i) sum[i] = _mm256_fmadd_ps(sum[i], a, b);
  }
  float out = 0;
  for (int i = 0; i < kAvx2Chains; ++i) {
    float lanes[8];
    _mm256_storeu_ps(lanes, sum[i]);
    for (const float lane : lanes) out += lane;
  }
  return out;
}

// Without fused multiply-adds: a multiplication and an addition.
float multiply_add() {
  __m128 sum[8];
  for (int i = 0; i < 8; ++i) sum[i] = _mm_set1_ps(static_cast<float>(i));
  const __m128 a = _mm_set1_ps(0.999F);
  const __m128 b = _mm_set1_ps(1e-3F);
  for (int64_t round = 0; round < kRounds; ++round) {
    for (int i = 0; i < 8; ++i) sum[i] = _mm_add_ps(_mm_mul_ps(sum[i], a), b);
  }
  float out = 0;
  for (int i = 0; i < 8; ++i) {
    float lanes[4];
    _mm_storeu_ps(lanes, sum[i]);
    for (const float lane : lanes) out += lane;
  }
  return out;
}

template <class Fn>
double best_seconds(Fn&& fn) {
  double best = 1e30;
  for (int run = 0; run < kRuns; ++run) {
    const double start = now_s();
    fn();
    best = std::min(best, now_s() - start);
  }
  return best;
}

double measure_fma() {
  volatile float keep = 0;
  double flops = 0;
  double seconds = 0;
  if (machine_isa() >= Isa::kAvx512) {
    flops = 2.0 * 16 * kChains * kRounds;
    seconds = best_seconds([&] { keep = keep + fma_avx512(); });
  } else if (machine_isa() >= Isa::kAvx2) {
    flops = 2.0 * 8 * 12 * kRounds;
    seconds = best_seconds([&] { keep = keep + fma_avx2(); });
  } else {
    flops = 2.0 * 4 * 8 * kRounds;
    seconds = best_seconds([&] { keep = keep + multiply_add(); });
  }
  return flops / seconds / 1e9;
}

}  // namespace

Peak measure_peak() {
  constexpr size_t kFloats = size_t{16} << 20;  // 64 MiB a buffer
  std::vector<float> a(kFloats, 1.0F);
  std::vector<float> b(kFloats, 2.0F);
  std::vector<float> c(kFloats, 3.0F);
  Peak peak;
  peak.fma_gflops_per_s = measure_fma();
  const double bytes = static_cast<double>(kFloats) * sizeof(float);
  peak.memcpy_gb_per_s = bytes / best_seconds([&] { std::memcpy(a.data(), b.data(), kFloats * sizeof(float)); }) / 1e9;
  peak.triad_gb_per_s = 3 * bytes / best_seconds([&] {
                          for (size_t i = 0; i < kFloats; ++i) a[i] = b[i] + 0.5F * c[i];
                        }) / 1e9;
  return peak;
}

}  // namespace trireme
