// conv2d and its two gradients as products of windows that are gathered for a block of positions at a time, which the
// second-level cache holds: for what oneDNN has no kernels in vectors for, or fills less than half of them. Products
// are packed_product.h's, whose left operand is read where it lies. A gradient of the input is the product of dy and
// the weight, whose elements are added to where their windows saw them.
#include <algorithm>

#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/products/onednn.h"
#include "trireme/backend/cpu/products/packed_product.h"
#include "trireme/backend/cpu/storage.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/backend/cpu/windows/conv_rivals.h"
#include "trireme/backend/cpu/windows/conv_windows.h"

namespace trireme::cpu {
namespace {

constexpr int64_t kGatheredFloats = 64 << 10;  // about
constexpr int64_t kLeastPositions = 48, kMostPositions = 1024;
constexpr int64_t kMostSums = 8;        // of a weight's gradient
constexpr int64_t kNarrowChannels = 8;  // of x: oneDNN's loops use half of a vector of 16, or less

int64_t conv_room_bytes(int64_t floats) {
  return aligned(floats * static_cast<int64_t>(sizeof(float)));
}

// How the positions are taken, by sizes alone, and where what is needed beside the tensors lies. A thread has of a
// block of positions: its windows; packed, for a weight's gradient; dy in f32; and a result in f32. Threads share the
// weight, packed, or sums of parts of the positions.
struct ConvBlocks {
  Windows c;
  Pass pass;
  bool is_f32;
  int64_t block;  // positions
  int64_t parts;  // of the positions, for a sum each: of a weight's gradient

  ConvBlocks(Pass p, const Windows& windows, DType dtype) : c(windows), pass(p), is_f32(dtype == DType::kF32) {
    const int64_t all = p == Pass::kInput ? c.y[1] * c.y[2] : c.positions();
    block = std::min(all, std::clamp(kGatheredFloats / c.row(), kLeastPositions, kMostPositions));
    parts = std::clamp<int64_t>(c.positions() / kMostPositions, 1, kMostSums);
  }

  int64_t image() const { return c.x[1] * c.x[2] * c.x[3]; }
  int64_t windows_bytes() const { return conv_room_bytes(block * c.row()); }
  int64_t packed_windows_bytes() const {
    return pass == Pass::kWeight ? conv_room_bytes(packed_floats(c.row(), block)) : 0;
  }
  int64_t dy_bytes() const { return is_f32 || pass == Pass::kForward ? 0 : conv_room_bytes(block * c.w[0]); }
  int64_t result_bytes() const {
    if (is_f32 || pass == Pass::kWeight) return 0;
    return conv_room_bytes(pass == Pass::kForward ? block * c.outputs() : image());
  }
  int64_t thread_bytes() const { return windows_bytes() + packed_windows_bytes() + dy_bytes() + result_bytes(); }

  int64_t group_floats() const {
    return pass == Pass::kForward ? packed_floats(c.outputs(), c.row()) : packed_floats(c.row(), c.outputs());
  }
  int64_t packed_weight_bytes() const {
    return pass == Pass::kWeight ? 0 : conv_room_bytes(c.groups() * group_floats());
  }
  int64_t sum_bytes() const { return conv_room_bytes(c.w.elements()); }
  int64_t shared_bytes() const {
    if (pass == Pass::kWeight) return (parts - 1) * sum_bytes();
    return packed_weight_bytes() + (is_f32 ? 0 : sum_bytes());
  }
  int64_t scratch_bytes(int threads) const { return kAlign + shared_bytes() + threads * thread_bytes(); }
};

template <Pass pass>
ConvBlocks blocks_of_call(const TypeArgs& args) {
  return {pass, windows_of(pass, args.in[0].shape, args.in[1].shape, args.out[0].shape, args.attrs.as<Conv2dAttrs>()),
          args.in[0].dtype};
}

template <Pass pass>
ConvBlocks blocks_of_call(const KernelArgs& args) {
  return {pass,
          windows_of(pass, args.in[0].type.shape, args.in[1].type.shape, args.out[0].type.shape,
                     args.attrs.as<Conv2dAttrs>()),
          args.in[0].type.dtype};
}

struct ConvRoom {
  float *windows, *packed, *dy, *result;

  ConvRoom(const ConvBlocks& of, const KernelArgs& args, int thread) {
    std::byte* at = align(args.scratch.data()) + of.shared_bytes() + thread * of.thread_bytes();
    const auto take = [&](int64_t bytes) {
      auto* const taken = reinterpret_cast<float*>(at);
      at += bytes;
      return taken;
    };
    windows = take(of.windows_bytes());
    packed = take(of.packed_windows_bytes());
    dy = take(of.dy_bytes());
    result = take(of.result_bytes());
  }
};

// Rows in f32: where they lie, or widened into `room`, one after the other.
template <class T>
struct WideRows {
  const float* data;
  int64_t stride;

