// What the loops of pooling.h do.
#pragma once

#include "trireme/backend/cpu/isa/narrow_pooling_impl.h"
#include "trireme/backend/cpu/isa/pool_windows_impl.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

template <class T>
void max_pool(const Pool& k, const T* x, T* y) {
#if defined(__AVX512F__)
  if (are_narrow(k)) return narrow_max_pool(k, x, y);
#endif
  each_window(k, [&](const auto& window) {
    for_each_vector(k.channels, [&](auto v) {
      F32 most = set(-__builtin_inff());
      each_tap(k, window, [&](int32_t, int64_t at) { most = larger(most, v.get(x + at)); });
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
#if defined(__AVX512F__)
  if (are_narrow(k)) return narrow_max_pool_grad(k, x, dy, dx);
#endif
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
