// attention and its gradient, a tile of queries and a tile of keys at a time, so that scores never stand in memory (Dao
// et al., 2022: FlashAttention). A warp has some rows of one of the tiles; its lanes are the rows of the other while
// scores are made, and the places of a head while these are multiplied with values.
#include "trireme/backend/cuda/kernels.h"
#include "trireme/backend/cuda/sources.h"
#include "trireme/backend/cuda/stream.h"
#include "trireme/op/keys_seen.h"

namespace trireme::cuda {
namespace {

constexpr int kTile = 32, kAttentionThreads = 256;  // 8 warps of 4 rows each
constexpr int64_t kMostHead = 128;

// D is the head size; PARTS of 32 places hold it.
constexpr std::string_view kAttentionSource = R"cuda(
#define TILE 32
#define PARTS ((D + 31) / 32)
#define MINE 4
struct Sizes { int s, t, h, g; W scale; int seen; };  // seen: 0 all keys, 1 up to a query's own, 2 none

// A tile of rows from `row` on, of a tensor [.., rows, heads, D]; rows beyond the last are zeros.
__device__ void fetch(W (*tile)[D + 1], const T* x, int row, int rows, int heads) {
  for (int i = threadIdx.x; i < TILE * D; i += blockDim.x) {
    const int r = i / D, c = i % D;
    tile[r][c] = row + r < rows ? load(x[((i64)(row + r) * heads) * D + c]) : (W)0;
  }
}
__device__ W dot(const W* a, const W* b) {
  W sum = 0;
#pragma unroll
  for (int c = 0; c < D; ++c) sum += a[c] * b[c];
  return sum;
}
// Of two scores; one that is not a number stays.
__device__ W larger(W a, W b) { return b > a || b != b ? b : a; }
__device__ int keys_for(const Sizes& n, int i) { return n.seen == 1 ? i + n.t - n.s + 1 : n.seen == 0 ? n.t : 0; }
__device__ int most_keys(const Sizes& n, int first_query) {
  const int last = first_query + TILE - 1 < n.s ? first_query + TILE - 1 : n.s - 1;
  return keys_for(n, last);
}

// Block [tile of queries, head, batch].
extern "C" __global__ void attention(const T* q, const T* k, const T* v, T* out, S* lse, Sizes n) {
  extern __shared__ W room[];
  W (*Q)[D + 1] = (W (*)[D + 1])room, (*K)[D + 1] = Q + TILE, (*V)[D + 1] = K + TILE;
  const int first = blockIdx.x * TILE, h = blockIdx.y, b = blockIdx.z, kh = h / (n.h / n.g);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  q += ((i64)b * n.s * n.h + h) * D, out += ((i64)b * n.s * n.h + h) * D, lse += ((i64)b * n.h + h) * n.s;
  k += ((i64)b * n.t * n.g + kh) * D, v += ((i64)b * n.t * n.g + kh) * D;
  fetch(Q, q, first, n.s, n.h);
  W most[MINE], sum[MINE], acc[MINE][PARTS];
  for (int m = 0; m < MINE; ++m) {
    most[m] = -1 / (W)0, sum[m] = 0;
    for (int p = 0; p < PARTS; ++p) acc[m][p] = 0;
  }
  const int end = most_keys(n, first);
  for (int key = 0; key < end; key += TILE) {
    __syncthreads();
    fetch(K, k, key, n.t, n.g);
    fetch(V, v, key, n.t, n.g);
    __syncthreads();
    for (int m = 0; m < MINE; ++m) {
      const int i = first + warp * MINE + m;
      const bool meets = i < n.s && key + lane < keys_for(n, i);
      const W score = meets ? n.scale * dot(Q[warp * MINE + m], K[lane]) : -1 / (W)0;
      W top = score;
      for (int step = 16; step > 0; step /= 2) top = larger(top, __shfl_xor_sync(~0u, top, step));
      if (top == -1 / (W)0) continue;  // of the whole warp
      const W now = larger(most[m], top), shrink = exp(most[m] - now), p = meets ? exp(score - now) : (W)0;
      W total = p;
      for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(~0u, total, step);
      sum[m] = sum[m] * shrink + total, most[m] = now;
      for (int c = 0; c < PARTS; ++c) acc[m][c] *= shrink;
      for (int j = 0; j < TILE; ++j) {
        const W weight = __shfl_sync(~0u, p, j);
        for (int c = 0; c < PARTS; ++c)
          if (c * 32 + lane < D) acc[m][c] += weight * V[j][c * 32 + lane];
      }
    }
  }
  for (int m = 0; m < MINE; ++m) {
    const int i = first + warp * MINE + m;
    if (i >= n.s) continue;
    const bool sees = keys_for(n, i) > 0;
    for (int c = 0; c < PARTS; ++c)
      if (c * 32 + lane < D) out[(i64)i * n.h * D + c * 32 + lane] = As<T>::of(sees ? acc[m][c] / sum[m] : (W)0);
    if (lane == 0) lse[i] = sees ? most[m] + log(sum[m]) : -1 / (W)0;
  }
}

// delta[b,h,i] = dout . out; a warp each.
extern "C" __global__ void attention_delta(const T* out, const T* dout, W* delta, i64 queries, int s, int h) {
  const i64 at = blockIdx.x * 8ll + threadIdx.x / 32;
  if (at >= queries) return;
  const int lane = threadIdx.x % 32;
  W sum = 0;
  for (int c = lane; c < D; c += 32) sum += load(out[at * D + c]) * load(dout[at * D + c]);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  const i64 head = at % h, i = at / h % s, b = at / h / s;
  if (lane == 0) delta[(b * h + head) * s + i] = sum;
}

// Block [tile of queries, head, batch]; dq may lie over dout.
extern "C" __global__ void attention_grad_queries(const T* q, const T* k, const T* v, const S* lse, const T* dout,
                                                  const W* delta, T* dq, Sizes n) {
  extern __shared__ W room[];
  W (*Q)[D + 1] = (W (*)[D + 1])room, (*O)[D + 1] = Q + TILE, (*K)[D + 1] = O + TILE, (*V)[D + 1] = K + TILE;
  const int first = blockIdx.x * TILE, h = blockIdx.y, b = blockIdx.z, kh = h / (n.h / n.g);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i64 of_head = ((i64)b * n.s * n.h + h) * D;
  lse += ((i64)b * n.h + h) * n.s, delta += ((i64)b * n.h + h) * n.s;
  k += ((i64)b * n.t * n.g + kh) * D, v += ((i64)b * n.t * n.g + kh) * D;
  fetch(Q, q + of_head, first, n.s, n.h);
  fetch(O, dout + of_head, first, n.s, n.h);
  W acc[MINE][PARTS];
  for (int m = 0; m < MINE; ++m)
    for (int p = 0; p < PARTS; ++p) acc[m][p] = 0;
  const int end = most_keys(n, first);
  for (int key = 0; key < end; key += TILE) {
    __syncthreads();
    fetch(K, k, key, n.t, n.g);
    fetch(V, v, key, n.t, n.g);
    __syncthreads();
    for (int m = 0; m < MINE; ++m) {
      const int row = warp * MINE + m, i = first + row;
      W ds = 0;
      if (i < n.s && key + lane < keys_for(n, i)) {
        const W p = exp(n.scale * dot(Q[row], K[lane]) - lse[i]);
        ds = n.scale * p * (dot(O[row], V[lane]) - delta[i]);
      }
      for (int j = 0; j < TILE; ++j) {
        const W weight = __shfl_sync(~0u, ds, j);
        for (int c = 0; c < PARTS; ++c)
          if (c * 32 + lane < D) acc[m][c] += weight * K[j][c * 32 + lane];
      }
    }
  }
  __syncthreads();
  for (int m = 0; m < MINE; ++m) {
    const int i = first + warp * MINE + m;
    for (int c = 0; c < PARTS; ++c)
      if (i < n.s && c * 32 + lane < D) dq[of_head + (i64)i * n.h * D + c * 32 + lane] = As<T>::of(acc[m][c]);
  }
}

// Block [tile of keys, key head, batch]: all query heads that the key head serves.
extern "C" __global__ void attention_grad_keys(const T* q, const T* k, const T* v, const S* lse, const T* dout,
                                               const W* delta, T* dk, T* dv, Sizes n) {
  extern __shared__ W room[];
  W (*K)[D + 1] = (W (*)[D + 1])room, (*V)[D + 1] = K + TILE, (*Q)[D + 1] = V + TILE, (*O)[D + 1] = Q + TILE;
  const int first = blockIdx.x * TILE, kh = blockIdx.y, b = blockIdx.z, group = n.h / n.g;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i64 of_keys = ((i64)b * n.t * n.g + kh) * D;
  fetch(K, k + of_keys, first, n.t, n.g);
  fetch(V, v + of_keys, first, n.t, n.g);
  W acc_k[MINE][PARTS], acc_v[MINE][PARTS];
  for (int m = 0; m < MINE; ++m)
    for (int p = 0; p < PARTS; ++p) acc_k[m][p] = 0, acc_v[m][p] = 0;
  // Under a causal mask queries before the tile's first key do not see it.
  int begin = n.seen == 1 ? first - (n.t - n.s) : n.seen == 0 ? 0 : n.s;
  begin = begin < 0 ? 0 : begin / TILE * TILE;
  for (int h = kh * group; h < (kh + 1) * group; ++h) {
    const i64 of_head = ((i64)b * n.s * n.h + h) * D, of_lines = ((i64)b * n.h + h) * n.s;
    for (int query = begin; query < n.s; query += TILE) {
      __syncthreads();
      fetch(Q, q + of_head, query, n.s, n.h);
      fetch(O, dout + of_head, query, n.s, n.h);
      __syncthreads();
      for (int m = 0; m < MINE; ++m) {
        const int row = warp * MINE + m, j = first + row, i = query + lane;
        W p = 0, ds = 0;
        if (i < n.s && j < n.t && j < keys_for(n, i)) {
          p = exp(n.scale * dot(Q[lane], K[row]) - lse[of_lines + i]);
          ds = n.scale * p * (dot(O[lane], V[row]) - delta[of_lines + i]);
        }
        for (int x = 0; x < TILE; ++x) {
          const W of_value = __shfl_sync(~0u, p, x), of_key = __shfl_sync(~0u, ds, x);
          for (int c = 0; c < PARTS; ++c)
            if (c * 32 + lane < D)
              acc_v[m][c] += of_value * O[x][c * 32 + lane], acc_k[m][c] += of_key * Q[x][c * 32 + lane];
        }
      }
    }
  }
  for (int m = 0; m < MINE; ++m) {
    const int j = first + warp * MINE + m;
    for (int c = 0; c < PARTS; ++c)
      if (j < n.t && c * 32 + lane < D) {
        dk[of_keys + (i64)j * n.g * D + c * 32 + lane] = As<T>::of(acc_k[m][c]);
        dv[of_keys + (i64)j * n.g * D + c * 32 + lane] = As<T>::of(acc_v[m][c]);
      }
  }
}
)cuda";

int shared_bytes(const KernelArgs& args, int tiles) {
  const int64_t row = (args.in[0].type.shape[3] + 1) * (args.in[0].type.dtype == DType::kF64 ? 8 : 4);
  return static_cast<int>(tiles * kTile * row);
}

Handle attention_function(const KernelArgs& args, const char* name, int tiles) {
  const DType dtype = args.in[0].type.dtype;
  const int64_t head_size = args.in[0].type.shape[3];
  return CudaStream::of(args).gpu().function(
      {name, dtype, head_size}, [&] { return attention_source(dtype, head_size); }, shared_bytes(args, tiles));
}

// As the kernels have them; of f64, with a scale of twice the bytes.
template <class W>
struct AttentionCall {
  int s, t, h, g;
  W scale;
  int seen;
};

template <class W>
AttentionCall<W> call_of(const KernelArgs& args) {
  const Shape &q = args.in[0].type.shape, &k = args.in[1].type.shape;
  const auto number = [](int64_t x) { return static_cast<int>(x); };
  const double scale = args.attrs.as<AttentionAttrs>().scale;
  const KeysSeen seen = keys_seen(args);
  return {number(q[1]),
          number(k[1]),
          number(q[2]),
          number(k[2]),
          static_cast<W>(scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(q[3]))),
          seen == KeysSeen::kAll       ? 0
          : seen == KeysSeen::kUpToOwn ? 1
                                       : 2};
}

