// Elementwise ops on f32 and bf16, and casts between the two.
#include <algorithm>
#include <array>

#include "trireme/backend/cpu/elements/broadcast.h"
#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/storage.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/backend/cpu/why_not.h"
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

// Of runs of a few elements, all with the same b: a loop takes many of them, beside as many copies of it.
constexpr int64_t kShortRun = 64, kOfCopies = 512;

bool is_short_beside_all(const Runs& runs) {
  return runs.outer == 1 && runs.a_moves && runs.b_moves && runs.length <= kShortRun && runs.a_step[0] == runs.length &&
         runs.b_step[0] == 0;
}

template <class T, class Loop>
void map_beside_copies(const KernelArgs& args, const Runs& runs, Loop&& loop, const T* a, const T* b, T* y) {
  std::array<T, kOfCopies> copies;
  const int64_t together = kOfCopies / runs.length;
  for (int64_t i = 0; i < together; ++i) std::copy_n(b, runs.length, copies.begin() + i * runs.length);
  for_range(args, runs.count, rows_per_task(runs.length), [&](int64_t run, int64_t end) {
    for (; run < end; run += together) {
      const int64_t at = run * runs.length;
      loop(std::min(together, end - run) * runs.length, a + at, copies.data(), y + at);
    }
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
  if (is_short_beside_all(runs)) return map_beside_copies(args, runs, loop, a, b, y);
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
  const auto delta = static_cast<float>(args.attrs.get<double>("delta"));
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
  return {
      .op = op,
      .name = name,
      .why_not = first_not_float,
      .run = by_storage<of_f32, of_bf16>,
      .bits = Bits::kElement,
  };
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

std::span<const Kernel> elementwise_kernels() {
  static constexpr Kernel kAll[] = {
      unary<Unary::kNeg>("neg", "neg.simd"),
      unary<Unary::kAbs>("abs", "abs.simd"),
      unary<Unary::kExp>("exp", "exp.simd"),
      unary<Unary::kSqrt>("sqrt", "sqrt.simd"),
      unary<Unary::kRsqrt>("rsqrt", "rsqrt.simd"),
      unary<Unary::kReciprocal>("reciprocal", "reciprocal.simd"),
      unary<Unary::kSquare>("square", "square.simd"),
      unary<Unary::kTanh>("tanh", "tanh.simd"),
      unary<Unary::kSigmoid>("sigmoid", "sigmoid.simd"),
      unary<Unary::kErf>("erf", "erf.simd"),
      unary<Unary::kRelu>("relu", "relu.simd"),
      unary<Unary::kSilu>("silu", "silu.simd"),
      unary<Unary::kLog>("log", "log.simd"),
      unary<Unary::kSin>("sin", "sin.simd"),
      unary<Unary::kCos>("cos", "cos.simd"),
      unary<Unary::kSign>("sign", "sign.simd"),
      with_scalar<Unary::kScale>("scale", "scale.simd"),
      with_scalar<Unary::kAddScalar>("add_scalar", "add_scalar.simd"),
      with_scalar<Unary::kPowScalar>("pow_scalar", "pow_scalar.simd"),
      kernel<run_clamp<float>, run_clamp<Bf16>>("clamp", "clamp.simd"),
      binary<Binary::kAdd>("add", "add.simd"),
      binary<Binary::kSub>("sub", "sub.simd"),
      binary<Binary::kMul>("mul", "mul.simd"),
      binary<Binary::kDiv>("div", "div.simd"),
      binary<Binary::kMaximum>("maximum", "maximum.simd"),
      binary<Binary::kMinimum>("minimum", "minimum.simd"),
      binary<Binary::kPow>("pow", "pow.simd"),
      binary<Binary::kReluGrad>("relu_grad", "relu_grad.simd"),
      binary<Binary::kSiluGrad>("silu_grad", "silu_grad.simd"),
      {
          .op = "cast",
          .name = "cast.simd",
          .why_not = not_between_f32_and_bf16,
          .run = by_storage<narrow, widen>,
          .bits = Bits::kElement,
      },
      kernel<run_gelu<float>, run_gelu<Bf16>>("gelu", "gelu.simd"),
      kernel<run_gelu_grad<float>, run_gelu_grad<Bf16>>("gelu_grad", "gelu_grad.simd"),
      kernel<run_huber<float>, run_huber<Bf16>>("huber", "huber.simd"),
  };
  return kAll;
}

}  // namespace trireme::cpu
