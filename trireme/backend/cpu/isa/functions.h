// The functions of elements: y = f(x) and y = f(a, b), of which elementwise.h makes loops.
#pragma once

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

}  // namespace trireme::cpu

// What they do, for the sources that are compiled once per instruction set.
#ifdef TRIREME_ISA_NAMESPACE
#include "trireme/backend/cpu/isa/math_impl.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

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

}  // namespace trireme::TRIREME_ISA_NAMESPACE
#endif
