// attention and attention_grad in f32, in tiles of queries and keys: the scores of a whole head are
// never stored, and tiles that a causal mask hides are skipped.
//
// The forward pass walks the key tiles of one query tile and keeps, per query, the maximum so far,
// the sum of the exponentials relative to it, and the unnormalised result, which is scaled down
// whenever the maximum grows (online softmax). The backward pass takes the probabilities anew from
// lse. Tiles depend on sizes alone.
#include <algorithm>
#include <cmath>
#include <limits>

#include "trireme/backend/cpu/gemm.h"
#include "trireme/backend/cpu/isa/loops.h"
#include "trireme/backend/cpu/parallel.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/backend/kernels.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cpu {
namespace {

constexpr int64_t kQueries = 64;  // of a tile
constexpr int64_t kKeys = 256;

// b batches, s queries, t keys, h query heads of which r share one of g key heads, d elements of a
// head.
struct Sizes {
  int64_t b, s, t, h, g, d;
  bool causal;
  float scale;
  int64_t query_tiles() const { return (s + kQueries - 1) / kQueries; }
  int64_t r() const { return h / g; }
  // Keys seen by query i.
  int64_t keys(int64_t i) const { return causal ? std::clamp<int64_t>(i + t - s + 1, 0, t) : t; }
};

Sizes sizes_of(const KernelArgs& args) {
  const auto& attrs = args.attrs.as<AttentionAttrs>();
  const Shape& q = args.in[0].type.shape;
  const Shape& k = args.in[1].type.shape;
  const double scale = attrs.scale == 0 ? 1 / std::sqrt(static_cast<double>(q[3])) : attrs.scale;
  return {q[0], q[1], k[1], q[2], k[2], q[3], attrs.causal, static_cast<float>(scale)};
}

struct Tile {
  int64_t query, queries;  // first query and their number
  int64_t key, keys;
  // Columns that row 0 sees; each further row sees one more. All of them without a mask.
  int64_t visible;
};

// The part of a tile that is not hidden from all its queries; keys is 0 when there is none.
Tile tile_of(const Sizes& n, int64_t query, int64_t key) {
  Tile tile{query, std::min(kQueries, n.s - query), key, 0, kKeys};
  tile.keys = std::max<int64_t>(0, std::min(kKeys, n.keys(query + tile.queries - 1) - key));
  if (n.causal) tile.visible = query + n.t - n.s + 1 - key;
  return tile;
}

// Scores, then per query: maximum, sum, correction.
constexpr int64_t kForwardFloats = kQueries * kKeys + 3 * kQueries;
// Probabilities, their gradient, dout of the tile, and per query the product of out and dout.
int64_t backward_floats(int64_t d) {
  return 2 * kQueries * kKeys + kQueries * d + kQueries;
}

int64_t forward_scratch(const TypeArgs&, int threads) {
  return threads * kForwardFloats * static_cast<int64_t>(sizeof(float));
}

int64_t backward_scratch(const TypeArgs& args, int threads) {
  return threads * backward_floats(args.in[0].shape[3]) * static_cast<int64_t>(sizeof(float));
}

struct Operands {
  const float *q, *k, *v;
};

Operands operands_of(const KernelArgs& args) {
  return {args.in[0].as<float>().data(), args.in[1].as<float>().data(),
          args.in[2].as<float>().data()};
}

// scores = q k^T of a tile, with rows of q `q_row` apart.
void multiply_scores(const Sizes& n, const Tile& tile, const float* q, int64_t q_row,
                     const float* k, float* scores) {
  gemm({.m = tile.queries,
        .n = tile.keys,
        .k = n.d,
        .a = q,
        .b = k,
        .c = scores,
        .lda = q_row,
        .ldb = n.g * n.d,
        .ldc = kKeys,
        .transpose_b = true});
}

// One tile of queries of one head; q and out point to its first query, k and v to the head's first
// key.
void forward_tile(const Sizes& n, int64_t query, const Operands& at, float* out, float* lse,
                  float* scratch) {
  float* scores = scratch;
  float* max = scores + kQueries * kKeys;
  float* sum = max + kQueries;
  float* correction = sum + kQueries;
  const int64_t queries = std::min(kQueries, n.s - query);
  std::fill_n(max, queries, -std::numeric_limits<float>::infinity());
  std::fill_n(sum, queries, 0.0F);
  for (int64_t key = 0; key < n.t; key += kKeys) {
    const Tile tile = tile_of(n, query, key);
    if (tile.keys == 0) break;
    multiply_scores(n, tile, at.q, n.h * n.d, at.k + key * n.g * n.d, scores);
    loops().online_softmax({queries, tile.keys}, kKeys, tile.visible, n.scale, scores, max, sum,
                           correction);
    if (key > 0) loops().scale_rows({queries, n.d}, n.h * n.d, correction, out);
    gemm({.m = queries,
          .n = n.d,
          .k = tile.keys,
          .a = scores,
          .b = at.v + key * n.g * n.d,
          .c = out,
          .lda = kKeys,
          .ldb = n.g * n.d,
          .ldc = n.h * n.d,
          .beta = key > 0 ? 1.0F : 0.0F});
  }
  for (int64_t i = 0; i < queries; ++i) {
    correction[i] = 1 / sum[i];
    lse[i] = max[i] + std::log(sum[i]);
  }
  loops().scale_rows({queries, n.d}, n.h * n.d, correction, out);
}

void run_attention(const KernelArgs& args) {
  const Sizes n = sizes_of(args);
  const Operands all = operands_of(args);
  float* out = args.out[0].as<float>().data();
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
                 lse + (batch * n.h + head) * n.s + query, scratch + thread * kForwardFloats);
  });
}

