// attention and attention_grad of bf16 tensors by tiles of AMX (isa/tile_attention.h): scores and sums are f32;
// probabilities and their gradients are rounded to bf16 before they are multiplied. A task is one key head and the
// query heads that share it, so that its keys and values are packed once. An element's bits depend on the tokens of its
// head alone: sums of products are taken 32 terms at a time, from the first key or query on.
#include <algorithm>
#include <limits>

#include "trireme/backend/cpu/attention/attention_sizes.h"
#include "trireme/backend/cpu/attention/layouter.h"
#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/products/tile_state.h"
#include "trireme/backend/cpu/storage.h"
#include "trireme/backend/cpu/tasks.h"

namespace trireme::cpu {
namespace attention_amx {  // whose names are those of attention.cpp

using Sizes = AttentionSizes;

constexpr int64_t kBlock = kTileLines;                        // of queries, keys, or elements of a head
constexpr int64_t kForwardQueries = 128, kForwardKeys = 128;  // of a tile; keys are kMostTileKeys at most
constexpr int64_t kBackwardQueries = 64, kBackwardKeys = 256;

int64_t blocks(int64_t lines) {
  return (lines + kBlock - 1) / kBlock;
}

// What a task of the forward pass keeps in its thread's scratch.
struct ForwardRoom {
  int64_t bytes;
  uint32_t *k, *v, *q, *p;
  float *scores, *out, *max, *sum;

  ForwardRoom(const Sizes& n, std::byte* memory) {
    const int64_t steps = blocks(n.d), keys = blocks(n.t);
    Layouter layout(memory);
    k = layout.take<uint32_t>(keys * steps * kStepWords);
    v = layout.take<uint32_t>(keys * steps * kStepWords);
    q = layout.take<uint32_t>(kForwardQueries / kBlock * steps * kStepWords);
    p = layout.take<uint32_t>(2 * kMostTileKeys * kBlock / 2);
    scores = layout.take<float>(2 * kMostTileKeys * kBlock);
    out = layout.take<float>(kForwardQueries * steps * kBlock);
    max = layout.take<float>(kForwardQueries);
    sum = layout.take<float>(kForwardQueries);
    bytes = layout.used();
  }
};

struct BackwardRoom {
  int64_t bytes;
  uint32_t *k, *v, *k_terms;
  uint32_t *q, *dout, *q_terms, *dout_terms;  // of a tile's queries
  uint32_t *p, *ds, *ds_terms;
  float *lse, *delta, *dq, *dk, *dv;

