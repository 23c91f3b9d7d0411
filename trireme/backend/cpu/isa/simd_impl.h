// A vector of floats as wide as the instruction set this file is compiled for. Included only by the
// sources that CMake compiles once per instruction set, each into a namespace of its own
// (TRIREME_ISA_NAMESPACE), so that no inline function of one can be linked into another; they
// therefore use nothing of the standard library that is not a builtin. Whole vectors and rests run
// through the same code, so an element's bits do not depend on its place.
#pragma once

#include "trireme/backend/cpu/isa/vector_impl.h"
#if defined(TRIREME_ISA_EMULATED)
#include "trireme/backend/cpu/isa/emulated_impl.h"
#endif

namespace trireme::TRIREME_ISA_NAMESPACE {

#if defined(__AVX512BF16__)
[[gnu::always_inline]] static inline bool has_denormal(F32 x) {
  constexpr int kDenormal = 0x20;
  return _mm512_fpclass_ps_mask(x, kDenormal) != 0;
}
[[gnu::always_inline]] static inline U16 convert_to_bf16(F32 x) {
  return (U16)_mm512_cvtneps_pbh(x);
}
#endif

// The instruction for it, which takes denormals for zero, is used where there are none.
[[gnu::always_inline]] static inline U16 round_to_bf16(F32 x) {
#if defined(__AVX512BF16__) || defined(TRIREME_ISA_EMULATED)
  if (__builtin_expect(!has_denormal(x), 1)) return convert_to_bf16(x);
#endif
  return rounded_to_bf16(x);
}

// One element.
[[gnu::always_inline]] static inline float number(const float* p) {
  return *p;
}
[[gnu::always_inline]] static inline float number(const uint16_t* p) {
  return widen(U16{*p})[0];
}
[[gnu::always_inline]] static inline void put_number(float* p, float x) {
  *p = x;
}
[[gnu::always_inline]] static inline void put_number(uint16_t* p, float x) {
  *p = round_to_bf16(F32{x})[0];
}

[[gnu::always_inline]] static inline F32 load(const float* p) {
  F32 x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
[[gnu::always_inline]] static inline F32 load(const uint16_t* p) {
  U16 bits;
  __builtin_memcpy(&bits, p, sizeof bits);
  return widen(bits);
}
[[gnu::always_inline]] static inline void store(float* p, F32 x) {
  __builtin_memcpy(p, &x, sizeof x);
}
[[gnu::always_inline]] static inline void store(uint16_t* p, F32 x) {
  const U16 bits = round_to_bf16(x);
  __builtin_memcpy(p, &bits, sizeof bits);
}

#if defined(__AVX2__) && !defined(__AVX512F__) && !defined(TRIREME_ISA_EMULATED)
// From kLanes - n on: a mask of the first n lanes.
alignas(32) inline constexpr int32_t kFirstLanes[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
#endif

// The first n < kLanes elements; the rest reads as zero and is not written.
[[gnu::always_inline]] static inline F32 load_n(const float* p, int64_t n) {
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1U << n) - 1U), p);
#elif defined(__AVX2__) && !defined(TRIREME_ISA_EMULATED)
  return _mm256_maskload_ps(p, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kFirstLanes + kLanes - n)));
#else
  F32 x{};
  for (int64_t i = 0; i < n; ++i) x[i] = p[i];
  return x;
#endif
}
[[gnu::always_inline]] static inline void store_n(float* p, F32 x, int64_t n) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1U << n) - 1U), x);
#elif defined(__AVX2__) && !defined(TRIREME_ISA_EMULATED)
  // In parts: some CPUs take long for a store with a mask.
  __m128 part = _mm256_castps256_ps128(x);
  if ((n & 4) != 0) {
    _mm_storeu_ps(p, part);
    part = _mm256_extractf128_ps(x, 1);
    p += 4;
  }
  if ((n & 2) != 0) {
    _mm_storel_pi(reinterpret_cast<__m64*>(p), part);
    part = _mm_movehl_ps(part, part);
    p += 2;
  }
  if ((n & 1) != 0) _mm_store_ss(p, part);
#else
  for (int64_t i = 0; i < n; ++i) p[i] = x[i];