CudaStream::Grid tiles_of(const KernelArgs& args, size_t rows_of, int tiles) {
  const Shape& shape = args.in[rows_of].type.shape;
  return {.blocks = (shape[1] + kTile - 1) / kTile,
          .threads = kAttentionThreads,
          .blocks_y = shape[2],
          .blocks_z = shape[0],
          .shared_bytes = shared_bytes(args, tiles)};
}

template <class W>
void forward(const KernelArgs& args) {
  constexpr int kTiles = 3;
  const AttentionCall<W> call = call_of<W>(args);
  CudaStream::of(args).run(
      attention_function(args, "attention", kTiles), tiles_of(args, 0, kTiles),
      {&args.in[0].data, &args.in[1].data, &args.in[2].data, &args.out[0].data, &args.out[1].data, &call});
}

// dq last: it may lie over dout or out.
template <class W>
void backward(const KernelArgs& args) {
  constexpr int kTiles = 4;
  CudaStream& stream = CudaStream::of(args);
  const AttentionCall<W> call = call_of<W>(args);
  std::byte* const delta = args.scratch.data();
  run_attention_delta(args, delta);
  stream.run(attention_function(args, "attention_grad_keys", kTiles), tiles_of(args, 1, kTiles),
             {&args.in[0].data, &args.in[1].data, &args.in[2].data, &args.in[4].data, &args.in[5].data, &delta,
              &args.out[1].data, &args.out[2].data, &call});
  stream.run(attention_function(args, "attention_grad_queries", kTiles), tiles_of(args, 0, kTiles),
             {&args.in[0].data, &args.in[1].data, &args.in[2].data, &args.in[4].data, &args.in[5].data, &delta,
              &args.out[0].data, &call});
}