  WideRows(const T* x, int64_t rows, int64_t size, int64_t row_stride, float* room) : data(room), stride(size) {
    if constexpr (std::is_same_v<T, float>) {
      data = x;
      stride = row_stride;
    } else {
      for (int64_t row = 0; row < rows; ++row) loops_on<T>().to_f32(size, x + row * row_stride, room + row * size);
    }
  }
};

// The windows of some positions in f32: gathered, or where they lie.
template <class T>
WideRows<float> window_rows(const Windows& c, int64_t group, int64_t first, int64_t count, const T* x, float* room) {
  if constexpr (std::is_same_v<T, float>) {
    if (c.is_direct()) return {x + first * c.x[3] + group * c.w[3], count, c.row(), c.x[3], nullptr};
  }
  gather_windows(c, group, first, count, x, room);
  return {room, count, c.row(), c.row(), nullptr};
}

// The weight of each group, as the right operand of its products.
template <class T>
const float* packed_weight(const ConvBlocks& of, const T* w, const KernelArgs& args) {
  const Windows& c = of.c;
  auto* const packed = reinterpret_cast<float*>(align(args.scratch.data()));
  auto* const wide = reinterpret_cast<float*>(align(args.scratch.data()) + of.packed_weight_bytes());
  const WideRows<T> rows(w, c.w[0], c.row(), c.row(), wide);
  const bool forward = of.pass == Pass::kForward;
  for (int64_t group = 0; group < c.groups(); ++group) {
    pack_right(rows.data + group * c.outputs() * c.row(), c.row(), forward, forward ? c.outputs() : c.row(),
               forward ? c.row() : c.outputs(), packed + group * of.group_floats());
  }
  return packed;
}

template <class T>
void forward_in_blocks(const KernelArgs& args) {
  const ConvBlocks of = blocks_of_call<Pass::kForward>(args);
  const Windows& c = of.c;
  const int64_t n = c.outputs();
  const float* const w = packed_weight(of, data_of<T>(args.in[1]), args);
  run_tasks(args.pool, (c.positions() + of.block - 1) / of.block, [&](int64_t task, int thread) {
    const ConvRoom room(of, args, thread);
    const int64_t first = task * of.block;
    const int64_t count = std::min(of.block, c.positions() - first);
    for (int64_t group = 0; group < c.groups(); ++group) {
      const WideRows<float> rows = window_rows(c, group, first, count, data_of<T>(args.in[0]), room.windows);
      T* const to = data_of<T>(args.out[0]) + first * c.w[0] + group * n;
      Gemm g{.m = count, .n = n, .k = c.row(), .a = rows.data, .c = room.result, .lda = rows.stride, .ldc = n};
      if constexpr (std::is_same_v<T, float>) g.c = to, g.ldc = c.w[0];
      multiply_packed(g, w + group * of.group_floats(), c.row());
      if constexpr (!std::is_same_v<T, float>) {
        for (int64_t i = 0; i < count; ++i) loops_on<T>().from_f32(n, room.result + i * n, to + i * c.w[0]);
      }
    }
  });
}

// A task is an image.
template <class T>
void input_grad_in_blocks(const KernelArgs& args) {
  const ConvBlocks of = blocks_of_call<Pass::kInput>(args);
  const Windows& c = of.c;
  const int64_t positions = c.y[1] * c.y[2], k = c.outputs();
  const float* const w = packed_weight(of, data_of<T>(args.in[0]), args);
  run_tasks(args.pool, c.x[0], [&](int64_t image, int thread) {
    const ConvRoom room(of, args, thread);
    T* const to = data_of<T>(args.out[0]) + image * of.image();
    float* sums = room.result;
    if constexpr (std::is_same_v<T, float>) sums = to;
    std::fill_n(sums, of.image(), 0.0F);
    for (int64_t first = 0; first < positions; first += of.block) {
      const int64_t count = std::min(of.block, positions - first);
      const T* const dy = data_of<T>(args.in[1]) + (image * positions + first) * c.w[0];
      const WideRows<T> rows(dy, count, c.w[0], c.w[0], room.dy);
      for (int64_t group = 0; group < c.groups(); ++group) {
        multiply_packed({.m = count,
                         .n = c.row(),
                         .k = k,
                         .a = rows.data + group * k,
                         .c = room.windows,
                         .lda = rows.stride,
                         .ldc = c.row()},
                        w + group * of.group_floats(), k);
        add_windows(c, group, first, count, room.windows, sums);
      }
    }
    if constexpr (!std::is_same_v<T, float>) loops_on<T>().from_f32(of.image(), sums, to);
  });
}

// A task is a part of the positions, whose sum is added to the first one's in order.
template <class T>
void weight_grad_in_blocks(const KernelArgs& args) {
  const ConvBlocks of = blocks_of_call<Pass::kWeight>(args);
  const Windows& c = of.c;
  const int64_t m = c.outputs();
  float* const result = args.out[0].as<float>().data();
  const auto sum_of = [&](int64_t part) {
    return part == 0 ? result : reinterpret_cast<float*>(align(args.scratch.data()) + (part - 1) * of.sum_bytes());
  };
  run_tasks(args.pool, of.parts, [&](int64_t part, int thread) {
    const ConvRoom room(of, args, thread);
    const int64_t begin = part * c.positions() / of.parts, end = (part + 1) * c.positions() / of.parts;
    for (int64_t first = begin; first < end; first += of.block) {
      const int64_t count = std::min(of.block, end - first);
      const WideRows<T> dy(data_of<T>(args.in[1]) + first * c.w[0], count, c.w[0], c.w[0], room.dy);
      for (int64_t group = 0; group < c.groups(); ++group) {
        const WideRows<float> rows = window_rows(c, group, first, count, data_of<T>(args.in[0]), room.windows);
        pack_right(rows.data, rows.stride, false, c.row(), count, room.packed);
        multiply_packed({.m = m,
                         .n = c.row(),
                         .k = count,
                         .a = dy.data + group * m,
                         .c = sum_of(part) + group * m * c.row(),
                         .lda = dy.stride,
                         .ldc = c.row(),
                         .transpose_a = true,
                         .beta = first == begin ? 0.0F : 1.0F},
                        room.packed, count);
      }
    }
  });
  for (int64_t part = 1; part < of.parts; ++part) loops().f32.accumulate(c.w.elements(), sum_of(part), result);
}

template <Pass pass>
int64_t conv_blocks_scratch(const TypeArgs& args, int threads) {
  return blocks_of_call<pass>(args).scratch_bytes(threads);
}

template <Pass pass>
std::string conv_blocks_why_not(const TypeArgs& args) {
  std::string reason = first_not_float(args);
  if (!reason.empty()) return reason;
  for (const TensorType& type : {args.in[0], args.in[1], args.out[0]}) {
    if (type.elements() == 0) return fmt::format("{} is empty", to_string(type));
  }
  // Without instructions for bf16, oneDNN widens it itself, but not below avx512.
  if (args.in[0].dtype == DType::kBF16 && !(isa() >= Isa::kAvx512 && onednn_has(Isa::kAvx512))) return "";
  const Windows c = blocks_of_call<pass>(args).c;
  const bool is_narrow = pass == Pass::kInput && args.in[0].dtype == DType::kF32 && c.w[3] <= kNarrowChannels;
  if (isa() != Isa::kAvx2 && !(isa() > Isa::kAvx2 && is_narrow))
    return fmt::format("on {} oneDNN takes any number of channels", to_string(isa()));
  if (c.groups() > 1) return "channels are in groups, for which oneDNN has kernels";
  if (reason = why_no_onednn_sizes(pass, args); !reason.empty()) return reason;
  if (isa() > Isa::kAvx2) return "";
  const std::string way = onednn_way_of(pass, args);
  if (way.starts_with("jit")) return fmt::format("oneDNN has loops in vectors for it ({})", way);
  return "";
}

template <Pass pass>
constexpr Kernel conv_in_blocks(std::string_view op, std::string_view name, KernelFn* run) {
  return {
      .op = op,
      .name = name,
      .why_not = conv_blocks_why_not<pass>,
      .scratch = conv_blocks_scratch<pass>,
      .run = run,
      .bits = Bits::kShape,
      .rivals = &kConvRivals<pass>,
  };
}

}  // namespace

std::span<const Kernel> conv_blocks_kernels() {
  static constexpr Kernel kAll[] = {
      conv_in_blocks<Pass::kForward>("conv2d", "conv2d.blocks",
                                     by_storage<forward_in_blocks<float>, forward_in_blocks<Bf16>>),
      conv_in_blocks<Pass::kInput>("conv2d_grad_input", "conv2d_grad_input.blocks",
                                   by_storage<input_grad_in_blocks<float>, input_grad_in_blocks<Bf16>>),
      conv_in_blocks<Pass::kWeight>("conv2d_grad_weight", "conv2d_grad_weight.blocks",
                                    by_storage<weight_grad_in_blocks<float>, weight_grad_in_blocks<Bf16>>),
  };
  return kAll;
}

}  // namespace trireme::cpu
