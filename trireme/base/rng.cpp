#include "trireme/base/rng.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace trireme {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53U;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57U;
constexpr uint32_t kWeyl0 = 0x9E3779B9U;  // golden ratio
constexpr uint32_t kWeyl1 = 0xBB67AE85U;  // sqrt(3) - 1
constexpr int kRounds = 10;

constexpr size_t kWords = 4;    // words of a block
constexpr size_t kBlocks = 16;  // blocks computed side by side by the fills
constexpr size_t kChunk = kWords * kBlocks;

using Block = std::array<uint32_t, kWords>;

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

Block block_of(uint64_t block, uint64_t step, std::array<uint32_t, 2> key) {
  return philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), static_cast<uint32_t>(step),
                 static_cast<uint32_t>(step >> 32)},
                key);
}

float to_uniform(uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24F;
}

// The functions marked always_inline below are compiled once per instruction set and give the same
// bits on each: only additions, multiplications and square roots, never contracted (see the build
// file).

// ln of a normal positive float (Cephes' logf): x = m 2^e with m in [sqrt(1/2), sqrt(2)).
[[gnu::always_inline]] inline float log_of(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t shifted = bits - 0x3f3504f3U;  // sqrt(1/2)
  const float e = static_cast<float>(static_cast<int32_t>(shifted) >> 23);
  const float f = std::bit_cast<float>((shifted & 0x007fffffU) + 0x3f3504f3U) - 1.0F;
  const float z = f * f;
  float y = 7.0376836292e-2F;
  y = y * f - 1.1514610310e-1F;
  y = y * f + 1.1676998740e-1F;
  y = y * f - 1.2420140846e-1F;
  y = y * f + 1.4249322787e-1F;
  y = y * f - 1.6668057665e-1F;
  y = y * f + 2.0000714765e-1F;
  y = y * f - 2.4999993993e-1F;
  y = y * f + 3.3333331174e-1F;
  y = y * f * z;
  y = y - 2.12194440e-4F * e;
  y = y - 0.5F * z;
  return (f + y) + 0.693359375F * e;
}

struct Pair {
  float even;
  float odd;
};

[[gnu::always_inline]] inline Pair box_muller(uint32_t w0, uint32_t w1) {
  const float u = static_cast<float>(static_cast<int32_t>((w0 >> 8) + 1)) * 0x1p-24F;
  const float r = std::sqrt(-2.0F * log_of(u));
  // The turn w1 / 2^24 is its nearest quarter plus a rest in [-1/8, 1/8), exact in integers.
  const uint32_t turn = w1 >> 8;
  const uint32_t quarter = (turn + (1U << 21)) >> 22;
  const int32_t rest = static_cast<int32_t>(turn) - static_cast<int32_t>(quarter << 22);
  const float x = static_cast<float>(rest) * (6.28318530718F * 0x1p-24F);
  const float z = x * x;
  const float s = ((-1.9515295891e-4F * z + 8.3321608736e-3F) * z - 1.6666654611e-1F) * z * x + x;
  const float c =
      ((2.443315711809948e-5F * z - 1.388731625493765e-3F) * z + 4.166664568298827e-2F) * z * z - 0.5F * z + 1.0F;
  // Quarters 0..3 turn (c, s) into (c, s), (-s, c), (-c, -s), (s, -c); selected by bits, not
  // branches.
  const uint32_t swap = 0U - (quarter & 1U);
  const uint32_t cos_bits = std::bit_cast<uint32_t>(c);
  const uint32_t sin_bits = std::bit_cast<uint32_t>(s);
  const uint32_t even_bits = ((cos_bits & ~swap) | (sin_bits & swap)) ^ (((quarter + 1) & 2U) << 30);
  const uint32_t odd_bits = ((sin_bits & ~swap) | (cos_bits & swap)) ^ ((quarter & 2U) << 30);
  return {r * std::bit_cast<float>(even_bits), r * std::bit_cast<float>(odd_bits)};
}

// kBlocks blocks, in order: the portable form.
void philox_chunk(uint64_t first, uint64_t step, std::array<uint32_t, 2> key, uint32_t* out) {
  for (size_t i = 0; i < kBlocks; ++i) {
    const Block b = block_of(first + i, step, key);
    std::copy(b.begin(), b.end(), out + i * kWords);
  }
}

#if defined(__x86_64__)
// The same with AVX2. A vector holds one word of four blocks in the low halves of its 64-bit lanes,
// where the widening multiplication wants them; what is left in the high halves is ignored by it.
[[gnu::target("avx2")]] void philox_chunk_avx2(uint64_t first, uint64_t step, std::array<uint32_t, 2> key,
                                               uint32_t* out) {
  const __m256i m0 = _mm256_set1_epi64x(kMultiplier0);
  const __m256i m1 = _mm256_set1_epi64x(kMultiplier1);
  const __m256i low_half = _mm256_set1_epi64x(0xffffffff);
  constexpr size_t kVectors = kBlocks / 4;
  __m256i x0[kVectors];
  __m256i x1[kVectors];
  __m256i x2[kVectors];
  __m256i x3[kVectors];
  for (size_t v = 0; v < kVectors; ++v) {
    x0[v] = _mm256_add_epi64(_mm256_set1_epi64x(static_cast<int64_t>(first + v * 4)), _mm256_set_epi64x(3, 2, 1, 0));
    x1[v] = _mm256_srli_epi64(x0[v], 32);
    x2[v] = _mm256_set1_epi64x(static_cast<int64_t>(step));
    x3[v] = _mm256_srli_epi64(x2[v], 32);
  }
  for (uint32_t round = 0; round < kRounds; ++round) {
    const __m256i k0 = _mm256_set1_epi64x(key[0] + round * kWeyl0);
    const __m256i k1 = _mm256_set1_epi64x(key[1] + round * kWeyl1);
    for (size_t v = 0; v < kVectors; ++v) {
      const __m256i p0 = _mm256_mul_epu32(x0[v], m0);
      const __m256i p1 = _mm256_mul_epu32(x2[v], m1);
      x0[v] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32), x1[v]), k0);
      x2[v] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), x3[v]), k1);
      x1[v] = p1;
      x3[v] = p0;
    }
  }
  for (size_t v = 0; v < kVectors; ++v) {
    const __m256i a = _mm256_or_si256(_mm256_and_si256(x0[v], low_half), _mm256_slli_epi64(x1[v], 32));
    const __m256i b = _mm256_or_si256(_mm256_and_si256(x2[v], low_half), _mm256_slli_epi64(x3[v], 32));
    const __m256i even = _mm256_unpacklo_epi64(a, b);
    const __m256i odd = _mm256_unpackhi_epi64(a, b);
    auto* to = reinterpret_cast<__m256i*>(out + v * 16);
    _mm256_storeu_si256(to, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(even, odd, 0x31));
  }
}
#endif

