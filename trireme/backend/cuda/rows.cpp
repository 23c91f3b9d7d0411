// Ops on the lines of the last dimension: softmax, cross_entropy, layer_norm, rms_norm and their gradients. A block of
// threads works on a line; what is summed over all lines, on some columns of all of them.
#include "trireme/backend/cuda/kernels.h"
#include "trireme/backend/cuda/sources.h"
#include "trireme/backend/cuda/stream.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cuda {
namespace {

constexpr int kLineThreads = 256;

constexpr std::string_view kRowSource = R"cuda(
struct Sum { __device__ W operator()(W a, W b) const { return a + b; } };
struct Max { __device__ W operator()(W a, W b) const { return b > a || b != b ? b : a; } };
#define EACH(i, size) for (int i = threadIdx.x; i < size; i += blockDim.x)

// ln sum exp(x) of a line is its largest element and this.
__device__ W log_sum(const T* x, int size, W& max, W* room) {
  W most = -1 / (W)0, sum = 0;
  EACH(i, size) most = Max()(most, load(x[i]));
  max = over_block(most, Max(), room);
  EACH(i, size) sum += exp(load(x[i]) - max);
  return log(over_block(sum, Sum(), room));
}

extern "C" __global__ void softmax(const T* x, T* y, int size, int logarithm) {
  __shared__ W room[32];
  x += (i64)blockIdx.x * size, y += (i64)blockIdx.x * size;
  W max;
  const W log_all = log_sum(x, size, max, room);
  EACH(i, size) {
    const W value = load(x[i]) - max - log_all;
    y[i] = As<T>::of(logarithm ? value : exp(value));
  }
}

// dx = y (dy - sum y dy), and of the logarithm dx = dy - exp(y) sum dy.
extern "C" __global__ void softmax_grad(const T* y, const T* dy, T* dx, int size, int logarithm) {
  __shared__ W room[32];
  const i64 first = (i64)blockIdx.x * size;
  y += first, dy += first, dx += first;
  W sum = 0;
  EACH(i, size) sum += logarithm ? load(dy[i]) : load(y[i]) * load(dy[i]);
  sum = over_block(sum, Sum(), room);
  EACH(i, size) {
    const W at = load(y[i]), d = load(dy[i]);
    dx[i] = As<T>::of(logarithm ? d - exp(at) * sum : at * (d - sum));
  }
}

extern "C" __global__ void cross_entropy(const T* x, Numbers labels, S* loss, int size, i64 ignored, W smoothing,
                                         i64* finding, i64 call) {
  __shared__ W room[32];
  const i64 line = blockIdx.x, label = labels[line];
  if (label == ignored || !is_below(label, size, line, finding, call)) {
    if (threadIdx.x == 0) loss[line] = 0;
    return;
  }
  x += line * size;
  W max = 0, rest = 0;
  const W normaliser = log_sum(x, size, max, room);
  if (smoothing > 0) {
    EACH(i, size) rest += max + normaliser - load(x[i]);
    rest = over_block(rest, Sum(), room) * smoothing / size;
  }
  if (threadIdx.x == 0) loss[line] = (1 - smoothing) * (max + normaliser - load(x[label])) + rest;
}

extern "C" __global__ void cross_entropy_grad(const T* x, Numbers labels, const S* dloss, T* dx, int size, i64 ignored,
                                              W smoothing, i64* finding, i64 call) {
  __shared__ W room[32];
  const i64 line = blockIdx.x, label = labels[line];
  x += line * size, dx += line * size;
  if (label == ignored || !is_below(label, size, line, finding, call)) {
    EACH(i, size) dx[i] = As<T>::of((W)0);
    return;
  }
  W max = 0;
  const W normaliser = log_sum(x, size, max, room), due = dloss[line];
  EACH(i, size) {
    const W target = (i == label ? 1 - smoothing : 0) + smoothing / size;
    dx[i] = As<T>::of(due * (exp(load(x[i]) - max - normaliser) - target));
  }
}

extern "C" __global__ void layer_norm(const T* x, const S* gamma, const S* beta, T* y, S* means, S* rstds, int size,
                                      W eps) {
  __shared__ W room[32];
  x += (i64)blockIdx.x * size, y += (i64)blockIdx.x * size;
  W sum = 0, squares = 0;
  EACH(i, size) sum += load(x[i]);
  const W mean = over_block(sum, Sum(), room) / size;
  EACH(i, size) squares += (load(x[i]) - mean) * (load(x[i]) - mean);
  const W rstd = 1 / sqrt(over_block(squares, Sum(), room) / size + eps);
  EACH(i, size) y[i] = As<T>::of((load(x[i]) - mean) * rstd * gamma[i] + beta[i]);
  if (threadIdx.x == 0) means[blockIdx.x] = mean, rstds[blockIdx.x] = rstd;
}

extern "C" __global__ void layer_norm_grad(const T* x, const S* gamma, const S* means, const S* rstds, const T* dy,
                                           T* dx, int size) {
  __shared__ W room[32];
  const i64 first = (i64)blockIdx.x * size;
  x += first, dy += first, dx += first;
  const W mean = means[blockIdx.x], rstd = rstds[blockIdx.x];
  W sum_g = 0, sum_gn = 0;
  EACH(i, size) {
    const W g = load(dy[i]) * gamma[i];
    sum_g += g, sum_gn += g * (load(x[i]) - mean) * rstd;
  }
  sum_g = over_block(sum_g, Sum(), room);
  sum_gn = over_block(sum_gn, Sum(), room);
  EACH(i, size) {
    const W n = (load(x[i]) - mean) * rstd;
    dx[i] = As<T>::of(rstd * (load(dy[i]) * gamma[i] - (sum_g + n * sum_gn) / size));
  }
}

extern "C" __global__ void rms_norm(const T* x, const S* gamma, T* y, S* rstds, int size, W eps) {
  __shared__ W room[32];
  x += (i64)blockIdx.x * size, y += (i64)blockIdx.x * size;
  W squares = 0;
  EACH(i, size) squares += load(x[i]) * load(x[i]);
  const W rstd = 1 / sqrt(over_block(squares, Sum(), room) / size + eps);
  EACH(i, size) y[i] = As<T>::of(load(x[i]) * rstd * gamma[i]);
  if (threadIdx.x == 0) rstds[blockIdx.x] = rstd;
}

extern "C" __global__ void rms_norm_grad(const T* x, const S* gamma, const S* rstds, const T* dy, T* dx, int size) {
  __shared__ W room[32];
  const i64 first = (i64)blockIdx.x * size;
  x += first, dy += first, dx += first;
  const W rstd = rstds[blockIdx.x];
  W sum_gn = 0;
  EACH(i, size) sum_gn += load(dy[i]) * gamma[i] * load(x[i]) * rstd;
  sum_gn = over_block(sum_gn, Sum(), room);
  EACH(i, size) dx[i] = As<T>::of(rstd * (load(dy[i]) * gamma[i] - load(x[i]) * rstd * sum_gn / size));
}

// dgamma = sum dy n and dbeta = sum dy over a part of the lines, of 32 columns by a block [columns, part] of 32 x 32
// threads, into sums[2][part][size]. Without means the norm is rms_norm's.
extern "C" __global__ void norm_parameters_grad(const T* x, const S* means, const S* rstds, const T* dy, W* sums,
                                                i64 lines, int size, i64 part) {
  __shared__ W of_gamma[32][33], of_beta[32][33];
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32, column = blockIdx.x * 32 + lane;
  const i64 first = blockIdx.y * part, end = first + part < lines ? first + part : lines;
  W sum_gamma = 0, sum_beta = 0;
  if (column < size) {
    for (i64 line = first + row; line < end; line += 32) {
      const W d = load(dy[line * size + column]);
      const W mean = means == 0 ? 0 : means[line];
      sum_gamma += d * (load(x[line * size + column]) - mean) * rstds[line], sum_beta += d;
    }
  }
  of_gamma[row][lane] = sum_gamma, of_beta[row][lane] = sum_beta;
  __syncthreads();
  if (row > 0 || column >= size) return;
  for (int other = 1; other < 32; ++other) sum_gamma += of_gamma[other][lane], sum_beta += of_beta[other][lane];
  sums[(i64)blockIdx.y * size + column] = sum_gamma;
  sums[((i64)gridDim.y + blockIdx.y) * size + column] = sum_beta;
}

extern "C" __global__ void join_norm_parameters(const W* sums, S* dgamma, S* dbeta, int size, int parts) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= size) return;
  W sum_gamma = 0, sum_beta = 0;
  for (int part = 0; part < parts; ++part)
    sum_gamma += sums[(i64)part * size + column], sum_beta += sums[((i64)parts + part) * size + column];
  dgamma[column] = sum_gamma;
  if (dbeta != 0) dbeta[column] = sum_beta;
}
)cuda";

