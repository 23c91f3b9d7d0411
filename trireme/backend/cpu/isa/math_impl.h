// Functions on vectors of floats.
#pragma once

#include "trireme/backend/cpu/isa/simd_impl.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

// x 2^e for whole e.
[[gnu::always_inline]] static inline F32 scale_by_power(F32 x, F32 e) {
#if defined(__AVX512F__)
  return _mm512_scalef_ps(x, e);
#else
  // In two factors, so that results below the normal numbers come out as well.
  const I32 whole = __builtin_convertvector(e, I32);
  const I32 half = whole >> 1;
  return x * as_f((half + 127) << 23) * as_f((whole - half + 127) << 23);
#endif
}

// e^x within 2 units of the last place; 0 below -104, infinity above 89. Cephes' polynomial.
[[gnu::always_inline]] static inline F32 exp(F32 x) {
  const F32 magic = set(0x1.8p23F);
  x = min(set(89.5F), max(set(-104.5F), x));
  const F32 e = fma(x, set(1.44269504088896341F), magic) - magic;
  F32 r = fma(e, set(-0.693359375F), x);
  r = fma(e, set(2.12194440e-4F), r);
  F32 y = set(1.9875691500e-4F);
  y = fma(y, r, set(1.3981999507e-3F));
  y = fma(y, r, set(8.3334519073e-3F));
  y = fma(y, r, set(4.1665795894e-2F));
  y = fma(y, r, set(1.6666665459e-1F));
  y = fma(y, r, set(5.0000001201e-1F));
  y = fma(y, r * r, r) + 1.0F;
  return scale_by_power(y, e);
}

inline constexpr float kLog2E = 1.44269504088896341F, kLn2 = 0.69314718055994531F;

// 2^x of x up to 127 within 2 units of the last place; 0 below -126.5. Half the work of exp: for attention, which takes
// one for each pair of tokens. The polynomial of degree 5 has the least relative error on [-1/2, 1/2] of those that are
// 1 at 0.
[[gnu::always_inline]] static inline F32 exp2_of_small(F32 x) {
  const F32 magic = set(0x1.8p23F + 127);  // its sum with a number has the exponent's bits as the last ones
  x = max(set(-127.0F), x);
  const F32 shifted = x + magic;
  const F32 r = x - (shifted - magic);
  F32 y = set(0x1.5bba16p-10F);
  y = fma(y, r, set(0x1.3cea8ap-7F));
  y = fma(y, r, set(0x1.c6b752p-5F));
  y = fma(y, r, set(0x1.ebf9bcp-3F));
  y = fma(y, r, set(0x1.62e42ap-1F));
  y = fma(y, r, set(1.0F));
  return y * as_f(as_i(shifted) << 23);
}

// The same of any x: infinity above 127.5.
[[gnu::always_inline]] static inline F32 exp2(F32 x) {
  return exp2_of_small(min(set(128.0F), x));
}

[[gnu::always_inline]] static inline F32 sigmoid(F32 x) {
  return 1.0F / (1.0F + exp(-x));
}

// sigmoid(x), where `power` is -x log2(e): for factors of x, as in gelu and silu. Where it is next to zero, its
// relative error grows as x does.
[[gnu::always_inline]] static inline F32 sigmoid_by_power(F32 power) {
  return 1.0F / (1.0F + exp2(power));
}

// tanh x within 3 units of the last place: a polynomial below 0.625, 1 - 2 / (1 + e^2x) above
// (Cephes).
[[gnu::always_inline]] static inline F32 tanh(F32 x) {
  const F32 size = abs(x);
  const F32 z = x * x;
  F32 y = set(-5.70498872745e-3F);
  y = fma(y, z, set(2.06390887954e-2F));
  y = fma(y, z, set(-5.37397155531e-2F));
  y = fma(y, z, set(1.33314422036e-1F));
  y = fma(y, z, set(-3.33332819422e-1F));
  y = fma(y * z, x, x);
  const F32 large = 1.0F - 2.0F / (1.0F + exp(size + size));
  const I32 sign = as_i(x) & static_cast<int32_t>(0x80000000);
  return size < 0.625F ? y : as_f(as_i(large) | sign);
}

// erf x, absolute error below 2e-7: a quotient of polynomials on [-4, 4] (Eigen's, XLA's).
[[gnu::always_inline]] static inline F32 erf(F32 v) {
  const F32 x = min(set(4.0F), max(set(-4.0F), v));
  const F32 z = x * x;
  F32 p = set(-2.72614225801306e-10F);
  p = fma(p, z, set(2.77068142495902e-08F));
  p = fma(p, z, set(-2.10102402082508e-06F));
  p = fma(p, z, set(-5.69250639462346e-05F));
  p = fma(p, z, set(-7.34990630326855e-04F));
  p = fma(p, z, set(-2.95459980854025e-03F));
  p = fma(p, z, set(-1.60960333262415e-02F));
  F32 q = set(-1.45660718464996e-05F);
  q = fma(q, z, set(-2.13374055278905e-04F));
  q = fma(q, z, set(-1.68282697438203e-03F));
  q = fma(q, z, set(-7.37332916720468e-03F));
  q = fma(q, z, set(-1.42647390514189e-02F));
  return x * p / q;
}

// ln x within 2 units of the last place, from one half to two by a polynomial (Cephes).
[[gnu::always_inline]] static inline F32 log(F32 x) {
  // Below the normal numbers x is scaled up by 2^23 first.
  const I32 small = x < 0x1p-126F;
  const I32 bits = as_i(small ? x * 0x1p23F : x);
  F32 e = __builtin_convertvector(((bits >> 23) & 255) - (small ? set_i(149) : set_i(126)), F32);
  F32 m = as_f((bits & 0x7fffff) | 0x3f000000);  // from 1/2 to 1
  const I32 low = m < 0.70710678118654752F;
  e = low ? e - 1.0F : e;
  m = (low ? m + m : m) - 1.0F;
  const F32 z = m * m;
  F32 y = set(7.0376836292e-2F);
  y = fma(y, m, set(-1.1514610310e-1F));
  y = fma(y, m, set(1.1676998740e-1F));
  y = fma(y, m, set(-1.2420140846e-1F));
  y = fma(y, m, set(1.4249322787e-1F));
  y = fma(y, m, set(-1.6668057665e-1F));
  y = fma(y, m, set(2.0000714765e-1F));
  y = fma(y, m, set(-2.4999993993e-1F));
  y = fma(y, m, set(3.3333331174e-1F));
  y = fma(e, set(-2.12194440e-4F), y * m * z);
  y = fma(z, set(-0.5F), y);
  y = fma(e, set(0.693359375F), m + y);
  const float infinity = __builtin_inff();
  y = x == infinity ? x : y;
  y = x == 0.0F ? set(-infinity) : y;
  return x < 0.0F || x != x ? set(__builtin_nanf("")) : y;
}

// Lanes in turn: functions that no model computes in its inner loops.
template <class Fn>
[[gnu::always_inline]] static inline F32 each_lane(F32 x, Fn&& fn) {
  for (int i = 0; i < kLanes; ++i) x[i] = fn(x[i], i);
  return x;
}
[[gnu::always_inline]] static inline F32 sin(F32 x) {
  return each_lane(x, [](float lane, int) { return __builtin_sinf(lane); });
}
[[gnu::always_inline]] static inline F32 cos(F32 x) {
  return each_lane(x, [](float lane, int) { return __builtin_cosf(lane); });
}
[[gnu::always_inline]] static inline F32 pow(F32 x, F32 power) {
  return each_lane(x, [&](float lane, int i) { return __builtin_powf(lane, power[i]); });
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