// What the fills make of the words of blocks in order; `count` is a multiple of kWords.
struct BitsOf {
  using Value = uint32_t;
  [[gnu::always_inline]] static inline void convert(const uint32_t* w, size_t count, uint32_t* out) {
    for (size_t i = 0; i < count; ++i) out[i] = w[i];
  }
};

struct UniformOf {
  using Value = float;
  [[gnu::always_inline]] static inline void convert(const uint32_t* w, size_t count, float* out) {
    for (size_t i = 0; i < count; ++i) out[i] = to_uniform(w[i]);
  }
};

struct NormalOf {
  using Value = float;
  [[gnu::always_inline]] static inline void convert(const uint32_t* w, size_t count, float* out) {
    for (size_t i = 0; i < count; i += 2) {
      const Pair pair = box_muller(w[i], w[i + 1]);
      out[i] = pair.even;
      out[i + 1] = pair.odd;
    }
  }
};

template <class Of>
void chunks_portable(uint64_t block, uint64_t step, std::array<uint32_t, 2> key, size_t count,
                     typename Of::Value* out) {
  uint32_t words[kChunk];
  for (size_t i = 0; i < count; ++i) {
    philox_chunk(block + i * kBlocks, step, key, words);
    Of::convert(words, kChunk, out + i * kChunk);
  }
}

#if defined(__x86_64__)
template <class Of>
[[gnu::target("avx2")]] void chunks_avx2(uint64_t block, uint64_t step, std::array<uint32_t, 2> key, size_t count,
                                         typename Of::Value* out) {
  uint32_t words[kChunk];
  for (size_t i = 0; i < count; ++i) {
    philox_chunk_avx2(block + i * kBlocks, step, key, words);
    Of::convert(words, kChunk, out + i * kChunk);
  }
}
#endif

template <class Of>
void chunks(uint64_t block, uint64_t step, std::array<uint32_t, 2> key, size_t count, typename Of::Value* out) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return chunks_avx2<Of>(block, step, key, count, out);
#endif
  chunks_portable<Of>(block, step, key, count, out);
}

template <class Of>
void fill(Stream stream, uint64_t first, uint64_t step, std::span<typename Of::Value> out) {
  const auto key = key_of(stream);
  size_t done = 0;
  const auto partial = [&](uint64_t index, size_t limit) {
    typename Of::Value values[kWords];
    const Block b = block_of(index / kWords, step, key);
    Of::convert(b.data(), kWords, values);
    const size_t lane = static_cast<size_t>(index % kWords);
    const size_t count = std::min(kWords - lane, limit);
    std::copy_n(values + lane, count, out.data() + done);
    done += count;
  };
  if (first % kWords != 0 && !out.empty()) partial(first, out.size());
  const size_t whole = (out.size() - done) / kChunk;
  chunks<Of>((first + done) / kWords, step, key, whole, out.data() + done);
  done += whole * kChunk;
  while (done < out.size()) partial(first + done, out.size() - done);
}

}  // namespace

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kMultiplier0) * counter[0];
    const uint64_t p1 = static_cast<uint64_t>(kMultiplier1) * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

std::array<uint32_t, 2> key_of(Stream stream) {
  const uint64_t key = mix(mix(stream.seed) + stream.id + 0x9e3779b97f4a7c15ULL);
  return {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
}

Stream substream(Stream stream, uint64_t part) {
  return {stream.seed, mix(stream.id + 0x9e3779b97f4a7c15ULL) + part};
}

uint32_t random_bits(Stream stream, uint64_t index, uint64_t step) {
  return block_of(index / kWords, step, key_of(stream))[index % kWords];
}

float uniform01(Stream stream, uint64_t index, uint64_t step) {
  return to_uniform(random_bits(stream, index, step));
}

float normal(Stream stream, uint64_t index, uint64_t step) {
  const Block b = block_of(index / kWords, step, key_of(stream));
  const size_t even = index % kWords & ~size_t{1};
  const Pair pair = box_muller(b[even], b[even + 1]);
  return index % 2 == 0 ? pair.even : pair.odd;
}

void fill_random_bits(Stream stream, uint64_t first, uint64_t step, std::span<uint32_t> out) {
  fill<BitsOf>(stream, first, step, out);
}

void fill_uniform01(Stream stream, uint64_t first, uint64_t step, std::span<float> out) {
  fill<UniformOf>(stream, first, step, out);
}

void fill_normal(Stream stream, uint64_t first, uint64_t step, std::span<float> out) {
  fill<NormalOf>(stream, first, step, out);
}

}  // namespace trireme
