// The forward pass of attention in tiles of queries and keys, for the kernels of attention and of cached_attention:
// rows of f32 and bf16 tensors, keys and values that are packed once for all queries of their head, and one tile of
// queries.
#pragma once

#include <algorithm>
#include <limits>

#include "trireme/backend/cpu/attention/attention_sizes.h"
#include "trireme/backend/cpu/isa/loops.h"
#include "trireme/backend/cpu/products/packed_product.h"
#include "trireme/backend/cpu/storage.h"

namespace trireme::cpu {

// Rows in f32, `stride` apart.
struct Rows {
  const float* data;
  int64_t stride;
};
struct ResultRows {
  float* data;
  int64_t stride;
};

// Rows of a tensor: where they lie, or widened into `room`.
template <class T>
Rows rows_in(const T* x, int64_t rows, int64_t size, int64_t stride, float* room) {
  if constexpr (std::is_same_v<T, float>) {
    return {x, stride};
  } else {
    for (int64_t row = 0; row < rows; ++row) loops_on<T>().to_f32(size, x + row * stride, room + row * size);
    return {room, size};
  }
}

// Where rows of a result are summed: in it, or in `room`, from which they are then rounded.
template <class T>
ResultRows sums_of(T* y, int64_t size, int64_t stride, float* room) {
  if constexpr (std::is_same_v<T, float>) {
    return {y, stride};
  } else {
    return {room, size};
  }
}
template <class T>
void put_rows(const ResultRows& from, int64_t rows, int64_t size, T* y, int64_t stride) {
  if constexpr (!std::is_same_v<T, float>) {
    for (int64_t row = 0; row < rows; ++row)
      loops_on<T>().from_f32(size, from.data + row * from.stride, y + row * stride);
  }
}

// The columns that panels of d, or of all keys, are filled up to.
inline int64_t panel_columns(int64_t columns) {
  return packed_floats(columns, 1);
}

// The keys or values of one head for all tiles of kKeys: as columns of [d, keys], or as rows of [keys, d].
enum class PackedKeys { kColumns, kRows };
template <class T>
void pack_keys(const AttentionSizes& n, const T* x, PackedKeys how, float* room, float* packed) {
  const bool columns = how == PackedKeys::kColumns;
  for (int64_t key = 0; key < n.t; key += kKeys) {
    const int64_t keys = std::min(kKeys, n.t - key);
    const Rows rows = rows_in(x + key * n.g * n.d, keys, n.d, n.g * n.d, room);
    pack_right(rows.data, rows.stride, columns, columns ? keys : n.d, columns ? n.d : keys,
               packed + key * (columns ? n.d : panel_columns(n.d)));
  }
}

// What a task keeps in its thread's scratch. Rows of bf16 tensors are widened to it, and sums that
// become such rows are taken in it; those of f32 stay where they are.
template <class T>
struct AttentionRoom {
  static constexpr bool kWidens = !std::is_same_v<T, float>;
  float *scores, *max, *sum, *correction;
  float *k, *v;  // packed: k as columns, v as rows
  float *q = nullptr, *out = nullptr, *keys = nullptr;

  static int64_t floats(int64_t t, int64_t d) {
    return kQueries * kScoresRow + 3 * kQueries + panel_columns(t) * d + t * panel_columns(d) +
           (kWidens ? (2 * kQueries + kKeys) * d : 0);
  }
  AttentionRoom(float* first, int64_t t, int64_t d)
      : scores(first),
        max(scores + kQueries * kScoresRow),
        sum(max + kQueries),
        correction(sum + kQueries),
        k(correction + kQueries),
        v(k + panel_columns(t) * d) {
    if (!kWidens) return;
    q = v + t * panel_columns(d);
    out = q + kQueries * d;
    keys = out + kQueries * d;
  }
};

// scores = rows x columns of a tile, as far as they are seen; of packed columns.
inline void multiply_scores(const AttentionSizes& n, const AttentionTile& tile, const Rows& rows, const float* columns,
                            float* scores) {
  const Gemm g{
      .m = tile.queries, .n = tile.keys, .k = n.d, .a = rows.data, .c = scores, .lda = rows.stride, .ldc = kScoresRow};
  multiply_packed(g, columns + tile.key * n.d, n.d, {}, n.causal ? tile.visible : kKeys, tile.ahead);
}

// The keys that the queries of a tile see, and the other way around.
inline Band seen_keys(const AttentionSizes& n, const AttentionTile& tile) {
  return n.causal ? Band{.end = tile.visible} : Band{};
}
// c[queries,d] = scores b, added to c past the first key; of packed rows.
inline void multiply_keys(const AttentionSizes& n, const AttentionTile& tile, const float* scores, const float* rows,
                          const ResultRows& c) {
  multiply_packed({.m = tile.queries,
                   .n = n.d,
                   .k = tile.keys,
                   .a = scores,
                   .c = c.data,
                   .lda = kScoresRow,
                   .ldc = c.stride,
                   .beta = tile.key > 0 ? 1.0F : 0.0F},
                  rows + tile.key * panel_columns(n.d), std::min(kKeys, n.t - tile.key), seen_keys(n, tile),
                  kAllColumns, tile.ahead);
}

// One tile of queries of one head; q and out point to its first query. Rows `ahead` are brought nearer meanwhile.
template <class T>
void forward_tile(const AttentionSizes& n, int64_t query, const T* q_at, T* out, float* lse,
                  const AttentionRoom<T>& room, LinesAhead* ahead = nullptr) {
  const int64_t queries = std::min(kQueries, n.s - query);
  const int64_t q_row = n.h * n.d;
  const Rows q = rows_in(q_at, queries, n.d, q_row, room.q);
  const ResultRows result = sums_of(out, n.d, q_row, room.out);
  std::fill_n(room.max, queries, -std::numeric_limits<float>::infinity());
  std::fill_n(room.sum, queries, 0.0F);
  for (int64_t key = 0; key < n.t; key += kKeys) {
    AttentionTile tile = tile_of(n, query, key);
    if (tile.keys == 0) break;
    tile.ahead = ahead;
    multiply_scores(n, tile, q, room.k, room.scores);
    loops().online_softmax({queries, tile.keys}, kScoresRow, tile.visible, n.scale, room.scores, room.max, room.sum,
                           room.correction);
    if (key > 0) loops().scale_rows({queries, n.d}, result.stride, room.correction, result.data);
    multiply_keys(n, tile, room.scores, room.v, result);
  }
  loops().finish_softmax(queries, room.max, room.sum, lse);
  loops().scale_rows({queries, n.d}, result.stride, room.sum, result.data);
  put_rows(result, queries, n.d, out, q_row);
}

}  // namespace trireme::cpu