Handle row_function(const KernelArgs& args, const char* name) {
  const DType dtype = args.in[0].type.dtype;
  return CudaStream::of(args).gpu().function({name, dtype}, [&] { return row_source(dtype); });
}

struct Lines {
  int64_t lines;
  int size;
};
Lines lines_of(const TensorType& type) {
  const int64_t size = type.shape[type.shape.rank() - 1];
  return {size == 0 ? 0 : type.elements() / size, static_cast<int>(size)};
}

CudaStream::Grid block_each(const Lines& lines) {
  return {.blocks = lines.lines, .threads = kLineThreads};
}

// A number that the kernel takes as W.
struct WideNumber {
  float narrow;
  double wide;
  bool is_wide;
  WideNumber(double value, DType dtype)
      : narrow(static_cast<float>(value)), wide(value), is_wide(dtype == DType::kF64) {}
  const void* at() const { return is_wide ? static_cast<const void*>(&wide) : &narrow; }
};

template <bool kLogarithm>
void run_softmax(const KernelArgs& args) {
  const Lines lines = lines_of(args.in[0].type);
  const int logarithm = kLogarithm ? 1 : 0;
  CudaStream::of(args).run(row_function(args, "softmax"), block_each(lines),
                           {&args.in[0].data, &args.out[0].data, &lines.size, &logarithm});
}

