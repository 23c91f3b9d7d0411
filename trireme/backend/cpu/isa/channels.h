// Batch normalisation: rows of channels, vectors along the channels.
#pragma once

#include "trireme/backend/cpu/isa/products.h"

namespace trireme::cpu {

// A number for each channel: (x - mean) scale + beta.
struct ChannelLine {
  const float* mean = nullptr;
  const float* scale = nullptr;
  const float* beta = nullptr;
};

template <class T>
struct ChannelLoops {
  // Rows of channels. sums[2,c] += x and x^2.
  void (*channel_sums)(Lines lines, const T* x, double* sums);
  // y = (x - mean) scale + beta, + residual where it is not null, cut off at 0 with relu.
  void (*batch_norm)(Lines lines, const ChannelLine& line, bool relu, const T* x, const T* residual, T* y);
  // sums[2,c] += dz (x - mean) and dz, where dz is dy, or 0 where relu cut off: where (x - mean) scale + beta is not
  // above 0, or where y, if it is not null, is not; then dz is written too.
  void (*batch_norm_sums)(Lines lines, const ChannelLine& line, bool relu, const T* x, const T* dy, const T* y, T* dz,
                          double* sums);
  // dx = dz scale + (x - mean) by_x + constant
  void (*batch_norm_grad)(Lines lines, const ChannelLine& line, const float* by_x, const float* constant, bool relu,
                          const T* x, const T* dy, T* dx);
};

}  // namespace trireme::cpu

// What they do, for the sources that are compiled once per instruction set.
#ifdef TRIREME_ISA_NAMESPACE
#include "trireme/backend/cpu/isa/simd_impl.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

using cpu::ChannelLine;
using cpu::Lines;

// As many doubles as a vector has floats: two vectors of them.
typedef float HalfF32 __attribute__((vector_size(kLanes * 2)));
typedef double HalfF64 __attribute__((vector_size(kLanes * 4)));
struct Doubles {
  HalfF64 low, high;
};

// Rows that are taken together, so that the sums are read and written once for all of them.
inline constexpr int64_t kRowsTogether = 4;

// Calls fn(vector of channels, rows from, rows together as a constant) until all rows were met.
struct Four {
  static constexpr int64_t rows = kRowsTogether;
};
struct One {
  static constexpr int64_t rows = 1;
};
template <class Fn>
[[gnu::always_inline]] static inline void each_row_group(Lines lines, Fn&& fn) {
  int64_t row = 0;
  for (; row + kRowsTogether <= lines.rows; row += kRowsTogether) {
    for_each_vector(lines.size, [&](auto v) { fn(v, row, Four{}); });
  }
  for (; row < lines.rows; ++row) {
    for_each_vector(lines.size, [&](auto v) { fn(v, row, One{}); });
  }
}

[[gnu::always_inline]] static inline Doubles widened(F32 x) {
#if defined(__AVX512F__)
  return {_mm512_cvtps_pd(_mm512_castps512_ps256(x)), _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1))};
#elif defined(__AVX2__) && !defined(TRIREME_ISA_EMULATED)
  return {_mm256_cvtps_pd(_mm256_castps256_ps128(x)), _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))};
#else
  HalfF32 half[2];
  __builtin_memcpy(half, &x, sizeof x);
  return {__builtin_convertvector(half[0], HalfF64), __builtin_convertvector(half[1], HalfF64)};
#endif
}
[[gnu::always_inline]] static inline Doubles operator+(const Doubles& a, const Doubles& b) {
  return {a.low + b.low, a.high + b.high};
}
[[gnu::always_inline]] static inline Doubles square(const Doubles& x) {
  return {x.low * x.low, x.high * x.high};
}

// sums += x, where a vector begins; those past its end are left.
// One register after the other: a copy of both would go through memory, in parts that a load of a register waits for.
[[gnu::always_inline]] static inline void add_to(double* sums, const Whole& v, const Doubles& x) {
  HalfF64 low, high;
  double* const at = sums + v.at;
  __builtin_memcpy(&low, at, sizeof low);
  __builtin_memcpy(&high, at + kLanes / 2, sizeof high);
  low += x.low;
  high += x.high;
  __builtin_memcpy(at, &low, sizeof low);
  __builtin_memcpy(at + kLanes / 2, &high, sizeof high);
}
[[gnu::always_inline]] static inline void add_to(double* sums, const Rest& v, const Doubles& x) {
  double values[kLanes];
  __builtin_memcpy(values, &x, sizeof values);
  for (int64_t i = 0; i < v.count; ++i) sums[v.at + i] += values[i];
}

template <class T>
void channel_sums(Lines lines, const T* x, double* sums) {
  each_row_group(lines, [&](auto v, int64_t row, auto group) {
    Doubles sum{}, squares{};
    for (int64_t i = 0; i < decltype(group)::rows; ++i) {
      const Doubles value = widened(v.get(x + (row + i) * lines.size));
      sum = sum + value;
      squares = squares + square(value);
    }
    add_to(sums, v, sum);
    add_to(sums + lines.size, v, squares);
  });
}

