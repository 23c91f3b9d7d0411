// attention and attention_grad of bf16 tensors in tiles, as in attention.cpp, with products of bf16
// in pairs: scores and sums are f32, probabilities and their gradients are rounded to bf16 before
// they are multiplied.
#include <limits>

#include "trireme/backend/cpu/attention/attention_key_heads.h"
#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/why_not.h"

namespace trireme::cpu {
namespace pairs {  // whose names are those of attention.cpp

using Sizes = AttentionSizes;
using Tile = AttentionTile;

int64_t whole_vectors(int64_t columns) {
  return (columns + 15) / 16 * 16;
}
int64_t half(int64_t rows) {
  return (rows + 1) / 2;
}

// Rows of a bf16 tensor seen as pairs.
const uint32_t* pairs_at(const Bf16* p) {
  return reinterpret_cast<const uint32_t*>(p);
}

// What a task of the forward pass keeps in its thread's scratch. `columns` are of keys, `width` of
// a head's elements, both in whole vectors.
struct ForwardRoom {
  int64_t columns, width, bytes;
  uint32_t *k, *v;  // [d/2, columns] and [t/2, width]
  float *scores, *out, *max, *sum, *correction;
  Bf16* p;

  ForwardRoom(const Sizes& n, std::byte* memory) : columns(whole_vectors(n.t)), width(whole_vectors(n.d)) {
    Layouter layout(memory);
    k = layout.take<uint32_t>(n.d / 2 * columns);
    v = layout.take<uint32_t>(half(n.t) * width);
    scores = layout.take<float>(kQueries * kKeys);
    out = layout.take<float>(kQueries * width);
    max = layout.take<float>(kQueries);
    sum = layout.take<float>(kQueries);
    correction = layout.take<float>(kQueries);
    p = layout.take<Bf16>(kQueries * kKeys);
    bytes = layout.used();
  }
};

struct BackwardRoom {
  int64_t columns, width, bytes;
  uint32_t *k_columns, *v_columns;        // [d/2, columns]
  uint32_t *k_rows, *q_rows, *dout_rows;  // [t/2, width], and of a tile's queries
  uint32_t* p_rows;                       // [queries/2, keys], of probabilities and then of their gradients
  Bf16* ds;
  float *p, *dp, *delta, *dq, *dk, *dv;

  BackwardRoom(const Sizes& n, std::byte* memory) : columns(whole_vectors(n.t)), width(whole_vectors(n.d)) {
    Layouter layout(memory);
    k_columns = layout.take<uint32_t>(n.d / 2 * columns);
    v_columns = layout.take<uint32_t>(n.d / 2 * columns);
    k_rows = layout.take<uint32_t>(half(n.t) * width);
    q_rows = layout.take<uint32_t>(kQueries / 2 * width);
    dout_rows = layout.take<uint32_t>(kQueries / 2 * width);
    p_rows = layout.take<uint32_t>(kQueries / 2 * kKeys);
    ds = layout.take<Bf16>(kQueries * kKeys);
    p = layout.take<float>(kQueries * kKeys);
    dp = layout.take<float>(kQueries * kKeys);
    delta = layout.take<float>(kQueries);
    dq = layout.take<float>(kQueries * width);
    dk = layout.take<float>(n.t * width);
    dv = layout.take<float>(n.t * width);
    bytes = layout.used();
  }
};

void round_tile(const Tile& tile, const float* from, Bf16* to) {
  loops().pairs.round_rows({tile.queries, tile.keys}, kKeys, from, to);
}

// scores[queries,keys] = rows of x times the keys' columns.
void multiply_scores(const Sizes& n, const Tile& tile, const Bf16* x, const uint32_t* columns, int64_t column_step,
                     float* scores) {
  loops().pairs.multiply({.m = tile.queries,
                          .n = tile.keys,
                          .pairs = n.d / 2,
                          .a = pairs_at(x),
                          .a_row = n.h * n.d / 2,
                          .b = columns + tile.key,
                          .b_pair = column_step,
                          .c = scores,
                          .c_row = kKeys});
}

// c[queries,d] = scores times rows of the keys, added to c past the first key.
void multiply_keys(const Sizes& n, const Tile& tile, const Bf16* scores, const uint32_t* rows, int64_t width,
                   float* c) {
  loops().pairs.multiply({.m = tile.queries,
                          .n = n.d,
                          .pairs = half(tile.keys),
                          .a = pairs_at(scores),
                          .a_row = kKeys / 2,
                          .b = rows + tile.key / 2 * width,
                          .b_pair = width,
                          .c = c,
                          .c_row = width,
                          .add = tile.key > 0});
}

// c[keys,d] += scores^T times rows of the queries. The scores are brought into pairs of queries.
void add_queries(const Sizes& n, const Tile& tile, const float* scores, const uint32_t* rows, const BackwardRoom& room,
                 float* c) {
  loops().pairs.round_and_pair_rows({tile.queries, tile.keys}, kKeys, scores, kKeys, room.p_rows);
  loops().pairs.multiply({.m = tile.keys,
                          .n = n.d,
                          .pairs = half(tile.queries),
                          .a = room.p_rows,
                          .a_row = 1,
                          .a_pair = kKeys,
                          .b = rows,
                          .b_pair = room.width,
                          .c = c + tile.key * room.width,
                          .c_row = room.width,
                          .add = true});
}

void put_rows(const float* from, int64_t rows, int64_t size, int64_t width, Bf16* to, int64_t stride) {
  for (int64_t row = 0; row < rows; ++row) loops().bf16.from_f32(size, from + row * width, to + row * stride);
}

void forward_queries(const Sizes& n, int64_t query, const ForwardQueries& at, const ForwardRoom& room) {
  const int64_t queries = std::min(kQueries, n.s - query);
  std::fill_n(room.max, queries, -std::numeric_limits<float>::infinity());
  std::fill_n(room.sum, queries, 0.0F);
  for (int64_t key = 0; key < n.t; key += kKeys) {
    const Tile tile = tile_of(n, query, key);
    if (tile.keys == 0) break;
    multiply_scores(n, tile, at.q, room.k, room.columns, room.scores);
    loops().online_softmax({queries, tile.keys}, kKeys, tile.visible, n.scale, room.scores, room.max, room.sum,
                           room.correction);
    if (key > 0) loops().scale_rows({queries, n.d}, room.width, room.correction, room.out);
    round_tile(tile, room.scores, room.p);
    multiply_keys(n, tile, room.p, room.v, room.width, room.out);
  }
  loops().finish_softmax(queries, room.max, room.sum, at.lse);
  loops().scale_rows({queries, n.d}, room.width, room.sum, room.out);
  put_rows(room.out, queries, n.d, room.width, at.out, n.h * n.d);
}

void backward_queries(const Sizes& n, int64_t query, const BackwardQueries& at, const BackwardRoom& room) {
  const int64_t queries = std::min(kQueries, n.s - query);
  const int64_t row = n.h * n.d;
  for (int64_t i = 0; i < queries; ++i) room.delta[i] = loops().bf16.dot(n.d, at.out + i * row, at.dout + i * row);
  loops().pairs.pair_rows({queries, n.d}, row, at.q, room.width, room.q_rows);
  loops().pairs.pair_rows({queries, n.d}, row, at.dout, room.width, room.dout_rows);
  std::fill_n(room.dq, queries * room.width, 0.0F);
  for (int64_t key = 0; key < n.t; key += kKeys) {
    const Tile tile = tile_of(n, query, key);
    if (tile.keys == 0) break;
    multiply_scores(n, tile, at.q, room.k_columns, room.columns, room.p);
    multiply_scores(n, tile, at.dout, room.v_columns, room.columns, room.dp);
    loops().softmax_tile_grad({queries, tile.keys}, kKeys, tile.visible, n.scale, at.lse, room.delta, room.p, room.dp);
    add_queries(n, tile, room.p, room.dout_rows, room, room.dv);
    round_tile(tile, room.dp, room.ds);
    multiply_keys(n, tile, room.ds, room.k_rows, room.width, room.dq);
    add_queries(n, tile, room.dp, room.q_rows, room, room.dk);
  }
  put_rows(room.dq, queries, n.d, room.width, at.dq, row);
}

struct ByPairs {
  struct Guard {};
  using ForwardRoom = pairs::ForwardRoom;
  using BackwardRoom = pairs::BackwardRoom;
  static constexpr int64_t kForwardQueries = kQueries, kBackwardQueries = kQueries;
  static constexpr auto* forward = &forward_queries;
  static constexpr auto* backward = &backward_queries;

