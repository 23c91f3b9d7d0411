// What all calls of oneDNN's primitives share.
#pragma once

#include <cstddef>
#include <dnnl.hpp>

#include "trireme/backend/cpu/products/gemm.h"

namespace trireme::cpu {

inline const dnnl::engine& onednn_engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

// Scratch memory on a boundary that oneDNN's loops like; `bytes` are asked for kAlign more.
inline constexpr int64_t kAlign = 64;

inline int64_t aligned(int64_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}
inline std::byte* align(std::byte* p) {
  return p + (kAlign - reinterpret_cast<uintptr_t>(p) % kAlign) % kAlign;
}

}  // namespace trireme::cpu
