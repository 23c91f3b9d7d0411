// The inner loops of the CPU kernels, one table of functions per instruction set. They work on
// plain pointers and one thread; results may lie exactly on operands of the same size. They compute
// in f32 and round once, to what they store. Sums are taken in a fixed order. Each family of loops is a header, which
// has both the table of its functions and what they do.
#pragma once

#include <cstdint>
#include <type_traits>

#include "trireme/backend/cpu/isa/attention.h"
#include "trireme/backend/cpu/isa/channels.h"
#include "trireme/backend/cpu/isa/elementwise.h"
#include "trireme/backend/cpu/isa/few_channels.h"
#include "trireme/backend/cpu/isa/matvec.h"
#include "trireme/backend/cpu/isa/norm.h"
#include "trireme/backend/cpu/isa/pooling.h"
#include "trireme/backend/cpu/isa/products.h"
#include "trireme/backend/cpu/isa/reduce.h"
#include "trireme/backend/cpu/isa/softmax.h"
#include "trireme/backend/cpu/isa/tile_attention.h"
#include "trireme/backend/cpu/isa/tiles.h"
#include "trireme/backend/cpu/isa/updates.h"
#include "trireme/backend/cpu/isa/winograd.h"

namespace trireme::cpu {

// Loops over tensors whose elements are stored as T: float or Bf16. Statistics, losses and sums in
// progress are f32 in both.
template <class T>
struct TensorLoops : ElementwiseLoops<T>,
                     ReduceLoops<T>,
                     RowLoops<T>,
                     NormLoops<T>,
                     ChannelLoops<T>,
                     PoolLoops<T>,
                     UpdateLoops<T>,
                     MatVecLoops<T>,
                     PackLoops<T> {};

// What is made of instructions for bf16, where there are any.
struct Bf16Loops {
  TensorLoops<Bf16> bf16;
  PairLoops pairs;
  MultiplyAdds bf16_peak;  // in f32 where no instruction multiplies bf16
};

struct Loops : AttentionLoops, WinogradLoops, FewChannelLoops, Bf16Loops {
  TensorLoops<float> f32;

  // At most tile_rows rows and tile_columns columns.
  void (*leaf_tile)(const LeafTile& tile);
  void (*block_tile)(const BlockTile& tile);
  void (*multiply_packed)(const PackedProduct& product);
  int64_t tile_rows, tile_columns;

  TileLoops tiles;  // null below amx, and so is
  TileAttentionLoops tile_attention;

  // sums[digit] += the digits of all x^2, on the grids of op/exact_sum.h.
  void (*exact_squares)(int64_t n, const float* x, const double* grids, double limit, int digits, double* sums);

  MultiplyAdds f32_peak;
};

// Of the instruction set in use (isa()).
const Loops& loops();
// For tests: from now on loops() are these, which do without the instructions of avx512_bf16, and set_isa takes the
// machine for one that has them; null ends it.
void emulate_loops(const Loops* loops);

template <class T>
const TensorLoops<T>& loops_on() {
  if constexpr (std::is_same_v<T, float>) {
    return loops().f32;
  } else {
    return loops().bf16;
  }
}

}  // namespace trireme::cpu
