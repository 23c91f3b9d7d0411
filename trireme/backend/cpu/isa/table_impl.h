// The table of loops of one instruction set. AVX512-BF16 adds to AVX-512 only instructions for bf16, so its table has
// only the loops that use them, and takes its f32 loops from avx512 (loops.cpp). If the instructions are emulated, the
// table is complete, for machines without AVX-512.
#pragma once

#include "trireme/backend/cpu/isa/block_tile_impl.h"
#include "trireme/backend/cpu/isa/channel_tiles_impl.h"
#include "trireme/backend/cpu/isa/loops.h"
#include "trireme/backend/cpu/isa/pack_impl.h"
#include "trireme/backend/cpu/isa/packed_impl.h"
#include "trireme/backend/cpu/isa/peak_impl.h"
#include "trireme/backend/cpu/isa/pool_loops_impl.h"
#include "trireme/backend/cpu/isa/product_impl.h"
#if defined(__AVX512BF16__) || defined(TRIREME_ISA_EMULATED)
#include "trireme/backend/cpu/isa/pairs_impl.h"
#endif
#if !defined(__AVX512BF16__)
#include "trireme/backend/cpu/isa/exact_impl.h"
#endif
#if defined(TRIREME_ISA_EMULATED)
#include "trireme/backend/cpu/isa/tile_attention_grad_impl.h"
#endif

namespace trireme::TRIREME_ISA_NAMESPACE {

template <class T>
constexpr cpu::TensorLoops<T> make_tensor_table() {
  return {elementwise_loops<T>(), reduce_loops<T>(),  row_loops<T>(),
          norm_loops<T>(),        channel_loops<T>(), pool_loops<T>(),
          update_loops<T>(),      matvec_loops<T>(),  {pack_beside_of<T>, pack_apart_of<T>}};
}

constexpr cpu::Bf16Loops make_bf16_table() {
#if defined(__AVX512BF16__) || defined(TRIREME_ISA_EMULATED)
  return {make_tensor_table<Bf16>(), make_pair_table(), kPeakBf16};
#else
  return {make_tensor_table<Bf16>(), {}, kPeakBf16};
#endif
}

#if defined(__AVX512BF16__)
extern const cpu::Bf16Loops kBf16Loops;
constinit const cpu::Bf16Loops kBf16Loops = make_bf16_table();
#else
constexpr cpu::Loops make_table() {
  cpu::Loops table{attention_loops(), winograd_loops(), few_channel_loops(), make_bf16_table()};
  table.f32 = make_tensor_table<float>();
  table.leaf_tile = leaf_tile_of<>;
  table.block_tile = block_tile_of<>;
  table.multiply_packed = multiply_packed;
  table.tile_rows = kTileRows;
  table.tile_columns = kTileColumns;
  table.exact_squares = exact_squares;
#if defined(TRIREME_ISA_EMULATED)
  table.tiles = make_tile_table();
  table.tile_attention = make_tile_attention_table();
#endif
  table.f32_peak = {multiply_adds_f32, kChains * kLanes};
  return table;
}

extern const cpu::Loops kLoops;
constinit const cpu::Loops kLoops = make_table();
#endif

}  // namespace trireme::TRIREME_ISA_NAMESPACE
