// Pooling of one image [h,w,c], vectors along the channels.
#pragma once

#include "trireme/backend/cpu/isa/products.h"

namespace trireme::cpu {

// Windows that slide along one dimension of an image: tap t of window w lies on position w stride -
// before + t.
struct PoolAxis {
  int64_t size = 0;
  int64_t windows = 0;
  int64_t kernel = 1, stride = 1, before = 0;
};

struct Pool {
  PoolAxis rows, columns;
  int64_t channels = 0;
  bool count_padding = true;  // in means
};

template <class T>
struct PoolLoops {
  // One image. The gradient of max_pool takes room for a number per element of dy, or null where no
  // windows overlap.
  void (*max_pool)(const Pool& k, const T* x, T* y);
  void (*max_pool_grad)(const Pool& k, const T* x, const T* dy, int32_t* taps, T* dx);
  void (*avg_pool)(const Pool& k, const T* x, T* y);
  void (*avg_pool_grad)(const Pool& k, const T* dy, T* dx);
};

}  // namespace trireme::cpu

// What they do, for the sources that are compiled once per instruction set.
#ifdef TRIREME_ISA_NAMESPACE
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

// The first of the largest elements of a window; one that is not a number gives way to any other.
template <class W, class V, class T>
[[gnu::always_inline]] static inline Largest largest(const Pool& k, const W& window, V v, const T* x) {
  Largest best{set(-__builtin_inff()), set_i(-1)};
  each_tap(k, window, [&](int32_t tap, int64_t at) {
    const F32 next = v.get(x + at);
    const I32 stays = (next <= best.value) & (best.tap >= 0);
    best.value = stays ? best.value : next;
    best.tap = stays ? best.tap : set_i(tap);
  });
  return best;
}

template <class T>
void max_pool(const Pool& k, const T* x, T* y) {
  each_window(k, [&](const auto& window) {
    for_each_vector(k.channels, [&](auto v) {
      F32 most = set(-__builtin_inff());
      each_tap(k, window, [&](int32_t, int64_t at) { most = max(most, v.get(x + at)); });
      v.put(y + window.result, most);
    });
  });
}

// Calls fn(vector, window) for each window of those that do not overlap, to write the gradients of
// its taps; positions that no window covers get none.
template <class T, class Fn>
[[gnu::always_inline]] static inline void spread_apart(const Pool& k, T* dx, Fn&& fn) {
  const auto covered = [](const PoolAxis& axis) {
    return axis.stride == axis.kernel && axis.windows * axis.stride - axis.before >= axis.size;
  };
  if (!covered(k.rows) || !covered(k.columns)) {
    __builtin_memset(dx, 0, static_cast<size_t>(k.rows.size * k.columns.size * k.channels) * sizeof(T));
  }
  each_window(k, [&](const auto& window) { for_each_vector(k.channels, [&](auto v) { fn(v, window); }); });
}

template <class T>
void max_pool_grad(const Pool& k, const T* x, const T* dy, int32_t* taps, T* dx) {
  if (taps == nullptr) {
    spread_apart(k, dx, [&](auto v, const auto& window) {
      const I32 best = largest(k, window, v, x).tap;
      const F32 d = v.get(dy + window.result);
      each_tap(k, window, [&](int32_t tap, int64_t at) { v.put(dx + at, best == tap ? d : F32{}); });
    });
    return;
  }
  // Bits of whole numbers are stored and read as those of floats.
  auto* bits = reinterpret_cast<float*>(taps);
  each_window(k, [&](const auto& window) {
    for_each_vector(k.channels, [&](auto v) { v.put(bits + window.result, as_f(largest(k, window, v, x).tap)); });
  });
  sum_over_windows(k, dx, [&](auto v, const Window& window, int32_t tap) {
    return as_i(v.get(bits + window.result)) == tap ? v.get(dy + window.result) : F32{};
  });
}

template <class W>
[[gnu::always_inline]] static inline float share_of(const Pool& k, const W& window) {
  const int64_t all = k.rows.kernel * k.columns.kernel;
  return 1.0F / static_cast<float>(k.count_padding ? all : window.taps());
}

template <class T>
void avg_pool(const Pool& k, const T* x, T* y) {
  each_window(k, [&](const auto& window) {
    const F32 share = set(share_of(k, window));
    for_each_vector(k.channels, [&](auto v) {
      F32 sum{};
      each_tap(k, window, [&](int32_t, int64_t at) { sum += v.get(x + at); });
      v.put(y + window.result, sum * share);
    });
  });
}

template <class T>
void avg_pool_grad(const Pool& k, const T* dy, T* dx) {
  if (k.rows.stride >= k.rows.kernel && k.columns.stride >= k.columns.kernel) {
    spread_apart(k, dx, [&](auto v, const auto& window) {
      const F32 d = v.get(dy + window.result) * share_of(k, window);
      each_tap(k, window, [&](int32_t, int64_t at) { v.put(dx + at, d); });
    });
    return;
  }
  sum_over_windows(
      k, dx, [&](auto v, const Window& window, int32_t) { return v.get(dy + window.result) * share_of(k, window); });
}

template <class T>
constexpr cpu::PoolLoops<T> pool_loops() {
  return {.max_pool = max_pool<T>,
          .max_pool_grad = max_pool_grad<T>,
          .avg_pool = avg_pool<T>,
          .avg_pool_grad = avg_pool_grad<T>};
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
#endif