  static void pack(const Sizes& n, const Bf16* k, const Bf16* v, const ForwardRoom& room) {
    const int64_t row = n.g * n.d;
    loops().pairs.pair_columns({n.t, n.d}, row, k, room.columns, room.k);
    loops().pairs.pair_rows({n.t, n.d}, row, v, room.width, room.v);
  }
  static void pack(const Sizes& n, const Bf16* k, const Bf16* v, const BackwardRoom& room) {
    const int64_t row = n.g * n.d;
    loops().pairs.pair_columns({n.t, n.d}, row, k, room.columns, room.k_columns);
    loops().pairs.pair_columns({n.t, n.d}, row, v, room.columns, room.v_columns);
    loops().pairs.pair_rows({n.t, n.d}, row, k, room.width, room.k_rows);
    std::fill_n(room.dk, n.t * room.width, 0.0F);
    std::fill_n(room.dv, n.t * room.width, 0.0F);
  }
  static void put(const Sizes& n, const BackwardRoom& room, Bf16* dk, Bf16* dv) {
    put_rows(room.dk, n.t, n.d, room.width, dk, n.g * n.d);
    put_rows(room.dv, n.t, n.d, room.width, dv, n.g * n.d);
  }
};

std::string no_pairs(const TypeArgs& args) {
  const TensorType& q = args.in[0];
  if (q.dtype != DType::kBF16) return fmt::format("operand 0 is {}, not bf16", to_string(q));
  if (isa() < Isa::kAvx512Bf16) return fmt::format("{} has no products of bf16", to_string(isa()));
  if (q.shape[3] % 2 == 0) return "";
  return fmt::format("a head has {} elements, an odd number", q.shape[3]);
}

}  // namespace pairs

std::span<const Kernel> attention_pairs_kernels() {
  static constexpr Kernel kAll[] = {
      {
          .op = "attention",
          .name = "attention.pairs",
          .why_not = pairs::no_pairs,
          .scratch = scratch_of<pairs::ForwardRoom>,
          .run = attention_by_key_heads<pairs::ByPairs>,
          .bits = Bits::kElement,
      },
      {
          .op = "attention_grad",
          .name = "attention_grad.pairs",
          .why_not = pairs::no_pairs,
          .scratch = scratch_of<pairs::BackwardRoom>,
          .run = attention_grad_by_key_heads<pairs::ByPairs>,
          .bits = Bits::kElement,
      },
  };
  return kAll;
}

}  // namespace trireme::cpu
