// attention and attention_grad of f32 and bf16 tensors, in f32 tiles of queries and keys: the
// scores of a whole head are never stored, and tiles that a causal mask hides are skipped.
//
// The forward pass walks the key tiles of one query tile and keeps, per query, the maximum so far,
// the sum of the exponentials relative to it, and the unnormalised result, which is scaled down
// whenever the maximum grows (online softmax). The backward pass takes the probabilities anew from
// lse. Tiles depend on the sizes of a head alone. Their products are oneDNN's, or, in the kernels
// of fixed tiles, those of packed_product.h, whose bits do not depend on how far rows lie apart, that
// is, on how many heads are here.
#include <algorithm>
#include <cmath>
#include <limits>

#include "trireme/backend/cpu/attention_sizes.h"
#include "trireme/backend/cpu/packed_product.h"
#include "trireme/backend/cpu/parallel.h"
#include "trireme/backend/cpu/storage.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/backend/kernels.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cpu {
namespace {

using Sizes = AttentionSizes;
using Tile = AttentionTile;

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
    for (int64_t row = 0; row < rows; ++row)
      loops_on<T>().to_f32(size, x + row * stride, room + row * size);
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

// For the second operand of any product of a tile: keys or queries by d, or d by keys.
int64_t packing_floats(int64_t d) {
  return std::max(packed_floats(kKeys, d), packed_floats(d, kKeys));
}

// What a task keeps in its thread's scratch. Rows of bf16 tensors are widened to it, and sums that
// become such rows are taken in it; those of f32 stay where they are.
template <class T>
struct ForwardRoom {
  static constexpr bool kWidens = !std::is_same_v<T, float>;
  float *scores, *max, *sum, *correction;
  float* packing = nullptr;  // of fixed tiles
  float *q = nullptr, *k = nullptr, *v = nullptr, *out = nullptr;

  static int64_t floats(int64_t d, bool fixed) {
    return kQueries * kKeys + 3 * kQueries + (kWidens ? 2 * (kQueries + kKeys) * d : 0) +
           (fixed ? packing_floats(d) : 0);
  }
  ForwardRoom(float* first, int64_t d, bool fixed)
      : scores(first),
        max(scores + kQueries * kKeys),
        sum(max + kQueries),
        correction(sum + kQueries) {
    if (fixed) packing = first + floats(d, false);
    if (!kWidens) return;
    q = correction + kQueries;
    out = q + kQueries * d;
    k = out + kQueries * d;
    v = k + kKeys * d;
  }
};

// p is the probabilities of a tile, dp their gradient, delta the product of a query's out and dout.
template <class T>
struct BackwardRoom {
  static constexpr bool kWidens = !std::is_same_v<T, float>;
  float *p, *dp, *delta, *dout;
  float* packing = nullptr;
  float *q = nullptr, *dq = nullptr;                               // of a tile
  float *k = nullptr, *v = nullptr, *dk = nullptr, *dv = nullptr;  // of a key head

