// embedding and its gradient, lists of rows, and rotary: what depends on where rows and positions stand in the whole.
#include "trireme/backend/cuda/kernels.h"
#include "trireme/backend/cuda/sources.h"
#include "trireme/backend/cuda/stream.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cuda {
namespace {

constexpr int kTableThreads = 256;

constexpr std::string_view kTableSource = R"cuda(
// A block each token; rows of other pieces of the table give zeros.
extern "C" __global__ void embedding(const T* table, Numbers ids, T* y, int width, i64 vocabulary, i64 start, i64 rows,
                                     i64* finding, i64 call) {
  const i64 token = blockIdx.x, id = ids[token];
  const bool here = is_below(id, vocabulary, token, finding, call) && id >= start && id < start + rows;
  for (int i = threadIdx.x; i < width; i += blockDim.x)
    y[token * width + i] = here ? table[(id - start) * width + i] : As<T>::of((W)0);
}

// The sum of the rows of dy whose id is this one, from `token` on in their order, into `to`, by the whole block.
__device__ void sum_tokens(Numbers ids, i64 id, i64 token, i64 tokens, const T* dy, T* to, int width) {
  __shared__ unsigned masks[8];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int first = 0; first < width; first += 4 * 256) {
    W sums[4] = {0, 0, 0, 0};
    for (i64 window = token; window < tokens; window += 256) {
      const i64 mine = window + threadIdx.x;
      const unsigned mask = __ballot_sync(~0u, mine < tokens && ids[mine] == id);
      __syncthreads();
      if (lane == 0) masks[warp] = mask;
      __syncthreads();
      for (int w = 0; w < 8; ++w) {
        for (unsigned left = masks[w]; left != 0; left &= left - 1) {
          const T* const row = dy + (window + w * 32 + __ffs(left) - 1) * width;
          for (int part = 0; part < 4; ++part) {
            const int i = first + part * 256 + threadIdx.x;
            if (i < width) sums[part] += load(row[i]);
          }
        }
      }
    }
    for (int part = 0; part < 4; ++part) {
      const int i = first + part * 256 + threadIdx.x;
      if (i < width) to[i] = As<T>::of(sums[part]);
    }
  }
}

__device__ bool is_first(Numbers ids, i64 id, i64 token) {
  int seen = 0;
  for (i64 other = threadIdx.x; other < token; other += blockDim.x) seen |= ids[other] == id;
  return __syncthreads_or(seen) == 0;
}

// A block each token: the first of an id adds up all of that id. The table is zero before.
extern "C" __global__ void embedding_grad(Numbers ids, const T* dy, T* table, int width, i64 tokens, i64 vocabulary,
                                          i64 start, i64 rows, i64* finding, i64 call) {
  const i64 token = blockIdx.x, id = ids[token];
  if (!is_below(id, vocabulary, token, finding, call) || id < start || id >= start + rows) return;
  if (is_first(ids, id, token)) sum_tokens(ids, id, token, tokens, dy, table + (id - start) * width, width);
}

// Whether each token is the first of its id.
extern "C" __global__ void first_tokens(Numbers ids, int* first, i64 vocabulary, i64* finding, i64 call) {
  const i64 token = blockIdx.x, id = ids[token];
  const bool is_one = is_below(id, vocabulary, token, finding, call) && is_first(ids, id, token);
  if (threadIdx.x == 0) first[token] = is_one;
}

// The same as a list in the order of ids; its numbers are -1 and its rows zero before.
extern "C" __global__ void embedding_grad_rows(Numbers ids, const T* dy, const int* first, i64* numbers, T* rows, int width,
                                               i64 tokens) {
  __shared__ int smaller;
  const i64 token = blockIdx.x, id = ids[token];
  if (first[token] == 0) return;
  if (threadIdx.x == 0) smaller = 0;
  __syncthreads();
  int mine = 0;
  for (i64 other = threadIdx.x; other < tokens; other += blockDim.x) mine += first[other] != 0 && ids[other] < id;
  atomicAdd(&smaller, mine);
  __syncthreads();
  if (threadIdx.x == 0) numbers[smaller] = id;
  sum_tokens(ids, id, token, tokens, dy, rows + (i64)smaller * width, width);
}

