// Packing of a product's operands: a panel has the terms of as many lines (rows of a, columns of b) as a tile, one term
// after the other, so that a tile reads memory from its beginning to its end.
#pragma once

#include <cstdint>
#include <span>

#include "trireme/backend/cpu/isa/products.h"

namespace trireme::cpu {

// One operand, of f32 or bf16: `lines` of it and their terms.
template <class T>
struct PanelSourceOf {
  const T* data;
  int64_t stride;
  bool lines_beside;  // the lines of a term lie side by side, terms `stride` apart; false: the other way around

  PanelSourceOf from_line(int64_t line) const {
    return {data + (lines_beside ? line : line * stride), stride, lines_beside};
  }
  PanelSourceOf from_term(int64_t term) const {
    return {data + (lines_beside ? term * stride : term), stride, lines_beside};
  }
};
using PanelSource = PanelSourceOf<float>;

// Runs of terms, `length` in all, of some lines, as panels of `width` lines; the last one is filled up with zeros.
template <class T>
void pack_panels(const PanelSourceOf<T>& from, int64_t lines, int64_t width, std::span<const LeafRun> runs,
                 int64_t length, float* to);

// Of so many each, but for the last one.
inline int64_t parts_of(int64_t n, int64_t size) {
  return (n + size - 1) / size;
}
inline int64_t rounded_up(int64_t n, int64_t to) {
  return parts_of(n, to) * to;
}

}  // namespace trireme::cpu
