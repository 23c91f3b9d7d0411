// Optimizer updates of f32 and bf16 tensors, each one pass over them.
#include <algorithm>
#include <cmath>

#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/storage.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cpu {
namespace {

// lr and scale may be f32 or f64.
double scalar(const View& view) {
  return view.type.dtype == DType::kF64 ? view.as<double>()[0] : static_cast<double>(view.as<float>()[0]);
}

// "" when the first `tensors` operands are f32 or bf16 and the scalars are of types that are read
// here.
template <size_t tensors>
std::string not_float_update(const TypeArgs& args) {
  for (size_t i = tensors; i < args.in.size(); ++i) {
    const DType dtype = args.in[i].dtype;
    if (dtype != DType::kF32 && dtype != DType::kF64 && dtype != DType::kI64)
      return fmt::format("operand {} is {}, not f32, f64 or i64", i, to_string(args.in[i]));
  }
  return first_not_float(args);
}

// Of adam_update and lazy_adam_update, whose first operands are the same.
AdamNumbers adam_numbers(const KernelArgs& args) {
  const auto& attrs = args.attrs.as<AdamAttrs>();
  const double lr = scalar(args.in[4]);
  const auto step = static_cast<double>(args.in[5].as<int64_t>()[0]);
  AdamNumbers k;
  k.decay = static_cast<float>(attrs.decoupled ? 1 - lr * attrs.weight_decay : 1);
  k.l2 = static_cast<float>(attrs.decoupled ? 0 : attrs.weight_decay);
  k.scale = static_cast<float>(scalar(args.in[6]));
  k.beta1 = static_cast<float>(attrs.beta1);
  k.one_minus_beta1 = static_cast<float>(1 - attrs.beta1);
  k.beta2 = static_cast<float>(attrs.beta2);
  k.one_minus_beta2 = static_cast<float>(1 - attrs.beta2);
  k.step = static_cast<float>(lr / (1 - std::pow(attrs.beta1, step)));
  k.root = static_cast<float>(1 / std::sqrt(1 - std::pow(attrs.beta2, step)));
  k.eps = static_cast<float>(attrs.eps);
  return k;
}

// The update of elements [i, end).
template <class T>
class AdamRange {
 public:
  explicit AdamRange(const KernelArgs& args) : k_(adam_numbers(args)) {
    for (size_t i = 0; i < 4; ++i) in_[i] = data_of<T>(args.in[i]);
    for (size_t i = 0; i < 3; ++i) out_[i] = data_of<T>(args.out[i]);
  }
  void update(int64_t i, int64_t end) const {
    loops_on<T>().adam(end - i, k_, in_[0] + i, in_[1] + i, in_[2] + i, in_[3] + i, out_[0] + i, out_[1] + i,
                       out_[2] + i);
  }
  void keep(int64_t i, int64_t end) const {
    constexpr size_t kReplaced[] = {0, 2, 3};
    for (size_t k = 0; k < 3; ++k) {
      if (in_[kReplaced[k]] != out_[k]) std::copy(in_[kReplaced[k]] + i, in_[kReplaced[k]] + end, out_[k] + i);
    }
  }

