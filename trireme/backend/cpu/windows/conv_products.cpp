// conv2d_grad_weight as one product of matrices: dw[o,(a,b,i)] = sum over positions p of dy[p,o] cols[p,(a,b,i)], where
// row p of cols is what the window at position p sees, zeros where it reaches over the edge. It is worth its copies
// where oneDNN's convolution keeps moving the weight (few positions), skips through x (strides), or does no more than a
// product (one tap).
#include <algorithm>

#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/products/onednn.h"
#include "trireme/backend/cpu/products/product.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/backend/cpu/windows/conv_rivals.h"
#include "trireme/backend/cpu/windows/conv_windows.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cpu {
namespace {

// Measured on ResNet-50's layers: with fewer channels products are slow, those of bf16 sooner where they are long; with
// so few positions any convolution is better run as a product.
constexpr int64_t kFewestChannels = 32;
constexpr int64_t kFewestChannelsInPairs = 128;
constexpr int64_t kFewPositions = 2048;
constexpr int64_t kMostBytes = int64_t{64} << 20;  // of cols

Product product_of_windows(const Windows& c) {
  Product p;
  p.m = c.w[0];
  p.n = c.row();
  p.k = c.positions();
  p.transpose_a = true;
  return p;
}

int64_t cols_bytes(const Windows& c, DType dtype) {
  return c.is_direct() ? 0 : kAlign + aligned(c.positions() * c.row() * size_of(dtype));
}

void multiply(const Windows& c, const float* dy, const float* cols, const KernelArgs& args) {
  const auto used = static_cast<size_t>(cols_bytes(c, DType::kF32));
  multiply_f32(product_of_windows(c), Way::kSgemm, {dy, cols, args.out[0].as<float>().data()},
               args.scratch.data() + used, args.pool);
}

void multiply(const Windows& c, const Bf16* dy, const Bf16* cols, const KernelArgs& args) {
  const auto used = static_cast<size_t>(cols_bytes(c, DType::kBF16));
  const KernelArgs rest{args.in,   args.out,  args.in_place, args.out_place, args.attrs, args.scratch.subspan(used),
                        args.pool, args.state};
  multiply_by_onednn(product_of_windows(c), Matrices<Bf16, float>{dy, cols, args.out[0].as<float>().data()}, rest);
}

template <class T>
void run_conv_products(const KernelArgs& args) {
  const Windows c = windows_of(Pass::kWeight, args.in[0].type.shape, args.in[1].type.shape, args.out[0].type.shape,
                               args.attrs.as<Conv2dAttrs>());
  const T* x = data_of<T>(args.in[0]);
  const T* cols = x;
  if (!c.is_direct()) {
    T* gathered = reinterpret_cast<T*>(align(args.scratch.data()));
    for_range(args, c.positions(), rows_per_task(c.row()), [&](int64_t first, int64_t end) {
      gather_windows(c, 0, first, end - first, x, gathered + first * c.row());
    });
    cols = gathered;
  }
  multiply(c, data_of<T>(args.in[1]), cols, args);
}

int64_t conv_products_scratch(const TypeArgs& args, int threads) {
  const Windows c =
      windows_of(Pass::kWeight, args.in[0].shape, args.in[1].shape, args.out[0].shape, args.attrs.as<Conv2dAttrs>());
  const DType dtype = args.in[0].dtype;
  return cols_bytes(c, dtype) + (dtype == DType::kBF16 ? onednn_scratch<float>(product_of_windows(c), threads)
                                                       : f32_scratch(product_of_windows(c), Way::kSgemm, threads));
}

std::string why_not(const TypeArgs& args) {
  std::string reason = first_not_float(args);
  if (!reason.empty()) return reason;
  const Windows c =
      windows_of(Pass::kWeight, args.in[0].shape, args.in[1].shape, args.out[0].shape, args.attrs.as<Conv2dAttrs>());
  const bool pairs = args.in[0].dtype == DType::kBF16;
  if (pairs && !(isa() >= Isa::kAvx512Bf16 && onednn_has(Isa::kAvx512Bf16)))
    return fmt::format("{} has no products of bf16", to_string(isa()));
  if (c.x[3] != c.w[3]) return "channels are in groups";
  const bool one_tap = c.w[1] * c.w[2] == 1;
  const bool few = c.positions() <= kFewPositions;
  const bool strided = c.stride_h > 1 || c.stride_w > 1;
  if (!one_tap && !few && !strided) return fmt::format("{} positions are enough for a convolution", c.positions());
  const int64_t channels = std::min(c.w[0], c.w[3]);
  const int64_t fewest = pairs && !few && !strided ? kFewestChannelsInPairs : kFewestChannels;
  if (channels < fewest) return fmt::format("{} channels are few for a product; {} are enough", channels, fewest);
  if (const int64_t bytes = cols_bytes(c, args.in[0].dtype); bytes > kMostBytes)
    return fmt::format("its windows take {} bytes", bytes);
  return "";
}

}  // namespace

std::span<const Kernel> conv_products_kernels() {
  static constexpr Kernel kAll[] = {
      {
          .op = "conv2d_grad_weight",
          .name = "conv2d_grad_weight.products",
          .why_not = why_not,
          .scratch = conv_products_scratch,
          .run = by_storage<run_conv_products<float>, run_conv_products<Bf16>>,
          .bits = Bits::kShape,
          .rivals = &kConvRivals<Pass::kWeight>,
      },
  };
  return kAll;
}

}  // namespace trireme::cpu
