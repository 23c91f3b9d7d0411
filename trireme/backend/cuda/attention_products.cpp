// attention and its gradient over long sequences, as products: the scores of one batch and of one query head for each
// key head stand in scratch, so that products run at the rate of cuBLAS, which for bf16 is that of the tensor cores.
#include <cmath>

#include "trireme/backend/cuda/kernels.h"
#include "trireme/backend/cuda/products.h"
#include "trireme/backend/cuda/sources.h"
#include "trireme/backend/cuda/stream.h"
#include "trireme/op/keys_seen.h"

namespace trireme::cuda {
namespace {

constexpr int kScoreThreads = 256;

constexpr std::string_view kScoreSource = R"cuda(
struct Rows { int s, t, seen; i64 head_step; };  // of lse and delta, from one key head's to the next
__device__ int keys_for(const Rows& n, int i) { return n.seen == 1 ? i + n.t - n.s + 1 : n.seen == 0 ? n.t : 0; }
template <class F> __device__ W over_block(W mine, F join, W* room) {
  for (int step = 16; step > 0; step /= 2) mine = join(mine, __shfl_xor_sync(~0u, mine, step));
  __syncthreads();
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = mine;
  __syncthreads();
  W all = room[0];
  for (int warp = 1; warp < blockDim.x / 32; ++warp) all = join(all, room[warp]);
  return all;
}
struct Sum { __device__ W operator()(W a, W b) const { return a + b; } };
struct Max { __device__ W operator()(W a, W b) const { return b > a ? b : a; } };

// Block [query, key head]; p may lie over scores of its type.
extern "C" __global__ void scores_to_weights(const W* scores, T* p, S* lse, Rows n) {
  __shared__ W room[32];
  const int i = blockIdx.x, keys = keys_for(n, i);
  const i64 first = ((i64)blockIdx.y * n.s + i) * n.t;
  scores += first, p += first;
  W most = -1 / (W)0, sum = 0;
  for (int j = threadIdx.x; j < keys; j += blockDim.x) most = Max()(most, scores[j]);
  most = over_block(most, Max(), room);
  for (int j = threadIdx.x; j < keys; j += blockDim.x) sum += exp(scores[j] - most);
  sum = over_block(sum, Sum(), room);
  for (int j = threadIdx.x; j < n.t; j += blockDim.x)
    p[j] = As<T>::of(j < keys ? exp(scores[j] - most) / sum : (W)0);
  if (threadIdx.x == 0) lse[blockIdx.y * n.head_step + i] = keys > 0 ? most + log(sum) : -1 / (W)0;
}

// p = exp(scores - lse) and ds = scale p (dp - delta), which may lie over scores and dp.
extern "C" __global__ void scores_to_slopes(const W* scores, const W* dp, const S* lse, const W* delta, T* p, T* ds,
                                            Rows n, W scale) {
  const int i = blockIdx.x, keys = keys_for(n, i);
  const i64 first = ((i64)blockIdx.y * n.s + i) * n.t, line = blockIdx.y * n.head_step + i;
  const W of_line = lse[line], due = delta[line];
  for (int j = threadIdx.x; j < n.t; j += blockDim.x) {
    const W weight = j < keys ? exp(scores[first + j] - of_line) : (W)0;
    const W slope = j < keys ? scale * weight * (dp[first + j] - due) : (W)0;
    p[first + j] = As<T>::of(weight), ds[first + j] = As<T>::of(slope);
  }
}
)cuda";

// As the kernels have it.
struct Rows {
  int s, t, seen;
  int64_t head_step;
};

// One call, and where things stand in the scratch: the workspace of cuBLAS, scores, what is as large and of the
// operands' type, and delta.
struct Attended {
  int64_t b, s, t, h, g, d;
  DType dtype, wide;
  int64_t scores_bytes, weights_bytes, delta_bytes;
  double scale;

