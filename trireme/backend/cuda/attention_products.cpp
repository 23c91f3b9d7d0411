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
struct Sum { __device__ W operator()(W a, W b) const { return a + b; } };
struct Max { __device__ W operator()(W a, W b) const { return b > a ? b : a; } };

// Where the matrices of each batch and key head are, for several tensors.
struct Bases { char* base[12]; i64 batch_step[12], head_step[12]; int tensors, heads, count; };
extern "C" __global__ void matrix_addresses(char** out, Bases of) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= of.count) return;
  for (int x = 0; x < of.tensors; ++x)
    out[(i64)x * of.count + i] = of.base[x] + i / of.heads * of.batch_step[x] + i % of.heads * of.head_step[x];
}

// Block [query, key head of each batch]; p may lie over scores of its type.
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

constexpr int kMostTensors = 12;
struct Bases {
  std::byte* base[kMostTensors] = {};
  int64_t batch_step[kMostTensors] = {}, head_step[kMostTensors] = {};  // bytes
  int tensors = 0, heads = 0, count = 0;
};

int64_t rounded_to_256(int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

// One call. Its scratch has the workspace of cuBLAS, addresses of matrices, the scores of `together` batches, what is
// as large and of the operands' type, and delta.
struct Attended {
  int64_t b, s, t, h, g, d;
  DType dtype, wide;
  double scale;
  int64_t together;

  explicit Attended(const TypeArgs& args)
      : b(args.in[0].shape[0]),
        s(args.in[0].shape[1]),
        t(args.in[1].shape[1]),
        h(args.in[0].shape[2]),
        g(args.in[1].shape[2]),
        d(args.in[0].shape[3]),
        dtype(args.in[0].dtype),
        wide(dtype == DType::kF64 ? DType::kF64 : DType::kF32),
        scale(args.attrs.as<AttentionAttrs>().scale) {
    if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(d));
    constexpr int64_t kMostScores = int64_t{256} << 20, kMostBlocks = 65535;
    const int64_t of_batch = std::max<int64_t>(g * s * t * size_of(wide), 1);
    together = std::clamp<int64_t>(std::min(kMostScores / of_batch, kMostBlocks / g), 1, std::max<int64_t>(b, 1));
  }
  int64_t group() const { return h / g; }
  int64_t addresses_bytes() const { return rounded_to_256(kMostTensors * together * g * 8); }
  int64_t scores_bytes() const { return rounded_to_256(together * g * s * t * size_of(wide)); }
  bool has_weights() const { return dtype == DType::kBF16; }  // else they lie over the scores
  int64_t weights_bytes() const { return has_weights() ? rounded_to_256(together * g * s * t * size_of(dtype)) : 0; }
  int64_t delta_bytes() const { return rounded_to_256(b * h * s * size_of(wide)); }
};

Matrix transposed(Matrix matrix) {
  matrix.is_transposed = true;
  return matrix;
}

Handle score_function(const KernelArgs& args, const char* name) {
  const DType dtype = args.in[0].type.dtype;
  return CudaStream::of(args).gpu().function({name, dtype}, [&] { return score_source(dtype); });
}

// Batches from `first` on, `count` of them, with one query head of each group.
class BatchesAtOnce {
 public:
  BatchesAtOnce(const KernelArgs& args, const Attended& n, int64_t first, int64_t count, int64_t of_group)
      : args_(args), n_(n), first_(first), of_group_(of_group) {
    bases_.heads = static_cast<int>(n.g);
    bases_.count = static_cast<int>(n.g * count);
    addresses_ = args.scratch.data() + kLargeWorkspace;
  }

  // Matrices of these tensors, of one row each query or key of a head, or each query with a column each key.
  Matrix queries(const View& view) {
    const int64_t size = size_of(n_.dtype), batch = n_.s * n_.h * n_.d * size;
    return add(view.data + first_ * batch + of_group_ * n_.d * size, batch, n_.group() * n_.d * size, n_.dtype,
               n_.h * n_.d);
  }
  Matrix keys(const View& view) {
    const int64_t size = size_of(n_.dtype), batch = n_.t * n_.g * n_.d * size;
    return add(view.data + first_ * batch, batch, n_.d * size, n_.dtype, n_.g * n_.d);
  }
  Matrix pairs(std::byte* data, DType dtype) {
    const int64_t head = n_.s * n_.t * size_of(dtype);
    return add(data, n_.g * head, head, dtype, n_.t);
  }
  // The first line of lse or delta.
  std::byte* lines(std::byte* data) const { return data + (first_ * n_.h + of_group_) * n_.s * size_of(n_.wide); }

  // After all matrices have been named, before they are multiplied.
  void find() {
    constexpr int kThreads = 128;
    CudaStream::of(args_).run(score_function(args_, "matrix_addresses"),
                              {.blocks = (bases_.count + kThreads - 1) / kThreads, .threads = kThreads},
                              {&addresses_, &bases_});
  }
  void products(Multiply how, const Matrix& a, const Matrix& b, const Matrix& c) {
    how.batches = bases_.count;
    multiply_each(CudaStream::of(args_), args_.scratch.first(kLargeWorkspace), how, a, b, c);
  }
  CudaStream::Grid block_each_row() const {
    return {.blocks = n_.s, .threads = kScoreThreads, .blocks_y = bases_.count};
  }

