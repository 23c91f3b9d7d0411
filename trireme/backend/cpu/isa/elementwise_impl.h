// Elementwise loops.
#pragma once

#include "trireme/backend/cpu/isa/loops.h"
#include "trireme/backend/cpu/isa/math_impl.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

using cpu::AdamNumbers;
using cpu::Bf16;
using cpu::Binary;
using cpu::LambNumbers;
using cpu::SgdNumbers;
using cpu::Unary;

inline constexpr float kSqrtHalf = 0.70710678118654752F;
inline constexpr float kInvSqrtTwoPi = 0.39894228040143268F;
inline constexpr float kSqrtTwoOverPi = 0.79788456080286536F;
inline constexpr float kGeluCubic = 0.044715F;

// gelu by tanh is x sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3).
[[gnu::always_inline]] static inline F32 twice_u(F32 x) {
  return 2 * kSqrtTwoOverPi * x * fma(x * x, set(kGeluCubic), set(1.0F));
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
  if constexpr (kind == Unary::kSilu) return x * sigmoid(x);
  if constexpr (kind == Unary::kGeluErf) return x * fma(erf(x * kSqrtHalf), set(0.5F), set(0.5F));
  if constexpr (kind == Unary::kGeluTanh) return x * sigmoid(twice_u(x));
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
    const F32 s = sigmoid(a);
    return b * s * fma(a, 1.0F - s, set(1.0F));
  }
  if constexpr (kind == Binary::kGeluErfGrad) {
    const F32 cdf = fma(erf(a * kSqrtHalf), set(0.5F), set(0.5F));
    return b * fma(a * kInvSqrtTwoPi, exp(a * a * -0.5F), cdf);
  }
  if constexpr (kind == Binary::kGeluTanhGrad) {
    const F32 s = sigmoid(twice_u(a));
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
void accumulate(int64_t n, const T* x, float* y) {
  for_each_vector(n, [&](auto v) { v.put(y, v.get(y) + v.get(x)); });
}

template <class T>
void adam(int64_t n, const AdamNumbers& k, const T* p, const T* g, const T* m, const T* v, T* p_out, T* m_out,
          T* v_out) {
  for_each_vector(n, [&](auto at) {
    const F32 param = at.get(p);
    const F32 grad = fma(set(k.l2), param, k.scale * at.get(g));
    const F32 m1 = fma(set(k.beta1), at.get(m), k.one_minus_beta1 * grad);
    const F32 v1 = fma(set(k.beta2), at.get(v), k.one_minus_beta2 * grad * grad);
    const F32 direction = m1 / fma(sqrt(v1), set(k.root), set(k.eps));
    at.put(p_out, fma(set(-k.step), direction, k.decay * param));
    at.put(m_out, m1);
    at.put(v_out, v1);
  });
}

template <class T>
void sgd(int64_t n, const SgdNumbers& k, const T* p, const T* g, const T* u, T* p_out, T* u_out) {
  for_each_vector(n, [&](auto at) {
    const F32 param = at.get(p);
    const F32 grad = fma(set(k.weight_decay), param, k.scale * at.get(g));
    const F32 velocity = k.first ? grad : fma(set(k.momentum), at.get(u), k.keep * grad);
    const F32 direction = fma(set(k.by_velocity), velocity, k.by_gradient * grad);
    at.put(p_out, fma(set(-k.lr), direction, param));
    if (u_out != nullptr) at.put(u_out, velocity);
  });
}

template <class T>
void lamb(int64_t n, const LambNumbers& k, const T* p, const T* g, const T* m, const T* v, T* u, T* m_out, T* v_out) {
  for_each_vector(n, [&](auto at) {
    const F32 grad = k.scale * at.get(g);
    const F32 m1 = fma(set(k.beta1), at.get(m), k.one_minus_beta1 * grad);
    const F32 v1 = fma(set(k.beta2), at.get(v), k.one_minus_beta2 * grad * grad);
    const F32 direction = k.first * m1 / fma(sqrt(v1), set(k.root), set(k.eps));
    at.put(u, fma(set(k.weight_decay), at.get(p), direction));
    at.put(m_out, m1);
    at.put(v_out, v1);
  });
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

}  // namespace trireme::TRIREME_ISA_NAMESPACE
