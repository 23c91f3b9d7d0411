// Elementwise loops: y = f(x) and y = f(a, b) of a table of functions, and those of single ops.
#pragma once

#include "trireme/backend/cpu/isa/products.h"

namespace trireme::cpu {

// y = f(x) with up to two numbers of the function.
enum class Unary {
  kNeg,
  kAbs,
  kExp,
  kSqrt,
  kRsqrt,
  kReciprocal,
  kSquare,
  kTanh,
  kSigmoid,
  kErf,
  kRelu,
  kSilu,
  kGeluErf,
  kGeluTanh,
  kScale,
  kAddScalar,
  kClamp,
  kLog,
  kSin,
  kCos,
  kSign,
  kPowScalar,
  kCount
};

// y = f(a, b); the gradients are f(x, dy).
enum class Binary {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMaximum,
  kMinimum,
  kPow,
  kReluGrad,
  kSiluGrad,
  kGeluErfGrad,
  kGeluTanhGrad,
  kCount
};

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
using cpu::Binary;
using cpu::Unary;

inline constexpr float kSqrtHalf = 0.70710678118654752F;
inline constexpr float kInvSqrtTwoPi = 0.39894228040143268F;
inline constexpr float kSqrtTwoOverPi = 0.79788456080286536F;
inline constexpr float kGeluCubic = 0.044715F;

// gelu by tanh is x sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3).
[[gnu::always_inline]] static inline F32 sigmoid_of_gelu(F32 x) {
  constexpr float kLinear = -2 * kSqrtTwoOverPi * kLog2E;
  return sigmoid_by_power(x * fma(x * x, set(kLinear * kGeluCubic), set(kLinear)));
}

template <Unary kind>
[[gnu::always_inline]] static inline F32 apply(F32 x, F32 p, F32 q) {
  if constexpr (kind == Unary::kNeg) return -x;
  if constexpr (kind == Unary::kAbs) return abs(x);
  if constexpr (kind == Unary::kExp) return exp(x);
  if constexpr (kind == Unary::kSqrt) return sqrt(x);
  if constexpr (kind == Unary::kRsqrt) return 1.0F / sqrt(x);
  if constexpr (kind == Unary::kReciprocal) return 1.0F / x;
  if constexpr (kind == Unary::kSquare) return x * x;
  if constexpr (kind == Unary::kTanh) return tanh(x);
  if constexpr (kind == Unary::kSigmoid) return sigmoid(x);
  if constexpr (kind == Unary::kErf) return erf(x);
  if constexpr (kind == Unary::kRelu) return max(F32{}, x);
  if constexpr (kind == Unary::kSilu) return x * sigmoid_by_power(x * -kLog2E);
  if constexpr (kind == Unary::kGeluErf) return x * fma(erf(x * kSqrtHalf), set(0.5F), set(0.5F));
  if constexpr (kind == Unary::kGeluTanh) return x * sigmoid_of_gelu(x);
  if constexpr (kind == Unary::kScale) return x * p;
  if constexpr (kind == Unary::kAddScalar) return x + p;
  if constexpr (kind == Unary::kClamp) return min(q, max(p, x));
  if constexpr (kind == Unary::kLog) return log(x);
  if constexpr (kind == Unary::kSin) return sin(x);
  if constexpr (kind == Unary::kCos) return cos(x);
  if constexpr (kind == Unary::kSign) return x > 0.0F ? set(1.0F) : x < 0.0F ? set(-1.0F) : F32{};
  if constexpr (kind == Unary::kPowScalar) return pow(x, p);
}

template <Unary kind, class T>
void unary(int64_t n, const T* x, T* y, float p, float q) {
  const F32 vp = set(p);
  const F32 vq = set(q);
  for_each_vector(n, [&](auto v) { v.put(y, apply<kind>(v.get(x), vp, vq)); });
}

template <Binary kind>
[[gnu::always_inline]] static inline F32 apply(F32 a, F32 b) {
  if constexpr (kind == Binary::kAdd) return a + b;
  if constexpr (kind == Binary::kSub) return a - b;
  if constexpr (kind == Binary::kMul) return a * b;
  if constexpr (kind == Binary::kDiv) return a / b;
  // Either operand that is not a number is the result.
  if constexpr (kind == Binary::kMaximum) return a == a ? max(a, b) : a;
  if constexpr (kind == Binary::kMinimum) return a == a ? min(a, b) : a;
  if constexpr (kind == Binary::kPow) return pow(a, b);
  if constexpr (kind == Binary::kReluGrad) return a > 0.0F ? b : F32{};
  if constexpr (kind == Binary::kSiluGrad) {
    const F32 s = sigmoid_by_power(a * -kLog2E);
    return b * s * fma(a, 1.0F - s, set(1.0F));
  }
  if constexpr (kind == Binary::kGeluErfGrad) {
    const F32 cdf = fma(erf(a * kSqrtHalf), set(0.5F), set(0.5F));
    return b * fma(a * kInvSqrtTwoPi, exp(a * a * -0.5F), cdf);
  }
  if constexpr (kind == Binary::kGeluTanhGrad) {
    const F32 s = sigmoid_of_gelu(a);
    const F32 slope = 2 * kSqrtTwoOverPi * fma(a * a, set(3 * kGeluCubic), set(1.0F));
    return b * fma(a * s * (1.0F - s), slope, s);
  }
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
