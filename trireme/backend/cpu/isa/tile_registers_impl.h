// The registers of AMX, eight tiles of 16 rows of 64 bytes, and its instructions; or these in portable code of equal
// bits, for tests on any machine.
#pragma once

#include "trireme/backend/cpu/isa/simd_impl.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

#if defined(TRIREME_ISA_EMULATED)

struct EmulatedTile {
  uint32_t rows[16][16];
};
static thread_local EmulatedTile emulated_tiles[8];

static void begin_tiles() {}
static void end_tiles() {}

template <int tile>
void clear_tile() {
  emulated_tiles[tile] = {};
}
template <int tile>
void load_tile(const void* from, int64_t bytes_apart) {
  for (int row = 0; row < 16; ++row)
    __builtin_memcpy(emulated_tiles[tile].rows[row], static_cast<const char*>(from) + row * bytes_apart, 64);
}
template <int tile>
void load_passing_tile(const void* from, int64_t bytes_apart) {
  load_tile<tile>(from, bytes_apart);
}
template <int tile>
void store_tile(void* to, int64_t bytes_apart) {
  for (int row = 0; row < 16; ++row)
    __builtin_memcpy(static_cast<char*>(to) + row * bytes_apart, emulated_tiles[tile].rows[row], 64);
}

#if defined(__x86_64__)
// The same by instructions that most machines have, for which vectors need not pass through memory.
struct HalfVectors {
  [[gnu::target("avx2,fma")]] static __m256 flushed_half(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i exponent = _mm256_and_si256(bits, _mm256_set1_epi32(0x7f800000));
    const __m256i below = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());
    return _mm256_castsi256_ps(_mm256_andnot_si256(_mm256_srli_epi32(below, 1), bits));
  }
  [[gnu::target("avx2,fma")]] static __m256 fma_half(__m256i left, __m256i right, __m256 sum) {
    return flushed_half(
        _mm256_fmadd_ps(flushed_half(_mm256_castsi256_ps(left)), flushed_half(_mm256_castsi256_ps(right)), sum));
  }
  [[gnu::target("avx2,fma")]] static void multiply(EmulatedTile& sums, const EmulatedTile& a, const EmulatedTile& b) {
    const __m256i second = _mm256_set1_epi32(static_cast<int>(0xffff0000U));
    for (int row = 0; row < 16; ++row) {
      for (int half = 0; half < 16; half += 8) {
        __m256 of_first = _mm256_setzero_ps(), of_second = of_first;
        for (int pair = 0; pair < 16; ++pair) {
          const __m256i left = _mm256_set1_epi32(static_cast<int>(a.rows[row][pair]));
          const auto* const at = reinterpret_cast<const __m256i*>(b.rows[pair] + half);
          const __m256i right = _mm256_loadu_si256(at);
          of_first = fma_half(_mm256_slli_epi32(left, 16), _mm256_slli_epi32(right, 16), of_first);
          of_second = fma_half(_mm256_and_si256(left, second), _mm256_and_si256(right, second), of_second);
        }
        auto* const to = reinterpret_cast<float*>(sums.rows[row] + half);
        const __m256 products = flushed_half(_mm256_add_ps(of_first, of_second));
        _mm256_storeu_ps(to, flushed_half(_mm256_add_ps(flushed_half(_mm256_loadu_ps(to)), products)));
      }
    }
  }
};
#endif

// tdpbf16ps: the first products of all pairs are summed one after the other, and so are the second ones; then the sums
// of both are added, and that to the tile. Nothing below the normal numbers is read or made.
[[gnu::noinline]] static void multiply_emulated(EmulatedTile& sums, const EmulatedTile& a, const EmulatedTile& b) {
#if defined(__x86_64__)
  if (kHasFma) return HalfVectors::multiply(sums, a, b);
#endif
  const auto second = [](U32 pairs) { return flushed(reinterpret_cast<F32>(pairs & 0xffff0000U)); };
  const auto first = [](U32 pairs) { return flushed(reinterpret_cast<F32>(pairs << 16)); };
  for (int row = 0; row < 16; ++row) {
    F32 of_first{}, of_second{};
    for (int pair = 0; pair < 16; ++pair) {
      const U32 left = U32{} + a.rows[row][pair];
      U32 right;
      __builtin_memcpy(&right, b.rows[pair], sizeof right);
      of_first = flushed(fma(first(left), first(right), of_first));
      of_second = flushed(fma(second(left), second(right), of_second));
    }
    F32 sum;
    __builtin_memcpy(&sum, sums.rows[row], sizeof sum);
    sum = flushed(flushed(sum) + flushed(of_first + of_second));
    __builtin_memcpy(sums.rows[row], &sum, sizeof sum);
  }
}
template <int sums, int a, int b>
void multiply_tiles() {
  multiply_emulated(emulated_tiles[sums], emulated_tiles[a], emulated_tiles[b]);
}

#else

// What the registers are taken for: all of their rows and columns.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static constexpr TileShapes kWholeTiles;

static void begin_tiles() {
  asm volatile("ldtilecfg %0" : : "m"(kWholeTiles));
}
static void end_tiles() {
  asm volatile("tilerelease");
}

template <int tile>
[[gnu::always_inline]] static inline void clear_tile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(tile));
}
template <int tile>
[[gnu::always_inline]] static inline void load_tile(const void* from, int64_t bytes_apart) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(bytes_apart), "i"(tile) : "memory");
}
// Of what passes the first-level cache by, so that the other operand stays there.
template <int tile>
[[gnu::always_inline]] static inline void load_passing_tile(const void* from, int64_t bytes_apart) {
  asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(bytes_apart), "i"(tile) : "memory");
}
template <int tile>
[[gnu::always_inline]] static inline void store_tile(void* to, int64_t bytes_apart) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(bytes_apart), "i"(tile) : "memory");
}
template <int sums, int a, int b>
[[gnu::always_inline]] static inline void multiply_tiles() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sums), "i"(a), "i"(b));
}

#endif

}  // namespace trireme::TRIREME_ISA_NAMESPACE
