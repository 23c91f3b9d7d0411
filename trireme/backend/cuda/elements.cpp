// Ops on elements: a chain of one each.
#include "trireme/backend/cuda/chain.h"
#include "trireme/backend/cuda/element_code.h"
#include "trireme/backend/cuda/kernels.h"
#include "trireme/backend/cuda/state.h"

namespace trireme::cuda {
namespace {

// The op of a call is not among its arguments, so each has a function of its own, made from its place in the list.
constexpr size_t kMostElementOps = 64;

std::string_view element_op(size_t i) {
  static const std::vector<std::string_view> ops = ops_with_element_code();
  return i < ops.size() ? ops[i] : std::string_view();
}

// A result of fewer dimensions than the shape is walked in, as that of a scalar operand, stays what infer made it.
Chain chain_of_call(std::string_view op, const KernelArgs& args) {
  Chain chain;
  std::vector<TensorType> in, out;
  for (const View& view : args.in) in.push_back(view.type);
  for (const View& view : args.out) out.push_back(view.type);
  chain.shape = out[0].shape;
  chain.values = in;
  chain.operands = in.size();
  ChainStep step{.reads_coordinates = reads_coordinates(op)};
  step.code = element_code({op, {in, out, args.attrs}, &args}).value();
  for (size_t i = 0; i < in.size(); ++i) step.in.push_back(static_cast<int>(i));
  for (const TensorType& type : out) {
    step.out.push_back(static_cast<int>(chain.values.size()));
    chain.values.push_back(type);
  }
  chain.results = step.out;
  chain.steps.push_back(std::move(step));
  return chain;
}

template <size_t kOp>
void run_element_op(const KernelArgs& args) {
  CudaStream& stream = CudaStream::of(args);
  const auto bound =
      kept<BoundChain>(args, [&] { return BoundChain(stream.gpu(), chain_of_call(element_op(kOp), args)); });
  bound->run(stream, args.in, args.out);
}

std::string no_element_type(const TensorType& type) {
  return type.dtype == DType::kF16 ? "no kernel computes with f16" : "";
}

template <size_t kOp>
std::string why_no_element_op(const TypeArgs& args) {
  for (const TensorType& type : args.in) {
    if (const std::string why = no_element_type(type); !why.empty()) return why;
  }
  if (const std::string why = no_element_type(args.out[0]); !why.empty()) return why;
  return element_code({element_op(kOp), args}) ? "" : "integers have no such number";
}

template <size_t... kOps>
std::vector<CudaKernel> element_kernels_of(std::index_sequence<kOps...>) {
  std::vector<CudaKernel> out = {
      CudaKernel{element_op(kOps), "chain", run_element_op<kOps>, why_no_element_op<kOps>}...};
  std::erase_if(out, [](const CudaKernel& kernel) { return kernel.op.empty(); });
  return out;
}

}  // namespace

std::span<const CudaKernel> elements_kernels() {
  static const std::vector<CudaKernel> kernels = element_kernels_of(std::make_index_sequence<kMostElementOps>());
  static const bool all_fit = ops_with_element_code().size() <= kMostElementOps;
  invariant(all_fit, "cuda: more than {} ops on elements", kMostElementOps);
  return kernels;
}

}  // namespace trireme::cuda
