// A vector of floats as wide as the instruction set this file is compiled for, and the functions on
// it. Included only by the sources that CMake compiles once per instruction set, each into a
// namespace of its own (TRIREME_ISA_NAMESPACE), so that no inline function of one can be linked
// into another; they therefore use nothing of the standard library that is not a builtin. Whole
// vectors and rests run through the same code, so an element's bits do not depend on its place.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace trireme::TRIREME_ISA_NAMESPACE {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

typedef float F32 __attribute__((vector_size(kLanes * 4)));
typedef int32_t I32 __attribute__((vector_size(kLanes * 4)));
typedef uint32_t U32 __attribute__((vector_size(kLanes * 4)));
typedef uint16_t U16 __attribute__((vector_size(kLanes * 2)));

[[gnu::always_inline]] static inline F32 set(float x) {
  return F32{} + x;
}
[[gnu::always_inline]] static inline I32 set_i(int32_t x) {
  return I32{} + x;
}
[[gnu::always_inline]] static inline F32 as_f(I32 x) {
  return reinterpret_cast<F32>(x);
}
[[gnu::always_inline]] static inline I32 as_i(F32 x) {
  return reinterpret_cast<I32>(x);
}

[[gnu::always_inline]] static inline F32 load(const float* p) {
  F32 x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
[[gnu::always_inline]] static inline void store(float* p, F32 x) {
  __builtin_memcpy(p, &x, sizeof x);
}

// The first n < kLanes elements; the rest reads as zero and is not written.
[[gnu::always_inline]] static inline F32 load_n(const float* p, int64_t n) {
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1U << n) - 1U), p);
#else
  F32 x{};
  for (int64_t i = 0; i < n; ++i) x[i] = p[i];
  return x;
#endif
}
[[gnu::always_inline]] static inline void store_n(float* p, F32 x, int64_t n) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1U << n) - 1U), x);
#else
  for (int64_t i = 0; i < n; ++i) p[i] = x[i];
#endif
}

[[gnu::always_inline]] static inline F32 fma(F32 a, F32 b, F32 c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

// Both give b where either is not a number.
[[gnu::always_inline]] static inline F32 max(F32 a, F32 b) {
#if defined(__AVX512F__)
  return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
  return _mm256_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}
[[gnu::always_inline]] static inline F32 min(F32 a, F32 b) {
#if defined(__AVX512F__)
  return _mm512_min_ps(a, b);
#elif defined(__AVX2__)
  return _mm256_min_ps(a, b);
#else
  return a < b ? a : b;
#endif
}

[[gnu::always_inline]] static inline F32 sqrt(F32 x) {
#if defined(__AVX512F__)
  return _mm512_sqrt_ps(x);
#elif defined(__AVX2__)
  return _mm256_sqrt_ps(x);
#elif defined(__x86_64__)
  return _mm_sqrt_ps(x);
#else
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}

[[gnu::always_inline]] static inline F32 abs(F32 x) {
  return as_f(as_i(x) & 0x7fffffff);
}

// The lanes in a fixed tree: halves are added until one is left.
[[gnu::always_inline]] static inline float sum_lanes(F32 x) {
  float lane[kLanes];
  __builtin_memcpy(lane, &x, sizeof x);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
  }
  return lane[0];
}
[[gnu::always_inline]] static inline float max_lanes(F32 x) {
  float lane[kLanes];
  __builtin_memcpy(lane, &x, sizeof x);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lane[i] = lane[i] > lane[i + half] ? lane[i] : lane[i + half];
  }
  return lane[0];
}

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

[[gnu::always_inline]] static inline F32 sigmoid(F32 x) {
  return 1.0F / (1.0F + exp(-x));
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

// One step of a loop over vectors: get(p) reads and put(p, x) writes the vector at p + at,
// whole or, at the end, what is left.
struct Whole {
  [[gnu::always_inline]] F32 get(const float* p) const { return load(p + at); }
  [[gnu::always_inline]] void put(float* p, F32 x) const { store(p + at, x); }
  int64_t at;
};
struct Rest {
  [[gnu::always_inline]] F32 get(const float* p) const { return load_n(p + at, count); }
  [[gnu::always_inline]] void put(float* p, F32 x) const { store_n(p + at, x, count); }
  int64_t at;
  int64_t count;
};

template <class Body>
[[gnu::always_inline]] static inline void for_each_vector(int64_t n, Body&& body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(Whole{i});
  if (i < n) body(Rest{i, n - i});
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
