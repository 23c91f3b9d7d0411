// Convolutions and their gradients in f32 as one product of matrices: what each window sees is copied to a row, unless
// it is one position. `packed` multiplies in blocks (products/blocked_product.h): for windows with a stride, through
// which oneDNN's convolutions are slow, and gradients of weights that conv_products.cpp computes with oneDNN's product.
// `tiles` multiplies in tiles (products/tiled_product.h), so much faster that it is for all windows of one position as
// well, where nothing is copied.
#include <algorithm>

#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/products/onednn.h"
#include "trireme/backend/cpu/products/product.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/backend/cpu/windows/conv_rivals.h"
#include "trireme/backend/cpu/windows/conv_windows.h"

namespace trireme::cpu {
namespace {

constexpr int64_t kShortestSide = 32;                     // of a result: shorter ones waste too much of a tile
constexpr int64_t kManyPositions = 2048;                  // with which a convolution of stride 1 keeps the weight
constexpr int64_t kMostWindowsBytes = int64_t{64} << 20;  // all of them together

template <Pass pass>
Windows packed_windows_of(const TypeArgs& args) {
  return windows_of(pass, args.in[0].shape, args.in[1].shape, args.out[0].shape, args.attrs.as<Conv2dAttrs>());
}

int64_t all_windows_bytes(const Windows& c) {
  return c.is_direct() ? 0 : kAlign + aligned(c.positions() * c.row() * static_cast<int64_t>(sizeof(float)));
}

// Of the windows with the weight or dy, and of dy with the weight, which lies as its matrix, for the input's gradient.
Product packed_product_of(Pass pass, const Windows& c) {
  Product p;
  if (pass == Pass::kInput) {
    p.m = c.positions();
    p.n = c.row();
    p.k = c.w[0];
    return p;
  }
  const bool forward = pass == Pass::kForward;
  p.m = forward ? c.positions() : c.w[0];
  p.n = forward ? c.w[0] : c.row();
  p.k = forward ? c.row() : c.positions();
  p.transpose_a = !forward;
  p.transpose_b = forward;
  return p;
}

template <Pass pass, Way way>
void run_packed(const KernelArgs& args) {
  const Windows c = windows_of(pass, args.in[0].type.shape, args.in[1].type.shape, args.out[0].type.shape,
                               args.attrs.as<Conv2dAttrs>());
  const float* windows = args.in[0].as<float>().data();
  const float* const other = args.in[1].as<float>().data();  // the weight, or dy
  if (!c.is_direct()) {
    auto* const rows = reinterpret_cast<float*>(align(args.scratch.data()));
    for_range(args, c.positions(), rows_per_task(c.row()), [&](int64_t first, int64_t end) {
      gather_windows(c, 0, first, end - first, windows, rows + first * c.row());
    });
    windows = rows;
  }
  Matrices<float> at{windows, other, args.out[0].as<float>().data()};
  if (pass != Pass::kForward) std::swap(at.a, at.b);
  multiply_f32(packed_product_of(pass, c), way, at, args.scratch.data() + all_windows_bytes(c), args.pool);
}

template <Pass pass, Way way>
int64_t packed_scratch(const TypeArgs& args, int threads) {
  const Windows c = packed_windows_of<pass>(args);
  return all_windows_bytes(c) + f32_scratch(packed_product_of(pass, c), way, threads);
}

template <Pass pass, Way way>
constexpr Kernel packed(std::string_view op, std::string_view name) {
  return {
      .op = op,
      .name = name,
      .why_not = way == Way::kTiles ? why_no_tiled<pass> : why_no_packed<pass>,
      .scratch = packed_scratch<pass, way>,
      .run = run_packed<pass, way>,
      .bits = Bits::kShape,
      .rivals = &kConvRivals<pass>,
  };
}

// What both need.
std::string why_no_product(const Windows& c) {
  if (c.groups() != 1) return "channels are in groups";
  if (const int64_t side = std::min(c.w[0], c.row()); side < kShortestSide)
    return fmt::format("{} is short for a side of a product", side);
  if (const int64_t bytes = all_windows_bytes(c); bytes > kMostWindowsBytes)
    return fmt::format("its windows take {} bytes", bytes);
  return "";
}

}  // namespace

template <Pass pass>
std::string why_no_packed(const TypeArgs& args) {
  if (pass == Pass::kInput) return "what windows saw would be added up";
  std::string reason = not_all_f32(args);
  if (!reason.empty()) return reason;
  const Windows c = packed_windows_of<pass>(args);
  const bool one_tap = c.w[1] * c.w[2] == 1;
  const bool strided = c.stride_h > 1 || c.stride_w > 1;
  const bool moves_weight = pass == Pass::kWeight && (one_tap || c.positions() <= kManyPositions);
  if (!moves_weight && (!strided || one_tap))
    return "oneDNN's convolutions are quick where windows move by one position";
  return why_no_product(c);
}

template <Pass pass>
std::string why_no_tiled(const TypeArgs& args) {
  std::string reason = not_all_f32(args);
  if (!reason.empty()) return reason;
  const Windows c = packed_windows_of<pass>(args);
  if (pass == Pass::kInput && !c.is_direct()) return "what windows saw would be added up";
  if (!c.is_direct() && c.stride_h == 1 && c.stride_w == 1 &&
      (pass == Pass::kForward || c.positions() > kManyPositions))
    return "windows that move by one position see each number several times";
  reason = why_no_product(c);
  return reason.empty() ? why_no_tiles(packed_product_of(pass, c)) : reason;
}

template std::string why_no_packed<Pass::kForward>(const TypeArgs&);
template std::string why_no_packed<Pass::kInput>(const TypeArgs&);
template std::string why_no_packed<Pass::kWeight>(const TypeArgs&);
template std::string why_no_tiled<Pass::kForward>(const TypeArgs&);
template std::string why_no_tiled<Pass::kInput>(const TypeArgs&);
template std::string why_no_tiled<Pass::kWeight>(const TypeArgs&);

std::span<const Kernel> conv_packed_kernels() {
  static constexpr Kernel kAll[] = {
      packed<Pass::kForward, Way::kBlocks>("conv2d", "conv2d.packed"),
      packed<Pass::kWeight, Way::kBlocks>("conv2d_grad_weight", "conv2d_grad_weight.packed"),
      packed<Pass::kForward, Way::kTiles>("conv2d", "conv2d.tiles"),
      packed<Pass::kInput, Way::kTiles>("conv2d_grad_input", "conv2d_grad_input.tiles"),
      packed<Pass::kWeight, Way::kTiles>("conv2d_grad_weight", "conv2d_grad_weight.tiles"),
  };
  return kAll;
}

}  // namespace trireme::cpu
