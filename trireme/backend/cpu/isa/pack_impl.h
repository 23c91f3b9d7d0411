// Packing of a product's operands into panels (cpu/products/packed_product.h); those of bf16 are widened on the way.
#pragma once

#include "trireme/backend/cpu/isa/product_impl.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

template <int width, class T>
void pack_beside(int64_t n, int64_t terms, const T* from, int64_t stride, float* to) {
  for (int64_t t = 0; t < terms; ++t, from += stride, to += width) {
    // Of the panel beside, which is packed next.
    __builtin_prefetch(from + width);
    __builtin_prefetch(from + width + kLanes);
#pragma GCC unroll 4
    for (int at = 0; at < width; at += kLanes) {
      const int64_t there = n - at;
      const F32 x = there >= kLanes ? load(from + at) : there > 0 ? load_n(from + at, there) : F32{};
      // The next term is written over what is beyond the width.
      if (width - at >= kLanes || (at == 0 && t + 1 < terms)) {
        store(to + at, x);
      } else {
        store_n(to + at, x, width - at);
      }
    }
  }
}

template <class T>
void pack_beside_of(int64_t width, int64_t n, int64_t terms, const T* from, int64_t stride, float* to) {
  if (width == kTileColumns) {
    // Whole panels without a look at n for each term.
    if (n == kTileColumns) return pack_beside<kTileColumns>(kTileColumns, terms, from, stride, to);
    return pack_beside<kTileColumns>(n, terms, from, stride, to);
  }
  if (n == kTileRows) return pack_beside<kTileRows>(kTileRows, terms, from, stride, to);
  pack_beside<kTileRows>(n, terms, from, stride, to);
}

template <int... lane>
struct Lanes {};
template <int lanes>
struct LanesOf {
  using Type = Lanes<0, 1, 2, 3>;
};
template <>
struct LanesOf<8> {
  using Type = Lanes<0, 1, 2, 3, 4, 5, 6, 7>;
};
template <>
struct LanesOf<16> {
  using Type = Lanes<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15>;
};
using AllLanes = LanesOf<kLanes>::Type;

// Exchanges, in each 2 x 2 square of blocks of `size` lanes and rows, the two that are off the diagonal.
template <int size, int... lane>
[[gnu::always_inline]] static inline void exchange(F32& upper, F32& lower, Lanes<lane...>) {
  const F32 first = __builtin_shufflevector(upper, lower, ((lane & size) != 0 ? kLanes + lane - size : lane)...);
  lower = __builtin_shufflevector(upper, lower, ((lane & size) != 0 ? kLanes + lane : lane + size)...);
  upper = first;
}

template <int size>
[[gnu::always_inline]] static inline void transpose(F32* rows) {
  if constexpr (size < kLanes) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      if ((i & size) == 0) exchange<size>(rows[i], rows[i + size], AllLanes{});
    }
    transpose<2 * size>(rows);
  }
}

// At most kLanes lines.
template <int width, class T>
[[gnu::always_inline]] static inline void pack_square(int64_t n, int64_t terms, const T* from, int64_t stride,
                                                      float* to, int at) {
  F32 rows[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i)
    rows[i] = i >= n ? F32{} : terms >= kLanes ? load(from + i * stride) : load_n(from + i * stride, terms);
  transpose<1>(rows);
  const int columns = width - at < kLanes ? width - at : kLanes;
#pragma GCC unroll 16
  for (int t = 0; t < kLanes; ++t) {
    if (t >= terms) return;
    if (columns == kLanes) {
      store(to + t * width + at, rows[t]);
    } else {
      store_n(to + t * width + at, rows[t], columns);
    }
  }
}

// As many lines and terms as there can be.
template <int width, int at, class T>
[[gnu::always_inline]] static inline void pack_whole_square(const T* from, int64_t stride, float* to) {
  constexpr int kLines = width - at < kLanes ? width - at : kLanes;
  F32 rows[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) rows[i] = i < kLines ? load(from + (at + i) * stride) : F32{};
  transpose<1>(rows);
#pragma GCC unroll 16
  for (int t = 0; t < kLanes; ++t) {
    // The next term is written over what is beyond the width.
    if (kLines == kLanes || (at == 0 && t + 1 < kLanes)) {
      store(to + t * width + at, rows[t]);
    } else {
      store_n(to + t * width + at, rows[t], kLines);
    }
  }
}

template <int width, class T>
void pack_apart(int64_t n, int64_t terms, const T* from, int64_t stride, float* to) {
  static_assert(width <= 2 * kLanes);
  int64_t t = 0;
  for (; n == width && t + kLanes <= terms; t += kLanes) {
    pack_whole_square<width, 0>(from + t, stride, to + t * width);
    if constexpr (width > kLanes) pack_whole_square<width, kLanes>(from + t, stride, to + t * width);
  }
  for (; t < terms; t += kLanes) {
    for (int at = 0; at < width; at += kLanes)
      pack_square<width>(n - at, terms - t, from + at * stride + t, stride, to + t * width, at);
  }
}

template <class T>
void pack_apart_of(int64_t width, int64_t n, int64_t terms, const T* from, int64_t stride, float* to) {
  if (width == kTileColumns) return pack_apart<kTileColumns>(n, terms, from, stride, to);
  pack_apart<kTileRows>(n, terms, from, stride, to);
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
