// Elementwise ops on f32 and bf16, and casts between the two.
#include <algorithm>

#include "trireme/backend/cpu/broadcast.h"
#include "trireme/backend/cpu/parallel.h"
#include "trireme/backend/cpu/storage.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/backend/kernels.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cpu {
namespace {

template <class T>
void map(const KernelArgs& args, Unary kind, double p, double q) {
  const T* x = data_of<T>(args.in[0]);
  T* y = data_of<T>(args.out[0]);
  const auto loop = loops_on<T>().unary[static_cast<int>(kind)];
  for_range(args, args.out[0].elements(), kGrain, [&](int64_t begin, int64_t end) {
    loop(end - begin, x + begin, y + begin, static_cast<float>(p), static_cast<float>(q));
  });
}

template <class T>
void map(const KernelArgs& args, Binary kind) {
  const T* a = data_of<T>(args.in[0]);
  const T* b = data_of<T>(args.in[1]);
  T* y = data_of<T>(args.out[0]);
  if (args.out[0].elements() == 0) return;
  const Runs runs = runs_of(args.in[0].type.shape, args.in[1].type.shape, args.out[0].type.shape);
  const auto& forms = loops_on<T>().binary[static_cast<int>(kind)];
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
      loop(n, a + at.a + (runs.a_moves ? from : 0), b + at.b + (runs.b_moves ? from : 0), y + run * runs.length + from);
    }
  });
}

template <Unary kind, class T>
void run_unary(const KernelArgs& args) {
  map<T>(args, kind, 0, 0);
}

template <Binary kind, class T>
void run_binary(const KernelArgs& args) {
  map<T>(args, kind);
}

template <Unary kind, class T>
void run_with_scalar(const KernelArgs& args) {
  map<T>(args, kind, args.attrs.as<ScalarAttrs>().value, 0);
}

template <class T>
void run_clamp(const KernelArgs& args) {
  const auto& attrs = args.attrs.as<ClampAttrs>();
  map<T>(args, Unary::kClamp, attrs.low, attrs.high);
}

template <class T>
void run_gelu(const KernelArgs& args) {
  const bool approximate = args.attrs.as<GeluAttrs>().approximate;
  map<T>(args, approximate ? Unary::kGeluTanh : Unary::kGeluErf, 0, 0);
}

template <class T>
void run_gelu_grad(const KernelArgs& args) {
  const bool approximate = args.attrs.as<GeluAttrs>().approximate;
  map<T>(args, approximate ? Binary::kGeluTanhGrad : Binary::kGeluErfGrad);
}

template <class T>
void run_huber(const KernelArgs& args) {
  const auto delta = static_cast<float>(args.attrs.as<HuberAttrs>().delta);
  const T* x = data_of<T>(args.in[0]);
  const T* target = data_of<T>(args.in[1]);
  T* y = data_of<T>(args.out[0]);
  for_range(args, args.out[0].elements(), kGrain, [&](int64_t begin, int64_t end) {
    loops_on<T>().huber(end - begin, x + begin, target + begin, delta, y + begin);
  });
}

std::string not_between_f32_and_bf16(const TypeArgs& args) {
  const DType from = args.in[0].dtype;
  const DType to = args.out[0].dtype;
  if ((from == DType::kF32 && to == DType::kBF16) || (from == DType::kBF16 && to == DType::kF32)) return "";
  return fmt::format("it casts {} to {}, not between f32 and bf16", to_string(from), to_string(to));
}

void narrow(const KernelArgs& args) {
  const float* x = data_of<float>(args.in[0]);
  Bf16* y = data_of<Bf16>(args.out[0]);
  for_range(args, args.out[0].elements(), kGrain,
            [&](int64_t begin, int64_t end) { loops().bf16.from_f32(end - begin, x + begin, y + begin); });
}

void widen(const KernelArgs& args) {
  const Bf16* x = data_of<Bf16>(args.in[0]);
  float* y = data_of<float>(args.out[0]);
  for_range(args, args.out[0].elements(), kGrain,
            [&](int64_t begin, int64_t end) { loops().bf16.to_f32(end - begin, x + begin, y + begin); });
}

template <KernelFn of_f32, KernelFn of_bf16>
constexpr Kernel kernel(std::string_view op, std::string_view name) {
  return {op, name, first_not_float, nullptr, by_storage<of_f32, of_bf16>};
}

template <Unary kind>
constexpr Kernel unary(std::string_view op, std::string_view name) {
  return kernel<run_unary<kind, float>, run_unary<kind, Bf16>>(op, name);
}

template <Unary kind>
constexpr Kernel with_scalar(std::string_view op, std::string_view name) {
  return kernel<run_with_scalar<kind, float>, run_with_scalar<kind, Bf16>>(op, name);
}

template <Binary kind>
constexpr Kernel binary(std::string_view op, std::string_view name) {
  return kernel<run_binary<kind, float>, run_binary<kind, Bf16>>(op, name);
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

extern const Kernel log_simd = unary<Unary::kLog>("log", "log.simd");
extern const Kernel sin_simd = unary<Unary::kSin>("sin", "sin.simd");
extern const Kernel cos_simd = unary<Unary::kCos>("cos", "cos.simd");
extern const Kernel sign_simd = unary<Unary::kSign>("sign", "sign.simd");

extern const Kernel scale_simd = with_scalar<Unary::kScale>("scale", "scale.simd");
extern const Kernel add_scalar_simd = with_scalar<Unary::kAddScalar>("add_scalar", "add_scalar.simd");
extern const Kernel pow_scalar_simd = with_scalar<Unary::kPowScalar>("pow_scalar", "pow_scalar.simd");
extern const Kernel clamp_simd = kernel<run_clamp<float>, run_clamp<Bf16>>("clamp", "clamp.simd");

extern const Kernel add_simd = binary<Binary::kAdd>("add", "add.simd");
extern const Kernel sub_simd = binary<Binary::kSub>("sub", "sub.simd");
extern const Kernel mul_simd = binary<Binary::kMul>("mul", "mul.simd");
extern const Kernel div_simd = binary<Binary::kDiv>("div", "div.simd");
extern const Kernel maximum_simd = binary<Binary::kMaximum>("maximum", "maximum.simd");
extern const Kernel minimum_simd = binary<Binary::kMinimum>("minimum", "minimum.simd");
extern const Kernel pow_simd = binary<Binary::kPow>("pow", "pow.simd");
extern const Kernel relu_grad_simd = binary<Binary::kReluGrad>("relu_grad", "relu_grad.simd");
extern const Kernel silu_grad_simd = binary<Binary::kSiluGrad>("silu_grad", "silu_grad.simd");

extern const Kernel gelu_simd = kernel<run_gelu<float>, run_gelu<Bf16>>("gelu", "gelu.simd");
extern const Kernel gelu_grad_simd = kernel<run_gelu_grad<float>, run_gelu_grad<Bf16>>("gelu_grad", "gelu_grad.simd");

extern const Kernel huber_simd = kernel<run_huber<float>, run_huber<Bf16>>("huber", "huber.simd");

extern const Kernel cast_simd{"cast", "cast.simd", not_between_f32_and_bf16, nullptr, by_storage<narrow, widen>};

}  // namespace trireme::cpu
