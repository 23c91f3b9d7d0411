// Counter-based randomness: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, SC'11). A value is a
// function of (seed, id, global element index, step) and of nothing else, so it does not depend on
// how a tensor is cut, on the order of evaluation or on threads, and there is no generator state to
// save.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace trireme {

// One block: ten rounds. The test vectors of Random123 hold.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// A family of values: the run's seed, and the id of the op or parameter that draws.
struct Stream {
  uint64_t seed = 0;
  uint64_t id = 0;
  friend bool operator==(const Stream&, const Stream&) = default;
};

// key = mix(mix(seed) + id + 0x9e3779b97f4a7c15), low word first, where mix is the finaliser of
// SplitMix64. Both steps are bijections: under one seed two ids never share a key.
std::array<uint32_t, 2> key_of(Stream stream);

// A stream derived from another, for a part of an op that needs numbers of its own.
Stream substream(Stream stream, uint64_t part);

// Element `index` at `step` is word index % 4 of the block with counter
// (index / 4 low, index / 4 high, step low, step high).
uint32_t random_bits(Stream stream, uint64_t index, uint64_t step);

// (bits >> 8) * 2^-24: in [0, 1), every value a multiple of 2^-24.
float uniform01(Stream stream, uint64_t index, uint64_t step);

// Box-Muller. The even element e and the odd e + 1 share the words w[e % 4] and w[e % 4 + 1] of one
// block: u = ((w0 >> 8) + 1) * 2^-24 in (0, 1], t = (w1 >> 8) * 2^-24, r = sqrt(-2 ln u); the even
// one is r cos(2 pi t), the odd one r sin(2 pi t). Logarithm and sine are evaluated by fixed
// polynomials in single precision with every operation rounded alone, so the bits are the same on
// every machine that rounds as IEEE 754 says. |value| <= 5.77.
float normal(Stream stream, uint64_t index, uint64_t step);

// The same for the elements first, first + 1, ...; faster by the block.
void fill_random_bits(Stream stream, uint64_t first, uint64_t step, std::span<uint32_t> out);
void fill_uniform01(Stream stream, uint64_t first, uint64_t step, std::span<float> out);
void fill_normal(Stream stream, uint64_t first, uint64_t step, std::span<float> out);

}  // namespace trireme