  BackwardRoom(const Sizes& n, std::byte* memory) {
    const int64_t steps = blocks(n.d), keys = blocks(n.t);
    const int64_t pairs = kBackwardQueries * kMostTileKeys / 2;
    Layouter layout(memory);
    for (uint32_t** each : {&k, &v, &k_terms}) *each = layout.take<uint32_t>(keys * steps * kStepWords);
    for (uint32_t** each : {&q, &dout, &q_terms, &dout_terms})
      *each = layout.take<uint32_t>(kBackwardQueries / kBlock * steps * kStepWords);
    for (uint32_t** each : {&p, &ds, &ds_terms}) *each = layout.take<uint32_t>(pairs);
    lse = layout.take<float>(kBackwardQueries);
    delta = layout.take<float>(kBackwardQueries);
    dq = layout.take<float>(kBackwardQueries * steps * kBlock);
    dk = layout.take<float>(keys * kBlock * steps * kBlock);
    dv = layout.take<float>(keys * kBlock * steps * kBlock);
    bytes = layout.used();
  }
};

// The keys from `key` on that are seen by some of the queries, `count` from `query` on.
TileKeys keys_of(const Sizes& n, int64_t query, int64_t count, int64_t key, int64_t most) {
  const int64_t seen = n.keys(std::min(query + count, n.s) - 1) - key;
  return {std::clamp<int64_t>(seen, 0, most), n.causal ? query + n.t - n.s + 1 - key : n.t};
}

// A tile of queries of one head; q and out point to its first one.
void forward_queries(const Sizes& n, int64_t query, const Bf16* q, Bf16* out, float* lse, const ForwardRoom& room) {
  const int64_t queries = std::min(kForwardQueries, n.s - query), row = n.h * n.d, steps = blocks(n.d);
  loops().tile_attention.pack({.tokens = queries, .size = n.d, .from = q, .stride = row, .columns = room.q});
  for (int64_t key = 0; key < n.t; key += kForwardKeys) {
    const TileKeys keys = keys_of(n, query, queries, key, kForwardKeys);
    if (keys.count == 0) break;
    loops().tile_attention.forward({.keys = keys,
                                    .first = key == 0,
                                    .blocks = blocks(queries),
                                    .steps = steps,
                                    .scale = n.scale,
                                    .q = room.q,
                                    .k = room.k + key / kBlock * steps * kStepWords,
                                    .v = room.v + key / kBlock * kStepWords,
                                    .v_block = blocks(n.t) * kStepWords,
                                    .scores = room.scores,
                                    .p = room.p,
                                    .max = room.max,
                                    .sum = room.sum,
                                    .out = room.out});
  }
  loops().finish_softmax(queries, room.max, room.sum, lse);
  loops().tile_attention.put_elements(
      {.tokens = queries, .size = n.d, .sums = room.out, .factors = room.sum, .to = out, .stride = row});
}

void attention(const KernelArgs& args) {
  if (sees_nothing(args)) {
    std::ranges::fill(args.out[1].as<float>(), -std::numeric_limits<float>::infinity());
    return;
  }
  const Sizes n = sizes_of(args);
  const Bf16* q = data_of<Bf16>(args.in[0]);
  const Bf16* k = data_of<Bf16>(args.in[1]);
  const Bf16* v = data_of<Bf16>(args.in[2]);
  Bf16* out = data_of<Bf16>(args.out[0]);
  float* lse = args.out[1].as<float>().data();
  run_tasks(args.pool, n.b * n.g, [&](int64_t task, int thread) {
    const TileState state;
    const int64_t batch = task / n.g;
    const int64_t group = task % n.g;
    const ForwardRoom room = room_of<ForwardRoom>(n, args, thread);
    const int64_t k_at = (batch * n.t * n.g + group) * n.d;
    const int64_t k_row = n.g * n.d;
    loops().tile_attention.pack({.tokens = n.t, .size = n.d, .from = k + k_at, .stride = k_row, .rows = room.k});
    loops().tile_attention.pack({.tokens = n.t, .size = n.d, .from = v + k_at, .stride = k_row, .terms_rows = room.v});
    for (int64_t head = group * n.r(); head < (group + 1) * n.r(); ++head) {
      for (int64_t query = 0; query < n.s; query += kForwardQueries) {
        const int64_t at = ((batch * n.s + query) * n.h + head) * n.d;
        forward_queries(n, query, q + at, out + at, lse + (batch * n.h + head) * n.s + query, room);
      }
    }
  });
}

// One tile of queries of one head: pointers to its first query.
struct QueryTile {
  const Bf16 *q, *out, *dout;
  const float* lse;
  Bf16* dq;
};

// dq may lie on out or dout; it is written when nothing more is read of them.
void backward_queries(const Sizes& n, int64_t query, const QueryTile& at, const BackwardRoom& room) {
  const int64_t queries = std::min(kBackwardQueries, n.s - query), row = n.h * n.d, steps = blocks(n.d);
  std::fill_n(room.delta, kBackwardQueries, 0.0F);
  std::fill_n(room.lse, kBackwardQueries, 0.0F);
  std::copy_n(at.lse, queries, room.lse);
  for (int64_t i = 0; i < queries; ++i) room.delta[i] = loops().bf16.dot(n.d, at.out + i * row, at.dout + i * row);
  loops().tile_attention.pack(
      {.tokens = queries, .size = n.d, .from = at.q, .stride = row, .columns = room.q, .terms_columns = room.q_terms});
  loops().tile_attention.pack({.tokens = queries,
                               .size = n.d,
                               .from = at.dout,
                               .stride = row,
                               .columns = room.dout,
                               .terms_columns = room.dout_terms});
  std::fill_n(room.dq, blocks(queries) * kBlock * steps * kBlock, 0.0F);
  for (int64_t key = 0; key < n.t; key += kBackwardKeys) {
    const TileKeys keys = keys_of(n, query, kBackwardQueries, key, kBackwardKeys);
    if (keys.count == 0) break;
    loops().tile_attention.backward({.keys = keys,
                                     .blocks = blocks(queries),
                                     .steps = steps,
                                     .scale = n.scale,
                                     .q = room.q,
                                     .dout = room.dout,
                                     .q_terms = room.q_terms,
                                     .dout_terms = room.dout_terms,
                                     .k = room.k + key / kBlock * steps * kStepWords,
                                     .v = room.v + key / kBlock * steps * kStepWords,
                                     .k_terms = room.k_terms + key / kBlock * kStepWords,
                                     .k_block = blocks(n.t) * kStepWords,
                                     .lse = room.lse,
                                     .delta = room.delta,
                                     .p = room.p,
                                     .ds = room.ds,
                                     .ds_terms = room.ds_terms,
                                     .dq = room.dq,
                                     .dk = room.dk + key * steps * kBlock,
                                     .dv = room.dv + key * steps * kBlock});
  }
  loops().tile_attention.put_elements(
      {.tokens = queries, .size = n.d, .sums = room.dq, .factor = n.scale, .to = at.dq, .stride = row});
}

// What the query heads of a task add to dk and dv is added in their order.
void attention_grad(const KernelArgs& args) {
  if (sees_nothing(args)) return;
  const Sizes n = sizes_of(args);
  const Bf16* q = data_of<Bf16>(args.in[0]);
  const Bf16* k = data_of<Bf16>(args.in[1]);
  const Bf16* v = data_of<Bf16>(args.in[2]);
  const Bf16* out = data_of<Bf16>(args.in[3]);
  const float* lse = args.in[4].as<float>().data();
  const Bf16* dout = data_of<Bf16>(args.in[5]);
  Bf16* dq = data_of<Bf16>(args.out[0]);
  run_tasks(args.pool, n.b * n.g, [&](int64_t task, int thread) {
    const TileState state;
    const int64_t batch = task / n.g;
    const int64_t group = task % n.g;
    const BackwardRoom room = room_of<BackwardRoom>(n, args, thread);
    const int64_t k_at = (batch * n.t * n.g + group) * n.d;
    const int64_t k_row = n.g * n.d;
    loops().tile_attention.pack(
        {.tokens = n.t, .size = n.d, .from = k + k_at, .stride = k_row, .rows = room.k, .terms_rows = room.k_terms});
    loops().tile_attention.pack({.tokens = n.t, .size = n.d, .from = v + k_at, .stride = k_row, .rows = room.v});
    const int64_t floats = blocks(n.t) * kBlock * blocks(n.d) * kBlock;
    std::fill_n(room.dk, floats, 0.0F);
    std::fill_n(room.dv, floats, 0.0F);
    for (int64_t head = group * n.r(); head < (group + 1) * n.r(); ++head) {
      for (int64_t query = 0; query < n.s; query += kBackwardQueries) {
        const int64_t at = ((batch * n.s + query) * n.h + head) * n.d;
        const int64_t line = (batch * n.h + head) * n.s + query;
        backward_queries(n, query, {q + at, out + at, dout + at, lse + line, dq + at}, room);
      }
    }
    const auto put = [&](const float* sums, float factor, const View& to) {
      loops().tile_attention.put_tokens({.tokens = n.t,
                                         .size = n.d,
                                         .sums = sums,
                                         .factor = factor,
                                         .to = data_of<Bf16>(to) + k_at,
                                         .stride = k_row});
    };
    put(room.dk, n.scale, args.out[1]);
    put(room.dv, 1, args.out[2]);
  });
}

std::string no_tiles(const TypeArgs& args) {
  const TensorType& q = args.in[0];
  if (q.dtype != DType::kBF16) return fmt::format("operand 0 is {}, not bf16", to_string(q));
  return isa() < Isa::kAmx ? fmt::format("{} has no tiles of bf16", to_string(isa())) : "";
}

}  // namespace attention_amx

std::span<const Kernel> attention_amx_kernels() {
  static constexpr Kernel kAll[] = {
      {
          .op = "attention",
          .name = "attention.amx.pairs",
          .why_not = attention_amx::no_tiles,
          .scratch = scratch_of<attention_amx::ForwardRoom>,
          .run = attention_amx::attention,
          .bits = Bits::kElement,
      },
      {
          .op = "attention_grad",
          .name = "attention_grad.amx.pairs",
          .why_not = attention_amx::no_tiles,
          .scratch = scratch_of<attention_amx::BackwardRoom>,
          .run = attention_amx::attention_grad,
          .bits = Bits::kElement,
      },
  };
  return kAll;
}

}  // namespace trireme::cpu
