// attention and attention_grad of f32 and bf16 tensors, in f32 tiles of queries and keys: the
// scores of a whole head are never stored, and tiles that a causal mask hides are skipped.
//
// The forward pass walks the key tiles of one query tile and keeps, per query, the maximum so far,
// the sum of the exponentials relative to it, and the unnormalised result, which is scaled down
// whenever the maximum grows (online softmax). The backward pass takes the probabilities anew from
// lse. Tiles depend on the sizes of a head alone. Keys and values are packed once for all query tiles
// that read them; what the next tile and the next head read is brought nearer meanwhile. The products
// are those of packed_product.h, whose bits do not depend on how far rows lie apart, that is, on how
// many heads are here.
#include <algorithm>
#include <cmath>
#include <limits>

#include "trireme/backend/cpu/attention/attention_tiles.h"
#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/products/lines_ahead.h"
#include "trireme/backend/cpu/storage.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cpu {
namespace {

using Sizes = AttentionSizes;
using Tile = AttentionTile;

// p is the probabilities of a tile, dp their gradient, delta the product of a query's out and dout.
template <class T>
struct BackwardRoom {
  static constexpr bool kWidens = !std::is_same_v<T, float>;
  float *p, *dp, *delta, *dout;
  float *q_rows, *dout_rows;              // packed, of a tile of queries
  float *k_columns, *v_columns, *k_rows;  // packed, of a key head
  float *q = nullptr, *dq = nullptr, *keys = nullptr;
  float *dk = nullptr, *dv = nullptr;  // of a key head

  static int64_t floats(int64_t t, int64_t d) {
    return 2 * kQueries * kScoresRow + kQueries + kQueries * d + 2 * kQueries * panel_columns(d) +
           2 * panel_columns(t) * d + t * panel_columns(d) + (kWidens ? (2 * kQueries + kKeys + 2 * t) * d : 0);
  }
  BackwardRoom(float* first, int64_t t, int64_t d)
      : p(first),
        dp(p + kQueries * kScoresRow),
        delta(dp + kQueries * kScoresRow),
        dout(delta + kQueries),
        q_rows(dout + kQueries * d),
        dout_rows(q_rows + kQueries * panel_columns(d)),
        k_columns(dout_rows + kQueries * panel_columns(d)),
        v_columns(k_columns + panel_columns(t) * d),
        k_rows(v_columns + panel_columns(t) * d) {
    if (!kWidens) return;
    q = k_rows + t * panel_columns(d);
    dq = q + kQueries * d;
    keys = dq + kQueries * d;
    dk = keys + kKeys * d;
    dv = dk + t * d;
  }
};

template <template <class> class Room>
int64_t scratch(const TypeArgs& args, int threads) {
  const int64_t t = args.in[1].shape[1];
  const int64_t d = args.in[0].shape[3];
  const int64_t floats = args.in[0].dtype == DType::kBF16 ? Room<Bf16>::floats(t, d) : Room<float>::floats(t, d);
  return threads * floats * static_cast<int64_t>(sizeof(float));
}

// The queries that see the keys of a tile.
Band seeing_queries(const Sizes& n, const Tile& tile) {
  return n.causal ? Band{.begin = 1 - tile.visible} : Band{};
}

// c[keys,d] += scores^T b; of packed rows of queries.
void add_queries(const Sizes& n, const Tile& tile, const float* scores, const float* rows, const ResultRows& c) {
  multiply_packed({.m = tile.keys,
                   .n = n.d,
                   .k = tile.queries,
                   .a = scores,
                   .c = c.data,
                   .lda = kScoresRow,
                   .ldc = c.stride,
                   .transpose_a = true,
                   .beta = 1},
                  rows, tile.queries, seeing_queries(n, tile), kAllColumns, tile.ahead);
}

template <class T>
struct Operands {
  const T *q, *k, *v;
};

// Rows of a head, of x[*,*,heads,d] whose first one is here: brought nearer two at a time.
template <class T>
void add_rows(const T* x, int64_t rows, int64_t heads, int64_t d, LinesAhead& ahead) {
  const auto bytes = [&](int64_t elements) { return elements * static_cast<int64_t>(sizeof(T)); };
  const int64_t lines = (bytes(d) + kLineBytes - 1) / kLineBytes;
  ahead.of_tile = 2 * lines;
  add_lines(ahead, x, rows, bytes(heads * d), lines);
}

// The tiles of queries of all heads that share a key head.
struct QueryTiles {
  const Sizes& n;
  int64_t batch, group;

  int64_t count() const { return n.r() * n.query_tiles(); }
  int64_t query(int64_t tile) const { return tile % n.query_tiles() * kQueries; }
  int64_t head(int64_t tile) const { return group * n.r() + tile / n.query_tiles(); }
  // Of its first query, in tensors as q and as lse.
  int64_t place(int64_t tile) const { return ((batch * n.s + query(tile)) * n.h + head(tile)) * n.d; }
  int64_t place_of_lse(int64_t tile) const { return (batch * n.h + head(tile)) * n.s + query(tile); }

