// softmax and cross entropy along the last dimension of f32 and bf16 tensors. Losses are f32.
#include <cmath>

#include "trireme/backend/cpu/index.h"
#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/storage.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cpu {
namespace {

// y = f(x), row by row.
template <class T>
void each_row(const KernelArgs& args, void (*loop)(int64_t n, const T* x, T* y)) {
  const int64_t size = last_size(args.in[0].type.shape);
  const T* x = data_of<T>(args.in[0]);
  T* y = data_of<T>(args.out[0]);
  for_range(args, rows_of(args.in[0].type), rows_per_task(size), [&](int64_t row, int64_t end) {
    for (; row < end; ++row) loop(size, x + row * size, y + row * size);
  });
}

// dx = f(y, dy), row by row.
template <class T>
void each_row_grad(const KernelArgs& args, void (*loop)(int64_t n, const T* y, const T* dy, T* dx)) {
  const int64_t size = last_size(args.in[0].type.shape);
  const T* y = data_of<T>(args.in[0]);
  const T* dy = data_of<T>(args.in[1]);
  T* dx = data_of<T>(args.out[0]);
  for_range(args, rows_of(args.in[0].type), rows_per_task(size), [&](int64_t row, int64_t end) {
    for (; row < end; ++row) loop(size, y + row * size, dy + row * size, dx + row * size);
  });
}

template <class T>
void softmax(const KernelArgs& args) {
  each_row(args, loops_on<T>().softmax);
}

template <class T>
void log_softmax(const KernelArgs& args) {
  each_row(args, loops_on<T>().log_softmax);
}

template <class T>
void softmax_grad(const KernelArgs& args) {
  each_row_grad(args, loops_on<T>().softmax_grad);
}

template <class T>
void log_softmax_grad(const KernelArgs& args) {
  each_row_grad(args, loops_on<T>().log_softmax_grad);
}

std::string not_float_with_labels(const TypeArgs& args) {
  std::string reason = operand_not_float(args, 0);
  return reason.empty() ? operand_not_index(args, 1) : reason;
}

// ln sum_v e^x[v]
template <class T>
double log_sum_exp(const T* x, int64_t size) {
  const float most = loops_on<T>().max(size, x);
  const float sum = loops_on<T>().sum_exp(size, x, most);
  return static_cast<double>(most) + std::log(static_cast<double>(sum));
}

// Calls fn(row, label) for each position, with label -1 where it is ignored.
template <class Fn>
void each_label(const KernelArgs& args, Fn&& fn) {
  const int64_t ignore = args.attrs.as<CrossEntropyAttrs>().ignore_index;
  const int64_t classes = last_size(args.in[0].type.shape);
  const Indices labels(args.in[1]);
  for_range(args, labels.size(), rows_per_task(classes), [&](int64_t row, int64_t end) {
    for (; row < end; ++row) {
      const int64_t label = labels[row];
      require(label == ignore || (label >= 0 && label < classes),
              "cross_entropy: label {} at position {} of {} classes; use 0 to {} or {}", label, row, classes,
              classes - 1, ignore);
      fn(row, label == ignore ? -1 : label);
    }
  });
}

template <class T>
void cross_entropy(const KernelArgs& args) {
  const double smoothing = args.attrs.as<CrossEntropyAttrs>().label_smoothing;
  const int64_t classes = last_size(args.in[0].type.shape);
  const T* logits = data_of<T>(args.in[0]);
  float* loss = args.out[0].as<float>().data();
  each_label(args, [&](int64_t row, int64_t label) {
    if (label < 0) {
      loss[row] = 0;
      return;
    }
    const T* x = logits + row * classes;
    const double normaliser = log_sum_exp(x, classes);
    double value = (1 - smoothing) * (normaliser - static_cast<double>(number(x[label])));
    if (smoothing > 0) {
      const double mean = static_cast<double>(loops_on<T>().sum(classes, x)) / static_cast<double>(classes);
      value += smoothing * (normaliser - mean);
    }
    loss[row] = static_cast<float>(value);
  });
}

template <class T>
void cross_entropy_grad(const KernelArgs& args) {
  const auto smoothing = static_cast<float>(args.attrs.as<CrossEntropyAttrs>().label_smoothing);
  const int64_t classes = last_size(args.in[0].type.shape);
  const T* logits = data_of<T>(args.in[0]);
  const float* dloss = args.in[2].as<float>().data();
  T* dlogits = data_of<T>(args.out[0]);
  each_label(args, [&](int64_t row, int64_t label) {
    T* dx = dlogits + row * classes;
    if (label < 0) {
      std::fill_n(dx, classes, T{});
      return;
    }
    const float up = dloss[row];
    loops_on<T>().softmax_affine(classes, logits + row * classes,
                                 {.factor = up,
                                  .add = -up * smoothing / static_cast<float>(classes),
                                  .at = label,
                                  .more = -up * (1 - smoothing)},
                                 dx);
  });
}

}  // namespace

std::span<const Kernel> rows_kernels() {
  static constexpr Kernel kAll[] = {
      {
          .op = "softmax",
          .name = "softmax.simd",
          .why_not = first_not_float,
          .run = by_storage<softmax<float>, softmax<Bf16>>,
          .bits = Bits::kElement,
      },
      {
          .op = "softmax_grad",
          .name = "softmax_grad.simd",
          .why_not = first_not_float,
          .run = by_storage<softmax_grad<float>, softmax_grad<Bf16>>,
          .bits = Bits::kElement,
      },
      {
          .op = "log_softmax",
          .name = "log_softmax.simd",
          .why_not = first_not_float,
          .run = by_storage<log_softmax<float>, log_softmax<Bf16>>,
          .bits = Bits::kElement,
      },
      {
          .op = "log_softmax_grad",
          .name = "log_softmax_grad.simd",
          .why_not = first_not_float,
          .run = by_storage<log_softmax_grad<float>, log_softmax_grad<Bf16>>,
          .bits = Bits::kElement,
      },
      {
          .op = "cross_entropy",
          .name = "cross_entropy.simd",
          .why_not = not_float_with_labels,
          .run = by_storage<cross_entropy<float>, cross_entropy<Bf16>>,
          .bits = Bits::kElement,
      },
      {
          .op = "cross_entropy_grad",
          .name = "cross_entropy_grad.simd",
          .why_not = not_float_with_labels,
          .run = by_storage<cross_entropy_grad<float>, cross_entropy_grad<Bf16>>,
          .bits = Bits::kElement,
      },
  };
  return kAll;
}

}  // namespace trireme::cpu