void run_attention(const KernelArgs& args) {
  args.in[0].type.dtype == DType::kF64 ? forward<double>(args) : forward<float>(args);
}
void run_attention_grad(const KernelArgs& args) {
  args.in[0].type.dtype == DType::kF64 ? backward<double>(args) : backward<float>(args);
}

std::string why_no_attention(const TypeArgs& args) {
  if (std::string why = no_float(args); !why.empty()) return why;
  if (args.in[0].shape[3] > kMostHead) return fmt::format("heads are longer than {}", kMostHead);
  constexpr int64_t kMostBlocks = 65535;
  const bool fits = args.in[0].shape[0] <= kMostBlocks && args.in[0].elements() > 0;
  return fits ? "" : "the batch is larger than a grid";
}

int64_t attention_grad_scratch(const TypeArgs& args) {
  const Shape& q = args.in[0].shape;
  return q[0] * q[1] * q[2] * (args.in[0].dtype == DType::kF64 ? 8 : 4);
}

}  // namespace

void run_attention_delta(const KernelArgs& args, std::byte* delta) {
  const Shape& q = args.in[0].type.shape;
  const int64_t queries = q[0] * q[1] * q[2];
  const int s = static_cast<int>(q[1]), h = static_cast<int>(q[2]);
  constexpr int64_t kWarps = kAttentionThreads / 32;
  CudaStream::of(args).run(attention_function(args, "attention_delta", 0),
                           {.blocks = (queries + kWarps - 1) / kWarps, .threads = kAttentionThreads},
                           {&args.in[3].data, &args.in[5].data, &delta, &queries, &s, &h});
}

std::string attention_source(DType dtype, int64_t head_size) {
  return fmt::format("{}#define D {}\n{}", prelude(dtype), head_size, kAttentionSource);
}

std::span<const CudaKernel> attention_kernels() {
  static const CudaKernel kernels[] = {
      {"attention", "tiles", run_attention, why_no_attention},
      {"attention_grad", "tiles", run_attention_grad, why_no_attention, attention_grad_scratch},
  };
  return kernels;
}

}  // namespace trireme::cuda