 private:
  AdamNumbers k_;
  const T* in_[4];
  T* out_[3];
};

template <class T>
void run_adam(const KernelArgs& args) {
  const AdamRange<T> range(args);
  for_range(args, args.out[0].elements(), kGrain, [&](int64_t i, int64_t end) { range.update(i, end); });
}

template <class T>
void run_lazy_adam(const KernelArgs& args) {
  const AdamRange<T> range(args);
  const std::span<const float> count = args.in[7].as<const float>();
  const int64_t width = args.in[0].type.shape[1];
  for_range(args, std::ssize(count), rows_per_task(width), [&](int64_t row, int64_t end) {
    for (; row < end; ++row) {
      if (count[static_cast<size_t>(row)] > 0)
        range.update(row * width, (row + 1) * width);
      else
        range.keep(row * width, (row + 1) * width);
    }
  });
}

std::string not_lazy_adam(const TypeArgs& args) {
  if (args.in[7].dtype != DType::kF32) return fmt::format("operand 7 is {}, not f32", to_string(args.in[7]));
  return not_float_update<4>(args);
}

template <class T>
void sgd_pass(const KernelArgs& args, const SgdNumbers& k, const T* u, T* u_out) {
  const T* p = data_of<T>(args.in[0]);
  const T* g = data_of<T>(args.in[1]);
  T* p_out = data_of<T>(args.out[0]);
  for_range(args, args.out[0].elements(), kGrain, [&](int64_t i, int64_t end) {
    loops_on<T>().sgd(end - i, k, p + i, g + i, u == nullptr ? u : u + i, p_out + i,
                      u_out == nullptr ? u_out : u_out + i);
  });
}

template <class T>
void run_sgd(const KernelArgs& args) {
  const auto& attrs = args.attrs.as<SgdAttrs>();
  SgdNumbers k;
  k.lr = static_cast<float>(scalar(args.in[3]));
  k.first = args.in[4].as<int64_t>()[0] == 1;
  k.scale = static_cast<float>(scalar(args.in[5]));
  k.weight_decay = static_cast<float>(attrs.weight_decay);
  k.momentum = static_cast<float>(attrs.momentum);
  k.keep = static_cast<float>(1 - attrs.dampening);
  k.by_gradient = attrs.nesterov ? 1 : 0;
  k.by_velocity = attrs.nesterov ? k.momentum : 1;
  sgd_pass(args, k, data_of<T>(args.in[2]), data_of<T>(args.out[1]));
}

template <class T>
void run_sgd_plain(const KernelArgs& args) {
  SgdNumbers k;
  k.lr = static_cast<float>(scalar(args.in[2]));
  k.scale = static_cast<float>(scalar(args.in[3]));
  k.weight_decay = static_cast<float>(args.attrs.as<SgdPlainAttrs>().weight_decay);
  k.first = true;
  sgd_pass<T>(args, k, nullptr, nullptr);
}

template <class T>
void run_lamb_direction(const KernelArgs& args) {
  const auto& attrs = args.attrs.as<AdamAttrs>();
  const auto step = static_cast<double>(args.in[4].as<int64_t>()[0]);
  LambNumbers k;
  k.scale = static_cast<float>(scalar(args.in[5]));
  k.beta1 = static_cast<float>(attrs.beta1);
  k.one_minus_beta1 = static_cast<float>(1 - attrs.beta1);
  k.beta2 = static_cast<float>(attrs.beta2);
  k.one_minus_beta2 = static_cast<float>(1 - attrs.beta2);
  k.first = static_cast<float>(1 / (1 - std::pow(attrs.beta1, step)));
  k.root = static_cast<float>(1 / std::sqrt(1 - std::pow(attrs.beta2, step)));
  k.eps = static_cast<float>(attrs.eps);
  k.weight_decay = static_cast<float>(attrs.weight_decay);
  const T* p = data_of<T>(args.in[0]);
  const T* g = data_of<T>(args.in[1]);
  const T* m = data_of<T>(args.in[2]);
  const T* v = data_of<T>(args.in[3]);
  T* u = data_of<T>(args.out[0]);
  T* m_out = data_of<T>(args.out[1]);
  T* v_out = data_of<T>(args.out[2]);
  for_range(args, args.out[0].elements(), kGrain, [&](int64_t i, int64_t end) {
    loops_on<T>().lamb(end - i, k, p + i, g + i, m + i, v + i, u + i, m_out + i, v_out + i);
  });
}

template <class T>
void run_lamb_apply(const KernelArgs& args) {
  const double param_norm2 = scalar(args.in[2]);
  const double direction_norm2 = scalar(args.in[3]);
  const double trust = param_norm2 > 0 && direction_norm2 > 0 ? std::sqrt(param_norm2 / direction_norm2) : 1;
  const auto along = static_cast<float>(-scalar(args.in[4]) * trust);
  const T* p = data_of<T>(args.in[0]);
  const T* u = data_of<T>(args.in[1]);
  T* p_out = data_of<T>(args.out[0]);
  for_range(args, args.out[0].elements(), kGrain,
            [&](int64_t i, int64_t end) { loops_on<T>().add_scaled(end - i, p + i, u + i, along, p_out + i); });
}

}  // namespace

std::span<const Kernel> updates_kernels() {
  static constexpr Kernel kAll[] = {
      {
          .op = "adam_update",
          .name = "adam_update.simd",
          .why_not = not_float_update<4>,
          .run = by_storage<run_adam<float>, run_adam<Bf16>>,
          .bits = Bits::kElement,
      },
      {
          .op = "lazy_adam_update",
          .name = "lazy_adam_update.simd",
          .why_not = not_lazy_adam,
          .run = by_storage<run_lazy_adam<float>, run_lazy_adam<Bf16>>,
          .bits = Bits::kElement,
      },
      {
          .op = "sgd_update",
          .name = "sgd_update.simd",
          .why_not = not_float_update<3>,
          .run = by_storage<run_sgd<float>, run_sgd<Bf16>>,
          .bits = Bits::kElement,
      },
      {
          .op = "sgd_plain_update",
          .name = "sgd_plain_update.simd",
          .why_not = not_float_update<2>,
          .run = by_storage<run_sgd_plain<float>, run_sgd_plain<Bf16>>,
          .bits = Bits::kElement,
      },
      {
          .op = "lamb_direction",
          .name = "lamb_direction.simd",
          .why_not = not_float_update<4>,
          .run = by_storage<run_lamb_direction<float>, run_lamb_direction<Bf16>>,
          .bits = Bits::kElement,
      },
      {
          .op = "lamb_apply",
          .name = "lamb_apply.simd",
          .why_not = not_float_update<2>,
          .run = by_storage<run_lamb_apply<float>, run_lamb_apply<Bf16>>,
          .bits = Bits::kElement,
      },
  };
  return kAll;
}

}  // namespace trireme::cpu
