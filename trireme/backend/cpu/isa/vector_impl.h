// A vector of floats as wide as the instruction set that this file is compiled for (simd_impl.h), and its bits.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace trireme::TRIREME_ISA_NAMESPACE {

#if defined(__AVX512F__) || defined(TRIREME_ISA_EMULATED)
inline constexpr int kLanes = 16;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

typedef float F32 __attribute__((vector_size(kLanes * 4)));
typedef int32_t I32 __attribute__((vector_size(kLanes * 4)));
typedef uint32_t U32 __attribute__((vector_size(kLanes * 4)));
typedef uint16_t U16 __attribute__((vector_size(kLanes * 2)));

// x - 0 is x, also where it is -0; nothing is left of it but the broadcast.
[[gnu::always_inline]] static inline F32 set(float x) {
  return x - F32{};
}
[[gnu::always_inline]] static inline I32 set_i(int32_t x) {
  return I32{} + x;
}
[[gnu::always_inline]] static inline F32 as_f(I32 x) {
  return reinterpret_cast<F32>(x);
}
[[gnu::always_inline]] static inline I32 as_i(F32 x) {
  return reinterpret_cast<I32>(x);
}

// Tensors hold f32 or bf16, a bf16 being given by its bits. Those are widened exactly, and rounded to the nearest, ties
// to even; what is not a number stays so.
[[gnu::always_inline]] static inline F32 widen(U16 bits) {
  return reinterpret_cast<F32>(__builtin_convertvector(bits, U32) << 16);
}
[[gnu::always_inline]] static inline U16 rounded_to_bf16(F32 x) {
  const U32 bits = reinterpret_cast<U32>(x);
  const U32 rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  return __builtin_convertvector(x == x ? rounded : (bits >> 16) | 0x40U, U16);
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
