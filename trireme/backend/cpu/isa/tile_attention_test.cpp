// The loops of attention by tiles have the same bits on this machine and over emulated instructions.
#include "trireme/backend/cpu/isa/tile_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "trireme/backend/cpu/cases/isas_for_tests.h"
#include "trireme/base/rng.h"
#include "trireme/tensor/dtype.h"

namespace trireme::cpu::tile_attention_test {
namespace {

int differing(const std::vector<float>& a, const std::vector<float>& b) {
  int count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]) ? 1 : 0;
  return count;
}

// Two blocks of queries and 75 keys, of which query i sees 11 + i, forward in two tiles.
struct TileAttention {
  static constexpr int64_t kSteps = 2, kBlocks = 3, kKeys = 75, kQueries = 64;
  static constexpr size_t kWords = kBlocks * kSteps * kStepWords;
  std::vector<uint32_t> k, v, terms, q, dout;
  float scale;

  static std::vector<uint32_t> numbers(uint64_t seed) {
    std::vector<float> x(2 * kWords);
    fill_uniform01({seed, 1}, 0, 0, x);
    std::vector<uint32_t> out(kWords);
    for (size_t i = 0; i < kWords; ++i)
      out[i] = uint32_t{BFloat16(4 * x[2 * i] - 2).bits} | uint32_t{BFloat16(4 * x[2 * i + 1] - 2).bits} << 16;
    return out;
  }

  TileAttention(uint64_t seed, float factor)
      : k(numbers(seed)),
        v(numbers(seed + 1)),
        terms(numbers(seed + 2)),
        q(numbers(seed + 3)),
        dout(numbers(seed + 4)),
        scale(factor) {}

  std::vector<float> forward(const Loops& loops) const {
    std::vector<float> scores(2 * kMostTileKeys * kTileLines), max(kQueries), sum(kQueries);
    std::vector<float> out(kSteps * kTileLines * kQueries);
    std::vector<uint32_t> p(kMostTileKeys * kTileLines);
    loops.tiles.begin();
    for (const int64_t key : {int64_t{0}, kTileLines}) {
      loops.tile_attention.forward({.keys = {key == 0 ? kTileLines : kKeys - kTileLines, 11 - key},
                                    .first = key == 0,
                                    .blocks = 2,
                                    .steps = kSteps,
                                    .scale = scale,
                                    .q = q.data(),
                                    .k = k.data() + key / kTileLines * kSteps * kStepWords,
                                    .v = terms.data() + key / kTileLines * kStepWords,
                                    .v_block = kBlocks * kStepWords,
                                    .scores = scores.data(),
                                    .p = p.data(),
                                    .max = max.data(),
                                    .sum = sum.data(),
                                    .out = out.data()});
    }
    loops.tiles.end();
    for (const auto& more : {max, sum}) out.insert(out.end(), more.begin(), more.end());
    return out;
  }

  std::vector<float> backward(const Loops& loops) const {
    std::vector<float> lse(kQueries, 2), delta(kQueries, 0.3F), dq(kSteps * kTileLines * kQueries);
    std::vector<float> dk(kBlocks * kTileLines * kSteps * kTileLines), dv(dk.size());
    std::vector<uint32_t> p(kMostTileKeys * kQueries / 2), ds(p.size()), ds_terms(p.size());
    loops.tiles.begin();
    loops.tile_attention.backward({.keys = {kKeys, 11},
                                   .blocks = 2,
                                   .steps = kSteps,
                                   .scale = scale,
                                   .q = q.data(),
                                   .dout = dout.data(),
                                   .q_terms = v.data(),
                                   .dout_terms = k.data(),
                                   .k = k.data(),
                                   .v = v.data(),
                                   .k_terms = terms.data(),
                                   .k_block = kBlocks * kStepWords,
                                   .lse = lse.data(),
                                   .delta = delta.data(),
                                   .p = p.data(),
                                   .ds = ds.data(),
                                   .ds_terms = ds_terms.data(),
                                   .dq = dq.data(),
                                   .dk = dk.data(),
                                   .dv = dv.data()});
    loops.tiles.end();
    for (const auto& more : {dk, dv}) dq.insert(dq.end(), more.begin(), more.end());
    return dq;
  }
};

TEST(EmulatedLoops, HaveTheBitsOfAttentionInTiles) {
  if (machine_isa() < Isa::kAmx) GTEST_SKIP() << "this machine has no amx";
  set_isa(Isa::kAmx);
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    // Forward up to powers that end in zero.
    const TileAttention on(10 * seed, 0.02F * std::pow(4.0F, static_cast<float>(seed))), of_slopes(10 * seed + 5, 0.3F);
    const std::vector<float> real = on.forward(loops()), slopes = of_slopes.backward(loops());
    EXPECT_EQ(differing(real, on.forward(isa_emulated::kLoops)), 0) << "seed " << seed;
    EXPECT_EQ(differing(slopes, of_slopes.backward(isa_emulated::kLoops)), 0) << "seed " << seed;
    for (const auto& all : {real, slopes})
      EXPECT_TRUE(std::ranges::none_of(all, [](float x) { return std::isnan(x); })) << "seed " << seed;
  }
}

}  // namespace
}  // namespace trireme::cpu::tile_attention_test
