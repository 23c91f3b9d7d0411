// Heads of attention as operands of tiles (cpu/isa/tiles.h), and results from their sums. Operands are packed as
// TileLoops::pack does: lines 32 at a time, each block with steps of 32 terms, kStepWords each. Sums lie in blocks of
// 32 x 32.
#pragma once

#include <cstdint>

#include "trireme/backend/cpu/isa/tiles.h"

namespace trireme::cpu {

inline constexpr int64_t kStepWords = 2 * kTileWords;

// Rows of a head, tokens of so many elements, as operands: null for those that nobody wants. Zeros fill them up.
struct TileHead {
  int64_t tokens = 0, size = 0;
  const Bf16* from = nullptr;
  int64_t stride = 0;
  uint32_t *rows = nullptr, *columns = nullptr;              // tokens as lines, elements as terms
  uint32_t *terms_rows = nullptr, *terms_columns = nullptr;  // elements as lines, tokens as terms
};

// to[tokens][size], rounded: sums times a factor for each token, or for all.
struct TileResult {
  int64_t tokens = 0, size = 0;
  const float* sums = nullptr;     // [tokens/32][size/32]
  const float* factors = nullptr;  // null: `factor`
  float factor = 1;
  Bf16* to = nullptr;
  int64_t stride = 0;
};

struct TileHeadLoops {
  void (*pack)(const TileHead& head);
  void (*put_tokens)(const TileResult& t);    // of sums of tokens times elements, one factor for all
  void (*put_elements)(const TileResult& t);  // of sums of elements times tokens
};

}  // namespace trireme::cpu
