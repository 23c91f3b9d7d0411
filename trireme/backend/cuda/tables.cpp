// embedding and its gradient, and rotary: what depends on where rows and positions stand in the whole.
#include "trireme/backend/cuda/kernels.h"
#include "trireme/backend/cuda/sources.h"
#include "trireme/backend/cuda/stream.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cuda {
namespace {

constexpr int kTableThreads = 256;

constexpr std::string_view kTableSource = R"cuda(
struct Ids { const void* at; int bytes; __device__ i64 operator[](i64 i) const {
  return bytes == 4 ? (i64)((const int*)at)[i] : ((const i64*)at)[i]; } };

__device__ bool is_row(i64 id, i64 vocabulary, i64 token, i64* finding, i64 call) {
  if (id >= 0 && id < vocabulary) return true;
  if (threadIdx.x == 0 && atomicCAS((unsigned long long*)finding, 0ull, 1ull) == 0ull)
    finding[1] = call, finding[2] = id, finding[3] = token;
  return false;
}

// A block each token; rows of other pieces of the table give zeros.
extern "C" __global__ void embedding(const T* table, Ids ids, T* y, int width, i64 vocabulary, i64 start, i64 rows,
                                     i64* finding, i64 call) {
  const i64 token = blockIdx.x, id = ids[token];
  const bool here = is_row(id, vocabulary, token, finding, call) && id >= start && id < start + rows;
  for (int i = threadIdx.x; i < width; i += blockDim.x)
    y[token * width + i] = here ? table[(id - start) * width + i] : As<T>::of((W)0);
}

// A block each token. The first token of an id adds up all of that id, in their order; the table is zero before.
extern "C" __global__ void embedding_grad(Ids ids, const T* dy, T* table, int width, i64 tokens, i64 vocabulary,
                                          i64 start, i64 rows, i64* finding, i64 call) {
  const i64 token = blockIdx.x, id = ids[token];
  if (!is_row(id, vocabulary, token, finding, call) || id < start || id >= start + rows) return;
  int seen = 0;
  for (i64 other = threadIdx.x; other < token; other += blockDim.x) seen |= ids[other] == id;
  if (__syncthreads_or(seen)) return;
  for (int first = 0; first < width; first += blockDim.x) {
    const int i = first + threadIdx.x;
    W sum = 0;
    for (i64 other = token; other < tokens; ++other)
      if (ids[other] == id && i < width) sum += load(dy[other * width + i]);
    if (i < width) table[(id - start) * width + i] = As<T>::of(sum);
  }
}

// A thread each pair.
extern "C" __global__ void rotary(const T* x, T* y, i64 pairs, int half, int heads, i64 positions, i64 start, Ids at,
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

struct Ids {
  const std::byte* at = nullptr;
  int bytes = 8;
};
Ids ids_of(const View& view) {
  return {view.data, static_cast<int>(size_of(view.type.dtype))};
}

void run_embedding(const KernelArgs& args) {
  CudaStream& stream = CudaStream::of(args);
  const Ids ids = ids_of(args.in[1]);
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
  const Ids ids = ids_of(args.in[0]);
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

void run_rotary(const KernelArgs& args) {
  const auto& attrs = args.attrs.as<RotaryAttrs>();
  const Shape& shape = args.in[0].type.shape;
  const int half = static_cast<int>(shape[3] / 2), heads = static_cast<int>(shape[2]), inverse = attrs.inverse ? 1 : 0;
  const int64_t pairs = args.in[0].elements() / 2, positions = shape[1], start = args.in_start(0, 1);
  const Ids at = args.in.size() > 1 ? ids_of(args.in[1]) : Ids();
  CudaStream::of(args).run(
      table_function(args, args.in[0].type.dtype, "rotary"),
      {.blocks = (pairs + kTableThreads - 1) / kTableThreads, .threads = kTableThreads},
      {&args.in[0].data, &args.out[0].data, &pairs, &half, &heads, &positions, &start, &at, &attrs.theta, &inverse});
}

std::string why_no_table_grad(const TypeArgs& args) {
  return no_float({args.out, args.out, args.attrs});
}

}  // namespace

std::string table_source(DType dtype) {
  return prelude(dtype) + std::string(kTableSource);
}

std::span<const CudaKernel> tables_kernels() {
  static const CudaKernel kernels[] = {
      {"embedding", "rows", run_embedding, no_float},
      {"embedding_grad", "rows", run_embedding_grad, why_no_table_grad},
      {"rotary", "pairs", run_rotary, no_float},
      {"rotary_at", "pairs", run_rotary, no_float},
  };
  return kernels;
}

}  // namespace trireme::cuda
