// Products of bf16 matrices by the instruction that multiplies two elements with two others and
// adds both to an f32 sum. Elements that are so multiplied lie side by side, as a pair of 32 bits.
#pragma once

#include "trireme/backend/cpu/isa/products.h"
#include "trireme/backend/cpu/isa/simd_impl.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

using cpu::Bf16;
using cpu::Lines;
using cpu::PairProduct;

#if defined(__AVX512BF16__)
[[gnu::always_inline]] static inline F32 add_pair_products(F32 sum, U32 left, U32 right) {
  return _mm512_dpbf16_ps(sum, (__m512bh)left, (__m512bh)right);
}
// 32 bits of each of the first `rows` rows.
[[gnu::always_inline]] static inline U32 gather_pairs(const Bf16* from, int64_t stride, int64_t rows) {
  const I32 places =
      I32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} * set_i(static_cast<int32_t>(stride / 2));
  const auto some = static_cast<__mmask16>((1U << rows) - 1U);
  return (U32)_mm512_mask_i32gather_epi32(_mm512_setzero_si512(), some, (__m512i)places, from, 4);
}
#endif

[[gnu::always_inline]] static inline U32 load_pairs(const uint32_t* p) {
  U32 pairs;
  __builtin_memcpy(&pairs, p, sizeof pairs);
  return pairs;
}

// kRows rows of the product by kVectors vectors of columns, kept in registers.
template <int kRows, int kVectors>
void multiply_block(const PairProduct& k, const uint32_t* a, const uint32_t* b, float* c) {
  F32 sum[kRows][kVectors];
  for (int row = 0; row < kRows; ++row) {
    for (int v = 0; v < kVectors; ++v) sum[row][v] = k.add ? load(c + row * k.c_row + v * kLanes) : F32{};
  }
  for (int64_t pair = 0; pair < k.pairs; ++pair) {
    U32 right[kVectors];
    for (int v = 0; v < kVectors; ++v) right[v] = load_pairs(b + pair * k.b_pair + v * kLanes);
    for (int row = 0; row < kRows; ++row) {
      const U32 left = U32{} + a[row * k.a_row + pair * k.a_pair];
      for (int v = 0; v < kVectors; ++v) sum[row][v] = add_pair_products(sum[row][v], left, right[v]);
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int v = 0; v < kVectors; ++v) store(c + row * k.c_row + v * kLanes, sum[row][v]);
  }
}

// Columns of all rows: six at a time fill the registers beside four vectors of columns.
template <int kVectors>
void multiply_columns(const PairProduct& k, const uint32_t* b, float* c) {
  constexpr int kRows = 6;
  int64_t row = 0;
  for (; row + kRows <= k.m; row += kRows)
    multiply_block<kRows, kVectors>(k, k.a + row * k.a_row, b, c + row * k.c_row);
  for (; row + 2 <= k.m; row += 2) multiply_block<2, kVectors>(k, k.a + row * k.a_row, b, c + row * k.c_row);
  if (row < k.m) multiply_block<1, kVectors>(k, k.a + row * k.a_row, b, c + row * k.c_row);
}

static void multiply_pairs(const PairProduct& k) {
  const int64_t vectors = (k.n + kLanes - 1) / kLanes;
  int64_t v = 0;
  for (; v + 4 <= vectors; v += 4) multiply_columns<4>(k, k.b + v * kLanes, k.c + v * kLanes);
  for (; v < vectors; ++v) multiply_columns<1>(k, k.b + v * kLanes, k.c + v * kLanes);
}

// Pairs of neighbouring rows, element by element; a missing last row is zero.
[[gnu::always_inline]] static inline void put_pairs(uint32_t* to, U16 low, U16 high) {
  const U32 pairs = __builtin_convertvector(low, U32) | __builtin_convertvector(high, U32) << 16;
  __builtin_memcpy(to, &pairs, sizeof pairs);
}

[[gnu::always_inline]] static inline U16 bits_of(const Bf16* p, int64_t n) {
  return load_bits_n(p, n < kLanes ? n : kLanes);
}
[[gnu::always_inline]] static inline U16 bits_of(const float* p, int64_t n) {
  return round_to_bf16(n >= kLanes ? load(p) : load_n(p, n));
}

template <class T>
void pair_rows(Lines x, int64_t stride, const T* from, int64_t to_stride, uint32_t* to) {
  for (int64_t row = 0; row < x.rows; row += 2) {
    const T* low = from + row * stride;
    uint32_t* out = to + row / 2 * to_stride;
    for (int64_t i = 0; i < x.size; i += kLanes) {
      const int64_t n = x.size - i;
      put_pairs(out + i, bits_of(low + i, n), row + 1 < x.rows ? bits_of(low + stride + i, n) : U16{});
    }
  }
}

// The pairs of each row, an even number of elements, one under the other: a transpose. Columns past
// the last row, up to whole vectors, are zero.
static void pair_columns(Lines x, int64_t stride, const Bf16* from, int64_t to_stride, uint32_t* to) {
  for (int64_t row = 0; row < x.rows; row += kLanes) {
    const int64_t rows = x.rows - row < kLanes ? x.rows - row : kLanes;
    for (int64_t pair = 0; pair < x.size / 2; ++pair) {
      const U32 column = gather_pairs(from + row * stride + 2 * pair, stride, rows);
      __builtin_memcpy(to + pair * to_stride + row, &column, sizeof column);
    }
  }
}

// Rows rounded; the element after a row is zero, so that the row has whole pairs.
static void round_rows(Lines x, int64_t stride, const float* from, Bf16* to) {
  for (int64_t row = 0; row < x.rows; ++row) {
    const float* line = from + row * stride;
    Bf16* out = to + row * stride;
    for_each_vector(x.size, [&](auto v) { v.put(out, v.get(line)); });
    if (x.size % 2 != 0) out[x.size] = 0;
  }
}

constexpr cpu::PairLoops make_pair_table() {
  return {multiply_pairs, pair_rows<Bf16>, pair_rows<float>, pair_columns, round_rows};
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
