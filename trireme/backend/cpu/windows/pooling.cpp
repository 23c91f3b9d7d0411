// max_pool2d, avg_pool2d and their gradients on [n,h,w,c] tensors of f32 and bf16, an image or some
// a task.
#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/storage.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cpu {
namespace {

// x is what is pooled and y what it is pooled to, whichever is given.
Pool pool_of(const Pool2dAttrs& attrs, const Shape& x, const Shape& y) {
  const auto& p = attrs.padding;  // [h,w] or [top,bottom,left,right]
  const int64_t left = p.size() == 4 ? p[2] : p[1];
  return {.rows = {x[1], y[1], attrs.kernel[0], attrs.stride[0], p[0]},
          .columns = {x[2], y[2], attrs.kernel[1], attrs.stride[1], left},
          .channels = x[3],
          .count_padding = attrs.count_padding};
}

int64_t elements_of_image(const Shape& s) {
  return s[1] * s[2] * s[3];
}

// Calls fn(image, thread) for each image.
template <class Fn>
void each_image(const KernelArgs& args, const Shape& x, Fn&& fn) {
  const int64_t group = rows_per_task(elements_of_image(x));
  run_tasks(args.pool, (x[0] + group - 1) / group, [&](int64_t task, int thread) {
    for (int64_t i = task * group; i < std::min(x[0], (task + 1) * group); ++i) fn(i, thread);
  });
}

// result = f(operand), image by image.
template <class T>
void map_images(const KernelArgs& args, const Pool& k, void (*loop)(const Pool& k, const T* from, T* to)) {
  const T* from = data_of<T>(args.in[0]);
  T* to = data_of<T>(args.out[0]);
  const int64_t from_step = elements_of_image(args.in[0].type.shape);
  const int64_t to_step = elements_of_image(args.out[0].type.shape);
  each_image(args, args.in[0].type.shape,
             [&](int64_t image, int) { loop(k, from + image * from_step, to + image * to_step); });
}

template <class T>
void max_pool(const KernelArgs& args) {
  map_images(args, pool_of(args.attrs.as<Pool2dAttrs>(), args.in[0].type.shape, args.out[0].type.shape),
             loops_on<T>().max_pool);
}

template <class T>
void avg_pool(const KernelArgs& args) {
  map_images(args, pool_of(args.attrs.as<Pool2dAttrs>(), args.in[0].type.shape, args.out[0].type.shape),
             loops_on<T>().avg_pool);
}

template <class T>
void avg_pool_grad(const KernelArgs& args) {
  map_images(args, pool_of(args.attrs.as<Pool2dAttrs>(), args.out[0].type.shape, args.in[0].type.shape),
             loops_on<T>().avg_pool_grad);
}

bool overlap(const PoolAxis& axis) {
  return axis.stride < axis.kernel;
}

// Bytes of the taps that an image's gradients go to; 0 where they are not kept.
int64_t taps_bytes(const Pool& k, const Shape& y) {
  if (!overlap(k.rows) && !overlap(k.columns)) return 0;
  return elements_of_image(y) * static_cast<int64_t>(sizeof(int32_t));
}

int64_t max_pool_grad_scratch(const TypeArgs& args, int threads) {
  const Shape& y = args.in[1].shape;
  return threads * taps_bytes(pool_of(args.attrs.as<Pool2dAttrs>(), args.in[0].shape, y), y);
}

template <class T>
void max_pool_grad(const KernelArgs& args) {
  const Shape& x_shape = args.in[0].type.shape;
  const Shape& y_shape = args.in[1].type.shape;
  const Pool k = pool_of(args.attrs.as<Pool2dAttrs>(), x_shape, y_shape);
  const T* x = data_of<T>(args.in[0]);
  const T* dy = data_of<T>(args.in[1]);
  T* dx = data_of<T>(args.out[0]);
  const int64_t x_step = elements_of_image(x_shape);
  const int64_t y_step = elements_of_image(y_shape);
  const int64_t bytes = taps_bytes(k, y_shape);
  each_image(args, x_shape, [&](int64_t image, int thread) {
    auto* taps = reinterpret_cast<int32_t*>(args.scratch.data() + thread * bytes);
    loops_on<T>().max_pool_grad(k, x + image * x_step, dy + image * y_step, bytes == 0 ? nullptr : taps,
                                dx + image * x_step);
  });
}

}  // namespace

std::span<const Kernel> pool_kernels() {
  static constexpr Kernel kAll[] = {
      {
          .op = "max_pool2d",
          .name = "max_pool2d.simd",
          .why_not = first_not_float,
          .run = by_storage<max_pool<float>, max_pool<Bf16>>,
          .bits = Bits::kElement,
      },
      {
          .op = "max_pool2d_grad",
          .name = "max_pool2d_grad.simd",
          .why_not = first_not_float,
          .scratch = max_pool_grad_scratch,
          .run = by_storage<max_pool_grad<float>, max_pool_grad<Bf16>>,
          .bits = Bits::kElement,
      },
      {
          .op = "avg_pool2d",
          .name = "avg_pool2d.simd",
          .why_not = first_not_float,
          .run = by_storage<avg_pool<float>, avg_pool<Bf16>>,
          .bits = Bits::kElement,
      },
      {
          .op = "avg_pool2d_grad",
          .name = "avg_pool2d_grad.simd",
          .why_not = first_not_float,
          .run = by_storage<avg_pool_grad<float>, avg_pool_grad<Bf16>>,
          .bits = Bits::kElement,
      },
  };
  return kAll;
}

}  // namespace trireme::cpu