// A block each place of a list: its row taken from a table, put into it or added to it. Rows of other pieces are left out.
extern "C" __global__ void listed_rows(const T* table, const i64* numbers, const T* rows, T* to, i64 width, i64 start,
                                       i64 count, int what) {
  const i64 place = blockIdx.x, row = numbers[place] - start;
  const bool here = numbers[place] >= 0 && row >= 0 && row < count;
  for (i64 i = threadIdx.x; i < width; i += blockDim.x) {
    if (what == 0) to[place * width + i] = here ? table[row * width + i] : As<T>::of((W)0);
    if (what == 1 && here) to[row * width + i] = rows[place * width + i];
    if (what == 2 && here) to[row * width + i] = As<T>::of(load(table[row * width + i]) + load(rows[place * width + i]));
  }
}

// A thread each pair.
extern "C" __global__ void rotary(const T* x, T* y, i64 pairs, int half, int heads, i64 positions, i64 start, Numbers at,
                                  double theta, int inverse) {
  const i64 pair = blockIdx.x * (i64)blockDim.x + threadIdx.x;
  if (pair >= pairs) return;
  const int i = pair % half;
  const i64 head = pair / half, position = start + head / heads % positions + (at.at == 0 ? 0 : at[0]);
  const double angle = position * pow(theta, -(double)i / half);
  const W cosine = cos(angle), sine = inverse ? -sin(angle) : sin(angle);
  const W first = load(x[head * 2 * half + i]), second = load(x[head * 2 * half + half + i]);
  y[head * 2 * half + i] = As<T>::of(first * cosine - second * sine);
  y[head * 2 * half + half + i] = As<T>::of(second * cosine + first * sine);
}
)cuda";

Handle table_function(const KernelArgs& args, DType dtype, const char* name) {
  return CudaStream::of(args).gpu().function({name, dtype}, [&] { return table_source(dtype); });
}

void run_embedding(const KernelArgs& args) {
  CudaStream& stream = CudaStream::of(args);
  const Numbers ids = numbers_of(args.in[1]);
  const int64_t vocabulary = args.in_whole(0)[0], start = args.in_start(0, 0), rows = args.in[0].type.shape[0];
  const int width = static_cast<int>(args.in[0].type.shape[1]);
  const auto check =
      stream.check_in_call("embedding: id {} at position {} of a vocabulary of {}; use 0 to {}", vocabulary);
  stream.run(table_function(args, args.in[0].type.dtype, "embedding"),
             {.blocks = args.in[1].elements(), .threads = kTableThreads},
             {&args.in[0].data, &ids, &args.out[0].data, &width, &vocabulary, &start, &rows, &check.at, &check.call});
}

void run_embedding_grad(const KernelArgs& args) {
  CudaStream& stream = CudaStream::of(args);
  const Numbers ids = numbers_of(args.in[0]);
  const int64_t tokens = args.in[0].elements(), vocabulary = args.attrs.as<EmbeddingGradAttrs>().vocabulary;
  const int64_t start = args.out_start(0, 0), rows = args.out[0].type.shape[0];
  const int width = static_cast<int>(args.out[0].type.shape[1]);
  stream.clear(address(args.out[0].data), args.out[0].bytes());
  const auto check =
      stream.check_in_call("embedding_grad: id {} at position {} of a vocabulary of {}; use 0 to {}", vocabulary);
  stream.run(
      table_function(args, args.out[0].type.dtype, "embedding_grad"), {.blocks = tokens, .threads = kTableThreads},
      {&ids, &args.in[1].data, &args.out[0].data, &width, &tokens, &vocabulary, &start, &rows, &check.at, &check.call});
}

