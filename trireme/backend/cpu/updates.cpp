// Optimizer updates in f32, each one pass over its tensors.
#include <cmath>

#include "trireme/backend/cpu/isa/loops.h"
#include "trireme/backend/cpu/parallel.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/backend/kernels.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cpu {
namespace {

// lr and scale may be f32 or f64.
double number(const View& view) {
  return view.type.dtype == DType::kF64 ? view.as<double>()[0]
                                        : static_cast<double>(view.as<float>()[0]);
}

// "" when the first `tensors` operands are f32 and the scalars are of types that are read here.
std::string not_f32_update(const TypeArgs& args, size_t tensors) {
  for (size_t i = 0; i < args.in.size(); ++i) {
    const DType dtype = args.in[i].dtype;
    const bool scalar = i >= tensors && (dtype == DType::kF64 || dtype == DType::kI64);
    if (dtype != DType::kF32 && !scalar)
      return fmt::format("operand {} is {}, not f32", i, to_string(args.in[i]));
  }
  return "";
}

void run_adam(const KernelArgs& args) {
  const auto& attrs = args.attrs.as<AdamAttrs>();
  const double lr = number(args.in[4]);
  const auto step = static_cast<double>(args.in[5].as<int64_t>()[0]);
  AdamNumbers k;
  k.decay = static_cast<float>(attrs.decoupled ? 1 - lr * attrs.weight_decay : 1);
  k.l2 = static_cast<float>(attrs.decoupled ? 0 : attrs.weight_decay);
  k.scale = static_cast<float>(number(args.in[6]));
  k.beta1 = static_cast<float>(attrs.beta1);
  k.one_minus_beta1 = static_cast<float>(1 - attrs.beta1);
  k.beta2 = static_cast<float>(attrs.beta2);
  k.one_minus_beta2 = static_cast<float>(1 - attrs.beta2);
  k.step = static_cast<float>(lr / (1 - std::pow(attrs.beta1, step)));
  k.root = static_cast<float>(1 / std::sqrt(1 - std::pow(attrs.beta2, step)));
  k.eps = static_cast<float>(attrs.eps);
  const float* p = args.in[0].as<float>().data();
  const float* g = args.in[1].as<float>().data();
  const float* m = args.in[2].as<float>().data();
  const float* v = args.in[3].as<float>().data();
  float* p_out = args.out[0].as<float>().data();
  float* m_out = args.out[1].as<float>().data();
  float* v_out = args.out[2].as<float>().data();
  for_range(args, args.out[0].elements(), kGrain, [&](int64_t i, int64_t end) {
    loops().adam(end - i, k, p + i, g + i, m + i, v + i, p_out + i, m_out + i, v_out + i);
  });
}

void sgd_pass(const KernelArgs& args, const SgdNumbers& k, const float* u, float* u_out) {
  const float* p = args.in[0].as<float>().data();
  const float* g = args.in[1].as<float>().data();
  float* p_out = args.out[0].as<float>().data();
  for_range(args, args.out[0].elements(), kGrain, [&](int64_t i, int64_t end) {
    loops().sgd(end - i, k, p + i, g + i, u == nullptr ? u : u + i, p_out + i,
                u_out == nullptr ? u_out : u_out + i);
  });
}

void run_sgd(const KernelArgs& args) {
  const auto& attrs = args.attrs.as<SgdAttrs>();
  SgdNumbers k;
  k.lr = static_cast<float>(number(args.in[3]));
  k.first = args.in[4].as<int64_t>()[0] == 1;
  k.scale = static_cast<float>(number(args.in[5]));
  k.weight_decay = static_cast<float>(attrs.weight_decay);
  k.momentum = static_cast<float>(attrs.momentum);
  k.keep = static_cast<float>(1 - attrs.dampening);
  k.by_gradient = attrs.nesterov ? 1 : 0;
  k.by_velocity = attrs.nesterov ? k.momentum : 1;
  sgd_pass(args, k, args.in[2].as<float>().data(), args.out[1].as<float>().data());
}

void run_sgd_plain(const KernelArgs& args) {
  SgdNumbers k;
  k.lr = static_cast<float>(number(args.in[2]));
  k.scale = static_cast<float>(number(args.in[3]));
  k.weight_decay = static_cast<float>(args.attrs.as<SgdPlainAttrs>().weight_decay);
  k.first = true;
  sgd_pass(args, k, nullptr, nullptr);
}

}  // namespace

extern const Kernel adam_update_simd{"adam_update", "adam_update.simd",
                                     [](const TypeArgs& args) { return not_f32_update(args, 4); },
                                     nullptr, run_adam};
extern const Kernel sgd_update_simd{"sgd_update", "sgd_update.simd",
                                    [](const TypeArgs& args) { return not_f32_update(args, 3); },
                                    nullptr, run_sgd};
extern const Kernel sgd_plain_update_simd{
    "sgd_plain_update", "sgd_plain_update.simd",
    [](const TypeArgs& args) { return not_f32_update(args, 2); }, nullptr, run_sgd_plain};

}  // namespace trireme::cpu