// One tile of queries of one head: pointers to its first query, and to the first key of its key
// head.
struct Gradient {
  const float *q, *k, *v, *out, *lse, *dout;
  float *dq, *dk, *dv;
};

struct BackwardScratch {
  float *p, *dp, *dout, *delta;
};

// dq may lie on out or dout, so what is needed of them is taken before dq is written.
void take_result(const Sizes& n, int64_t queries, const Gradient& at,
                 const BackwardScratch& scratch) {
  const int64_t row = n.h * n.d;
  for (int64_t i = 0; i < queries; ++i) {
    scratch.delta[i] = loops().dot(n.d, at.out + i * row, at.dout + i * row);
    std::copy_n(at.dout + i * row, n.d, scratch.dout + i * n.d);
  }
}

// Adds one tile to dk, dv and, past the first key, to dq.
void backward_tile(const Sizes& n, const Tile& tile, const Gradient& at,
                   const BackwardScratch& scratch) {
  const auto& [p, dp, dout, delta] = scratch;
  const int64_t q_row = n.h * n.d;
  const int64_t k_row = n.g * n.d;
  const int64_t key = tile.key * k_row;
  multiply_scores(n, tile, at.q, q_row, at.k + key, p);
  loops().recompute_softmax({tile.queries, tile.keys}, kKeys, tile.visible, n.scale, at.lse, p);
  // dv += p^T dout, dp = dout v^T
  gemm({.m = tile.keys,
        .n = n.d,
        .k = tile.queries,
        .a = p,
        .b = dout,
        .c = at.dv + key,
        .lda = kKeys,
        .ldb = n.d,
        .ldc = k_row,
        .transpose_a = true,
        .beta = 1});
  multiply_scores(n, tile, dout, n.d, at.v + key, dp);
  loops().softmax_tile_grad({tile.queries, tile.keys}, kKeys, n.scale, delta, p, dp);
  // dq += dp k, dk += dp^T q
  gemm({.m = tile.queries,
        .n = n.d,
        .k = tile.keys,
        .a = dp,
        .b = at.k + key,
        .c = at.dq,
        .lda = kKeys,
        .ldb = k_row,
        .ldc = q_row,
        .beta = tile.key > 0 ? 1.0F : 0.0F});
  gemm({.m = tile.keys,
        .n = n.d,
        .k = tile.queries,
        .a = dp,
        .b = at.q,
        .c = at.dk + key,
        .lda = kKeys,
        .ldb = q_row,
        .ldc = k_row,
        .transpose_a = true,
        .beta = 1});
}

void backward_queries(const Sizes& n, int64_t query, const Gradient& at,
                      const BackwardScratch& scratch) {
  take_result(n, std::min(kQueries, n.s - query), at, scratch);
  for (int64_t key = 0; key < n.t; key += kKeys) {
    const Tile tile = tile_of(n, query, key);
    if (tile.keys == 0) break;
    backward_tile(n, tile, at, scratch);
  }
}

void fill_rows(int64_t rows, int64_t size, int64_t stride, float* x) {
  for (int64_t row = 0; row < rows; ++row) std::fill_n(x + row * stride, size, 0.0F);
}

// A task is one key head and the query heads that share it: what they add to dk and dv is added in
// their order.
void run_attention_grad(const KernelArgs& args) {
  const Sizes n = sizes_of(args);
  const Operands all = operands_of(args);
  const float* out = args.in[3].as<float>().data();
  const float* lse = args.in[4].as<float>().data();
  const float* dout = args.in[5].as<float>().data();
  float* dq = args.out[0].as<float>().data();
  float* dk = args.out[1].as<float>().data();
  float* dv = args.out[2].as<float>().data();
  auto* floats = reinterpret_cast<float*>(args.scratch.data());
  run_tasks(args.pool, n.b * n.g, [&](int64_t task, int thread) {
    const int64_t batch = task / n.g;
    const int64_t group = task % n.g;
    float* mine = floats + thread * backward_floats(n.d);
    const BackwardScratch scratch{mine, mine + kQueries * kKeys, mine + 2 * kQueries * kKeys,
                                  mine + 2 * kQueries * kKeys + kQueries * n.d};
    const int64_t k_at = (batch * n.t * n.g + group) * n.d;
    fill_rows(n.t, n.d, n.g * n.d, dk + k_at);
    fill_rows(n.t, n.d, n.g * n.d, dv + k_at);
    for (int64_t head = group * n.r(); head < (group + 1) * n.r(); ++head) {
      for (int64_t query = 0; query < n.s; query += kQueries) {
        const int64_t q_at = ((batch * n.s + query) * n.h + head) * n.d;
        backward_queries(n, query,
                         {all.q + q_at, all.k + k_at, all.v + k_at, out + q_at,
                          lse + (batch * n.h + head) * n.s + query, dout + q_at, dq + q_at,
                          dk + k_at, dv + k_at},
                         scratch);
      }
    }
  });
}

}  // namespace

extern const Kernel attention_tiles{"attention", "attention.tiles", not_all_f32, forward_scratch,
                                    run_attention};
extern const Kernel attention_grad_tiles{"attention_grad", "attention_grad.tiles", not_all_f32,
                                         backward_scratch, run_attention_grad};

}  // namespace trireme::cpu
