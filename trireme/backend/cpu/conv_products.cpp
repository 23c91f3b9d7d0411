// conv2d_grad_weight as one product of matrices: dw[o,(a,b,i)] = sum over positions p of dy[p,o] cols[p,(a,b,i)], where
// row p of cols is what the window at position p sees, zeros where it reaches over the edge. It is worth its copies
// where oneDNN's convolution keeps moving the weight (few positions), skips through x (strides), or does no more than a
// product (one tap).
#include <algorithm>
#include <cstring>

#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/onednn.h"
#include "trireme/backend/cpu/product.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cpu {
namespace {

// Measured on ResNet-50's layers: with fewer channels products are slow, those of bf16 sooner where they are long; with
// so few positions any convolution is better run as a product.
constexpr int64_t kFewestChannels = 32;
constexpr int64_t kFewestChannelsInPairs = 128;
constexpr int64_t kFewPositions = 2048;
constexpr int64_t kMostBytes = int64_t{64} << 20;  // of cols

struct Windows {
  Shape x, dy, w;  // w is [o,a,b,i]
  int64_t stride_h, stride_w, dilation_h, dilation_w, top, left;

  int64_t positions() const { return dy[0] * dy[1] * dy[2]; }
  int64_t row() const { return w[1] * w[2] * w[3]; }
  // x is cols.
  bool is_direct() const {
    return w[1] * w[2] == 1 && stride_h == 1 && stride_w == 1 && top == 0 && left == 0 && x[1] == dy[1] &&
           x[2] == dy[2];
  }
  Product product() const {
    Product p;
    p.m = w[0];
    p.n = row();
    p.k = positions();
    p.transpose_a = true;
    return p;
  }
};

Windows windows_of(const Shape& x, const Shape& dy, const Shape& w, const Conv2dAttrs& attrs) {
  return {x,
          dy,
          w,
          attrs.stride[0],
          attrs.stride[1],
          attrs.dilation[0],
          attrs.dilation[1],
          attrs.padding[0],
          attrs.padding.size() == 4 ? attrs.padding[2] : attrs.padding[1]};
}

// The windows of one row of positions of one image, from x to cols.
template <class T>
void gather_row(const Windows& c, int64_t row, const T* x, T* cols) {
  const int64_t image = row / c.dy[1];
  const int64_t first = row % c.dy[1] * c.stride_h - c.top;
  const auto bytes = static_cast<size_t>(c.w[3]) * sizeof(T);
  T* to = cols + row * c.dy[2] * c.row();
  for (int64_t q = 0; q < c.dy[2]; ++q) {
    for (int64_t a = 0; a < c.w[1]; ++a) {
      const int64_t h = first + a * c.dilation_h;
      for (int64_t b = 0; b < c.w[2]; ++b, to += c.w[3]) {
        const int64_t w = q * c.stride_w - c.left + b * c.dilation_w;
        if (h < 0 || h >= c.x[1] || w < 0 || w >= c.x[2])
          std::memset(to, 0, bytes);
        else
          std::memcpy(to, x + ((image * c.x[1] + h) * c.x[2] + w) * c.w[3], bytes);
      }
    }
  }
}

int64_t cols_bytes(const Windows& c, DType dtype) {
  return c.is_direct() ? 0 : kAlign + aligned(c.positions() * c.row() * size_of(dtype));
}

void multiply(const Windows& c, const float* dy, const float* cols, const KernelArgs& args) {
  const auto used = static_cast<size_t>(cols_bytes(c, DType::kF32));
  multiply_f32(c.product(), Way::kSgemm, {dy, cols, args.out[0].as<float>().data()}, args.scratch.data() + used,
               args.pool);
}

void multiply(const Windows& c, const Bf16* dy, const Bf16* cols, const KernelArgs& args) {
  const auto used = static_cast<size_t>(cols_bytes(c, DType::kBF16));
  const KernelArgs rest{args.in,   args.out,  args.in_place, args.out_place, args.attrs, args.scratch.subspan(used),
                        args.pool, args.state};
  multiply_by_onednn(c.product(), Matrices<Bf16, float>{dy, cols, args.out[0].as<float>().data()}, rest);
}

template <class T>
void run_conv_products(const KernelArgs& args) {
  const Windows c =
      windows_of(args.in[0].type.shape, args.in[1].type.shape, args.out[0].type.shape, args.attrs.as<Conv2dAttrs>());
  const T* x = data_of<T>(args.in[0]);
  const T* cols = x;
  if (!c.is_direct()) {
    T* gathered = reinterpret_cast<T*>(align(args.scratch.data()));
    for_range(args, c.dy[0] * c.dy[1], rows_per_task(c.dy[2] * c.row()), [&](int64_t row, int64_t end) {
      for (; row < end; ++row) gather_row(c, row, x, gathered);
    });
    cols = gathered;
  }
  multiply(c, data_of<T>(args.in[1]), cols, args);
}

int64_t conv_products_scratch(const TypeArgs& args, int threads) {
  const Windows c = windows_of(args.in[0].shape, args.in[1].shape, args.out[0].shape, args.attrs.as<Conv2dAttrs>());
  const DType dtype = args.in[0].dtype;
  return cols_bytes(c, dtype) + (dtype == DType::kBF16 ? onednn_scratch<float>(c.product(), threads)
                                                       : f32_scratch(c.product(), Way::kSgemm, threads));
}

std::string why_not(const TypeArgs& args) {
  std::string reason = first_not_float(args);
  if (!reason.empty()) return reason;
  const Windows c = windows_of(args.in[0].shape, args.in[1].shape, args.out[0].shape, args.attrs.as<Conv2dAttrs>());
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
      },
  };
  return kAll;
}

}  // namespace trireme::cpu
