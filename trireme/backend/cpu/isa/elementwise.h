// Elementwise loops: over the functions of functions.h, and those of single ops.
#pragma once

#include "trireme/backend/cpu/isa/functions.h"
#include "trireme/backend/cpu/isa/products.h"

namespace trireme::cpu {

template <class T>
struct ElementwiseLoops {
  void (*unary[static_cast<int>(Unary::kCount)])(int64_t n, const T* x, T* y, float p, float q);
  // [function][0: both vectors, 1: a is one number, 2: b is one number]
  void (*binary[static_cast<int>(Binary::kCount)][3])(int64_t n, const T* a, const T* b, T* y);

  void (*to_f32)(int64_t n, const T* x, float* y);
  void (*from_f32)(int64_t n, const float* x, T* y);

  // y = a + s b
  void (*add_scaled)(int64_t n, const T* a, const T* b, float s, T* y);
  void (*huber)(int64_t n, const T* x, const T* target, float delta, T* y);

  // y = scale x where the element's word is not below `limit` <= 2^32, else 0.
  void (*dropout)(int64_t n, const uint32_t* words, uint64_t limit, float scale, const T* x, T* y);

  // Turns n pairs (x[i], x[n+i]), each by its angle.
  void (*rotate)(int64_t n, const float* cos, const float* sin, const T* x, T* y);
};

}  // namespace trireme::cpu

// What they do, for the sources that are compiled once per instruction set.
#ifdef TRIREME_ISA_NAMESPACE
#include "trireme/backend/cpu/isa/math_impl.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

using cpu::Bf16;

template <Unary kind, class T>
void unary(int64_t n, const T* x, T* y, float p, float q) {
  const F32 vp = set(p);
  const F32 vq = set(q);
  for_each_vector(n, [&](auto v) { v.put(y, apply<kind>(v.get(x), vp, vq)); });
}

template <Binary kind, class T>
void binary(int64_t n, const T* a, const T* b, T* y) {
  for_each_vector(n, [&](auto v) { v.put(y, apply<kind>(v.get(a), v.get(b))); });
}

template <Binary kind, class T>
void binary_number_first(int64_t n, const T* a, const T* b, T* y) {
  const F32 first = set(number(a));
  for_each_vector(n, [&](auto v) { v.put(y, apply<kind>(first, v.get(b))); });
}

template <Binary kind, class T>
void binary_number_second(int64_t n, const T* a, const T* b, T* y) {
  const F32 second = set(number(b));
  for_each_vector(n, [&](auto v) { v.put(y, apply<kind>(v.get(a), second)); });
}

template <class From, class To>
void convert(int64_t n, const From* x, To* y) {
  for_each_vector(n, [&](auto v) { v.put(y, v.get(x)); });
}

template <class T>
void add_scaled(int64_t n, const T* a, const T* b, float s, T* y) {
  for_each_vector(n, [&](auto v) { v.put(y, fma(set(s), v.get(b), v.get(a))); });
}

template <class T>
void huber(int64_t n, const T* x, const T* target, float delta, T* y) {
  for_each_vector(n, [&](auto v) {
    const F32 e = abs(v.get(x) - v.get(target));
    // Near the target both factors are e.
    const F32 near = min(e, set(delta));
    v.put(y, near * fma(near, set(-0.5F), e));
  });
}

template <class T>
void dropout(int64_t n, const uint32_t* words, uint64_t limit, float scale, const T* x, T* y) {
  if (limit == 0) {
    for_each_vector(n, [&](auto v) { v.put(y, v.get(x) * scale); });
    return;
  }
  const auto last_dropped = static_cast<uint32_t>(limit - 1);
  const U32 last = U32{} + last_dropped;
  for_each_vector(n, [&](auto v) {
    const U32 word = reinterpret_cast<U32>(v.get(reinterpret_cast<const float*>(words)));
    v.put(y, word > last ? v.get(x) * scale : F32{});
  });
}

template <class T>
void rotate(int64_t n, const float* cos, const float* sin, const T* x, T* y) {
  for_each_vector(n, [&](auto v) {
    const F32 first = v.get(x);
    const F32 second = v.get(x + n);
    v.put(y, fma(first, v.get(cos), -(second * v.get(sin))));
    v.put(y + n, fma(second, v.get(cos), first * v.get(sin)));
  });
}

template <class T, int kind = 0>
constexpr void fill_unary(cpu::ElementwiseLoops<T>& table) {
  if constexpr (kind < static_cast<int>(Unary::kCount)) {
    table.unary[kind] = unary<static_cast<Unary>(kind), T>;
    fill_unary<T, kind + 1>(table);
  }
}

template <class T, int kind = 0>
constexpr void fill_binary(cpu::ElementwiseLoops<T>& table) {
  if constexpr (kind < static_cast<int>(Binary::kCount)) {
    constexpr auto op = static_cast<Binary>(kind);
    table.binary[kind][0] = binary<op, T>;
    table.binary[kind][1] = binary_number_first<op, T>;
    table.binary[kind][2] = binary_number_second<op, T>;
    fill_binary<T, kind + 1>(table);
  }
}

template <class T>
constexpr cpu::ElementwiseLoops<T> elementwise_loops() {
  cpu::ElementwiseLoops<T> table{.to_f32 = convert<T, float>,
                                 .from_f32 = convert<float, T>,
                                 .add_scaled = add_scaled<T>,
                                 .huber = huber<T>,
                                 .dropout = dropout<T>,
                                 .rotate = rotate<T>};
  fill_unary(table);
  fill_binary(table);
  return table;
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
#endif
