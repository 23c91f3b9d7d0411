// Products by AMX, which multiplies tiles of 16 x 32 and 32 x 16 bf16 and adds to 16 x 16 sums in f32. Numbers of f32
// are multiplied as three bf16, which hold all of their digits (cpu/products/tiled_product.h).
#pragma once

#include <cstdint>

#include "trireme/backend/cpu/isa/products.h"

namespace trireme::cpu {

inline constexpr int64_t kTileLines = 32;   // rows, or columns, of a block: those of two tiles
inline constexpr int64_t kTileTerms = 32;   // of a step
inline constexpr int64_t kPartsOfF32 = 3;   // that a number of f32 is written as
inline constexpr int64_t kTileWords = 256;  // of 32 bits: pairs of terms

// How the lines of an operand (rows of a, columns of b) and their terms lie: the lines of a term side by side and terms
// `stride` apart, or the other way around. `as_rows`: as the first operand wants them.
struct TileSource {
  bool as_rows = false;
  bool lines_beside = false;
  int64_t stride = 0;
};

// c[rows, columns], at most kTileLines rows, = sums of `steps` steps, or those added to what `sums` holds at the same
// place, which may be c. Operands are packed: for each step its parts, each as two tiles of 16 lines; kTileLines
// columns lie `b_block` words from the next ones.
struct TileRow {
  int64_t rows = 0, columns = 0, steps = 0;
  const uint32_t* a = nullptr;
  const uint32_t* b = nullptr;
  int64_t b_block = 0;
  const float* sums = nullptr;  // null: none
  int64_t sums_row = 0;
  float* c = nullptr;  // or null, and, of bf16
  Bf16* rounded = nullptr;
  int64_t c_row = 0;
  LinesAhead* ahead = nullptr;
};

struct TileLoops {
  // A thread brackets the products that it computes: they need a state that other code does not want.
  void (*begin)();
  void (*end)();
  void (*multiply)(const TileRow& row);      // of bf16
  void (*multiply_f32)(const TileRow& row);  // of the parts of f32
  // At most kTileLines lines and any number of terms, filled up with zeros to whole tiles and steps.
  void (*pack)(const TileSource& how, int64_t lines, int64_t terms, const Bf16* from, uint32_t* to);
  void (*pack_f32)(const TileSource& how, int64_t lines, int64_t terms, const float* from, uint32_t* to);
  MultiplyAdds peak;  // of bf16
};

}  // namespace trireme::cpu
