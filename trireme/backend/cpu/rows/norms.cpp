// layer_norm, rms_norm and their gradients on f32 and bf16 tensors. Statistics are f32.
#include <algorithm>

#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/leaves.h"
#include "trireme/backend/cpu/storage.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cpu {
namespace {

template <class T>
void layer_norm(const KernelArgs& args) {
  const int64_t size = last_size(args.in[0].type.shape);
  const auto eps = static_cast<float>(args.attrs.as<NormAttrs>().eps);
  const T* x = data_of<T>(args.in[0]);
  const float* gamma = args.in[1].as<float>().data();
  const float* beta = args.in[2].as<float>().data();
  T* y = data_of<T>(args.out[0]);
  float* mean = args.out[1].as<float>().data();
  float* rstd = args.out[2].as<float>().data();
  for_range(args, rows_of(args.in[0].type), rows_per_task(size), [&](int64_t row, int64_t end) {
    loops_on<T>().layer_norm({end - row, size}, x + row * size, gamma, beta, eps, y + row * size, mean + row,
                             rstd + row);
  });
}

// Rows whose parts of dgamma and dbeta are summed together: so many, whose sums are then added in order...
struct InOrder {
  static constexpr int64_t kRows = 64;
  int64_t rows, parts;

  explicit InOrder(const KernelArgs& args) : InOrder(args.in[0].type) {}
  explicit InOrder(const TensorType& x) : rows(rows_of(x)), parts((rows + kRows - 1) / kRows) {}
  int64_t begin(int64_t part) const { return std::min(rows, part * kRows); }
  static int64_t parts_at_most(const TensorType& x) { return InOrder(x).parts; }

  void add(int64_t size, float* sums, int64_t step) const {
    for (int64_t part = 1; part < parts; ++part) loops().f32.accumulate(size, sums + part * step, sums);
  }
};

// ... or those of a leaf of x's first dimension, whose sums are added in the tree.
struct InLeaves {
  LeafRows rows;
  Leaves leaves;
  int64_t parts;

  explicit InLeaves(const KernelArgs& args)
      : rows(leaf_rows(args, 0, args.in[0].type.shape.rank() - 1)), leaves(rows.leaves()), parts(leaves.count()) {}
  int64_t begin(int64_t part) const { return leaves.begin(part) * rows.inner; }
  static int64_t parts_at_most(const TensorType&) { return kLeaves; }

