// What the instructions of AVX512-BF16 do to vectors of 16 lanes, in portable code of equal bits. Tests compile the
// loops of that instruction set over it (TRIREME_ISA_EMULATED), so that they run on any machine. Each instruction is a
// function call here: inlining its sixteen lanes wherever a loop uses it would take the compiler a minute.
#pragma once

#include "trireme/backend/cpu/isa/vector_impl.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

#if defined(__x86_64__)
// By the instruction that most machines have: without it, each lane is a call of the C library. Not in vectors longer
// than those that the code around has just stored, which would wait for memory.
[[gnu::target("avx2,fma")]] static inline void fma_at_once(const float* a, const float* b, float* c) {
  for (int i = 0; i < kLanes; i += 4) {
    const __m128 sum = _mm_fmadd_ps(_mm_loadu_ps(a + i), _mm_loadu_ps(b + i), _mm_loadu_ps(c + i));
    _mm_storeu_ps(c + i, sum);
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

// The next whole number below.
[[gnu::noinline]] static F32 floor(F32 x) {
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_floorf(x[i]);
  return x;
}
// vreduceps, rounding down also what is left; nothing is left of infinity.
[[gnu::noinline]] static F32 above_whole(F32 x) {
  const F32 less = -floor(x), rest = x + less, added = rest - x;
  const F32 lost = (x - (rest - added)) + (less - added);
  const F32 rounded = lost < 0.0F ? as_f(as_i(rest) - 1) : rest;
  return x == x && rest != rest ? F32{} : rounded;
}
// vscalefps of x from 1 to 2.
[[gnu::noinline]] static F32 scale_by_whole(F32 x, F32 e) {
  const F32 most = set(300.0F), whole = floor(e == e ? e : F32{});
  const I32 power = __builtin_convertvector(whole < -most  ? -most
                                            : whole > most ? most
                                                           : whole,
                                            I32),
            half = power >> 1;
  const auto scale = [](I32 n) {  // in two factors, as n may be beyond the exponents that there are
    n = n < -126 ? set_i(-126) : n > 127 ? set_i(127) : n;
    return as_f((n + 127) << 23);
  };
  return x * scale(half) * scale(power - half);
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