  explicit Attended(const TypeArgs& args)
      : b(args.in[0].shape[0]),
        s(args.in[0].shape[1]),
        t(args.in[1].shape[1]),
        h(args.in[0].shape[2]),
        g(args.in[1].shape[2]),
        d(args.in[0].shape[3]),
        dtype(args.in[0].dtype),
        wide(dtype == DType::kF64 ? DType::kF64 : DType::kF32),
        scores_bytes(rounded(g * s * t * size_of(wide))),
        weights_bytes(dtype == DType::kBF16 ? rounded(g * s * t * size_of(dtype)) : 0),
        delta_bytes(rounded(b * h * s * size_of(wide))),
        scale(args.attrs.as<AttentionAttrs>().scale) {
    if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(d));
  }
  static int64_t rounded(int64_t bytes) { return (bytes + 255) / 256 * 256; }
  int64_t group() const { return h / g; }

  // Queries of one head of each group in batch `at_b`, and keys; tensors of these shapes.
  Matrix queries(const View& view, int64_t at_b, int64_t of_group) const {
    return {view.data + (at_b * s * h + of_group) * d * size_of(dtype), dtype, h * d, group() * d};
  }
  Matrix keys(const View& view, int64_t at_b) const {
    return {view.data + at_b * t * g * d * size_of(dtype), dtype, g * d, d};
  }
  // Of each key head, a row each query.
  Matrix pairs(std::byte* data, DType type) const { return {data, type, t, s * t}; }
  // The first line of lse or delta.
  std::byte* lines(std::byte* data, int64_t at_b, int64_t of_group) const {
    return data + (at_b * h + of_group) * s * size_of(wide);
  }
};

Matrix transposed(Matrix matrix) {
  matrix.is_transposed = true;
  return matrix;
}

Attended attended(const KernelArgs& args) {
  const TensorType in[] = {args.in[0].type, args.in[1].type};
  return Attended({in, {}, args.attrs});
}

Handle score_function(const KernelArgs& args, const char* name) {
  const DType dtype = args.in[0].type.dtype;
  return CudaStream::of(args).gpu().function({name, dtype}, [&] { return score_source(dtype); });
}

Rows rows_of(const KernelArgs& args, const Attended& n) {
  const KeysSeen seen = keys_seen(args);
  return {static_cast<int>(n.s), static_cast<int>(n.t),
          seen == KeysSeen::kAll       ? 0
          : seen == KeysSeen::kUpToOwn ? 1
                                       : 2,
          n.group() * n.s};
}

CudaStream::Grid block_each_row(const Attended& n) {
  return {.blocks = n.s, .threads = kScoreThreads, .blocks_y = n.g};
}

void run_attention_products(const KernelArgs& args) {
  CudaStream& stream = CudaStream::of(args);
  const Attended n = attended(args);
  const Rows rows = rows_of(args, n);
  const std::span<std::byte> workspace = args.scratch.first(kLargeWorkspace);
  std::byte* const scores = args.scratch.data() + kLargeWorkspace;
  std::byte* const weights = n.weights_bytes > 0 ? scores + n.scores_bytes : scores;
  for (int64_t b = 0; b < n.b; ++b) {
    for (int64_t of_group = 0; of_group < n.group(); ++of_group) {
      std::byte* const lse = n.lines(args.out[1].data, b, of_group);
      multiply(stream, workspace, {.m = n.s, .n = n.t, .k = n.d, .batches = n.g, .alpha = n.scale},
               n.queries(args.in[0], b, of_group), transposed(n.keys(args.in[1], b)), n.pairs(scores, n.wide));
      stream.run(score_function(args, "scores_to_weights"), block_each_row(n), {&scores, &weights, &lse, &rows});
      multiply(stream, workspace, {.m = n.s, .n = n.d, .k = n.t, .batches = n.g}, n.pairs(weights, n.dtype),
               n.keys(args.in[2], b), n.queries(args.out[0], b, of_group));
    }
  }
}