#endif
}
[[gnu::always_inline]] static inline U16 load_bits_n(const uint16_t* p, int64_t n) {
#if defined(__AVX512F__)
  return reinterpret_cast<U16>(_mm256_maskz_loadu_epi16(static_cast<__mmask16>((1U << n) - 1U), p));
#else
  U16 bits{};
  for (int64_t i = 0; i < n; ++i) bits[i] = p[i];
  return bits;
#endif
}
[[gnu::always_inline]] static inline F32 load_n(const uint16_t* p, int64_t n) {
  return widen(load_bits_n(p, n));
}
[[gnu::always_inline]] static inline void store_n(uint16_t* p, F32 x, int64_t n) {
#if defined(__AVX512F__)
  _mm256_mask_storeu_epi16(p, static_cast<__mmask16>((1U << n) - 1U), reinterpret_cast<__m256i>(round_to_bf16(x)));
#else
  const U16 bits = round_to_bf16(x);
  for (int64_t i = 0; i < n; ++i) p[i] = bits[i];
#endif
}

#if !defined(TRIREME_ISA_EMULATED)
[[gnu::always_inline]] static inline F32 fma(F32 a, F32 b, F32 c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}
#endif

// sum = a b + sum. In loops that are unrolled the compiler may take the form of the instruction that overwrites a
// factor, and then moves registers around.
[[gnu::always_inline]] static inline void add_product(F32& sum, F32 a, F32 b) {
#if defined(__AVX2__) && !defined(__AVX512F__) && !defined(TRIREME_ISA_EMULATED)
  F32 here = sum;
  asm("vfmadd231ps %2, %1, %0" : "+x"(here) : "x"(a), "x"(b));
  sum = here;
#else
  sum = fma(a, b, sum);
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
#elif defined(__x86_64__) && !defined(TRIREME_ISA_EMULATED)
  return _mm_sqrt_ps(x);
#else
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}

[[gnu::always_inline]] static inline F32 abs(F32 x) {
  return as_f(as_i(x) & 0x7fffffff);
}

// The lanes in a fixed tree: halves are folded until one is left.
template <class V, class Fold>
[[gnu::always_inline]] static inline float fold_lanes(V x, Fold&& fold) {
  constexpr int kCount = sizeof(V) / sizeof(float);
  if constexpr (kCount == 16) {
    return fold_lanes(fold(__builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7),
                           __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15)),
                      fold);
  } else if constexpr (kCount == 8) {
    return fold_lanes(fold(__builtin_shufflevector(x, x, 0, 1, 2, 3), __builtin_shufflevector(x, x, 4, 5, 6, 7)), fold);
  } else {
    const V pairs = fold(x, __builtin_shufflevector(x, x, 2, 3, 2, 3));
    return fold(pairs, __builtin_shufflevector(pairs, pairs, 1, 1, 1, 1))[0];
  }
}
[[gnu::always_inline]] static inline float sum_lanes(F32 x) {
  return fold_lanes(x, [](auto a, auto b) { return a + b; });
}
[[gnu::always_inline]] static inline float max_lanes(F32 x) {
  return fold_lanes(x, [](auto a, auto b) { return a > b ? a : b; });
}

// One step of a loop over vectors: get(p) reads and put(p, x) writes the vector at p + at,
// whole or, at the end, what is left.
struct Whole {
  template <class T>
  [[gnu::always_inline]] F32 get(const T* p) const {
    return load(p + at);
  }
  template <class T>
  [[gnu::always_inline]] void put(T* p, F32 x) const {
    store(p + at, x);
  }
  int64_t at;
};
struct Rest {
  template <class T>
  [[gnu::always_inline]] F32 get(const T* p) const {
    return load_n(p + at, count);
  }
  template <class T>
  [[gnu::always_inline]] void put(T* p, F32 x) const {
    store_n(p + at, x, count);
  }
  int64_t at;
  int64_t count;
};

// What is left where memory goes on for a whole vector: quicker, where there are no instructions for parts of vectors.
struct Padded : Whole {
  int64_t count;
};

template <class Last = Rest, class Body>
[[gnu::always_inline]] static inline void for_each_vector(int64_t n, Body&& body) {
#if defined(TRIREME_ISA_EMULATED)  // where whole vectors are worth no code of their own
  for (int64_t i = 0; i < n; i += kLanes) body(Last{i, n - i < kLanes ? n - i : kLanes});
#else
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(Whole{i});
  if (i < n) body(Last{i, n - i});
#endif
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
