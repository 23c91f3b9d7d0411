// cached_attention of f32 and bf16 tensors: for the query heads that share a key head, scores of all keys that are
// seen, softmax, and the sum of values. Each key and value is read once for them. Many tokens at once, as a prompt's,
// are computed in the tiles of attention instead.
#include <algorithm>
#include <cmath>

#include "trireme/backend/cpu/attention/attention_tiles.h"
#include "trireme/backend/cpu/index.h"
#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/storage.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/base/error.h"

namespace trireme::cpu {
namespace {

// b batches, s tokens of t, h query heads of which r share one of g key heads, d elements of a head.
struct CachedSizes {
  int64_t b, s, t, h, g, d;
  int64_t r() const { return h / g; }
};

CachedSizes cached_sizes(const TensorType& q, const TensorType& keys) {
  return {q.shape[0], q.shape[1], keys.shape[1], q.shape[2], keys.shape[2], q.shape[3]};
}

// For fewer tokens keys and values are not worth being packed.
constexpr int64_t kFewestInTiles = 16;

// Of a thread: the scores of one query, then the query and its result in f32; or what tiles need, whose logarithms of
// sums nobody asks for.
template <class T>
int64_t cached_floats(const CachedSizes& n) {
  return n.s < kFewestInTiles ? n.t + 2 * n.d : AttentionRoom<T>::floats(n.t, n.d) + kQueries;
}

int64_t cached_scratch(const TypeArgs& args, int threads) {
  const CachedSizes n = cached_sizes(args.in[0], args.in[3]);
  const int64_t floats = args.in[0].dtype == DType::kBF16 ? cached_floats<Bf16>(n) : cached_floats<float>(n);
  return threads * floats * static_cast<int64_t>(sizeof(float));
}

// Where what was kept lies elsewhere, all of it comes along.
template <class T>
void keep_rows(const View& before, const View& rows, int64_t first, const View& after) {
  const T* const from = data_of<T>(before);
  T* const to = data_of<T>(after);
  if (to != from) std::copy_n(from, before.elements(), to);
  const Shape& shape = rows.type.shape;
  const int64_t row = shape[2] * shape[3];
  for (int64_t b = 0; b < shape[0]; ++b) {
    std::copy_n(data_of<T>(rows) + b * shape[1] * row, shape[1] * row, to + (b * after.type.shape[1] + first) * row);
  }
}

// One query of one head, of which `seen` keys are seen.
template <class T>
void attend_to(const CachedSizes& n, int64_t seen, const T* q, const T* keys, const T* values, float* room, T* y) {
  float* const scores = room;
  float* const query = scores + n.t;
  float* const sum = query + n.d;
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(n.d)));
  for (int64_t x = 0; x < n.d; ++x) query[x] = number(q[x]) * scale;
  loops_on<T>().dots_of_rows({seen, n.d}, n.g * n.d, query, keys, scores);
  loops().f32.softmax(seen, scores, scores);
  loops_on<T>().sum_of_rows({seen, n.d}, n.g * n.d, scores, values, sum);
  loops_on<T>().from_f32(n.d, sum, y);
}

// All queries of the heads that share a key head, whose first key and value, and first query and result, these are.
template <class T>
void attend_in_tiles(const CachedSizes& n, int64_t first, const T* q, const T* keys, const T* values, float* room,
                     T* y) {
  const AttentionSizes sizes{n.b, n.s, first + n.s, n.h,
                             n.g, n.d, true,        static_cast<float>(1 / std::sqrt(static_cast<double>(n.d)))};
  const AttentionRoom<T> tiles(room + kQueries, n.t, n.d);
  pack_keys(sizes, keys, PackedKeys::kColumns, tiles.keys, tiles.k);
  pack_keys(sizes, values, PackedKeys::kRows, tiles.keys, tiles.v);
  for (int64_t head = 0; head < n.r(); ++head) {
    for (int64_t query = 0; query < n.s; query += kQueries) {
      const int64_t at = (query * n.h + head) * n.d;
      forward_tile(sizes, query, q + at, y + at, room, tiles);
    }
  }
}

template <class T>
void cached_attention(const KernelArgs& args) {
  const CachedSizes n = cached_sizes(args.in[0].type, args.in[3].type);
  const int64_t first = Indices(args.in[5])[0];
  require(first >= 0 && first + n.s <= n.t, "cached_attention: {} tokens at {} of {}; use 0 to {}", n.s, first, n.t,
          n.t - n.s);
  keep_rows<T>(args.in[3], args.in[1], first, args.out[1]);
  keep_rows<T>(args.in[4], args.in[2], first, args.out[2]);
  const T* const q = data_of<T>(args.in[0]);
  const T* const keys = data_of<T>(args.out[1]);
  const T* const values = data_of<T>(args.out[2]);
  T* const y = data_of<T>(args.out[0]);
  run_tasks(args.pool, n.b * n.g, [&](int64_t task, int thread) {
    const int64_t batch = task / n.g;
    const int64_t group = task % n.g;
    float* const room = reinterpret_cast<float*>(args.scratch.data()) + thread * cached_floats<T>(n);
    const int64_t key = (batch * n.t * n.g + group) * n.d;
    if (n.s >= kFewestInTiles) {
      const int64_t at = (batch * n.s * n.h + group * n.r()) * n.d;
      return attend_in_tiles(n, first, q + at, keys + key, values + key, room, y + at);
    }
    for (int64_t i = 0; i < n.s; ++i) {
      for (int64_t head = group * n.r(); head < (group + 1) * n.r(); ++head) {
        const int64_t at = ((batch * n.s + i) * n.h + head) * n.d;
        attend_to(n, first + i + 1, q + at, keys + key, values + key, room, y + at);
      }
    }
  });
}

std::string cached_why_not(const TypeArgs& args) {
  std::string reason = first_not_float(args);
  return reason.empty() ? operand_not_index(args, 5) : reason;
}

}  // namespace

std::span<const Kernel> cached_attention_kernels() {
  static constexpr Kernel kAll[] = {
      {
          .op = "cached_attention",
          .name = "cached_attention.rows",
          .why_not = cached_why_not,
          .scratch = cached_scratch,
          .run = by_storage<cached_attention<float>, cached_attention<Bf16>>,
          .bits = Bits::kElement,
      },
  };
  return kAll;
}

}  // namespace trireme::cpu
