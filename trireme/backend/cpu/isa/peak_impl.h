// Multiply-adds in registers, which nothing slows down: the bound of every product.
#pragma once

#include "trireme/backend/cpu/isa/loops.h"
#include "trireme/backend/cpu/isa/simd_impl.h"
#if defined(__AVX512BF16__) || defined(TRIREME_ISA_EMULATED)
#include "trireme/backend/cpu/isa/pairs_impl.h"
#endif

namespace trireme::TRIREME_ISA_NAMESPACE {

// More chains than a multiply-add's latency times the units that do them, and few enough for the
// registers.
inline constexpr int64_t kChains = 12;

// chain = add(chain), `turns` times each.
template <class Add>
float run_chains(int64_t turns, Add&& add) {
  F32 chain[kChains];
  for (int64_t i = 0; i < kChains; ++i) chain[i] = set(static_cast<float>(i + 1));
  for (int64_t turn = 0; turn < turns; ++turn) {
    for (int64_t i = 0; i < kChains; ++i) chain[i] = add(chain[i]);
  }
  F32 total{};
  for (int64_t i = 0; i < kChains; ++i) total += chain[i];
  return sum_lanes(total);
}

[[maybe_unused]] static float multiply_adds_f32(int64_t turns) {
  const F32 factor = set(0.999F);
  const F32 term = set(0.001F);
  return run_chains(turns, [&](F32 sum) { return fma(sum, factor, term); });
}

#if defined(__AVX512BF16__) || defined(TRIREME_ISA_EMULATED)
// Two products a lane, added to a sum in f32.
static float multiply_adds_bf16(int64_t turns) {
  const U32 left = U32{} + 0x3a833a83U;   // 0.001
  const U32 right = U32{} + 0x3f803f80U;  // 1
  return run_chains(turns, [&](F32 sum) { return add_pair_products(sum, left, right); });
}
constexpr cpu::MultiplyAdds kPeakBf16{multiply_adds_bf16, kChains* kLanes * 2};
#else
// Products of bf16 are done in f32 here.
constexpr cpu::MultiplyAdds kPeakBf16{multiply_adds_f32, kChains* kLanes};
#endif

}  // namespace trireme::TRIREME_ISA_NAMESPACE