  // The rows of a tile of x, a tensor as q; after the last one, of the first tile of the next key head, if any.
  template <class T>
  void add_tile(const T* x, int64_t tile, LinesAhead& ahead) const {
    const int64_t next = batch * n.g + group + 1;
    if (tile < count()) {
      add_rows(x + place(tile), std::min(kQueries, n.s - query(tile)), n.h, n.d, ahead);
    } else if (next < n.b * n.g) {
      QueryTiles{n, next / n.g, next % n.g}.add_tile(x, 0, ahead);
    }
  }
};

// A part of the keys and values of the next key head: as much of them as `tile` is of `tiles`.
template <class T>
void add_next_keys(const Sizes& n, const Operands<T>& all, int64_t key_head, int64_t tile, int64_t tiles,
                   LinesAhead& ahead) {
  if (key_head + 1 == n.b * n.g) return;
  const int64_t first = tile * n.t / tiles, end = (tile + 1) * n.t / tiles;
  const int64_t at = (((key_head + 1) / n.g * n.t + first) * n.g + (key_head + 1) % n.g) * n.d;
  add_rows(all.k + at, end - first, n.g, n.d, ahead);
  add_rows(all.v + at, end - first, n.g, n.d, ahead);
}

template <class T>
Operands<T> operands_of(const KernelArgs& args) {
  return {data_of<T>(args.in[0]), data_of<T>(args.in[1]), data_of<T>(args.in[2])};
}

// A task is some of the query tiles that share a key head: all of them, unless threads would have nothing to do.
template <class T>
void attention(const KernelArgs& args) {
  if (sees_nothing(args)) {
    std::ranges::fill(args.out[1].as<float>(), -std::numeric_limits<float>::infinity());
    return;
  }
  const Sizes n = sizes_of(args);
  const Operands<T> all = operands_of<T>(args);
  T* out = data_of<T>(args.out[0]);
  float* lse = args.out[1].as<float>().data();
  auto* scratch = reinterpret_cast<float*>(args.scratch.data());
  const int64_t key_heads = n.b * n.g;
  const int64_t tiles = n.r() * n.query_tiles();  // of a key head
  const int threads = threads_of(args);
  const int64_t parts = threads == 1 || key_heads == 0 ? 1 : std::clamp<int64_t>(4 * threads / key_heads, 1, tiles);
  run_tasks(args.pool, key_heads * parts, [&](int64_t task, int thread) {
    const int64_t batch = task / parts / n.g;
    const int64_t group = task / parts % n.g;
    const int64_t part = task % parts;
    const QueryTiles queries{n, batch, group};
    const AttentionRoom<T> room(scratch + thread * AttentionRoom<T>::floats(n.t, n.d), n.t, n.d);
    const int64_t k_at = (batch * n.t * n.g + group) * n.d;
    pack_keys(n, all.k + k_at, PackedKeys::kColumns, room.keys, room.k);
    pack_keys(n, all.v + k_at, PackedKeys::kRows, room.keys, room.v);
    for (int64_t at = part * tiles / parts; at < (part + 1) * tiles / parts; ++at) {
      LinesAhead ahead;
      queries.add_tile(all.q, at + 1, ahead);
      add_next_keys(n, all, task / parts, at, tiles, ahead);
      const int64_t q_at = queries.place(at);
      forward_tile(n, queries.query(at), all.q + q_at, out + q_at, lse + queries.place_of_lse(at), room, &ahead);
    }
  });
}

// The gradients of the keys and values of one key head.
struct KeyHead {
  ResultRows dk, dv;
};

// One tile of queries of one head: pointers to its first query.
template <class T>
struct QueryTile {
  const T *q, *out, *dout;
  const float* lse;
  T* dq;
};

ResultRows rows_from(const ResultRows& rows, int64_t first) {
  return {rows.data + first * rows.stride, rows.stride};
}

// dq may lie on out or dout, so what is needed of them is taken before dq is written.
template <class T>
void take_result(const Sizes& n, int64_t queries, const QueryTile<T>& at, const BackwardRoom<T>& room) {
  const int64_t row = n.h * n.d;
  for (int64_t i = 0; i < queries; ++i) {
    room.delta[i] = loops_on<T>().dot(n.d, at.out + i * row, at.dout + i * row);
    loops_on<T>().to_f32(n.d, at.dout + i * row, room.dout + i * n.d);
  }
}

// Adds one tile to dk, dv and, past the first key, to dq.
template <class T>
void backward_tile(const Sizes& n, const Tile& tile, const Rows& q, const float* lse, const KeyHead& head,
                   const ResultRows& dq, const BackwardRoom<T>& room) {
  multiply_scores(n, tile, q, room.k_columns, room.p);
  multiply_scores(n, tile, {room.dout, n.d}, room.v_columns, room.dp);
  loops().softmax_tile_grad({tile.queries, tile.keys}, kScoresRow, tile.visible, n.scale, lse, room.delta, room.p,
                            room.dp);
  add_queries(n, tile, room.p, room.dout_rows, rows_from(head.dv, tile.key));
  multiply_keys(n, tile, room.dp, room.k_rows, dq);
  add_queries(n, tile, room.dp, room.q_rows, rows_from(head.dk, tile.key));
}

template <class T>
void backward_queries(const Sizes& n, int64_t query, const QueryTile<T>& at, const KeyHead& head,
                      const BackwardRoom<T>& room, LinesAhead& ahead) {
  const int64_t queries = std::min(kQueries, n.s - query);
  const int64_t row = n.h * n.d;
  take_result(n, queries, at, room);
  const Rows q = rows_in(at.q, queries, n.d, row, room.q);
  const ResultRows dq = sums_of(at.dq, n.d, row, room.dq);
  pack_right(q.data, q.stride, false, n.d, queries, room.q_rows);
  pack_right(room.dout, n.d, false, n.d, queries, room.dout_rows);
  for (int64_t key = 0; key < n.t; key += kKeys) {
    Tile tile = tile_of(n, query, key);
    if (tile.keys == 0) break;
    tile.ahead = &ahead;
    backward_tile(n, tile, q, at.lse, head, dq, room);
  }
  put_rows(dq, queries, n.d, at.dq, row);
}

void clear_rows(const ResultRows& rows, int64_t count, int64_t size) {
  for (int64_t row = 0; row < count; ++row) std::fill_n(rows.data + row * rows.stride, size, 0.0F);
}

// A task is one key head and the query heads that share it: what they add to dk and dv is added in
// their order.
template <class T>
void attention_grad(const KernelArgs& args) {
  if (sees_nothing(args)) return;
  const Sizes n = sizes_of(args);
  const Operands<T> all = operands_of<T>(args);
  const T* out = data_of<T>(args.in[3]);
  const float* lse = args.in[4].as<float>().data();
  const T* dout = data_of<T>(args.in[5]);
  T* dq = data_of<T>(args.out[0]);
  T* dk = data_of<T>(args.out[1]);
  T* dv = data_of<T>(args.out[2]);
  auto* scratch = reinterpret_cast<float*>(args.scratch.data());
  run_tasks(args.pool, n.b * n.g, [&](int64_t task, int thread) {
    const int64_t batch = task / n.g;
    const int64_t group = task % n.g;
    const BackwardRoom<T> room(scratch + thread * BackwardRoom<T>::floats(n.t, n.d), n.t, n.d);
    const int64_t k_at = (batch * n.t * n.g + group) * n.d;
    const int64_t k_row = n.g * n.d;
    const KeyHead keys{sums_of(dk + k_at, n.d, k_row, room.dk), sums_of(dv + k_at, n.d, k_row, room.dv)};
    pack_keys(n, all.k + k_at, PackedKeys::kColumns, room.keys, room.k_columns);
    pack_keys(n, all.v + k_at, PackedKeys::kColumns, room.keys, room.v_columns);
    pack_keys(n, all.k + k_at, PackedKeys::kRows, room.keys, room.k_rows);
    clear_rows(keys.dk, n.t, n.d);
    clear_rows(keys.dv, n.t, n.d);
    const QueryTiles queries{n, batch, group};
    for (int64_t tile = 0; tile < queries.count(); ++tile) {
      LinesAhead ahead;
      for (const T* const x : {out, dout, all.q}) queries.add_tile(x, tile + 1, ahead);
      add_next_keys(n, all, task, tile, queries.count(), ahead);
      const int64_t at = queries.place(tile);
      backward_queries(n, queries.query(tile),
                       {all.q + at, out + at, dout + at, lse + queries.place_of_lse(tile), dq + at}, keys, room, ahead);
    }
    put_rows(keys.dk, n.t, n.d, dk + k_at, k_row);
    put_rows(keys.dv, n.t, n.d, dv + k_at, k_row);
  });
}

}  // namespace

std::span<const Kernel> attention_kernels() {
  static constexpr Kernel kAll[] = {
      {
          .op = "attention",
          .name = "attention.tiles",
          .why_not = first_not_float,
          .scratch = scratch<AttentionRoom>,
          .run = by_storage<attention<float>, attention<Bf16>>,
          .bits = Bits::kElement,
      },
      {
          .op = "attention_grad",
          .name = "attention_grad.tiles",
          .why_not = first_not_float,
          .scratch = scratch<BackwardRoom>,
          .run = by_storage<attention_grad<float>, attention_grad<Bf16>>,
          .bits = Bits::kElement,
      },
  };
  return kAll;
}

}  // namespace trireme::cpu
