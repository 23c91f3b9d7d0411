#include "trireme/base/rng.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

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
  return philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                 static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32)},
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
      ((2.443315711809948e-5F * z - 1.388731625493765e-3F) * z + 4.166664568298827e-2F) * z * z -
      0.5F * z + 1.0F;
  // Quarters 0..3 turn (c, s) into (c, s), (-s, c), (-c, -s), (s, -c); selected by bits, not
  // branches.
  const uint32_t swap = 0U - (quarter & 1U);
  const uint32_t cos_bits = std::bit_cast<uint32_t>(c);
  const uint32_t sin_bits = std::bit_cast<uint32_t>(s);
  const uint32_t even_bits =
      ((cos_bits & ~swap) | (sin_bits & swap)) ^ (((quarter + 1) & 2U) << 30);
  const uint32_t odd_bits = ((sin_bits & ~swap) | (cos_bits & swap)) ^ ((quarter & 2U) << 30);
  return {r * std::bit_cast<float>(even_bits), r * std::bit_cast<float>(odd_bits)};
}

// Blocks first..first + kBlocks - 1, word by word side by side so that the compiler uses vectors.
struct Lanes {
  uint32_t w[kWords][kBlocks];
};

[[gnu::always_inline]] inline void philox_lanes(uint64_t first, uint64_t step,
                                                std::array<uint32_t, 2> key, Lanes& x) {
  for (size_t i = 0; i < kBlocks; ++i) {
    const uint64_t block = first + i;
    x.w[0][i] = static_cast<uint32_t>(block);
    x.w[1][i] = static_cast<uint32_t>(block >> 32);
    x.w[2][i] = static_cast<uint32_t>(step);
    x.w[3][i] = static_cast<uint32_t>(step >> 32);
  }
  uint32_t k0 = key[0];
  uint32_t k1 = key[1];
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < kBlocks; ++i) {
      const uint64_t p0 = static_cast<uint64_t>(kMultiplier0) * x.w[0][i];
      const uint64_t p1 = static_cast<uint64_t>(kMultiplier1) * x.w[2][i];
      x.w[0][i] = static_cast<uint32_t>(p1 >> 32) ^ x.w[1][i] ^ k0;
      x.w[2][i] = static_cast<uint32_t>(p0 >> 32) ^ x.w[3][i] ^ k1;
      x.w[1][i] = static_cast<uint32_t>(p1);
      x.w[3][i] = static_cast<uint32_t>(p0);
    }
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
}

struct BitsOf {
  using Value = uint32_t;
  [[gnu::always_inline]] static inline void store(const Lanes& x, uint32_t* out) {
    for (size_t i = 0; i < kBlocks; ++i) {
      for (size_t j = 0; j < kWords; ++j) out[i * kWords + j] = x.w[j][i];
    }
  }
  static void one(const Block& b, uint32_t* out) { std::copy(b.begin(), b.end(), out); }
};

struct UniformOf {
  using Value = float;
  [[gnu::always_inline]] static inline void store(const Lanes& x, float* out) {
    for (size_t i = 0; i < kBlocks; ++i) {
      for (size_t j = 0; j < kWords; ++j) {
        out[i * kWords + j] = static_cast<float>(static_cast<int32_t>(x.w[j][i] >> 8)) * 0x1p-24F;
      }
    }
  }
  static void one(const Block& b, float* out) {
    for (size_t j = 0; j < kWords; ++j) out[j] = to_uniform(b[j]);
  }
};

struct NormalOf {
  using Value = float;
  [[gnu::always_inline]] static inline void store(const Lanes& x, float* out) {
    float y[kWords][kBlocks];
    for (size_t j = 0; j < kWords; j += 2) {
      for (size_t i = 0; i < kBlocks; ++i) {
        const Pair pair = box_muller(x.w[j][i], x.w[j + 1][i]);
        y[j][i] = pair.even;
        y[j + 1][i] = pair.odd;
      }
    }
    for (size_t i = 0; i < kBlocks; ++i) {
      for (size_t j = 0; j < kWords; ++j) out[i * kWords + j] = y[j][i];
    }
  }
  static void one(const Block& b, float* out) {
    for (size_t j = 0; j < kWords; j += 2) {
      const Pair pair = box_muller(b[j], b[j + 1]);
      out[j] = pair.even;
      out[j + 1] = pair.odd;
    }
  }
};

template <class Of>
[[gnu::always_inline]] inline void chunks(uint64_t block, uint64_t step,
                                          std::array<uint32_t, 2> key, size_t count,
                                          typename Of::Value* out) {
  for (size_t i = 0; i < count; ++i) {
    Lanes lanes;
    philox_lanes(block + i * kBlocks, step, key, lanes);
    Of::store(lanes, out + i * kChunk);
  }
}

template <class Of>
__attribute__((optimize("O3"))) void chunks_plain(uint64_t block, uint64_t step,
                                                  std::array<uint32_t, 2> key, size_t count,
                                                  typename Of::Value* out) {
  chunks<Of>(block, step, key, count, out);
}

#if defined(__x86_64__)
template <class Of>
__attribute__((target("avx2"), optimize("O3"))) void chunks_avx2(uint64_t block, uint64_t step,
                                                                 std::array<uint32_t, 2> key,
                                                                 size_t count,
                                                                 typename Of::Value* out) {
  chunks<Of>(block, step, key, count, out);
}
#endif

template <class Of>
void run_chunks(uint64_t block, uint64_t step, std::array<uint32_t, 2> key, size_t count,
                typename Of::Value* out) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return chunks_avx2<Of>(block, step, key, count, out);
#endif
  chunks_plain<Of>(block, step, key, count, out);
}

template <class Of>
void fill(Stream stream, uint64_t first, uint64_t step, std::span<typename Of::Value> out) {
  const auto key = key_of(stream);
  size_t done = 0;
  const auto partial = [&](uint64_t index, size_t limit) {
    typename Of::Value values[kWords];
    Of::one(block_of(index / kWords, step, key), values);
    const size_t lane = static_cast<size_t>(index % kWords);
    const size_t count = std::min(kWords - lane, limit);
    std::copy_n(values + lane, count, out.data() + done);
    done += count;
  };
  if (first % kWords != 0 && !out.empty()) partial(first, out.size());
  const size_t whole = (out.size() - done) / kChunk;
  run_chunks<Of>((first + done) / kWords, step, key, whole, out.data() + done);
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
