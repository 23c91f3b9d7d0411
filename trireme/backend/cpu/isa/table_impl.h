// The table of loops of one instruction set.
#pragma once

#include "trireme/backend/cpu/isa/block_tile_impl.h"
#include "trireme/backend/cpu/isa/exact_impl.h"
#include "trireme/backend/cpu/isa/loops.h"
#include "trireme/backend/cpu/isa/pack_impl.h"
#include "trireme/backend/cpu/isa/peak_impl.h"
#include "trireme/backend/cpu/isa/product_impl.h"
#if defined(__AVX512BF16__) || defined(TRIREME_ISA_EMULATED)
#include "trireme/backend/cpu/isa/pairs_impl.h"
#endif

namespace trireme::TRIREME_ISA_NAMESPACE {

template <class T>
constexpr cpu::TensorLoops<T> make_tensor_table() {
  return {elementwise_loops<T>(), reduce_loops<T>(),  row_loops<T>(),
          norm_loops<T>(),        channel_loops<T>(), pool_loops<T>(),
          update_loops<T>(),      matvec_loops<T>(),  {pack_beside_of<T>, pack_apart_of<T>}};
}

constexpr cpu::Loops make_table() {
  cpu::Loops table{attention_loops()};
  table.f32 = make_tensor_table<float>();
  table.bf16 = make_tensor_table<Bf16>();
#if defined(__AVX512BF16__) || defined(TRIREME_ISA_EMULATED)
  table.pairs = make_pair_table();
#endif
  table.leaf_tile = leaf_tile_of<>;
  table.block_tile = block_tile_of<>;
  table.tile_rows = kTileRows;
  table.tile_columns = kTileColumns;
  table.exact_squares = exact_squares;
  table.f32_peak = {multiply_adds_f32, kChains * kLanes};
  table.bf16_peak = kPeakBf16;
  return table;
}

extern const cpu::Loops kLoops;
constinit const cpu::Loops kLoops = make_table();

}  // namespace trireme::TRIREME_ISA_NAMESPACE
