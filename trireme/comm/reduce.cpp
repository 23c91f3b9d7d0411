#include "trireme/comm/reduce.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")  // -O2 of gcc leaves these loops scalar
#endif

namespace trireme::comm {
namespace {

// Elements reduced at a time: the sums stay in the first-level cache between the sources.
constexpr int64_t kBlock = 2048;
// Sums of 2, 4, 8, ... sources that wait for their like.
constexpr int kLevels = 12;
constexpr size_t kMaxSources = size_t{1} << kLevels;

// bf16 is summed in f32; integers in their unsigned kin, whose overflow is defined.
template <class T>
struct Accumulate {
  using Type = T;
};
template <>
struct Accumulate<BFloat16> {
  using Type = float;
};

template <Reduce op, class A>
[[gnu::always_inline]] inline A combine(A a, A b) {
  if constexpr (op == Reduce::kSum) {
    if constexpr (std::is_integral_v<A>) {
      using U = std::make_unsigned_t<A>;
      return static_cast<A>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    } else {
      return a + b;
    }
  } else if constexpr (op == Reduce::kMax) {
    return (b > a || b != b) ? b : a;
  } else {
    return (b < a || b != b) ? b : a;
  }
}

// sums = first op second, or first alone.
template <Reduce op, class T, class A>
[[gnu::always_inline]] inline void reduce_pair(const T* first, const T* second, A* sums, int64_t n) {
  if (second == nullptr) {
    for (int64_t i = 0; i < n; ++i) sums[i] = static_cast<A>(first[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) sums[i] = combine<op>(static_cast<A>(first[i]), static_cast<A>(second[i]));
  }
}

template <Reduce op, class T>
[[gnu::always_inline]] inline void reduce_blocks(std::span<const std::byte* const> sources,
                                                 std::span<std::byte* const> outs, int64_t count) {
  using A = typename Accumulate<T>::Type;
  alignas(64) A levels[kLevels][kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    const auto block = [&](size_t s) {
      return s < sources.size() ? reinterpret_cast<const T*>(sources[s]) + begin : nullptr;
    };
    int depth = 0;
    const auto merge = [&] {
      --depth;
      A* to = levels[depth - 1];
      const A* from = levels[depth];
      for (int64_t i = 0; i < n; ++i) to[i] = combine<op>(to[i], from[i]);
    };
    for (size_t pair = 0; 2 * pair < sources.size(); ++pair) {
      reduce_pair<op>(block(2 * pair), block(2 * pair + 1), levels[depth++], n);
      for (size_t done = pair; (done & 1) != 0; done >>= 1) merge();
    }
    while (depth > 1) merge();
    const A* sums = levels[0];
    for (std::byte* out : outs) {
      T* to = reinterpret_cast<T*>(out) + begin;
      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(sums[i]);
    }
  }
}

using Kernel = void (*)(std::span<const std::byte* const>, std::span<std::byte* const>, int64_t);

template <Reduce op, class T>
void reduce_plain(std::span<const std::byte* const> sources, std::span<std::byte* const> outs, int64_t count) {
  reduce_blocks<op, T>(sources, outs, count);
}

#if defined(__x86_64__)
// The same loop for processors with AVX2; no multiply-add is formed, so the bits are the same.
template <Reduce op, class T>
[[gnu::target("avx2")]] void reduce_avx2(std::span<const std::byte* const> sources, std::span<std::byte* const> outs,
                                         int64_t count) {
  reduce_blocks<op, T>(sources, outs, count);
}
#endif

template <Reduce op, class T>
Kernel kernel_of() {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  if (has_avx2) return reduce_avx2<op, T>;
#endif
  return reduce_plain<op, T>;
}

template <class T>
Kernel kernel_of(Reduce op) {
  switch (op) {
    case Reduce::kSum:
      return kernel_of<Reduce::kSum, T>();
    case Reduce::kMax:
      return kernel_of<Reduce::kMax, T>();
    case Reduce::kMin:
      return kernel_of<Reduce::kMin, T>();
  }
  fail(ErrorKind::kInternal, "reduction {} is unknown", static_cast<int>(op));
}

Kernel kernel_of(Reduce op, DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return kernel_of<float>(op);
    case DType::kF64:
      return kernel_of<double>(op);
    case DType::kBF16:
      return kernel_of<BFloat16>(op);
    case DType::kI8:
      return kernel_of<int8_t>(op);
    case DType::kU8:
      return kernel_of<uint8_t>(op);
    case DType::kI32:
      return kernel_of<int32_t>(op);
    case DType::kI64:
      return kernel_of<int64_t>(op);
    case DType::kF16:
    case DType::kBool:
      break;
  }
  fail(ErrorKind::kInternal, "elements of type {} cannot be reduced", to_string(dtype));
}

}  // namespace

void reduce_in_tree(Reduce op, DType dtype, std::span<const std::byte* const> sources, std::span<std::byte* const> outs,
                    int64_t count) {
  if (count == 0) return;
  if (sources.size() == 1) {
    const size_t bytes = static_cast<size_t>(count * size_of(dtype));
    for (std::byte* out : outs) std::memmove(out, sources[0], bytes);
    return;
  }
  invariant(sources.size() <= kMaxSources, "{} sources to reduce", sources.size());
  kernel_of(op, dtype)(sources, outs, count);
}

}  // namespace trireme::comm
