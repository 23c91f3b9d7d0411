// attention and attention_grad of bf16 tensors by key heads. A task is one key head and the query heads that share it,
// so that its keys and values are packed once; what the query heads add to dk and dv is added in their order.
//
// What a Way has:
//   Guard                                   is held while a task runs
//   ForwardRoom, BackwardRoom               what a task keeps in its thread's scratch (layouter.h)
//   kForwardQueries, kBackwardQueries       of a tile
//   pack(n, k, v, room)                     for either room: keys and values of the head, whose first rows these are;
//                                           of a backward pass, begins the sums of dk and dv
//   forward(n, query, at, room)             one tile, of queries from `query` on
//   backward(n, query, at, room)
//   put(n, room, dk, dv)                    the sums
#pragma once

#include <algorithm>
#include <limits>

#include "trireme/backend/cpu/attention/attention_sizes.h"
#include "trireme/backend/cpu/attention/layouter.h"
#include "trireme/backend/cpu/storage.h"
#include "trireme/backend/cpu/tasks.h"

namespace trireme::cpu {

// One tile of queries of one head: pointers to its first query.
struct ForwardQueries {
  const Bf16* q;
  Bf16* out;
  float* lse;
};
// dq may lie on out or dout; it is written when nothing more is read of them.
struct BackwardQueries {
  const Bf16 *q, *out, *dout;
  const float* lse;
  Bf16* dq;
};

// do_tile(query, at, line) for the tiles of each head that shares the key head: their first query, and its place in
// tensors as q and as lse.
template <class F>
void for_query_tiles(const AttentionSizes& n, int64_t key_head, int64_t queries, F&& do_tile) {
  const int64_t batch = key_head / n.g, group = key_head % n.g;
  for (int64_t head = group * n.r(); head < (group + 1) * n.r(); ++head) {
    for (int64_t query = 0; query < n.s; query += queries)
      do_tile(query, ((batch * n.s + query) * n.h + head) * n.d, (batch * n.h + head) * n.s + query);
  }
}

// The place of its first key in tensors as k.
inline int64_t keys_at(const AttentionSizes& n, int64_t key_head) {
  return (key_head / n.g * n.t * n.g + key_head % n.g) * n.d;
}

template <class Way>
void attention_by_key_heads(const KernelArgs& args) {
  if (sees_nothing(args)) {
    std::ranges::fill(args.out[1].as<float>(), -std::numeric_limits<float>::infinity());
    return;
  }
  const AttentionSizes n = sizes_of(args);
  const Bf16* q = data_of<Bf16>(args.in[0]);
  Bf16* out = data_of<Bf16>(args.out[0]);
  float* lse = args.out[1].as<float>().data();
  run_tasks(args.pool, n.b * n.g, [&](int64_t key_head, int thread) {
    [[maybe_unused]] const typename Way::Guard guard;
    const auto room = room_of<typename Way::ForwardRoom>(n, args, thread);
    const int64_t k_at = keys_at(n, key_head);
    Way::pack(n, data_of<Bf16>(args.in[1]) + k_at, data_of<Bf16>(args.in[2]) + k_at, room);
    for_query_tiles(n, key_head, Way::kForwardQueries, [&](int64_t query, int64_t at, int64_t line) {
      Way::forward(n, query, ForwardQueries{q + at, out + at, lse + line}, room);
    });
  });
}

template <class Way>
void attention_grad_by_key_heads(const KernelArgs& args) {
  if (sees_nothing(args)) return;
  const AttentionSizes n = sizes_of(args);
  const Bf16* q = data_of<Bf16>(args.in[0]);
  const Bf16* out = data_of<Bf16>(args.in[3]);
  const float* lse = args.in[4].as<float>().data();
  const Bf16* dout = data_of<Bf16>(args.in[5]);
  Bf16* dq = data_of<Bf16>(args.out[0]);
  run_tasks(args.pool, n.b * n.g, [&](int64_t key_head, int thread) {
    [[maybe_unused]] const typename Way::Guard guard;
    const auto room = room_of<typename Way::BackwardRoom>(n, args, thread);
    const int64_t k_at = keys_at(n, key_head);
    Way::pack(n, data_of<Bf16>(args.in[1]) + k_at, data_of<Bf16>(args.in[2]) + k_at, room);
    for_query_tiles(n, key_head, Way::kBackwardQueries, [&](int64_t query, int64_t at, int64_t line) {
      Way::backward(n, query, BackwardQueries{q + at, out + at, dout + at, lse + line, dq + at}, room);
    });
    Way::put(n, room, data_of<Bf16>(args.out[1]) + k_at, data_of<Bf16>(args.out[2]) + k_at);
  });
}

}  // namespace trireme::cpu