  static int64_t floats(int64_t t, int64_t d, bool fixed) {
    return 2 * kQueries * kKeys + kQueries + kQueries * d +
           (kWidens ? 2 * kQueries * d + 4 * t * d : 0) + (fixed ? packing_floats(d) : 0);
  }
  BackwardRoom(float* first, int64_t t, int64_t d, bool fixed)
      : p(first), dp(p + kQueries * kKeys), delta(dp + kQueries * kKeys), dout(delta + kQueries) {
    if (fixed) packing = first + floats(t, d, false);
    if (!kWidens) return;
    q = dout + kQueries * d;
    dq = q + kQueries * d;
    k = dq + kQueries * d;
    v = k + t * d;
    dk = v + t * d;
    dv = dk + t * d;
  }
};

template <bool fixed>
int64_t forward_scratch(const TypeArgs& args, int threads) {
  const int64_t d = args.in[0].shape[3];
  const bool narrow = args.in[0].dtype == DType::kBF16;
  const int64_t floats =
      narrow ? ForwardRoom<Bf16>::floats(d, fixed) : ForwardRoom<float>::floats(d, fixed);
  return threads * floats * static_cast<int64_t>(sizeof(float));
}

template <bool fixed>
int64_t backward_scratch(const TypeArgs& args, int threads) {
  const int64_t t = args.in[1].shape[1];
  const int64_t d = args.in[0].shape[3];
  const bool narrow = args.in[0].dtype == DType::kBF16;
  const int64_t floats =
      narrow ? BackwardRoom<Bf16>::floats(t, d, fixed) : BackwardRoom<float>::floats(t, d, fixed);
  return threads * floats * static_cast<int64_t>(sizeof(float));
}

void multiply(const Gemm& product, float* packing) {
  if (packing == nullptr) {
    gemm(product);
  } else {
    gemm_in_order(product, packing);
  }
}

// scores = q k^T of a tile.
void multiply_scores(const Sizes& n, const Tile& tile, const Rows& q, const Rows& k, float* scores,
                     float* packing) {
  multiply({.m = tile.queries,
            .n = tile.keys,
            .k = n.d,
            .a = q.data,
            .b = k.data,
            .c = scores,
            .lda = q.stride,
            .ldb = k.stride,
            .ldc = kKeys,
            .transpose_b = true},
           packing);
}

// c[queries,d] = scores b, added to c past the first key.
void multiply_keys(const Sizes& n, const Tile& tile, const float* scores, const Rows& b,
                   const ResultRows& c, float* packing) {
  multiply({.m = tile.queries,
            .n = n.d,
            .k = tile.keys,
            .a = scores,
            .b = b.data,
            .c = c.data,
            .lda = kKeys,
            .ldb = b.stride,
            .ldc = c.stride,
            .beta = tile.key > 0 ? 1.0F : 0.0F},
           packing);
}

// c[keys,d] += scores^T b
void add_queries(const Sizes& n, const Tile& tile, const float* scores, const Rows& b,
                 const ResultRows& c, float* packing) {
  multiply({.m = tile.keys,
            .n = n.d,
            .k = tile.queries,
            .a = scores,
            .b = b.data,
            .c = c.data,
            .lda = kKeys,
            .ldb = b.stride,
            .ldc = c.stride,
            .transpose_a = true,
            .beta = 1},
           packing);
}

template <class T>
struct Operands {
  const T *q, *k, *v;
};

template <class T>
Operands<T> operands_of(const KernelArgs& args) {
  return {data_of<T>(args.in[0]), data_of<T>(args.in[1]), data_of<T>(args.in[2])};
}

// One tile of queries of one head; q and out point to its first query, k and v to the head's first
// key.
template <class T>
void forward_tile(const Sizes& n, int64_t query, const Operands<T>& at, T* out, float* lse,
                  const ForwardRoom<T>& room) {
  const int64_t queries = std::min(kQueries, n.s - query);
  const int64_t q_row = n.h * n.d;
  const int64_t k_row = n.g * n.d;
  const Rows q = rows_in(at.q, queries, n.d, q_row, room.q);
  const ResultRows result = sums_of(out, n.d, q_row, room.out);
  std::fill_n(room.max, queries, -std::numeric_limits<float>::infinity());
  std::fill_n(room.sum, queries, 0.0F);
  for (int64_t key = 0; key < n.t; key += kKeys) {
    const Tile tile = tile_of(n, query, key);
    if (tile.keys == 0) break;
    multiply_scores(n, tile, q, rows_in(at.k + key * k_row, tile.keys, n.d, k_row, room.k),
                    room.scores, room.packing);
    loops().online_softmax({queries, tile.keys}, kKeys, tile.visible, n.scale, room.scores,
                           room.max, room.sum, room.correction);
    if (key > 0) loops().scale_rows({queries, n.d}, result.stride, room.correction, result.data);
    multiply_keys(n, tile, room.scores, rows_in(at.v + key * k_row, tile.keys, n.d, k_row, room.v),
                  result, room.packing);
  }
  for (int64_t i = 0; i < queries; ++i) {
    room.correction[i] = 1 / room.sum[i];
    lse[i] = room.max[i] + std::log(room.sum[i]);
  }
  loops().scale_rows({queries, n.d}, result.stride, room.correction, result.data);
  put_rows(result, queries, n.d, out, q_row);
}

template <class T, bool fixed>
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
  const int64_t tiles = n.query_tiles();
  run_tasks(args.pool, n.b * n.h * tiles, [&](int64_t task, int thread) {
    const int64_t head = task / tiles % n.h;
    const int64_t batch = task / tiles / n.h;
    const int64_t query = task % tiles * kQueries;
    const int64_t q_at = ((batch * n.s + query) * n.h + head) * n.d;
    const int64_t k_at = (batch * n.t * n.g + head / n.r()) * n.d;
    forward_tile(n, query, {all.q + q_at, all.k + k_at, all.v + k_at}, out + q_at,
                 lse + (batch * n.h + head) * n.s + query,
                 ForwardRoom<T>(scratch + thread * ForwardRoom<T>::floats(n.d, fixed), n.d, fixed));
  });
}

// The keys and values of one key head and their gradients.
struct KeyHead {
  Rows k, v;
  ResultRows dk, dv;
};

// One tile of queries of one head: pointers to its first query.
template <class T>
struct QueryTile {
  const T *q, *out, *dout;
  const float* lse;
  T* dq;
};

Rows rows_from(const Rows& rows, int64_t first) {
  return {rows.data + first * rows.stride, rows.stride};
}
ResultRows rows_from(const ResultRows& rows, int64_t first) {
  return {rows.data + first * rows.stride, rows.stride};
}

