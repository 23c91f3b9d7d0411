// Positions whose channels lie side by side, brought to planes, one a channel, and back: by permutations of vectors.
#pragma once

#include "trireme/backend/cpu/isa/simd_impl.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

// As many vectors of positions' channels, side by side, as there are channels, which are vectors of positions in
// planes: for each vector of the result and each lane, the float it comes from, counted over all vectors of the other
// form.
inline constexpr int64_t kMostPermuted = 8;  // channels
struct ChannelPlaces {
  I32 at[kMostPermuted];
};

// fn(constant of the number), 1 to `most`.
template <int number>
struct Number {
  static constexpr int value = number;
};
template <int most, class Fn>
[[gnu::always_inline]] static inline void with_number(int64_t number, Fn&& fn) {
  if constexpr (most > 1) {
    if (number < most) return with_number<most - 1>(number, fn);
  }
  fn(Number<most>{});
}

#if defined(__AVX512F__)
// Vectors of the other form, two at a time.
[[gnu::always_inline]] static inline F32 gathered(const ChannelPlaces& places, int64_t to, int64_t channels,
                                                  const F32* from) {
  const __m512i at = (__m512i)places.at[to];
  const __m512i pair = _mm512_srli_epi32(at, 5);
  F32 x{};
  for (int64_t v = 0; v < channels; v += 2) {
    const __mmask16 is_here = _mm512_cmpeq_epi32_mask(pair, _mm512_set1_epi32(static_cast<int>(v / 2)));
    x = _mm512_or_ps(x, _mm512_maskz_permutex2var_ps(is_here, from[v], at, from[v + 1]));
  }
  return x;
}

[[gnu::always_inline]] static inline ChannelPlaces places_to_join(int64_t channels) {
  ChannelPlaces places;
  int32_t channel = 0, position = 0;
  for (int64_t v = 0; v < channels; ++v) {
    for (int i = 0; i < kLanes; ++i) {
      places.at[v][i] = channel * kLanes + position;
      if (++channel == channels) channel = 0, ++position;
    }
  }
  return places;
}
[[gnu::always_inline]] static inline ChannelPlaces places_to_part(int64_t channels) {
  ChannelPlaces places;
  for (int64_t channel = 0; channel < channels; ++channel) {
    for (int i = 0; i < kLanes; ++i) places.at[channel][i] = static_cast<int32_t>(i * channels + channel);
  }
  return places;
}

// The floats from `begin` on of n.
[[gnu::always_inline]] static inline F32 load_within(const float* x, int64_t begin, int64_t n) {
  if (begin + kLanes <= n) return load(x + begin);
  return begin < n ? load_n(x + begin, n - begin) : F32{};
}
[[gnu::always_inline]] static inline void store_within(float* x, int64_t begin, int64_t n, F32 value) {
  if (begin + kLanes <= n) {
    store(x + begin, value);
  } else if (begin < n) {
    store_n(x + begin, value, n - begin);
  }
}

template <int channels>
void part_few_channels(int64_t n, const float* x, int64_t apart, float* planes) {
  const ChannelPlaces places = places_to_part(channels);
  F32 from[channels + 1]{};
  for (int64_t i = 0; i < n; i += kLanes) {
#pragma GCC unroll 16
    for (int64_t v = 0; v < channels; ++v) from[v] = load_within(x + i * channels, v * kLanes, (n - i) * channels);
#pragma GCC unroll 16
    for (int64_t c = 0; c < channels; ++c) store_within(planes + c * apart, i, n, gathered(places, c, channels, from));
  }
}

template <int channels>
void join_few_channels(int64_t n, const float* planes, int64_t apart, float* y) {
  const ChannelPlaces places = places_to_join(channels);
  F32 from[channels + 1]{};
  for (int64_t i = 0; i < n; i += kLanes) {
#pragma GCC unroll 16
    for (int64_t c = 0; c < channels; ++c) from[c] = load_within(planes + c * apart, i, n);
#pragma GCC unroll 16
    for (int64_t v = 0; v < channels; ++v)
      store_within(y + i * channels, v * kLanes, (n - i) * channels, gathered(places, v, channels, from));
  }
}
#endif

inline void part_channels(int64_t n, int64_t channels, const float* x, int64_t apart, float* planes) {
#if defined(__AVX512F__)
  if (channels <= kMostPermuted)
    return with_number<kMostPermuted>(
        channels, [&](auto number) { part_few_channels<decltype(number)::value>(n, x, apart, planes); });
#endif
  for (int64_t i = 0; i < n; ++i)
    for (int64_t c = 0; c < channels; ++c) planes[c * apart + i] = x[i * channels + c];
}

inline void join_channels(int64_t n, int64_t channels, const float* planes, int64_t apart, float* y) {
#if defined(__AVX512F__)
  if (channels <= kMostPermuted)
    return with_number<kMostPermuted>(
        channels, [&](auto number) { join_few_channels<decltype(number)::value>(n, planes, apart, y); });
#endif
  for (int64_t i = 0; i < n; ++i)
    for (int64_t c = 0; c < channels; ++c) y[i * channels + c] = planes[c * apart + i];
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
