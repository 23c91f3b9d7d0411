// The sizes of an attention and of its tiles of queries and keys, which the kernels of both kinds
// of tiles share.
#pragma once

#include <algorithm>
#include <cmath>

#include "trireme/backend/cpu/isa/products.h"
#include "trireme/op/keys_seen.h"
#include "trireme/op/op_attrs.h"
#include "trireme/op/op_def.h"

namespace trireme::cpu {

inline constexpr int64_t kQueries = 64;  // of a tile
inline constexpr int64_t kKeys = 256;
// From row to row of a tile's scores: not a power of two, so that a column of them is spread over the first-level
// cache.
inline constexpr int64_t kScoresRow = kKeys + 16;

// b batches, s queries, t keys, h query heads of which r share one of g key heads, d elements of a
// head.
struct AttentionSizes {
  int64_t b, s, t, h, g, d;
  bool causal;
  float scale;
  int64_t query_tiles() const { return (s + kQueries - 1) / kQueries; }
  int64_t r() const { return h / g; }
  // Keys seen by query i.
  int64_t keys(int64_t i) const { return causal ? std::clamp<int64_t>(i + t - s + 1, 0, t) : t; }
};

inline AttentionSizes attention_sizes(const Shape& q, const Shape& k, const AttentionAttrs& attrs) {
  const double scale = attrs.scale == 0 ? 1 / std::sqrt(static_cast<double>(q[3])) : attrs.scale;
  return {q[0], q[1], k[1], q[2], k[2], q[3], attrs.causal, static_cast<float>(scale)};
}
inline AttentionSizes sizes_of(const KernelArgs& args) {
  AttentionSizes n = attention_sizes(args.in[0].type.shape, args.in[1].type.shape, args.attrs.as<AttentionAttrs>());
  n.causal = keys_seen(args) == KeysSeen::kUpToOwn;
  return n;
}

// Whether a step of a ring has no keys for any query; the results are then what no key gives.
inline bool sees_nothing(const KernelArgs& args) {
  if (keys_seen(args) != KeysSeen::kNone) return false;
  for (const View& out : args.out) std::ranges::fill(out.raw(), std::byte{0});
  return true;
}
inline AttentionSizes sizes_of(const TypeArgs& args) {
  return attention_sizes(args.in[0].shape, args.in[1].shape, args.attrs.as<AttentionAttrs>());
}

struct AttentionTile {
  int64_t query, queries;  // first query and their number
  int64_t key, keys;
  // Columns that row 0 sees; each further row sees one more. All of them without a mask.
  int64_t visible;
  LinesAhead* ahead = nullptr;  // read soon, brought nearer during its products
};

// The part of a tile that is not hidden from all its queries; keys is 0 when there is none.
inline AttentionTile tile_of(const AttentionSizes& n, int64_t query, int64_t key) {
  AttentionTile tile{query, std::min(kQueries, n.s - query), key, 0, kKeys};
  tile.keys = std::max<int64_t>(0, std::min(kKeys, n.keys(query + tile.queries - 1) - key));
  if (n.causal) tile.visible = query + n.t - n.s + 1 - key;
  return tile;
}

}  // namespace trireme::cpu
