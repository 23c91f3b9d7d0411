// Tensors stored as f32 or bf16. A kernel for both is a template on the stored type, float or Bf16,
// whose loops compute in f32.
#pragma once

#include <bit>
#include <type_traits>

#include "trireme/backend/cpu/isa/loops.h"
#include "trireme/op/op_def.h"

namespace trireme::cpu {

// The elements of a view of f32, or the bits of one of bf16.
template <class T>
T* data_of(const View& view) {
  if constexpr (std::is_same_v<T, float>) {
    return view.as<float>().data();
  } else {
    static_assert(sizeof(BFloat16) == sizeof(Bf16));
    return reinterpret_cast<Bf16*>(view.as<BFloat16>().data());
  }
}

// The value of one element, and back.
inline float number(float x) {
  return x;
}
inline float number(Bf16 bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

template <class T>
T stored(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    return BFloat16(x).bits;
  }
}

// Runs the kernel for the storage of an operand.
template <KernelFn of_f32, KernelFn of_bf16, int operand = 0>
void by_storage(const KernelArgs& args) {
  (args.in[operand].type.dtype == DType::kBF16 ? of_bf16 : of_f32)(args);
}

}  // namespace trireme::cpu