// dq last: it may lie over dout or out.
void run_attention_grad_products(const KernelArgs& args) {
  CudaStream& stream = CudaStream::of(args);
  const Attended n = attended(args);
  const Rows rows = rows_of(args, n);
  const std::span<std::byte> workspace = args.scratch.first(kLargeWorkspace);
  std::byte* const scores = args.scratch.data() + kLargeWorkspace;
  std::byte* const dp = scores + n.scores_bytes;
  std::byte* const p = n.weights_bytes > 0 ? dp + n.scores_bytes : scores;
  std::byte* const ds = n.weights_bytes > 0 ? p + n.weights_bytes : dp;
  std::byte* const delta = dp + n.scores_bytes + 2 * n.weights_bytes;
  run_attention_delta(args, delta);
  const float scale32 = static_cast<float>(n.scale);
  const void* const scale = n.wide == DType::kF64 ? static_cast<const void*>(&n.scale) : &scale32;
  for (int64_t b = 0; b < n.b; ++b) {
    for (int64_t of_group = 0; of_group < n.group(); ++of_group) {
      const Matrix q = n.queries(args.in[0], b, of_group), dout = n.queries(args.in[5], b, of_group);
      const Matrix k = n.keys(args.in[1], b), v = n.keys(args.in[2], b);
      std::byte *const lse = n.lines(args.in[4].data, b, of_group), *const due = n.lines(delta, b, of_group);
      const Multiply to_pairs{.m = n.s, .n = n.t, .k = n.d, .batches = n.g};
      Multiply scaled = to_pairs;
      scaled.alpha = n.scale;
      multiply(stream, workspace, scaled, q, transposed(k), n.pairs(scores, n.wide));
      multiply(stream, workspace, to_pairs, dout, transposed(v), n.pairs(dp, n.wide));
      stream.run(score_function(args, "scores_to_slopes"), block_each_row(n),
                 {&scores, &dp, &lse, &due, &p, &ds, &rows, scale});
      const Multiply to_keys{
          .m = n.t, .n = n.d, .k = n.s, .batches = n.g, .beta = of_group > 0 ? 1.0 : 0.0};  // of its whole group
      multiply(stream, workspace, to_keys, transposed(n.pairs(p, n.dtype)), dout, n.keys(args.out[2], b));
      multiply(stream, workspace, to_keys, transposed(n.pairs(ds, n.dtype)), q, n.keys(args.out[1], b));
      multiply(stream, workspace, {.m = n.s, .n = n.d, .k = n.t, .batches = n.g}, n.pairs(ds, n.dtype), k,
               n.queries(args.out[0], b, of_group));
    }
  }
}

// Short sequences are quicker by tiles, which need no scratch.
std::string why_no_attention_products(const TypeArgs& args) {
  if (std::string why = no_float(args); !why.empty()) return why;
  constexpr int64_t kLeastPairs = 256 * 256, kMostBlocks = 65535;
  const Attended n(args);
  if (n.s * n.t < kLeastPairs) return "the sequences are short";
  return n.g <= kMostBlocks ? "" : "there are more heads than a grid has blocks";
}

// What is due to keys would be rounded to bf16 for each head of their group.
std::string why_no_attention_grad_products(const TypeArgs& args) {
  if (std::string why = why_no_attention_products(args); !why.empty()) return why;
  return args.in[0].dtype == DType::kBF16 && Attended(args).group() > 1 ? "keys serve several heads in bf16" : "";
}

int64_t attention_products_scratch(const TypeArgs& args) {
  const Attended n(args);
  return kLargeWorkspace + n.scores_bytes + n.weights_bytes;
}

int64_t attention_grad_products_scratch(const TypeArgs& args) {
  const Attended n(args);
  return kLargeWorkspace + 2 * n.scores_bytes + 2 * n.weights_bytes + n.delta_bytes;
}

}  // namespace

std::string score_source(DType dtype) {
  return prelude(dtype) + std::string(kScoreSource);
}

std::span<const CudaKernel> attention_products_kernels() {
  static const CudaKernel kernels[] = {
      {"attention", "products", run_attention_products, why_no_attention_products, attention_products_scratch},
      {"attention_grad", "products", run_attention_grad_products, why_no_attention_grad_products,
       attention_grad_products_scratch},
  };
  return kernels;
}

}  // namespace trireme::cuda
