// The table of loops of one instruction set.
#pragma once

#include "trireme/backend/cpu/isa/elementwise_impl.h"
#include "trireme/backend/cpu/isa/rows_impl.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

template <int kind = 0>
constexpr void fill_unary(cpu::Loops& table) {
  if constexpr (kind < static_cast<int>(Unary::kCount)) {
    table.unary[kind] = unary<static_cast<Unary>(kind)>;
    fill_unary<kind + 1>(table);
  }
}

template <int kind = 0>
constexpr void fill_binary(cpu::Loops& table) {
  if constexpr (kind < static_cast<int>(Binary::kCount)) {
    constexpr auto op = static_cast<Binary>(kind);
    table.binary[kind][0] = binary<op>;
    table.binary[kind][1] = binary_number_first<op>;
    table.binary[kind][2] = binary_number_second<op>;
    fill_binary<kind + 1>(table);
  }
}

constexpr cpu::Loops make_table() {
  cpu::Loops table{};
  fill_unary(table);
  fill_binary(table);
  table.to_bf16 = to_bf16;
  table.from_bf16 = from_bf16;
  table.sum = sum;
  table.square_sum = square_sum;
  table.max = max_of;
  table.accumulate = accumulate;
  table.softmax = softmax;
  table.softmax_grad = softmax_grad;
  table.sum_exp = sum_exp;
  table.softmax_affine = softmax_affine;
  table.layer_norm = layer_norm;
  table.layer_norm_grad = layer_norm_grad;
  table.adam = adam;
  table.sgd = sgd;
  table.online_softmax = online_softmax;
  table.recompute_softmax = recompute_softmax;
  table.scale_rows = scale_rows;
  table.softmax_tile_grad = softmax_tile_grad;
  table.dot = dot;
  table.dropout = dropout;
  table.multiply_adds = multiply_adds;
  table.multiply_adds_per_turn = kChains * kLanes;
  table.triad = triad;
  return table;
}

extern const cpu::Loops kLoops;
constinit const cpu::Loops kLoops = make_table();

}  // namespace trireme::TRIREME_ISA_NAMESPACE
