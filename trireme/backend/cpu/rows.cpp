// Ops along the last dimension in f32: softmax, cross entropy, layer normalisation.
#include <cmath>

#include "trireme/backend/cpu/index.h"
#include "trireme/backend/cpu/isa/loops.h"
#include "trireme/backend/cpu/parallel.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/backend/kernels.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cpu {
namespace {

int64_t last_size(const Shape& shape) {
  return shape[shape.rank() - 1];
}

int64_t rows_of(const TensorType& type) {
  const int64_t size = last_size(type.shape);
  return size == 0 ? 0 : type.elements() / size;
}

void run_softmax(const KernelArgs& args) {
  const int64_t size = last_size(args.in[0].type.shape);
  const float* x = args.in[0].as<float>().data();
  float* y = args.out[0].as<float>().data();
  for_range(args, rows_of(args.in[0].type), rows_per_task(size), [&](int64_t row, int64_t end) {
    for (; row < end; ++row) loops().softmax(size, x + row * size, y + row * size);
  });
}

void run_softmax_grad(const KernelArgs& args) {
  const int64_t size = last_size(args.in[0].type.shape);
  const float* y = args.in[0].as<float>().data();
  const float* dy = args.in[1].as<float>().data();
  float* dx = args.out[0].as<float>().data();
  for_range(args, rows_of(args.in[0].type), rows_per_task(size), [&](int64_t row, int64_t end) {
    for (; row < end; ++row)
      loops().softmax_grad(size, y + row * size, dy + row * size, dx + row * size);
  });
}

std::string not_f32_with_labels(const TypeArgs& args) {
  for (size_t i = 0; i < args.in.size(); ++i) {
    std::string reason = i == 1 ? operand_not_index(args, i) : operand_not_f32(args, i);
    if (!reason.empty()) return reason;
  }
  return "";
}

// ln sum_v e^x[v]
double log_sum_exp(const float* x, int64_t size) {
  const float most = loops().max(size, x);
  return static_cast<double>(most) + std::log(static_cast<double>(loops().sum_exp(size, x, most)));
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
              "cross_entropy: label {} at position {} of {} classes; use 0 to {} or {}", label, row,
              classes, classes - 1, ignore);
      fn(row, label == ignore ? -1 : label);
    }
  });
}

void run_cross_entropy(const KernelArgs& args) {
  const double smoothing = args.attrs.as<CrossEntropyAttrs>().label_smoothing;
  const int64_t classes = last_size(args.in[0].type.shape);
  const float* logits = args.in[0].as<float>().data();
  float* loss = args.out[0].as<float>().data();
  each_label(args, [&](int64_t row, int64_t label) {
    if (label < 0) {
      loss[row] = 0;
      return;
    }
    const float* x = logits + row * classes;
    const double normaliser = log_sum_exp(x, classes);
    double value = (1 - smoothing) * (normaliser - static_cast<double>(x[label]));
    if (smoothing > 0) {
      const double mean =
          static_cast<double>(loops().sum(classes, x)) / static_cast<double>(classes);
      value += smoothing * (normaliser - mean);
    }
    loss[row] = static_cast<float>(value);
  });
}

void run_cross_entropy_grad(const KernelArgs& args) {
  const auto smoothing = static_cast<float>(args.attrs.as<CrossEntropyAttrs>().label_smoothing);
  const int64_t classes = last_size(args.in[0].type.shape);
  const float* logits = args.in[0].as<float>().data();
  const float* dloss = args.in[2].as<float>().data();
  float* dlogits = args.out[0].as<float>().data();
  each_label(args, [&](int64_t row, int64_t label) {
    const float* x = logits + row * classes;
    float* dx = dlogits + row * classes;
    if (label < 0) {
      std::fill_n(dx, classes, 0.0F);
      return;
    }
    const float up = dloss[row];
    loops().softmax_affine(classes, x, up, -up * smoothing / static_cast<float>(classes), dx);
    dx[label] -= up * (1 - smoothing);
  });
}

void run_layer_norm(const KernelArgs& args) {
  const int64_t size = last_size(args.in[0].type.shape);
  const auto eps = static_cast<float>(args.attrs.as<NormAttrs>().eps);
  const float* x = args.in[0].as<float>().data();
  const float* gamma = args.in[1].as<float>().data();
  const float* beta = args.in[2].as<float>().data();
  float* y = args.out[0].as<float>().data();
  float* mean = args.out[1].as<float>().data();
  float* rstd = args.out[2].as<float>().data();
  for_range(args, rows_of(args.in[0].type), rows_per_task(size), [&](int64_t row, int64_t end) {
    loops().layer_norm({end - row, size}, x + row * size, gamma, beta, eps, y + row * size,
                       mean + row, rstd + row);
  });
}

// Rows whose parts of dgamma and dbeta are summed together; those sums are then added in order.
constexpr int64_t kNormRows = 64;

int64_t layer_norm_grad_scratch(const TypeArgs& args, int) {
  const int64_t parts = (rows_of(args.in[0]) + kNormRows - 1) / kNormRows;
  return parts * 2 * last_size(args.in[0].shape) * static_cast<int64_t>(sizeof(float));
}

void run_layer_norm_grad(const KernelArgs& args) {
  const int64_t size = last_size(args.in[0].type.shape);
  const int64_t rows = rows_of(args.in[0].type);
  const int64_t parts = (rows + kNormRows - 1) / kNormRows;
  const float* x = args.in[0].as<float>().data();
  const float* gamma = args.in[1].as<float>().data();
  const float* mean = args.in[2].as<float>().data();
  const float* rstd = args.in[3].as<float>().data();
  const float* dy = args.in[4].as<float>().data();
  float* dx = args.out[0].as<float>().data();
  auto* sums = reinterpret_cast<float*>(args.scratch.data());
  run_tasks(args.pool, parts, [&](int64_t part, int) {
    const int64_t row = part * kNormRows;
    float* mine = sums + part * 2 * size;
    std::fill_n(mine, 2 * size, 0.0F);
    loops().layer_norm_grad({std::min(rows - row, kNormRows), size}, x + row * size, gamma,
                            mean + row, rstd + row, dy + row * size, dx + row * size, mine,
                            mine + size);
  });
  for (size_t i = 0; i < 2; ++i) {
    float* total = args.out[1 + i].as<float>().data();
    std::fill_n(total, size, 0.0F);
    for (int64_t part = 0; part < parts; ++part) {
      loops().accumulate(size, sums + (2 * part + static_cast<int64_t>(i)) * size, total);
    }
  }
}

}  // namespace

extern const Kernel softmax_simd{"softmax", "softmax.simd", not_all_f32, nullptr, run_softmax};
extern const Kernel softmax_grad_simd{"softmax_grad", "softmax_grad.simd", not_all_f32, nullptr,
                                      run_softmax_grad};
extern const Kernel cross_entropy_simd{"cross_entropy", "cross_entropy.simd", not_f32_with_labels,
                                       nullptr, run_cross_entropy};
extern const Kernel cross_entropy_grad_simd{"cross_entropy_grad", "cross_entropy_grad.simd",
                                            not_f32_with_labels, nullptr, run_cross_entropy_grad};
extern const Kernel layer_norm_simd{"layer_norm", "layer_norm.simd", not_all_f32, nullptr,
                                    run_layer_norm};
extern const Kernel layer_norm_grad_simd{"layer_norm_grad", "layer_norm_grad.simd", not_all_f32,
                                         layer_norm_grad_scratch, run_layer_norm_grad};

}  // namespace trireme::cpu
