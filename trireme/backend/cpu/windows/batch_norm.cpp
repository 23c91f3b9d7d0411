// channel_sums, batch_norm and its gradients on f32 and bf16 tensors; sums over positions are f64.
#include <algorithm>
#include <cmath>

#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/storage.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cpu {
namespace {

// The positions in parts, whose sums are added in order: so many at most.
constexpr int64_t kMostParts = 16;

struct Parts {
  int64_t channels, rows, per_part, count;

  explicit Parts(const TensorType& x)
      : channels(last_size(x.shape)),
        rows(rows_of(x)),
        per_part(std::max(rows_per_task(channels), (rows + kMostParts - 1) / kMostParts)),
        count((rows + per_part - 1) / per_part) {}
  int64_t begin(int64_t part) const { return part * per_part; }
  int64_t size(int64_t part) const { return std::min(rows, begin(part + 1)) - begin(part); }
  int64_t lanes() const { return 2 * channels; }
};

constexpr int64_t kDouble = sizeof(double);
constexpr int64_t kFloat = sizeof(float);

// A line of f32 a channel comes before the sums.
template <int lines>
int64_t sums_scratch(const TypeArgs& args, int) {
  const Parts parts(args.in[0]);
  return std::max<int64_t>(1, parts.count) * parts.lanes() * kDouble + lines * parts.channels * kFloat;
}

// Runs fn(part, its sums) for all parts and gives the sums of all.
template <class Fn>
const double* sum_parts(const KernelArgs& args, const Parts& parts, double* sums, Fn&& fn) {
  run_tasks(args.pool, parts.count, [&](int64_t part, int) {
    double* mine = sums + part * parts.lanes();
    std::fill_n(mine, parts.lanes(), 0.0);
    fn(part, mine);
  });
  if (parts.count == 0) std::fill_n(sums, parts.lanes(), 0.0);
  for (int64_t part = 1; part < parts.count; ++part) {
    for (int64_t i = 0; i < parts.lanes(); ++i) sums[i] += sums[part * parts.lanes() + i];
  }
  return sums;
}

template <class T>
void channel_sums(const KernelArgs& args) {
  const Parts parts(args.in[0].type);
  const T* x = data_of<T>(args.in[0]);
  const double* sums =
      sum_parts(args, parts, reinterpret_cast<double*>(args.scratch.data()), [&](int64_t part, double* mine) {
        loops_on<T>().channel_sums({parts.size(part), parts.channels}, x + parts.begin(part) * parts.channels, mine);
      });
  std::copy_n(sums, parts.lanes(), args.out[0].as<double>().data());
}

// The numbers of the channels; gamma / sqrt(var + eps) is written to `scale`. gamma, beta, mean and var are the
// operands from `first` on.
ChannelLine channel_line(const KernelArgs& args, size_t first, float* scale) {
  const auto eps = args.attrs.as<BatchNormAttrs>().eps;
  const auto gamma = args.in[first].as<float>();
  const auto var = args.in[first + 3].as<float>();
  for (size_t c = 0; c < gamma.size(); ++c) {
    scale[c] = static_cast<float>(gamma[c] / std::sqrt(static_cast<double>(var[c]) + eps));
  }
  return {args.in[first + 2].as<float>().data(), scale, args.in[first + 1].as<float>().data()};
}

template <int lines>
int64_t lines_scratch(const TypeArgs& args, int) {
  return lines * last_size(args.in[0].shape) * kFloat;
}

template <class T>
void batch_norm(const KernelArgs& args) {
  const int64_t size = last_size(args.in[0].type.shape);
  const ChannelLine line = channel_line(args, 1, reinterpret_cast<float*>(args.scratch.data()));
  const bool relu = args.attrs.as<BatchNormAttrs>().relu;
  const T* x = data_of<T>(args.in[0]);
  const T* residual = args.in.size() == 6 ? data_of<T>(args.in[5]) : nullptr;
  T* y = data_of<T>(args.out[0]);
  for_range(args, rows_of(args.in[0].type), rows_per_task(size), [&](int64_t row, int64_t end) {
    loops_on<T>().batch_norm({end - row, size}, line, relu, x + row * size,
                             residual == nullptr ? nullptr : residual + row * size, y + row * size);
  });
}

template <class T>
void batch_norm_sums(const KernelArgs& args) {
  const Parts parts(args.in[0].type);
  auto* sums = reinterpret_cast<double*>(args.scratch.data());
  auto* scale = reinterpret_cast<float*>(sums + std::max<int64_t>(1, parts.count) * parts.lanes());
  const ChannelLine line = channel_line(args, 2, scale);
  const auto& attrs = args.attrs.as<BatchNormAttrs>();
  const T* x = data_of<T>(args.in[0]);
  const T* dy = data_of<T>(args.in[1]);
  const T* y = args.in.size() == 7 ? data_of<T>(args.in[6]) : nullptr;
  T* dz = y == nullptr ? nullptr : data_of<T>(args.out[2]);
  sum_parts(args, parts, sums, [&](int64_t part, double* mine) {
    const int64_t at = parts.begin(part) * parts.channels;
    loops_on<T>().batch_norm_sums({parts.size(part), parts.channels}, line, attrs.relu, x + at, dy + at,
                                  y == nullptr ? nullptr : y + at, y == nullptr ? nullptr : dz + at, mine);
  });
  const auto var = args.in[5].as<float>();
  for (size_t c = 0; c < var.size(); ++c) {
    const double rstd = 1 / std::sqrt(static_cast<double>(var[c]) + attrs.eps);
    args.out[0].as<float>()[c] = static_cast<float>(sums[c] * rstd);
    args.out[1].as<float>()[c] = static_cast<float>(sums[var.size() + c]);
  }
}

template <class T>
void batch_norm_grad(const KernelArgs& args) {
  const int64_t size = last_size(args.in[0].type.shape);
  auto* scale = reinterpret_cast<float*>(args.scratch.data());
  float* by_x = scale + size;
  float* constant = by_x + size;
  const ChannelLine line = channel_line(args, 2, scale);
  const auto& attrs = args.attrs.as<BatchNormAttrs>();
  const double share = attrs.count == 0 ? 0 : 1 / static_cast<double>(attrs.count);
  const auto var = args.in[5].as<float>();
  for (size_t c = 0; c < var.size(); ++c) {
    const double rstd = 1 / std::sqrt(static_cast<double>(var[c]) + attrs.eps);
    by_x[c] = static_cast<float>(-scale[c] * rstd * share * args.in[6].as<float>()[c]);
    constant[c] = static_cast<float>(-scale[c] * share * args.in[7].as<float>()[c]);
  }
  const T* x = data_of<T>(args.in[0]);
  const T* dy = data_of<T>(args.in[1]);
  T* dx = data_of<T>(args.out[0]);
  for_range(args, rows_of(args.in[0].type), rows_per_task(size), [&](int64_t row, int64_t end) {
    loops_on<T>().batch_norm_grad({end - row, size}, line, by_x, constant, attrs.relu, x + row * size, dy + row * size,
                                  dx + row * size);
  });
}

}  // namespace

