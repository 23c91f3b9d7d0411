// What the instructions of AVX512-BF16 do to vectors of 16 lanes, in portable code of equal bits. Tests compile the
// loops of that instruction set over it (TRIREME_ISA_EMULATED), so that they run on any machine. Each instruction is a
// function call here: inlining its sixteen lanes wherever a loop uses it would take the compiler a minute.
#pragma once

#include "trireme/backend/cpu/isa/vector_impl.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

#if defined(__x86_64__)
// By the instruction that most machines have: without it, each lane is a call of the C library.
[[gnu::target("avx2,fma")]] static inline void fma_at_once(const float* a, const float* b, float* c) {
  for (int i = 0; i < kLanes; i += 8) {
    const __m256 sum = _mm256_fmadd_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i), _mm256_loadu_ps(c + i));
    _mm256_storeu_ps(c + i, sum);
  }
}
static const bool kHasFma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif

[[gnu::noinline]] static F32 fma(F32 a, F32 b, F32 c) {
#if defined(__x86_64__)
  if (kHasFma) {
    fma_at_once(reinterpret_cast<const float*>(&a), reinterpret_cast<const float*>(&b), reinterpret_cast<float*>(&c));
    return c;
  }
#endif
  for (int i = 0; i < kLanes; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
}

// Lanes whose exponent is zero: denormals and zeros.
[[gnu::always_inline]] static inline I32 is_below_normal(F32 x) {
  return (as_i(x) & 0x7f800000) == 0;
}
// Denormals become zeros of their sign.
[[gnu::always_inline]] static inline F32 flushed(F32 x) {
  return as_f(is_below_normal(x) ? as_i(x) & static_cast<int32_t>(0x80000000) : as_i(x));
}

// vfpclassps for denormals.
[[gnu::noinline]] static bool has_denormal(F32 x) {
  const I32 denormal = is_below_normal(x) & ((as_i(x) & 0x7fffff) != 0);
  for (int i = 0; i < kLanes; ++i) {
    if (denormal[i] != 0) return true;
  }
  return false;
}

// vcvtneps2bf16.
[[gnu::noinline]] static U16 convert_to_bf16(F32 x) {
  return rounded_to_bf16(flushed(x));
}

// vdpbf16ps: of each pair the second products first; nothing below the normal numbers is read or made.
[[gnu::noinline]] static F32 add_pair_products(F32 sum, U32 left, U32 right) {
  const auto second = [](U32 pairs) { return flushed(reinterpret_cast<F32>(pairs & 0xffff0000U)); };
  const auto first = [](U32 pairs) { return flushed(reinterpret_cast<F32>(pairs << 16)); };
  sum = flushed(fma(second(left), second(right), flushed(sum)));
  return flushed(fma(first(left), first(right), sum));
}

// vpgatherdd: 32 bits of each of the first `rows` rows.
[[gnu::noinline]] static U32 gather_pairs(const uint16_t* from, int64_t stride, int64_t rows) {
  U32 out{};
  for (int64_t i = 0; i < rows; ++i) {
    uint32_t pair;
    __builtin_memcpy(&pair, from + i * stride, sizeof pair);
    out[i] = pair;
  }
  return out;
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