 private:
  Matrix add(std::byte* base, int64_t batch_step, int64_t head_step, DType dtype, int64_t row) {
    const int at = bases_.tensors++;
    bases_.base[at] = base;
    bases_.batch_step[at] = batch_step;
    bases_.head_step[at] = head_step;
    return {addresses_ + int64_t{at} * bases_.count * 8, dtype, row};
  }

  const KernelArgs& args_;
  const Attended& n_;
  int64_t first_, of_group_;
  Bases bases_;
  std::byte* addresses_;
};

Attended attended(const KernelArgs& args) {
  const TensorType in[] = {args.in[0].type, args.in[1].type};
  return Attended({in, {}, args.attrs});
}

Rows rows_of(const KernelArgs& args, const Attended& n) {
  const KeysSeen seen = keys_seen(args);
  return {static_cast<int>(n.s), static_cast<int>(n.t),
          seen == KeysSeen::kAll       ? 0
          : seen == KeysSeen::kUpToOwn ? 1
                                       : 2,
          n.group() * n.s};
}

// Calls fn(first, count, of_group) for all.
template <class Fn>
void each_at_once(const Attended& n, const Fn& fn) {
  for (int64_t first = 0; first < n.b; first += n.together) {
    for (int64_t of_group = 0; of_group < n.group(); ++of_group) fn(first, std::min(n.together, n.b - first), of_group);
  }
}

void run_attention_products(const KernelArgs& args) {
  CudaStream& stream = CudaStream::of(args);
  const Attended n = attended(args);
  const Rows rows = rows_of(args, n);
  std::byte* const scores = args.scratch.data() + kLargeWorkspace + n.addresses_bytes();
  std::byte* const weights = n.has_weights() ? scores + n.scores_bytes() : scores;
  each_at_once(n, [&](int64_t first, int64_t count, int64_t of_group) {
    BatchesAtOnce at(args, n, first, count, of_group);
    const Matrix q = at.queries(args.in[0]), k = at.keys(args.in[1]), v = at.keys(args.in[2]);
    const Matrix out = at.queries(args.out[0]), score = at.pairs(scores, n.wide), weight = at.pairs(weights, n.dtype);
    at.find();
    std::byte* const lse = at.lines(args.out[1].data);
    at.products({.m = n.s, .n = n.t, .k = n.d, .alpha = n.scale}, q, transposed(k), score);
    stream.run(score_function(args, "scores_to_weights"), at.block_each_row(), {&scores, &weights, &lse, &rows});
    at.products({.m = n.s, .n = n.d, .k = n.t}, weight, v, out);
  });
}

// dq last: it may lie over dout or out.
void run_attention_grad_products(const KernelArgs& args) {
  CudaStream& stream = CudaStream::of(args);
  const Attended n = attended(args);
  const Rows rows = rows_of(args, n);
  std::byte* const scores = args.scratch.data() + kLargeWorkspace + n.addresses_bytes();
  std::byte* const dp = scores + n.scores_bytes();
  std::byte* const p = n.has_weights() ? dp + n.scores_bytes() : scores;
  std::byte* const ds = n.has_weights() ? p + n.weights_bytes() : dp;
  std::byte* const delta = dp + n.scores_bytes() + 2 * n.weights_bytes();
  run_attention_delta(args, delta);
  const auto scale32 = static_cast<float>(n.scale);
  const void* const scale = n.wide == DType::kF64 ? static_cast<const void*>(&n.scale) : &scale32;
  each_at_once(n, [&](int64_t first, int64_t count, int64_t of_group) {
    BatchesAtOnce at(args, n, first, count, of_group);
    const Matrix q = at.queries(args.in[0]), k = at.keys(args.in[1]), v = at.keys(args.in[2]);
    const Matrix dout = at.queries(args.in[5]), dq = at.queries(args.out[0]);
    const Matrix dk = at.keys(args.out[1]), dv = at.keys(args.out[2]);
    const Matrix score = at.pairs(scores, n.wide), of_weight = at.pairs(dp, n.wide);
    const Matrix weight = at.pairs(p, n.dtype), slope = at.pairs(ds, n.dtype);
    at.find();
    std::byte *const lse = at.lines(args.in[4].data), *const due = at.lines(delta);
    const double of_whole_group = of_group > 0 ? 1 : 0;  // keys serve all its heads
    at.products({.m = n.s, .n = n.t, .k = n.d, .alpha = n.scale}, q, transposed(k), score);
    at.products({.m = n.s, .n = n.t, .k = n.d}, dout, transposed(v), of_weight);
    stream.run(score_function(args, "scores_to_slopes"), at.block_each_row(),
               {&scores, &dp, &lse, &due, &p, &ds, &rows, scale});
    at.products({.m = n.t, .n = n.d, .k = n.s, .beta = of_whole_group}, transposed(weight), dout, dv);
    at.products({.m = n.t, .n = n.d, .k = n.s, .beta = of_whole_group}, transposed(slope), q, dk);
    at.products({.m = n.s, .n = n.d, .k = n.t}, slope, k, dq);
  });
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
  return kLargeWorkspace + n.addresses_bytes() + n.scores_bytes() + n.weights_bytes();
}

int64_t attention_grad_products_scratch(const TypeArgs& args) {
  const Attended n(args);
  return kLargeWorkspace + n.addresses_bytes() + 2 * n.scores_bytes() + 2 * n.weights_bytes() + n.delta_bytes();
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