void run_embedding_grad_rows(const KernelArgs& args) {
  CudaStream& stream = CudaStream::of(args);
  const Numbers ids = numbers_of(args.in[0]);
  const int64_t tokens = args.in[0].elements(), vocabulary = args.attrs.as<EmbeddingGradRowsAttrs>().vocabulary;
  const int width = static_cast<int>(args.out[1].type.shape[1]);
  const std::byte* const first = args.scratch.data();
  const DType dtype = args.out[1].type.dtype;
  constexpr unsigned char kMinusOne = 0xff;  // in each byte of a number
  stream.clear(address(args.out[0].data), args.out[0].bytes(), kMinusOne);
  stream.clear(address(args.out[1].data), args.out[1].bytes());
  const auto check =
      stream.check_in_call("embedding_grad_rows: id {} at position {} of a vocabulary of {}; use 0 to {}", vocabulary);
  const CudaStream::Grid grid{.blocks = tokens, .threads = kTableThreads};
  stream.run(table_function(args, dtype, "first_tokens"), grid, {&ids, &first, &vocabulary, &check.at, &check.call});
  stream.run(table_function(args, dtype, "embedding_grad_rows"), grid,
             {&ids, &args.in[1].data, &first, &args.out[0].data, &args.out[1].data, &width, &tokens});
}

enum class Listed : int { kTake = 0, kPut = 1, kAdd = 2 };

void run_listed(const KernelArgs& args, Listed what) {
  const int number = static_cast<int>(what);
  const int64_t start = args.in_start(0, 0), count = args.in[0].type.shape[0];
  const int64_t width = count == 0 ? 0 : args.in[0].elements() / count;
  const std::byte* const rows = what == Listed::kTake ? nullptr : args.in[2].data;
  CudaStream::of(args).run(
      table_function(args, args.in[0].type.dtype, "listed_rows"),
      {.blocks = args.in[1].elements(), .threads = kTableThreads},
      {&args.in[0].data, &args.in[1].data, &rows, &args.out[0].data, &width, &start, &count, &number});
}

void run_take_rows(const KernelArgs& args) {
  run_listed(args, Listed::kTake);
}
void run_put_rows(const KernelArgs& args) {
  CudaStream::of(args).move(address(args.out[0].data), address(args.in[0].data), args.out[0].bytes());
  run_listed(args, Listed::kPut);
}
void run_add_rows(const KernelArgs& args) {
  CudaStream::of(args).move(address(args.out[0].data), address(args.in[0].data), args.out[0].bytes());
  run_listed(args, Listed::kAdd);
}

void run_rotary(const KernelArgs& args) {
  const auto& attrs = args.attrs.as<RotaryAttrs>();
  const Shape& shape = args.in[0].type.shape;
  const int half = static_cast<int>(shape[3] / 2), heads = static_cast<int>(shape[2]), inverse = attrs.inverse ? 1 : 0;
  const int64_t pairs = args.in[0].elements() / 2, positions = shape[1], start = args.in_start(0, 1);
  const Numbers at = args.in.size() > 1 ? numbers_of(args.in[1]) : Numbers();
  CudaStream::of(args).run(
      table_function(args, args.in[0].type.dtype, "rotary"),
      {.blocks = (pairs + kTableThreads - 1) / kTableThreads, .threads = kTableThreads},
      {&args.in[0].data, &args.out[0].data, &pairs, &half, &heads, &positions, &start, &at, &attrs.theta, &inverse});
}

std::string why_no_table_grad(const TypeArgs& args) {
  return no_float({args.out, args.out, args.attrs});
}
std::string why_no_rows_grad(const TypeArgs& args) {
  return no_float({args.out.subspan(1), args.out, args.attrs});
}
// For each token, whether it is the first of its id.
int64_t rows_grad_scratch(const TypeArgs& args) {
  return args.in[0].elements() * static_cast<int64_t>(sizeof(int));
}

}  // namespace

std::string table_source(DType dtype) {
  return prelude(dtype) + std::string(kTableSource);
}

std::span<const CudaKernel> tables_kernels() {
  static const CudaKernel kernels[] = {
      {"embedding", "rows", run_embedding, no_float},
      {"embedding_grad", "rows", run_embedding_grad, why_no_table_grad},
      {"embedding_grad_rows", "rows", run_embedding_grad_rows, why_no_rows_grad, rows_grad_scratch},
      {"take_rows", "rows", run_take_rows, no_float},
      {"put_rows", "rows", run_put_rows, no_float},
      {"add_rows", "rows", run_add_rows, no_float},
      {"rotary", "pairs", run_rotary, no_float},
      {"rotary_at", "pairs", run_rotary, no_float},
  };
  return kernels;
}

}  // namespace trireme::cuda