std::span<const Kernel> batch_norm_kernels() {
  static constexpr Kernel kAll[] = {
      {
          .op = "channel_sums",
          .name = "channel_sums.simd",
          .why_not = first_not_float,
          .scratch = sums_scratch<0>,
          .run = by_storage<channel_sums<float>, channel_sums<Bf16>>,
          .bits = Bits::kShape,
      },
      {
          .op = "batch_norm",
          .name = "batch_norm.simd",
          .why_not = first_not_float,
          .scratch = lines_scratch<1>,
          .run = by_storage<batch_norm<float>, batch_norm<Bf16>>,
          .bits = Bits::kElement,
      },
      {
          .op = "batch_norm_sums",
          .name = "batch_norm_sums.simd",
          .why_not = first_not_float,
          .scratch = sums_scratch<1>,
          .run = by_storage<batch_norm_sums<float>, batch_norm_sums<Bf16>>,
          .bits = Bits::kShape,
      },
      {
          .op = "batch_norm_grad",
          .name = "batch_norm_grad.simd",
          .why_not = first_not_float,
          .scratch = lines_scratch<3>,
          .run = by_storage<batch_norm_grad<float>, batch_norm_grad<Bf16>>,
          .bits = Bits::kElement,
      },
  };
  return kAll;
}

}  // namespace trireme::cpu
