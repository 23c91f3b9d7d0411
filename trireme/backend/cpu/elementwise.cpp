// Elementwise ops in f32, and casts between f32 and bf16.
#include <algorithm>

#include "trireme/backend/cpu/broadcast.h"
#include "trireme/backend/cpu/isa/loops.h"
#include "trireme/backend/cpu/parallel.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/backend/kernels.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cpu {
namespace {

void map(const KernelArgs& args, Unary kind, double p, double q) {
  const float* x = args.in[0].as<float>().data();
  float* y = args.out[0].as<float>().data();
  const auto loop = loops().unary[static_cast<int>(kind)];
  for_range(args, args.out[0].elements(), kGrain, [&](int64_t begin, int64_t end) {
    loop(end - begin, x + begin, y + begin, static_cast<float>(p), static_cast<float>(q));
  });
}

template <Unary kind>
void run_unary(const KernelArgs& args) {
  map(args, kind, 0, 0);
}

void run_scale(const KernelArgs& args) {
  map(args, Unary::kScale, args.attrs.as<ScalarAttrs>().value, 0);
}

void run_add_scalar(const KernelArgs& args) {
  map(args, Unary::kAddScalar, args.attrs.as<ScalarAttrs>().value, 0);
}

void run_clamp(const KernelArgs& args) {
  const auto& attrs = args.attrs.as<ClampAttrs>();
  map(args, Unary::kClamp, attrs.low, attrs.high);
}

void map(const KernelArgs& args, Binary kind) {
  const float* a = args.in[0].as<float>().data();
  const float* b = args.in[1].as<float>().data();
  float* y = args.out[0].as<float>().data();
  if (args.out[0].elements() == 0) return;
  const Runs runs = runs_of(args.in[0].type.shape, args.in[1].type.shape, args.out[0].type.shape);
  const auto& forms = loops().binary[static_cast<int>(kind)];
  const auto loop = runs.a_moves && runs.b_moves ? forms[0] : runs.a_moves ? forms[2] : forms[1];
  // Long runs are cut, short ones are put together.
  const int64_t pieces = (runs.length + kGrain - 1) / kGrain;
  const int64_t items = runs.count * pieces;
  for_range(args, items, rows_per_task(runs.length), [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t run = item / pieces;
      const int64_t from = item % pieces * kGrain;
      const int64_t n = std::min(kGrain, runs.length - from);
      const Runs::Offsets at = runs.offsets(run);
      loop(n, a + at.a + (runs.a_moves ? from : 0), b + at.b + (runs.b_moves ? from : 0),
           y + run * runs.length + from);
    }
  });
}

template <Binary kind>
void run_binary(const KernelArgs& args) {
  map(args, kind);
}

void run_gelu(const KernelArgs& args) {
  map(args, args.attrs.as<GeluAttrs>().approximate ? Unary::kGeluTanh : Unary::kGeluErf, 0, 0);
}

void run_gelu_grad(const KernelArgs& args) {
  map(args, args.attrs.as<GeluAttrs>().approximate ? Binary::kGeluTanhGrad : Binary::kGeluErfGrad);
}

std::string not_between_f32_and_bf16(const TypeArgs& args) {
  const DType from = args.in[0].dtype;
  const DType to = args.out[0].dtype;
  if ((from == DType::kF32 && to == DType::kBF16) || (from == DType::kBF16 && to == DType::kF32))
    return "";
  return fmt::format("it casts {} to {}, not between f32 and bf16", to_string(from), to_string(to));
}

void run_cast(const KernelArgs& args) {
  const int64_t n = args.out[0].elements();
  if (args.out[0].type.dtype == DType::kBF16) {
    const float* x = args.in[0].as<float>().data();
    auto* y = reinterpret_cast<uint16_t*>(args.out[0].as<BFloat16>().data());
    for_range(args, n, kGrain, [&](int64_t begin, int64_t end) {
      loops().to_bf16(end - begin, x + begin, y + begin);
    });
  } else {
    const auto* x = reinterpret_cast<const uint16_t*>(args.in[0].as<BFloat16>().data());
    float* y = args.out[0].as<float>().data();
    for_range(args, n, kGrain, [&](int64_t begin, int64_t end) {
      loops().from_bf16(end - begin, x + begin, y + begin);
    });
  }
}

template <Unary kind>
constexpr Kernel unary(std::string_view op, std::string_view name) {
  return {op, name, not_all_f32, nullptr, run_unary<kind>};
}

template <Binary kind>
constexpr Kernel binary(std::string_view op, std::string_view name) {
  return {op, name, not_all_f32, nullptr, run_binary<kind>};
}

}  // namespace

extern const Kernel neg_simd = unary<Unary::kNeg>("neg", "neg.simd");
extern const Kernel abs_simd = unary<Unary::kAbs>("abs", "abs.simd");
extern const Kernel exp_simd = unary<Unary::kExp>("exp", "exp.simd");
extern const Kernel sqrt_simd = unary<Unary::kSqrt>("sqrt", "sqrt.simd");
extern const Kernel rsqrt_simd = unary<Unary::kRsqrt>("rsqrt", "rsqrt.simd");
extern const Kernel reciprocal_simd = unary<Unary::kReciprocal>("reciprocal", "reciprocal.simd");
extern const Kernel square_simd = unary<Unary::kSquare>("square", "square.simd");
extern const Kernel tanh_simd = unary<Unary::kTanh>("tanh", "tanh.simd");
extern const Kernel sigmoid_simd = unary<Unary::kSigmoid>("sigmoid", "sigmoid.simd");
extern const Kernel erf_simd = unary<Unary::kErf>("erf", "erf.simd");
extern const Kernel relu_simd = unary<Unary::kRelu>("relu", "relu.simd");
extern const Kernel silu_simd = unary<Unary::kSilu>("silu", "silu.simd");

extern const Kernel scale_simd{"scale", "scale.simd", not_all_f32, nullptr, run_scale};
extern const Kernel add_scalar_simd{"add_scalar", "add_scalar.simd", not_all_f32, nullptr,
                                    run_add_scalar};
extern const Kernel clamp_simd{"clamp", "clamp.simd", not_all_f32, nullptr, run_clamp};

extern const Kernel add_simd = binary<Binary::kAdd>("add", "add.simd");
extern const Kernel sub_simd = binary<Binary::kSub>("sub", "sub.simd");
extern const Kernel mul_simd = binary<Binary::kMul>("mul", "mul.simd");
extern const Kernel div_simd = binary<Binary::kDiv>("div", "div.simd");
extern const Kernel maximum_simd = binary<Binary::kMaximum>("maximum", "maximum.simd");
extern const Kernel minimum_simd = binary<Binary::kMinimum>("minimum", "minimum.simd");
extern const Kernel relu_grad_simd = binary<Binary::kReluGrad>("relu_grad", "relu_grad.simd");
extern const Kernel silu_grad_simd = binary<Binary::kSiluGrad>("silu_grad", "silu_grad.simd");

extern const Kernel gelu_simd{"gelu", "gelu.simd", not_all_f32, nullptr, run_gelu};
extern const Kernel gelu_grad_simd{"gelu_grad", "gelu_grad.simd", not_all_f32, nullptr,
                                   run_gelu_grad};

extern const Kernel cast_simd{"cast", "cast.simd", not_between_f32_and_bf16, nullptr, run_cast};

}  // namespace trireme::cpu
