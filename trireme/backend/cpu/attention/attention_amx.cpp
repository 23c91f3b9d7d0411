// attention and attention_grad of bf16 tensors by tiles of AMX (isa/tile_attention.h): scores and sums are f32;
// probabilities and their gradients are rounded to bf16 before they are multiplied. An element's bits depend on the
// tokens of its head alone: sums of products are taken 32 terms at a time, from the first key or query on.
#include <algorithm>

#include "trireme/backend/cpu/attention/attention_key_heads.h"
#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/products/tile_state.h"

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

void forward_queries(const Sizes& n, int64_t query, const ForwardQueries& at, const ForwardRoom& room) {
  const int64_t queries = std::min(kForwardQueries, n.s - query), row = n.h * n.d, steps = blocks(n.d);
  loops().tile_attention.pack({.tokens = queries, .size = n.d, .from = at.q, .stride = row, .columns = room.q});
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
  loops().finish_softmax(queries, room.max, room.sum, at.lse);
  loops().tile_attention.put_elements(
      {.tokens = queries, .size = n.d, .sums = room.out, .factors = room.sum, .to = at.out, .stride = row});
}

void backward_queries(const Sizes& n, int64_t query, const BackwardQueries& at, const BackwardRoom& room) {
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

struct ByTiles {
  using Guard = TileState;
  using ForwardRoom = attention_amx::ForwardRoom;
  using BackwardRoom = attention_amx::BackwardRoom;
  static constexpr int64_t kForwardQueries = attention_amx::kForwardQueries;
  static constexpr int64_t kBackwardQueries = attention_amx::kBackwardQueries;
  static constexpr auto* forward = &forward_queries;
  static constexpr auto* backward = &backward_queries;

  static void pack(const Sizes& n, const Bf16* k, const Bf16* v, const ForwardRoom& room) {
    const int64_t row = n.g * n.d;
    loops().tile_attention.pack({.tokens = n.t, .size = n.d, .from = k, .stride = row, .rows = room.k});
    loops().tile_attention.pack({.tokens = n.t, .size = n.d, .from = v, .stride = row, .terms_rows = room.v});
  }
  static void pack(const Sizes& n, const Bf16* k, const Bf16* v, const BackwardRoom& room) {
    const int64_t row = n.g * n.d;
    loops().tile_attention.pack(
        {.tokens = n.t, .size = n.d, .from = k, .stride = row, .rows = room.k, .terms_rows = room.k_terms});
    loops().tile_attention.pack({.tokens = n.t, .size = n.d, .from = v, .stride = row, .rows = room.v});
    const int64_t floats = blocks(n.t) * kBlock * blocks(n.d) * kBlock;
    std::fill_n(room.dk, floats, 0.0F);
    std::fill_n(room.dv, floats, 0.0F);
  }
  static void put(const Sizes& n, const BackwardRoom& room, Bf16* dk, Bf16* dv) {
    const int64_t row = n.g * n.d;
    loops().tile_attention.put_tokens(
        {.tokens = n.t, .size = n.d, .sums = room.dk, .factor = n.scale, .to = dk, .stride = row});
    loops().tile_attention.put_tokens(
        {.tokens = n.t, .size = n.d, .sums = room.dv, .factor = 1, .to = dv, .stride = row});
  }
};

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
          .run = attention_by_key_heads<attention_amx::ByTiles>,
          .bits = Bits::kElement,
      },
      {
          .op = "attention_grad",
          .name = "attention_grad.amx.pairs",
          .why_not = attention_amx::no_tiles,
          .scratch = scratch_of<attention_amx::BackwardRoom>,
          .run = attention_grad_by_key_heads<attention_amx::ByTiles>,
          .bits = Bits::kElement,
      },
  };
  return kAll;
}

}  // namespace trireme::cpu
