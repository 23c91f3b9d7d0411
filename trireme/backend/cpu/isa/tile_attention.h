// Attention of bf16 by the tiles of AMX (cpu/isa/tiles.h), of blocks of 32 queries and 32 keys. Scores are computed as
// keys times queries, so that a vector holds queries: each has its maximum and its sum in a lane of its own, and
// probabilities leave the vectors as the rows that the next products want. Operands are packed as TileLoops::pack does:
// lines 32 at a time, each block with steps of 32 terms, kStepWords each. Sums lie in blocks of 32 x 32.
#pragma once

#include <cstdint>

#include "trireme/backend/cpu/isa/tile_heads.h"

namespace trireme::cpu {

// Some keys, of which query i of the first block sees the first `visible + i`.
struct TileKeys {
  int64_t count = 0;
  int64_t visible = 0;
};

inline constexpr int64_t kMostTileKeys = 256;  // that are given at once

// Blocks of queries and some keys; adds to what the queries have from keys before.
struct TileForward {
  TileKeys keys;
  bool first = false;  // there were none before
  int64_t blocks = 0;  // of queries
  int64_t steps = 0;   // of a head's elements
  float scale = 1;
  const uint32_t* q = nullptr;  // [blocks][steps], as columns
  const uint32_t* k = nullptr;  // [keys/32][steps], as rows
  const uint32_t* v = nullptr;  // as rows: elements of a head as lines and keys as terms
  int64_t v_block = 0;          // words from block to block of it
  // Room for the scores of two blocks, [2][kMostTileKeys][32], and p, packed columns of queries with keys as terms.
  float* scores = nullptr;
  uint32_t* p = nullptr;
  // Of the queries: scaled scores in powers of two next to the largest, sums of exponentials relative to them, and
  // out[blocks][steps], elements times queries, the sums of values.
  float* max = nullptr;
  float* sum = nullptr;
  float* out = nullptr;
};

// Blocks of queries and some keys: adds to dq, dk and dv, of which dq and dk want the factor `scale` yet. Queries and
// keys beyond the last ones are zeros in what is packed.
struct TileBackward {
  TileKeys keys;
  int64_t blocks = 0;  // of queries
  int64_t steps = 0;   // of a head's elements
  float scale = 1;
  const uint32_t *q = nullptr, *dout = nullptr;              // [blocks][steps], as columns
  const uint32_t *q_terms = nullptr, *dout_terms = nullptr;  // [steps][blocks], as columns: elements as lines
  const uint32_t *k = nullptr, *v = nullptr;                 // [keys/32][steps], as rows
  const uint32_t* k_terms = nullptr;                         // as rows: elements as lines and keys as terms
  int64_t k_block = 0;                                       // words from block to block of it
  const float *lse = nullptr, *delta = nullptr;              // of whole blocks
  // Room: probabilities and their gradients as rows, [keys/32][blocks], and the gradients as columns, of kMostTileKeys
  // keys for each block.
  uint32_t *p = nullptr, *ds = nullptr, *ds_terms = nullptr;
  float* dq = nullptr;                 // [blocks][steps], elements times queries
  float *dk = nullptr, *dv = nullptr;  // [keys/32][steps], keys times elements
};

struct TileAttentionLoops : TileHeadLoops {
  // Between TileLoops::begin and end.
  void (*forward)(const TileForward& t);
  void (*backward)(const TileBackward& t);
};

}  // namespace trireme::cpu
