// The table of loops of one instruction set.
#pragma once

#include "trireme/backend/cpu/isa/channels_impl.h"
#include "trireme/backend/cpu/isa/elementwise_impl.h"
#include "trireme/backend/cpu/isa/exact_impl.h"
#include "trireme/backend/cpu/isa/norm_impl.h"
#include "trireme/backend/cpu/isa/pack_impl.h"
#include "trireme/backend/cpu/isa/peak_impl.h"
#include "trireme/backend/cpu/isa/pool_impl.h"
#include "trireme/backend/cpu/isa/product_impl.h"
#include "trireme/backend/cpu/isa/reduce_impl.h"
#include "trireme/backend/cpu/isa/rows_impl.h"
#if defined(__AVX512BF16__) || defined(TRIREME_ISA_EMULATED)
#include "trireme/backend/cpu/isa/pairs_impl.h"
#endif

namespace trireme::TRIREME_ISA_NAMESPACE {

template <class T, int kind = 0>
constexpr void fill_unary(cpu::TensorLoops<T>& table) {
  if constexpr (kind < static_cast<int>(Unary::kCount)) {
    table.unary[kind] = unary<static_cast<Unary>(kind), T>;
    fill_unary<T, kind + 1>(table);
  }
}

template <class T, int kind = 0>
constexpr void fill_binary(cpu::TensorLoops<T>& table) {
  if constexpr (kind < static_cast<int>(Binary::kCount)) {
    constexpr auto op = static_cast<Binary>(kind);
    table.binary[kind][0] = binary<op, T>;
    table.binary[kind][1] = binary_number_first<op, T>;
    table.binary[kind][2] = binary_number_second<op, T>;
    fill_binary<T, kind + 1>(table);
  }
}

template <class T>
constexpr cpu::TensorLoops<T> make_tensor_table() {
  cpu::TensorLoops<T> table{};
  fill_unary(table);
  fill_binary(table);
  table.to_f32 = convert<T, float>;
  table.from_f32 = convert<float, T>;
  table.sum = sum<T>;
  table.square_sum = square_sum<T>;
  table.dot = dot<T>;
  table.max = max_of<T>;
  table.extreme[0] = extreme<Binary::kMaximum, T>;
  table.extreme[1] = extreme<Binary::kMinimum, T>;
  table.argmax = argmax<T>;
  table.accumulate = accumulate<T>;
  table.accumulate_extreme[0] = accumulate_extreme<Binary::kMaximum, T>;
  table.accumulate_extreme[1] = accumulate_extreme<Binary::kMinimum, T>;
  table.softmax = softmax<T>;
  table.softmax_grad = softmax_grad<T>;
  table.log_softmax = log_softmax<T>;
  table.log_softmax_grad = log_softmax_grad<T>;
  table.sum_exp = sum_exp<T>;
  table.softmax_affine = softmax_affine<T>;
  table.layer_norm = layer_norm<T>;
  table.layer_norm_grad = layer_norm_grad<T>;
  table.rms_norm = rms_norm<T>;
  table.rms_norm_grad = rms_norm_grad<T>;
  table.channel_sums = channel_sums<T>;
  table.batch_norm = batch_norm<T>;
  table.batch_norm_sums = batch_norm_sums<T>;
  table.batch_norm_grad = batch_norm_grad<T>;
  table.max_pool = max_pool<T>;
  table.max_pool_grad = max_pool_grad<T>;
  table.avg_pool = avg_pool<T>;
  table.avg_pool_grad = avg_pool_grad<T>;
  table.adam = adam<T>;
  table.sgd = sgd<T>;
  table.lamb = lamb<T>;
  table.add_scaled = add_scaled<T>;
  table.huber = huber<T>;
  table.dropout = dropout<T>;
  table.rotate = rotate<T>;
  return table;
}

constexpr cpu::Loops make_table() {
  cpu::Loops table{};
  table.f32 = make_tensor_table<float>();
  table.bf16 = make_tensor_table<Bf16>();
  table.online_softmax = online_softmax;
  table.recompute_softmax = recompute_softmax;
  table.scale_rows = scale_rows;
  table.softmax_tile_grad = softmax_tile_grad;
#if defined(__AVX512BF16__) || defined(TRIREME_ISA_EMULATED)
  table.pairs = make_pair_table();
#endif
  table.leaf_tile = leaf_tile_of<>;
  table.tile_rows = kTileRows;
  table.tile_columns = kTileColumns;
  table.pack_beside = pack_beside;
  table.pack_apart = pack_apart;
  table.exact_squares = exact_squares;
  table.f32_peak = {multiply_adds_f32, kChains * kLanes};
  table.bf16_peak = kPeakBf16;
  return table;
}

extern const cpu::Loops kLoops;
constinit const cpu::Loops kLoops = make_table();

}  // namespace trireme::TRIREME_ISA_NAMESPACE
