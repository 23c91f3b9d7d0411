// reduce_sum, reduce_max, reduce_min and square_sum, over dimensions that lie beside each other. Parts of a long sum
// are taken by several blocks and added in their order, so that a result has the same bits every time.
#include "trireme/backend/cuda/kernels.h"
#include "trireme/backend/cuda/sources.h"
#include "trireme/backend/cuda/stream.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cuda {
namespace {

// An operand as [outer, reduced, inner].
struct Reduced {
  int64_t outer = 1, reduced = 1, inner = 1;
  bool is_one_block = true;  // the dimensions that are reduced lie beside each other
};

Reduced reduced_in(const Shape& shape, std::span<const int64_t> dims) {
  Reduced out;
  bool begun = false, ended = false;
  for (int dim = 0; dim < shape.rank(); ++dim) {
    if (shape[dim] == 1) continue;
    const bool goes = std::ranges::count(dims, dim) > 0;
    if (goes && ended) out.is_one_block = false;
    begun |= goes;
    ended |= begun && !goes;
    (goes ? out.reduced : begun ? out.inner : out.outer) *= shape[dim];
  }
  return out;
}

Reduced reduced_of(std::string_view op, const TensorType& x, const Attrs& attrs) {
  if (op == "square_sum") return {1, x.elements(), 1, true};
  return reduced_in(x.shape, attrs.as<ReduceAttrs>().dims);
}

constexpr int kReduceThreads = 256;
constexpr int64_t kBlocksWanted = 512;  // enough to keep a GPU busy
constexpr int64_t kLeastOfPart = 1024;  // elements that a block is worth

// How many parts each sum is taken in.
int64_t parts_of(const Reduced& r) {
  const int64_t sums = r.inner == 1 ? r.outer : r.outer * ((r.inner + 31) / 32);
  const int64_t each = r.inner == 1 ? r.reduced / kLeastOfPart : r.reduced / 32;
  return std::clamp<int64_t>(std::min(kBlocksWanted / std::max<int64_t>(sums, 1), each), 1, kBlocksWanted);
}

constexpr std::string_view kReduceSource = R"cuda(
struct Sum { __device__ static W start() { return 0; } __device__ static W of(W x) { return x; }
             __device__ static W join(W a, W b) { return a + b; } };
struct Squares { __device__ static W start() { return 0; } __device__ static W of(W x) { return x * x; }
                 __device__ static W join(W a, W b) { return a + b; } };
struct Max { __device__ static W start() { return -1 / (W)0; } __device__ static W of(W x) { return x; }
             __device__ static W join(W a, W b) { return b > a || b != b ? b : a; } };
struct Min { __device__ static W start() { return 1 / (W)0; } __device__ static W of(W x) { return x; }
             __device__ static W join(W a, W b) { return b < a || b != b ? b : a; } };

// Block [outer, part] takes its part of a line that lies together.
template <class F> __device__ void reduce_lines(const T* x, W* out, i64 size, i64 part) {
  __shared__ W room[32];
  const i64 first = blockIdx.y * part, end = first + part < size ? first + part : size;
  x += blockIdx.x * size;
  W mine = F::start();
  for (i64 i = first + threadIdx.x; i < end; i += blockDim.x) mine = F::join(mine, F::of(load(x[i])));
  for (int step = 16; step > 0; step /= 2) mine = F::join(mine, __shfl_xor_sync(~0u, mine, step));
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int warp = 1; warp < blockDim.x / 32; ++warp) mine = F::join(mine, room[warp]);
  out[blockIdx.x * gridDim.y + blockIdx.y] = mine;
}

// Block [columns, part, outer] takes its part of 32 columns: each warp some of the rows.
template <class F> __device__ void reduce_columns(const T* x, W* out, i64 rows, i64 inner, i64 part) {
  __shared__ W room[8][33];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i64 column = blockIdx.x * 32ll + lane, first = blockIdx.y * part,
            end = first + part < rows ? first + part : rows;
  x += blockIdx.z * rows * inner;
  W mine = F::start();
  if (column < inner)
    for (i64 row = first + warp; row < end; row += 8) mine = F::join(mine, F::of(load(x[row * inner + column])));
  room[warp][lane] = mine;
  __syncthreads();
  if (warp > 0 || column >= inner) return;
  for (int other = 1; other < 8; ++other) mine = F::join(mine, room[other][lane]);
  out[(blockIdx.z * inner + column) * gridDim.y + blockIdx.y] = mine;
}