  void add(int64_t size, float* sums, int64_t step) const {
    add_in_tree(parts,
                [&](int64_t to, int64_t from) { loops().f32.accumulate(size, sums + from * step, sums + to * step); });
  }
};

// For each part `lines` sums of a line.
template <int lines, class Parts>
int64_t norm_grad_scratch(const TypeArgs& args, int) {
  return Parts::parts_at_most(args.in[0]) * lines * last_size(args.in[0].shape) * static_cast<int64_t>(sizeof(float));
}

// Adds up the parts of the gradients of lines, `results` in turn.
template <class Parts>
void add_parts(std::span<const View> results, float* sums, const Parts& parts, int64_t size) {
  const auto lines = static_cast<int64_t>(results.size());
  for (int64_t line = 0; line < lines; ++line) {
    float* result = results[static_cast<size_t>(line)].as<float>().data();
    if (parts.parts == 0) {
      std::fill_n(result, size, 0.0F);
      continue;
    }
    parts.add(size, sums + line * size, lines * size);
    std::copy_n(sums + line * size, size, result);
  }
}

template <class T, class Parts>
void layer_norm_grad(const KernelArgs& args) {
  const int64_t size = last_size(args.in[0].type.shape);
  const Parts parts(args);
  const T* x = data_of<T>(args.in[0]);
  const float* gamma = args.in[1].as<float>().data();
  const float* mean = args.in[2].as<float>().data();
  const float* rstd = args.in[3].as<float>().data();
  const T* dy = data_of<T>(args.in[4]);
  T* dx = data_of<T>(args.out[0]);
  auto* sums = reinterpret_cast<float*>(args.scratch.data());
  run_tasks(args.pool, parts.parts, [&](int64_t part, int) {
    const int64_t row = parts.begin(part);
    float* mine = sums + part * 2 * size;
    std::fill_n(mine, 2 * size, 0.0F);
    loops_on<T>().layer_norm_grad({parts.begin(part + 1) - row, size}, x + row * size, gamma, mean + row, rstd + row,
                                  dy + row * size, dx + row * size, mine, mine + size);
  });
  add_parts(args.out.subspan(1), sums, parts, size);
}

template <class T>
void rms_norm(const KernelArgs& args) {
  const int64_t size = last_size(args.in[0].type.shape);
  const auto eps = static_cast<float>(args.attrs.as<NormAttrs>().eps);
  const T* x = data_of<T>(args.in[0]);
  const float* gamma = args.in[1].as<float>().data();
  T* y = data_of<T>(args.out[0]);
  float* rstd = args.out[1].as<float>().data();
  for_range(args, rows_of(args.in[0].type), rows_per_task(size), [&](int64_t row, int64_t end) {
    loops_on<T>().rms_norm({end - row, size}, x + row * size, gamma, eps, y + row * size, rstd + row);
  });
}

template <class T, class Parts>
void rms_norm_grad(const KernelArgs& args) {
  const int64_t size = last_size(args.in[0].type.shape);
  const Parts parts(args);
  const T* x = data_of<T>(args.in[0]);
  const float* gamma = args.in[1].as<float>().data();
  const float* rstd = args.in[2].as<float>().data();
  const T* dy = data_of<T>(args.in[3]);
  T* dx = data_of<T>(args.out[0]);
  auto* sums = reinterpret_cast<float*>(args.scratch.data());
  run_tasks(args.pool, parts.parts, [&](int64_t part, int) {
    const int64_t row = parts.begin(part);
    float* mine = sums + part * size;
    std::fill_n(mine, size, 0.0F);
    loops_on<T>().rms_norm_grad({parts.begin(part + 1) - row, size}, x + row * size, gamma, rstd + row, dy + row * size,
                                dx + row * size, mine);
  });
  add_parts(args.out.subspan(1), sums, parts, size);
}

}  // namespace

std::span<const Kernel> norms_kernels() {
  static constexpr Kernel kAll[] = {
      {
          .op = "layer_norm",
          .name = "layer_norm.simd",
          .why_not = first_not_float,
          .run = by_storage<layer_norm<float>, layer_norm<Bf16>>,
          .bits = Bits::kElement,
      },
      {
          .op = "layer_norm_grad",
          .name = "layer_norm_grad.simd",
          .why_not = first_not_float,
          .scratch = norm_grad_scratch<2, InOrder>,
          .run = by_storage<layer_norm_grad<float, InOrder>, layer_norm_grad<Bf16, InOrder>>,
          .bits = Bits::kShape,
      },
      {
          .op = "layer_norm_grad",
          .name = "layer_norm_grad.leaves",
          .why_not = first_not_float,
          .scratch = norm_grad_scratch<2, InLeaves>,
          .run = by_storage<layer_norm_grad<float, InLeaves>, layer_norm_grad<Bf16, InLeaves>>,
          .bits = Bits::kLeaves,
      },
      {
          .op = "rms_norm",
          .name = "rms_norm.simd",
          .why_not = first_not_float,
          .run = by_storage<rms_norm<float>, rms_norm<Bf16>>,
          .bits = Bits::kElement,
      },
      {
          .op = "rms_norm_grad",
          .name = "rms_norm_grad.simd",
          .why_not = first_not_float,
          .scratch = norm_grad_scratch<1, InOrder>,
          .run = by_storage<rms_norm_grad<float, InOrder>, rms_norm_grad<Bf16, InOrder>>,
          .bits = Bits::kShape,
      },
      {
          .op = "rms_norm_grad",
          .name = "rms_norm_grad.leaves",
          .why_not = first_not_float,
          .scratch = norm_grad_scratch<1, InLeaves>,
          .run = by_storage<rms_norm_grad<float, InLeaves>, rms_norm_grad<Bf16, InLeaves>>,
          .bits = Bits::kLeaves,
      },
  };
  return kAll;
}

}  // namespace trireme::cpu