// dq may lie on out or dout, so what is needed of them is taken before dq is written.
template <class T>
void take_result(const Sizes& n, int64_t queries, const QueryTile<T>& at,
                 const BackwardRoom<T>& room) {
  const int64_t row = n.h * n.d;
  for (int64_t i = 0; i < queries; ++i) {
    room.delta[i] = loops_on<T>().dot(n.d, at.out + i * row, at.dout + i * row);
    loops_on<T>().to_f32(n.d, at.dout + i * row, room.dout + i * n.d);
  }
}

// Adds one tile to dk, dv and, past the first key, to dq.
template <class T>
void backward_tile(const Sizes& n, const Tile& tile, const Rows& q, const float* lse,
                   const KeyHead& head, const ResultRows& dq, const BackwardRoom<T>& room) {
  const Rows k = rows_from(head.k, tile.key);
  const Rows dout{room.dout, n.d};
  multiply_scores(n, tile, q, k, room.p, room.packing);
  loops().recompute_softmax({tile.queries, tile.keys}, kKeys, tile.visible, n.scale, lse, room.p);
  add_queries(n, tile, room.p, dout, rows_from(head.dv, tile.key), room.packing);
  multiply_scores(n, tile, dout, rows_from(head.v, tile.key), room.dp, room.packing);
  loops().softmax_tile_grad({tile.queries, tile.keys}, kKeys, n.scale, room.delta, room.p, room.dp);
  multiply_keys(n, tile, room.dp, k, dq, room.packing);
  add_queries(n, tile, room.dp, q, rows_from(head.dk, tile.key), room.packing);
}

template <class T>
void backward_queries(const Sizes& n, int64_t query, const QueryTile<T>& at, const KeyHead& head,
                      const BackwardRoom<T>& room) {
  const int64_t queries = std::min(kQueries, n.s - query);
  const int64_t row = n.h * n.d;
  take_result(n, queries, at, room);
  const Rows q = rows_in(at.q, queries, n.d, row, room.q);
  const ResultRows dq = sums_of(at.dq, n.d, row, room.dq);
  for (int64_t key = 0; key < n.t; key += kKeys) {
    const Tile tile = tile_of(n, query, key);
    if (tile.keys == 0) break;
    backward_tile(n, tile, q, at.lse, head, dq, room);
  }
  put_rows(dq, queries, n.d, at.dq, row);
}

void clear_rows(const ResultRows& rows, int64_t count, int64_t size) {
  for (int64_t row = 0; row < count; ++row) std::fill_n(rows.data + row * rows.stride, size, 0.0F);
}

// A task is one key head and the query heads that share it: what they add to dk and dv is added in
// their order.
template <class T, bool fixed>
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
    const BackwardRoom<T> room(scratch + thread * BackwardRoom<T>::floats(n.t, n.d, fixed), n.t,
                               n.d, fixed);
    const int64_t k_at = (batch * n.t * n.g + group) * n.d;
    const int64_t k_row = n.g * n.d;
    const KeyHead keys{rows_in(all.k + k_at, n.t, n.d, k_row, room.k),
                       rows_in(all.v + k_at, n.t, n.d, k_row, room.v),
                       sums_of(dk + k_at, n.d, k_row, room.dk),
                       sums_of(dv + k_at, n.d, k_row, room.dv)};
    clear_rows(keys.dk, n.t, n.d);
    clear_rows(keys.dv, n.t, n.d);
    for (int64_t head = group * n.r(); head < (group + 1) * n.r(); ++head) {
      for (int64_t query = 0; query < n.s; query += kQueries) {
        const int64_t q_at = ((batch * n.s + query) * n.h + head) * n.d;
        backward_queries(n, query,
                         {all.q + q_at, out + q_at, dout + q_at,
                          lse + (batch * n.h + head) * n.s + query, dq + q_at},
                         keys, room);
      }
    }
    put_rows(keys.dk, n.t, n.d, dk + k_at, k_row);
    put_rows(keys.dv, n.t, n.d, dv + k_at, k_row);
  });
}

}  // namespace

extern const Kernel attention_tiles{"attention",
                                    "attention.tiles",
                                    first_not_float,
                                    forward_scratch<false>,
                                    by_storage<attention<float, false>, attention<Bf16, false>>,
                                    Bits::kShape};
extern const Kernel attention_fixed_tiles{
    "attention", "attention.fixed_tiles", first_not_float, forward_scratch<true>,
    by_storage<attention<float, true>, attention<Bf16, true>>};
extern const Kernel attention_grad_tiles{
    "attention_grad",
    "attention_grad.tiles",
    first_not_float,
    backward_scratch<false>,
    by_storage<attention_grad<float, false>, attention_grad<Bf16, false>>,
    Bits::kShape};
extern const Kernel attention_grad_fixed_tiles{
    "attention_grad", "attention_grad.fixed_tiles", first_not_float, backward_scratch<true>,
    by_storage<attention_grad<float, true>, attention_grad<Bf16, true>>};

}  // namespace trireme::cpu
