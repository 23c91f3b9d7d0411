#include "trireme/backend/cpu/windows/conv_rivals.h"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "trireme/backend/cpu/products/onednn.h"
#include "trireme/backend/cpu/quickest.h"
#include "trireme/op/registry.h"

namespace trireme::cpu {
namespace {

constexpr std::array<std::string_view, 3> kOps{"conv2d", "conv2d_grad_input", "conv2d_grad_weight"};

std::string_view op_of(Pass pass) {
  return kOps[static_cast<size_t>(pass)];
}

double flops_of(const Windows& c) {
  return 2 * static_cast<double>(c.positions()) * static_cast<double>(c.w.elements());
}

std::string sizes(const Shape& shape) {
  return fmt::format("{}x{}x{}x{}", shape[0], shape[1], shape[2], shape[3]);
}

// The kernels of a pass on one thread, which take turns in the same memory.
class ConvCalls {
 public:
  ConvCalls(const std::vector<const Kernel*>& kernels, const TypeArgs& args) : attrs_(&args.attrs) {
    int64_t room = 0;
    for (const Kernel* kernel : kernels) {
      room = std::max(room, aligned(kernel->scratch_bytes(args, 1)));
      calls_.push_back({kernel, nullptr});
    }
    int64_t bytes = kAlign + room;
    for (const std::span<const TensorType> types : {args.in, args.out}) {
      for (const TensorType& type : types) bytes += aligned(type.bytes());
    }
    memory_.resize(static_cast<size_t>(bytes));
    std::byte* at = align(memory_.data());
    scratch_ = {at, static_cast<size_t>(room)};
    at += room;
    const auto take = [&](const TensorType& type) {
      const View view{at, type};
      at += aligned(type.bytes());
      return view;
    };
    for (const TensorType& type : args.in) {
      const std::span<float> numbers = in_.emplace_back(take(type)).as<float>();
      // Not zeros, and small enough for sums to stay far from overflow.
      for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i % 17) / 16 - 0.5F;
    }
    for (const TensorType& type : args.out) out_.push_back(take(type));
  }

  int64_t bytes() const { return static_cast<int64_t>(memory_.size()); }
  void run(size_t which) {
    Call& call = calls_[which];
    call.kernel->run({in_, out_, {}, {}, *attrs_, scratch_, nullptr, &call.state});
  }

 private:
  struct Call {
    const Kernel* kernel;
    std::shared_ptr<void> state;
  };
  const Attrs* attrs_;
  std::vector<Call> calls_;
  std::vector<std::byte> memory_;
  std::span<std::byte> scratch_;
  std::vector<View> in_, out_;
};

}  // namespace

template <Pass pass>
std::string measured_conv(const TypeArgs& args) {
  if (!why_no_winograd<pass>(args).empty() && !why_no_packed<pass>(args).empty() && !why_no_tiled<pass>(args).empty())
    return "";
  const auto& attrs = args.attrs.as<Conv2dAttrs>();
  const Windows c = windows_of(pass, args.in[0].shape, args.in[1].shape, args.out[0].shape, attrs);
  if (flops_of(c) < kLeastMeasuredFlops) return "";
  return fmt::format("{}:{}:{}:{}.{}:{}.{}", op_of(pass), sizes(c.x), sizes(c.w), c.stride_h, c.stride_w, c.top,
                     c.left);
}

template <Pass pass>
std::string_view quickest_conv(const TypeArgs& args, std::span<const Cores> others) {
  std::vector<const Kernel*> kernels;
  for (const Kernel* kernel : kernels_of(op(op_of(pass)))) {
    if (kernel->rivals == &kConvRivals<pass> && (kernel->why_not == nullptr || kernel->why_not(args).empty()))
      kernels.push_back(kernel);
  }
  std::vector<ConvCalls> calls;  // of each thread
  calls.emplace_back(kernels, args);
  others = some_of(others, calls.front().bytes());
  for (size_t i = 0; i < others.size(); ++i) calls.emplace_back(kernels, args);
  const Contest contest{.ways = kernels.size(), .others = others};
  const size_t best = quickest_of(contest, [&](size_t way, size_t thread) { calls[thread].run(way); });
  return kernels[best]->name.substr(kernels[best]->name.rfind('.') + 1);
}

template std::string measured_conv<Pass::kForward>(const TypeArgs&);
template std::string measured_conv<Pass::kInput>(const TypeArgs&);
template std::string measured_conv<Pass::kWeight>(const TypeArgs&);
template std::string_view quickest_conv<Pass::kForward>(const TypeArgs&, std::span<const Cores>);
template std::string_view quickest_conv<Pass::kInput>(const TypeArgs&, std::span<const Cores>);
template std::string_view quickest_conv<Pass::kWeight>(const TypeArgs&, std::span<const Cores>);

}  // namespace trireme::cpu