template <bool kLogarithm>
void run_softmax_grad(const KernelArgs& args) {
  const Lines lines = lines_of(args.in[0].type);
  const int logarithm = kLogarithm ? 1 : 0;
  CudaStream::of(args).run(row_function(args, "softmax_grad"), block_each(lines),
                           {&args.in[0].data, &args.in[1].data, &args.out[0].data, &lines.size, &logarithm});
}

constexpr const char* kNoClass = "cross_entropy: label {} at position {} of {} classes; use 0 to {}";

void run_cross_entropy(const KernelArgs& args) {
  CudaStream& stream = CudaStream::of(args);
  const auto& attrs = args.attrs.as<CrossEntropyAttrs>();
  const Lines lines = lines_of(args.in[0].type);
  const Numbers labels = numbers_of(args.in[1]);
  const WideNumber smoothing(attrs.label_smoothing, args.in[0].type.dtype);
  const auto check = stream.check_in_call(kNoClass, lines.size);
  stream.run(row_function(args, "cross_entropy"), block_each(lines),
             {&args.in[0].data, &labels, &args.out[0].data, &lines.size, &attrs.ignore_index, smoothing.at(), &check.at,
              &check.call});
}

void run_cross_entropy_grad(const KernelArgs& args) {
  CudaStream& stream = CudaStream::of(args);
  const auto& attrs = args.attrs.as<CrossEntropyAttrs>();
  const Lines lines = lines_of(args.in[0].type);
  const Numbers labels = numbers_of(args.in[1]);
  const WideNumber smoothing(attrs.label_smoothing, args.in[0].type.dtype);
  const auto check = stream.check_in_call(kNoClass, lines.size);
  stream.run(row_function(args, "cross_entropy_grad"), block_each(lines),
             {&args.in[0].data, &labels, &args.in[2].data, &args.out[0].data, &lines.size, &attrs.ignore_index,
              smoothing.at(), &check.at, &check.call});
}

void run_layer_norm(const KernelArgs& args) {
  const Lines lines = lines_of(args.in[0].type);
  const WideNumber eps(args.attrs.as<NormAttrs>().eps, args.in[0].type.dtype);
  CudaStream::of(args).run(row_function(args, "layer_norm"), block_each(lines),
                           {&args.in[0].data, &args.in[1].data, &args.in[2].data, &args.out[0].data, &args.out[1].data,
                            &args.out[2].data, &lines.size, eps.at()});
}

void run_rms_norm(const KernelArgs& args) {
  const Lines lines = lines_of(args.in[0].type);
  const WideNumber eps(args.attrs.as<NormAttrs>().eps, args.in[0].type.dtype);
  CudaStream::of(args).run(
      row_function(args, "rms_norm"), block_each(lines),
      {&args.in[0].data, &args.in[1].data, &args.out[0].data, &args.out[1].data, &lines.size, eps.at()});
}

