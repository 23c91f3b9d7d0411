// Windows of pooling and their taps.
#pragma once

#include "trireme/backend/cpu/isa/pooling.h"
#include "trireme/backend/cpu/isa/simd_impl.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

using cpu::Pool;
using cpu::PoolAxis;

struct Range {
  int64_t begin = 0, end = 0;
};

// The taps of a window that lie inside the image; there is always one.
[[gnu::always_inline]] static inline Range taps_of(const PoolAxis& axis, int64_t window) {
  const int64_t start = window * axis.stride - axis.before;
  const int64_t left = axis.size - start;
  return {start < 0 ? -start : 0, left < axis.kernel ? left : axis.kernel};
}

// One window: where its result and its top left tap lie, and which taps are inside.
struct Window {
  int64_t result, start;
  Range rows, columns;
  int64_t taps() const { return (rows.end - rows.begin) * (columns.end - columns.begin); }
};

[[gnu::always_inline]] static inline Window window_of(const Pool& k, int64_t y, int64_t x) {
  const int64_t top = y * k.rows.stride - k.rows.before;
  const int64_t left = x * k.columns.stride - k.columns.before;
  return {(y * k.columns.windows + x) * k.channels, (top * k.columns.size + left) * k.channels, taps_of(k.rows, y),
          taps_of(k.columns, x)};
}

// A window of 2 by 2 inside the image, the usual one: its loops are unrolled.
struct SmallWindow {
  int64_t result, start;
  static constexpr Range rows{0, 2}, columns{0, 2};
  static constexpr int64_t taps() { return 4; }
};

[[gnu::always_inline]] static inline bool two_inside(const PoolAxis& axis) {
  return axis.kernel == 2 && axis.before == 0 && (axis.windows - 1) * axis.stride + 2 <= axis.size;
}

// Calls fn(window) for each, a Window or a SmallWindow.
template <class Fn>
[[gnu::always_inline]] static inline void each_window(const Pool& k, Fn&& fn) {
  const bool small = two_inside(k.rows) && two_inside(k.columns);
  for (int64_t y = 0; y < k.rows.windows; ++y) {
    for (int64_t x = 0; x < k.columns.windows; ++x) {
      const Window window = window_of(k, y, x);
      if (small) {
        fn(SmallWindow{window.result, window.start});
      } else {
        fn(window);
      }
    }
  }
}

// Calls fn(number of the tap, its place in the image).
template <class W, class Fn>
[[gnu::always_inline]] static inline void each_tap(const Pool& k, const W& window, Fn&& fn) {
  for (int64_t y = window.rows.begin; y < window.rows.end; ++y) {
    for (int64_t x = window.columns.begin; x < window.columns.end; ++x) {
      fn(static_cast<int32_t>(y * k.columns.kernel + x), window.start + (y * k.columns.size + x) * k.channels);
    }
  }
}

// Moves `windows` from those over the position before to those over this one.
[[gnu::always_inline]] static inline void move_to(const PoolAxis& axis, int64_t position, Range& windows) {
  const int64_t at = position + axis.before;
  while (windows.end < axis.windows && windows.end * axis.stride <= at) ++windows.end;
  while (windows.begin < windows.end && windows.begin * axis.stride + axis.kernel <= at) ++windows.begin;
}

// Adds up fn(vector, window, tap of it) over the windows that each position of the image lies in.
template <class T, class Fn>
[[gnu::always_inline]] static inline void sum_over_windows(const Pool& k, T* dx, Fn&& fn) {
  Range rows;
  for (int64_t y = 0; y < k.rows.size; ++y) {
    move_to(k.rows, y, rows);
    Range columns;
    for (int64_t x = 0; x < k.columns.size; ++x) {
      move_to(k.columns, x, columns);
      T* at = dx + (y * k.columns.size + x) * k.channels;
      for_each_vector(k.channels, [&](auto v) {
        F32 sum{};
        for (int64_t wy = rows.begin; wy < rows.end; ++wy) {
          for (int64_t wx = columns.begin; wx < columns.end; ++wx) {
            const int64_t ky = y + k.rows.before - wy * k.rows.stride;
            const int64_t kx = x + k.columns.before - wx * k.columns.stride;
            sum += fn(v, window_of(k, wy, wx), static_cast<int32_t>(ky * k.columns.kernel + kx));
          }
        }
        v.put(at, sum);
      });
    }
  }
}

struct Largest {
  F32 value;
  I32 tap;
};

// With the next one. What is not a number is never given up.
[[gnu::always_inline]] static inline F32 larger(F32 most, F32 next) {
  return most != most ? most : max(most, next);  // which gives `next` where that is no number
}
[[gnu::always_inline]] static inline Largest larger(const Largest& best, F32 next, int32_t tap) {
  const I32 stays = ((next <= best.value) | (best.value != best.value)) & (best.tap >= 0);
  return {stays ? best.value : next, stays ? best.tap : set_i(tap)};
}

// The first of the largest elements of a window, or the first that is not a number.
template <class W, class V, class T>
[[gnu::always_inline]] static inline Largest largest(const Pool& k, const W& window, V v, const T* x) {
  Largest best{set(-__builtin_inff()), set_i(-1)};
  each_tap(k, window, [&](int32_t tap, int64_t at) { best = larger(best, v.get(x + at), tap); });
  return best;
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
