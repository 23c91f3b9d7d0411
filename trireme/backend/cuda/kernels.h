// The kernels that the device cuda has. An op of which it has none for the types of a call runs as a kernel of the CPU,
// between copies (stream.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/backend/device.h"

namespace trireme::cuda {

struct CudaKernel {
  std::string_view op;
  std::string_view name;
  KernelFn* run = nullptr;
  // "" when it can run on these local types, otherwise the reason. Null: it always can.
  std::string (*why_not)(const TypeArgs& args) = nullptr;
  // Bytes of KernelArgs::scratch, in the device's memory. Null: none.
  int64_t (*scratch)(const TypeArgs& args) = nullptr;

  bool can_run(const TypeArgs& args) const { return why_not == nullptr || why_not(args).empty(); }
  int64_t scratch_bytes(const TypeArgs& args) const { return scratch == nullptr ? 0 : scratch(args); }
};

// The first of those for the op that can run on these types; null: none.
const CudaKernel* kernel_for(const OpDef& op, const TypeArgs& args);
const CudaKernel* kernel_named(const OpDef& op, std::string_view name);
bool is_own(KernelFn* kernel);

// Of a floating type that kernels compute with.
std::string no_float(const TypeArgs& args);

// What kernels written in CUDA begin with: names for the types of a call with elements of this type (T: as they are
// stored; W: as they are computed with; S: of statistics), load and store, and what several of them call.
std::string prelude(DType dtype);

// i32 or i64, as kernels take them.
struct Numbers {
  const std::byte* at = nullptr;
  int bytes = 8;
};
inline Numbers numbers_of(const View& view) {
  return {view.data, static_cast<int>(size_of(view.type.dtype))};
}

// Of a call of attention_grad: delta[b,h,i] = dout . out, in the type that is computed with (attention.cpp).
void run_attention_delta(const KernelArgs& args, std::byte* delta);

}  // namespace trireme::cuda