constexpr int kColumnsTogether = 32, kColumnThreads = 32 * 32;

// In how many parts the lines are summed: enough blocks for a GPU, each with a few lines a thread.
int line_parts(const TensorType& x) {
  constexpr int64_t kLinesOfPart = 256, kMostParts = 64;
  return static_cast<int>(std::clamp<int64_t>(lines_of(x).lines / kLinesOfPart, 1, kMostParts));
}

int64_t norm_grad_scratch(const TypeArgs& args) {
  const TensorType& x = args.in[0];
  return int64_t{2} * line_parts(x) * lines_of(x).size * (x.dtype == DType::kF64 ? 8 : 4);
}

// Of the operands: x, means (or null), rstds, dy; dbeta may be null.
void sum_norm_parameters(const KernelArgs& args, const std::byte* means, const std::byte* rstds, const std::byte* dy,
                         std::byte* dgamma, std::byte* dbeta) {
  CudaStream& stream = CudaStream::of(args);
  const Lines lines = lines_of(args.in[0].type);
  const int parts = line_parts(args.in[0].type);
  const int64_t part = (lines.lines + parts - 1) / parts;
  std::byte* const sums = args.scratch.data();
  stream.run(
      row_function(args, "norm_parameters_grad"),
      {.blocks = (lines.size + kColumnsTogether - 1) / kColumnsTogether, .threads = kColumnThreads, .blocks_y = parts},
      {&args.in[0].data, &means, &rstds, &dy, &sums, &lines.lines, &lines.size, &part});
  stream.run(row_function(args, "join_norm_parameters"),
             {.blocks = (lines.size + kLineThreads - 1) / kLineThreads, .threads = kLineThreads},
             {&sums, &dgamma, &dbeta, &lines.size, &parts});
}

// First what reads x and dy, over which dx may be written.
void run_layer_norm_grad(const KernelArgs& args) {
  const Lines lines = lines_of(args.in[0].type);
  sum_norm_parameters(args, args.in[2].data, args.in[3].data, args.in[4].data, args.out[1].data, args.out[2].data);
  CudaStream::of(args).run(row_function(args, "layer_norm_grad"), block_each(lines),
                           {&args.in[0].data, &args.in[1].data, &args.in[2].data, &args.in[3].data, &args.in[4].data,
                            &args.out[0].data, &lines.size});
}

void run_rms_norm_grad(const KernelArgs& args) {
  const Lines lines = lines_of(args.in[0].type);
  sum_norm_parameters(args, nullptr, args.in[2].data, args.in[3].data, args.out[1].data, nullptr);
  CudaStream::of(args).run(
      row_function(args, "rms_norm_grad"), block_each(lines),
      {&args.in[0].data, &args.in[1].data, &args.in[2].data, &args.in[3].data, &args.out[0].data, &lines.size});
}

std::string why_no_lines(const TypeArgs& args) {
  if (std::string why = no_float(args); !why.empty()) return why;
  constexpr int64_t kMost = int64_t{1} << 31;
  const Shape& shape = args.in[0].shape;
  if (args.in[0].elements() == 0) return "there is nothing";
  return shape[shape.rank() - 1] < kMost && args.in[0].elements() / shape[shape.rank() - 1] < kMost
             ? ""
             : "there are more lines than a grid has blocks";
}

}  // namespace

std::string row_source(DType dtype) {
  return prelude(dtype) + std::string(kRowSource);
}

std::span<const CudaKernel> rows_kernels() {
  static const CudaKernel kernels[] = {
      {"softmax", "lines", run_softmax<false>, why_no_lines},
      {"softmax_grad", "lines", run_softmax_grad<false>, why_no_lines},
      {"log_softmax", "lines", run_softmax<true>, why_no_lines},
      {"log_softmax_grad", "lines", run_softmax_grad<true>, why_no_lines},
      {"cross_entropy", "lines", run_cross_entropy, why_no_lines},
      {"cross_entropy_grad", "lines", run_cross_entropy_grad, why_no_lines},
      {"layer_norm", "lines", run_layer_norm, why_no_lines},
      {"layer_norm_grad", "lines", run_layer_norm_grad, why_no_lines, norm_grad_scratch},
      {"rms_norm", "lines", run_rms_norm, why_no_lines},
      {"rms_norm_grad", "lines", run_rms_norm_grad, why_no_lines, norm_grad_scratch},
  };
  return kernels;
}

}  // namespace trireme::cuda
