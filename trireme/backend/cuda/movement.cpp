// transpose, slice, concat, split, pad, reshape: elements as they are, at other places.
#include "trireme/backend/cuda/kernels.h"
#include "trireme/backend/cuda/stream.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cuda {
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
  CudaStream::of(args).move_elements(args.in[0], from, args.out[0], all_of(size), size);
}

void run_slice(const KernelArgs& args) {
  const Shape& size = args.out[0].type.shape;
  CudaStream::of(args).move_elements(args.in[0],
                                     beginning_at(args.in[0].type.shape, args.attrs.as<SliceAttrs>().starts),
                                     args.out[0], all_of(size), size);
}

void run_concat(const KernelArgs& args) {
  const auto dim = static_cast<size_t>(args.attrs.as<ConcatAttrs>().dim);
  Steps to = all_of(args.out[0].type.shape);
  for (const View& part : args.in) {
    const Shape& size = part.type.shape;
    CudaStream::of(args).move_elements(part, all_of(size), args.out[0], to, size);
    to.first += size[static_cast<int>(dim)] * to.step[dim];
  }
}

void run_split(const KernelArgs& args) {
  const auto dim = static_cast<size_t>(args.attrs.as<SplitAttrs>().dim);
  Steps from = all_of(args.in[0].type.shape);
  for (const View& part : args.out) {
    const Shape& size = part.type.shape;
    CudaStream::of(args).move_elements(args.in[0], from, part, all_of(size), size);
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
  stream.move_elements(args.in[0], all_of(size), args.out[0],
                       beginning_at(args.out[0].type.shape, args.attrs.as<PadAttrs>().before), size);
}

}  // namespace

std::span<const CudaKernel> movement_kernels() {
  static const CudaKernel kernels[] = {
      {"reshape", "copy", run_reshape}, {"transpose", "move", run_transpose}, {"slice", "move", run_slice},
      {"concat", "move", run_concat},   {"split", "move", run_split},         {"pad", "move", run_pad, why_no_pad},
  };
  return kernels;
}

}  // namespace trireme::cuda