template <class F, class R> __device__ void join_parts(const W* parts, R* y, i64 n, i64 count) {
  const i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x;
  if (i >= n) return;
  W all = parts[i * count];
  for (i64 part = 1; part < count; ++part) all = F::join(all, parts[i * count + part]);
  y[i] = As<R>::of(all);
}

#define REDUCTION(name, F, R)                                                                                   \
  extern "C" __global__ void name##_lines(const T* x, W* out, i64 size, i64 part) {                             \
    reduce_lines<F>(x, out, size, part); }                                                                      \
  extern "C" __global__ void name##_columns(const T* x, W* out, i64 rows, i64 inner, i64 part) {                \
    reduce_columns<F>(x, out, rows, inner, part); }                                                             \
  extern "C" __global__ void name##_parts(const W* parts, R* y, i64 n, i64 count) {                             \
    join_parts<F>(parts, y, n, count); }
REDUCTION(reduce_sum, Sum, S)
REDUCTION(square_sum, Squares, S)
REDUCTION(reduce_max, Max, T)
REDUCTION(reduce_min, Min, T)
)cuda";

// The three kernels of an op.
struct ReductionNames {
  std::string_view op;
  const char *lines, *columns, *parts;
};
constexpr ReductionNames kReductions[] = {{"reduce_sum", "reduce_sum_lines", "reduce_sum_columns", "reduce_sum_parts"},
                                          {"reduce_max", "reduce_max_lines", "reduce_max_columns", "reduce_max_parts"},
                                          {"reduce_min", "reduce_min_lines", "reduce_min_columns", "reduce_min_parts"},
                                          {"square_sum", "square_sum_lines", "square_sum_columns", "square_sum_parts"}};

Handle reduce_function(const KernelArgs& args, const char* name) {
  const DType dtype = args.in[0].type.dtype;
  return CudaStream::of(args).gpu().function({name, dtype}, [&] { return reduction_source(dtype); });
}

// A part of the sum is a number of type W in the scratch.
void reduce(const KernelArgs& args, const ReductionNames& names) {
  CudaStream& stream = CudaStream::of(args);
  const Reduced r = reduced_of(names.op, args.in[0].type, args.attrs);
  const int64_t parts = parts_of(r), part = (r.reduced + parts - 1) / parts, results = r.outer * r.inner;
  const std::byte* const scratch = args.scratch.data();
  if (r.inner == 1) {
    stream.run(reduce_function(args, names.lines), {.blocks = r.outer, .threads = kReduceThreads, .blocks_y = parts},
               {&args.in[0].data, &scratch, &r.reduced, &part});
  } else {
    const CudaStream::Grid grid{
        .blocks = (r.inner + 31) / 32, .threads = kReduceThreads, .blocks_y = parts, .blocks_z = r.outer};
    stream.run(reduce_function(args, names.columns), grid, {&args.in[0].data, &scratch, &r.reduced, &r.inner, &part});
  }
  stream.run(reduce_function(args, names.parts),
             {.blocks = (results + kReduceThreads - 1) / kReduceThreads, .threads = kReduceThreads},
             {&scratch, &args.out[0].data, &results, &parts});
}

std::string why_no_reduction(std::string_view op, const TypeArgs& args) {
  if (std::string why = no_float(args); !why.empty()) return why;
  const Reduced r = reduced_of(op, args.in[0], args.attrs);
  if (!r.is_one_block) return "the dimensions that it sums over do not lie beside each other";
  if (args.in[0].elements() == 0) return "there is nothing to sum";
  constexpr int64_t kMostBlocks = 65535;
  return r.inner > 1 && r.outer > kMostBlocks ? "there are more sums than a grid has blocks" : "";
}

int64_t reduction_scratch(std::string_view op, const TypeArgs& args) {
  const Reduced r = reduced_of(op, args.in[0], args.attrs);
  return r.outer * r.inner * parts_of(r) * (args.in[0].dtype == DType::kF64 ? 8 : 4);
}

template <size_t kOp>
constexpr CudaKernel reduction_kernel() {
  return {kReductions[kOp].op, "parts", [](const KernelArgs& args) { reduce(args, kReductions[kOp]); },
          [](const TypeArgs& args) { return why_no_reduction(kReductions[kOp].op, args); },
          [](const TypeArgs& args) { return reduction_scratch(kReductions[kOp].op, args); }};
}

}  // namespace

std::string reduction_source(DType dtype) {
  return prelude(dtype) + std::string(kReduceSource);
}

std::span<const CudaKernel> reductions_kernels() {
  static const CudaKernel kernels[] = {reduction_kernel<0>(), reduction_kernel<1>(), reduction_kernel<2>(),
                                       reduction_kernel<3>()};
  return kernels;
}

}  // namespace trireme::cuda
