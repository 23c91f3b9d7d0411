// Max pooling of few channels, several windows in a vector.
#pragma once

#include "trireme/backend/cpu/isa/pool_windows_impl.h"

#if defined(__AVX512F__)
namespace trireme::TRIREME_ISA_NAMESPACE {

// Windows of 2 by 2 side by side, of so few channels that a vector takes several of them: two vectors of a line of x
// are parted into left and right taps, and those of dx joined of them.
struct NarrowWindows {
  int64_t together;  // windows
  I32 taps[2], line[2];
};

[[gnu::always_inline]] static inline bool are_narrow(const Pool& k) {
  const auto apart = [](const PoolAxis& axis) { return two_inside(axis) && axis.stride == 2; };
  return k.channels > 0 && k.channels <= kLanes / 2 && apart(k.rows) && apart(k.columns);
}

static inline NarrowWindows narrow_windows(int64_t channels) {
  NarrowWindows n{.together = kLanes / channels, .taps = {}, .line = {}};
  const auto c = static_cast<int32_t>(channels);
  int32_t lane = 0;  // of a vector of taps, a tap of each window
  for (int32_t window = 0; window < n.together; ++window) {
    for (int32_t channel = 0; channel < c; ++channel, ++lane) {
      for (int32_t side = 0; side < 2; ++side) {
        const int32_t at = (2 * window + side) * c + channel;  // in the line
        n.taps[side][lane] = at;
        n.line[at / kLanes][at % kLanes] = side * kLanes + lane;
      }
    }
  }
  return n;
}

// Both taps of a line of the windows, whose numbers are `count` of x.
template <class T>
[[gnu::always_inline]] static inline void take_taps(const NarrowWindows& n, int64_t count, const T* x, F32* taps) {
  const F32 first = count >= kLanes ? load(x) : load_n(x, count);
  const F32 second = count == 2 * kLanes ? load(x + kLanes)
                     : count > kLanes    ? load_n(x + kLanes, count - kLanes)
                                         : F32{};
  for (int side = 0; side < 2; ++side) taps[side] = _mm512_permutex2var_ps(first, (__m512i)n.taps[side], second);
}
template <class T>
[[gnu::always_inline]] static inline void put_taps(const NarrowWindows& n, int64_t count, const F32* taps, T* x) {
  const F32 first = _mm512_permutex2var_ps(taps[0], (__m512i)n.line[0], taps[1]);
  const F32 second = _mm512_permutex2var_ps(taps[0], (__m512i)n.line[1], taps[1]);
  count >= kLanes ? store(x, first) : store_n(x, first, count);
  if (count > kLanes) count == 2 * kLanes ? store(x + kLanes, second) : store_n(x + kLanes, second, count - kLanes);
}

// Calls fn(numbers of a tap of all windows taken together, where they lie in the result, in the upper line of x, and in
// the lower one).
template <class Fn>
[[gnu::always_inline]] static inline void each_narrow(const Pool& k, const NarrowWindows& n, Fn&& fn) {
  const int64_t c = k.channels, line = k.columns.size * c;
  for (int64_t y = 0; y < k.rows.windows; ++y) {
    for (int64_t x = 0; x < k.columns.windows; x += n.together) {
      const int64_t left = k.columns.windows - x;
      const int64_t upper = 2 * (y * line + x * c);
      fn((left < n.together ? left : n.together) * c, (y * k.columns.windows + x) * c, upper, upper + line);
    }
  }
}

template <class T>
void narrow_max_pool(const Pool& k, const T* x, T* y) {
  const NarrowWindows n = narrow_windows(k.channels);
  each_narrow(
      k, n, [&](int64_t count, int64_t result, int64_t upper, int64_t lower) __attribute__((always_inline)) {
        F32 taps[4];
        take_taps(n, 2 * count, x + upper, taps);
        take_taps(n, 2 * count, x + lower, taps + 2);
        F32 most = set(-__builtin_inff());
        for (int tap = 0; tap < 4; ++tap) most = larger(most, taps[tap]);
        count == kLanes ? store(y + result, most) : store_n(y + result, most, count);
      });
}

template <class T>
void narrow_max_pool_grad(const Pool& k, const T* x, const T* dy, T* dx) {
  if (2 * k.rows.windows < k.rows.size || 2 * k.columns.windows < k.columns.size)
    __builtin_memset(dx, 0, static_cast<size_t>(k.rows.size * k.columns.size * k.channels) * sizeof(T));
  const NarrowWindows n = narrow_windows(k.channels);
  each_narrow(
      k, n, [&](int64_t count, int64_t result, int64_t upper, int64_t lower) __attribute__((always_inline)) {
        F32 taps[4];
        take_taps(n, 2 * count, x + upper, taps);
        take_taps(n, 2 * count, x + lower, taps + 2);
        Largest best{set(-__builtin_inff()), set_i(-1)};
        for (int tap = 0; tap < 4; ++tap) best = larger(best, taps[tap], tap);
        const F32 d = count == kLanes ? load(dy + result) : load_n(dy + result, count);
        for (int tap = 0; tap < 4; ++tap) taps[tap] = best.tap == tap ? d : F32{};
        put_taps(n, 2 * count, taps, dx + upper);
        put_taps(n, 2 * count, taps + 2, dx + lower);
      });
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
#endif
