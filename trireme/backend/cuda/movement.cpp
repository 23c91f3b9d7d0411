// transpose, slice, concat, split, pad, reshape: elements as they are, at other places.
#include "trireme/backend/cuda/movement.h"

#include "trireme/backend/cuda/kernels.h"
#include "trireme/backend/cuda/sources.h"
#include "trireme/base/error.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cuda {
namespace {

constexpr int kMoveThreads = 256;

// Dimensions that are walked alike on both sides are one; `size` and steps from the outermost to the innermost.
struct Moved {
  int32_t rank = 0;
  int32_t unused = 0;
  int64_t size[Shape::kMaxRank] = {};
  int64_t from[Shape::kMaxRank] = {};
  int64_t to[Shape::kMaxRank] = {};
};

Moved joined(const Steps& from, const Steps& to, const Shape& size) {
  Moved out;
  for (int dim = 0; dim < size.rank(); ++dim) {
    const auto d = static_cast<size_t>(dim);
    if (size[dim] == 1) continue;
    if (out.rank > 0 && out.from[out.rank - 1] == size[dim] * from.step[d] &&
        out.to[out.rank - 1] == size[dim] * to.step[d]) {
      out.size[out.rank - 1] *= size[dim];
      out.from[out.rank - 1] = from.step[d];
      out.to[out.rank - 1] = to.step[d];
      continue;
    }
    out.size[out.rank] = size[dim];
    out.from[out.rank] = from.step[d];
    out.to[out.rank] = to.step[d];
    ++out.rank;
  }
  return out;
}

constexpr std::string_view kMoveSource = R"cuda(
struct Moved { int rank, unused; long long size[8], from[8], to[8]; };
template <class E, class Index> __device__ void move(const E* from, E* to, long long n, const Moved& moved) {
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x) {
    Index rest = (Index)i;
    long long at = 0, there = 0;
    for (int dim = moved.rank - 1; dim >= 0; --dim) {
      const Index size = (Index)moved.size[dim], here = rest % size;
      rest /= size;
      at += here * moved.from[dim];
      there += here * moved.to[dim];
    }
    to[there] = from[at];
  }
}
#define MOVE(bytes, E)                                                                                     \
  extern "C" __global__ void move##bytes(const E* from, E* to, long long n, Moved moved) {                 \
    if (n < 1ll << 31) move<E, unsigned>(from, to, n, moved);                                              \
    else move<E, unsigned long long>(from, to, n, moved);                                                  \
  }
MOVE(1, unsigned char)
MOVE(2, unsigned short)
MOVE(4, unsigned)
MOVE(8, unsigned long long)
)cuda";

}  // namespace

void move_elements(CudaStream& stream, const View& from, const Steps& from_steps, const View& to, const Steps& to_steps,
                   const Shape& size) {
  const int64_t n = size.elements(), bytes = size_of(from.type.dtype);
  if (n == 0) return;
  const Moved moved = joined(from_steps, to_steps, size);
  const std::byte* const source = from.data + from_steps.first * bytes;
  std::byte* const target = to.data + to_steps.first * bytes;
  if (moved.rank == 0 || (moved.rank == 1 && moved.from[0] == 1 && moved.to[0] == 1))
    return stream.move(address(target), address(source), n * bytes);
  const char* const name = bytes == 1 ? "move1" : bytes == 2 ? "move2" : bytes == 4 ? "move4" : "move8";
  const Handle function = stream.gpu().function({name}, move_source);
  const int64_t blocks = std::min<int64_t>((n + kMoveThreads - 1) / kMoveThreads, 16 * stream.gpu().multiprocessors());
  stream.run(function, {.blocks = blocks, .threads = kMoveThreads},
             std::initializer_list<const void*>{&source, &target, &n, &moved});
}

namespace {

Steps all_of(const Shape& shape) {
  return {0, shape.strides()};
}

// From these coordinates on.
Steps beginning_at(const Shape& shape, std::span<const int64_t> start) {
  Steps out{0, shape.strides()};
  for (size_t dim = 0; dim < start.size(); ++dim) out.first += start[dim] * out.step[dim];
  return out;
}

void run_reshape(const KernelArgs& args) {
  CudaStream::of(args).move(address(args.out[0].data), address(args.in[0].data), args.out[0].bytes());
}

void run_transpose(const KernelArgs& args) {
  const auto& perm = args.attrs.as<TransposeAttrs>().perm;
  const auto strides = args.in[0].type.shape.strides();
  Steps from;
  for (size_t i = 0; i < perm.size(); ++i) from.step[i] = strides[static_cast<size_t>(perm[i])];
  const Shape& size = args.out[0].type.shape;
  move_elements(CudaStream::of(args), args.in[0], from, args.out[0], all_of(size), size);
}

void run_slice(const KernelArgs& args) {
  const Shape& size = args.out[0].type.shape;
  move_elements(CudaStream::of(args), args.in[0],
                beginning_at(args.in[0].type.shape, args.attrs.as<SliceAttrs>().starts), args.out[0], all_of(size),
                size);
}

void run_concat(const KernelArgs& args) {
  const auto dim = static_cast<size_t>(args.attrs.as<ConcatAttrs>().dim);
  Steps to = all_of(args.out[0].type.shape);
  for (const View& part : args.in) {
    const Shape& size = part.type.shape;
    move_elements(CudaStream::of(args), part, all_of(size), args.out[0], to, size);
    to.first += size[static_cast<int>(dim)] * to.step[dim];
  }
}

void run_split(const KernelArgs& args) {
  const auto dim = static_cast<size_t>(args.attrs.as<SplitAttrs>().dim);
  Steps from = all_of(args.in[0].type.shape);
  for (const View& part : args.out) {
    const Shape& size = part.type.shape;
    move_elements(CudaStream::of(args), args.in[0], from, part, all_of(size), size);
    from.first += size[static_cast<int>(dim)] * from.step[dim];
  }
}

// Only zeros are written here beside the operand.
std::string why_no_pad(const TypeArgs& args) {
  return args.attrs.as<PadAttrs>().value == 0 ? "" : "it pads with zeros";
}
void run_pad(const KernelArgs& args) {
  CudaStream& stream = CudaStream::of(args);
  const Shape& size = args.in[0].type.shape;
  stream.clear(address(args.out[0].data), args.out[0].bytes());
  move_elements(stream, args.in[0], all_of(size), args.out[0],
                beginning_at(args.out[0].type.shape, args.attrs.as<PadAttrs>().before), size);
}

}  // namespace

std::string move_source() {
  return std::string(kMoveSource);
}

std::span<const CudaKernel> movement_kernels() {
  static const CudaKernel kernels[] = {
      {"reshape", "copy", run_reshape}, {"transpose", "move", run_transpose}, {"slice", "move", run_slice},
      {"concat", "move", run_concat},   {"split", "move", run_split},         {"pad", "move", run_pad, why_no_pad},
  };
  return kernels;
}

}  // namespace trireme::cuda