// What batch_norm gives before a residual and relu.
template <class V>
[[gnu::always_inline]] static inline F32 normalised(const ChannelLine& line, V v, F32 x) {
  return fma(x - v.get(line.mean), v.get(line.scale), v.get(line.beta));
}

template <bool relu, bool residual, class T>
[[gnu::always_inline]] static inline void batch_norm_of(Lines lines, const ChannelLine& line, const T* x, const T* r,
                                                        T* y) {
  for (int64_t row = 0; row < lines.rows; ++row) {
    const int64_t at = row * lines.size;
    for_each_vector(lines.size, [&](auto v) {
      F32 value = normalised(line, v, v.get(x + at));
      if (residual) value += v.get(r + at);
      if (relu) value = value < 0 ? F32{} : value;  // what is not a number stays so
      v.put(y + at, value);
    });
  }
}

template <class T>
void batch_norm(Lines lines, const ChannelLine& line, bool relu, const T* x, const T* residual, T* y) {
  if (relu) {
    return residual != nullptr ? batch_norm_of<true, true>(lines, line, x, residual, y)
                               : batch_norm_of<true, false>(lines, line, x, residual, y);
  }
  return residual != nullptr ? batch_norm_of<false, true>(lines, line, x, residual, y)
                             : batch_norm_of<false, false>(lines, line, x, residual, y);
}

// Which of dy passes.
enum class Mask {
  kAll,
  kFound,  // where batch_norm's result, found again from x, is above 0
  kGiven,  // where its result y is
};

// dy is read whatever the mask: a masked read would wait for what the mask is computed from, and a miss of the cache
// for another.
template <Mask mask, class V, class T>
[[gnu::always_inline]] static inline F32 passed(const ChannelLine& line, V v, const T* x, const T* dy, const T* y) {
  F32 d = v.get(dy);
#if defined(__x86_64__) && !defined(TRIREME_ISA_EMULATED)
  asm("" : "+x"(d));
#endif
  if constexpr (mask == Mask::kAll) return d;
  const F32 result = mask == Mask::kGiven ? v.get(y) : normalised(line, v, v.get(x));
  return result > 0 ? d : F32{};
}

template <Mask mask, class T>
[[gnu::always_inline]] static inline void batch_norm_sums_of(Lines lines, const ChannelLine& line, const T* x,
                                                             const T* dy, const T* y, T* dz, double* sums) {
  each_row_group(lines, [&](auto v, int64_t row, auto group) {
    Doubles by_x{}, sum{};
    for (int64_t i = 0; i < decltype(group)::rows; ++i) {
      const int64_t at = (row + i) * lines.size;
      const F32 d = passed<mask>(line, v, x + at, dy + at, mask == Mask::kGiven ? y + at : nullptr);
      if constexpr (mask == Mask::kGiven) v.put(dz + at, d);
      sum = sum + widened(d);
      by_x = by_x + widened(d * (v.get(x + at) - v.get(line.mean)));
    }
    add_to(sums, v, by_x);
    add_to(sums + lines.size, v, sum);
  });
}

template <class T>
void batch_norm_sums(Lines lines, const ChannelLine& line, bool relu, const T* x, const T* dy, const T* y, T* dz,
                     double* sums) {
  if (y != nullptr) return batch_norm_sums_of<Mask::kGiven>(lines, line, x, dy, y, dz, sums);
  if (relu) return batch_norm_sums_of<Mask::kFound>(lines, line, x, dy, y, dz, sums);
  return batch_norm_sums_of<Mask::kAll>(lines, line, x, dy, y, dz, sums);
}

template <Mask mask, class T>
[[gnu::always_inline]] static inline void batch_norm_grad_of(Lines lines, const ChannelLine& line, const float* by_x,
                                                             const float* constant, const T* x, const T* dy, T* dx) {
  for (int64_t row = 0; row < lines.rows; ++row) {
    const int64_t at = row * lines.size;
    for_each_vector(lines.size, [&](auto v) {
      const F32 d = passed<mask, decltype(v), T>(line, v, x + at, dy + at, nullptr);
      const F32 from_statistics = fma(v.get(x + at) - v.get(line.mean), v.get(by_x), v.get(constant));
      v.put(dx + at, fma(d, v.get(line.scale), from_statistics));
    });
  }
}

template <class T>
void batch_norm_grad(Lines lines, const ChannelLine& line, const float* by_x, const float* constant, bool relu,
                     const T* x, const T* dy, T* dx) {
  if (relu) return batch_norm_grad_of<Mask::kFound>(lines, line, by_x, constant, x, dy, dx);
  return batch_norm_grad_of<Mask::kAll>(lines, line, by_x, constant, x, dy, dx);
}

template <class T>
constexpr cpu::ChannelLoops<T> channel_loops() {
  return {.channel_sums = channel_sums<T>,
          .batch_norm = batch_norm<T>,
          .batch_norm_sums = batch_norm_sums<T>,
          .batch_norm_grad = batch_norm_grad<T>};
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
#endif
