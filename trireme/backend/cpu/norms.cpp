// layer_norm, rms_norm and their gradients on f32 and bf16 tensors. Statistics are f32.
#include <algorithm>

#include "trireme/backend/cpu/parallel.h"
#include "trireme/backend/cpu/storage.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/backend/kernels.h"
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
    loops_on<T>().layer_norm({end - row, size}, x + row * size, gamma, beta, eps, y + row * size,
                             mean + row, rstd + row);
  });
}

// Rows whose parts of dgamma and dbeta are summed together; those sums are then added in order.
constexpr int64_t kNormRows = 64;

int64_t norm_parts(const TensorType& x) {
  return (rows_of(x) + kNormRows - 1) / kNormRows;
}

// For each part `lines` sums of a line.
template <int lines>
int64_t norm_grad_scratch(const TypeArgs& args, int) {
  return norm_parts(args.in[0]) * lines * last_size(args.in[0].shape) *
         static_cast<int64_t>(sizeof(float));
}

// Adds up the parts of the gradients of lines, `results` in turn.
void add_parts(std::span<const View> results, float* sums, int64_t parts, int64_t size) {
  const auto lines = static_cast<int64_t>(results.size());
  for (int64_t line = 0; line < lines; ++line) {
    float* result = results[static_cast<size_t>(line)].as<float>().data();
    if (parts == 0) {
      std::fill_n(result, size, 0.0F);
      continue;
    }
    float* total = sums + line * size;
    for (int64_t part = 1; part < parts; ++part)
      loops().f32.accumulate(size, sums + (part * lines + line) * size, total);
    std::copy_n(total, size, result);
  }
}

template <class T>
void layer_norm_grad(const KernelArgs& args) {
  const int64_t size = last_size(args.in[0].type.shape);
  const int64_t rows = rows_of(args.in[0].type);
  const int64_t parts = norm_parts(args.in[0].type);
  const T* x = data_of<T>(args.in[0]);
  const float* gamma = args.in[1].as<float>().data();
  const float* mean = args.in[2].as<float>().data();
  const float* rstd = args.in[3].as<float>().data();
  const T* dy = data_of<T>(args.in[4]);
  T* dx = data_of<T>(args.out[0]);
  auto* sums = reinterpret_cast<float*>(args.scratch.data());
  run_tasks(args.pool, parts, [&](int64_t part, int) {
    const int64_t row = part * kNormRows;
    float* mine = sums + part * 2 * size;
    std::fill_n(mine, 2 * size, 0.0F);
    loops_on<T>().layer_norm_grad({std::min(rows - row, kNormRows), size}, x + row * size, gamma,
                                  mean + row, rstd + row, dy + row * size, dx + row * size, mine,
                                  mine + size);
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
    loops_on<T>().rms_norm({end - row, size}, x + row * size, gamma, eps, y + row * size,
                           rstd + row);
  });
}

template <class T>
void rms_norm_grad(const KernelArgs& args) {
  const int64_t size = last_size(args.in[0].type.shape);
  const int64_t rows = rows_of(args.in[0].type);
  const int64_t parts = norm_parts(args.in[0].type);
  const T* x = data_of<T>(args.in[0]);
  const float* gamma = args.in[1].as<float>().data();
  const float* rstd = args.in[2].as<float>().data();
  const T* dy = data_of<T>(args.in[3]);
  T* dx = data_of<T>(args.out[0]);
  auto* sums = reinterpret_cast<float*>(args.scratch.data());
  run_tasks(args.pool, parts, [&](int64_t part, int) {
    const int64_t row = part * kNormRows;
    float* mine = sums + part * size;
    std::fill_n(mine, size, 0.0F);
    loops_on<T>().rms_norm_grad({std::min(rows - row, kNormRows), size}, x + row * size, gamma,
                                rstd + row, dy + row * size, dx + row * size, mine);
  });
  add_parts(args.out.subspan(1), sums, parts, size);
}

}  // namespace

extern const Kernel layer_norm_simd{"layer_norm", "layer_norm.simd", first_not_float, nullptr,
                                    by_storage<layer_norm<float>, layer_norm<Bf16>>};
extern const Kernel layer_norm_grad_simd{"layer_norm_grad", "layer_norm_grad.simd", first_not_float,
                                         norm_grad_scratch<2>,
                                         by_storage<layer_norm_grad<float>, layer_norm_grad<Bf16>>};
extern const Kernel rms_norm_simd{"rms_norm", "rms_norm.simd", first_not_float, nullptr,
                                  by_storage<rms_norm<float>, rms_norm<Bf16>>};
extern const Kernel rms_norm_grad_simd{"rms_norm_grad", "rms_norm_grad.simd", first_not_float,
                                       norm_grad_scratch<1>,
                                       by_storage<rms_norm_grad<float>, rms_norm_grad<Bf16>>};

}  // namespace trireme::cpu
