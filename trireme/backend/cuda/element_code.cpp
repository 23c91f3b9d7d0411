#include "trireme/backend/cuda/element_code.h"

#include <limits>
#include <map>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"
#include "trireme/op/op_attrs.h"
#include "trireme/op/structural.h"

namespace trireme::cuda {
namespace {

// A number as the code has it: with every bit.
std::string number(double value) {
  if (value != value) return "(0.0/0.0)";
  if (value - value != 0) return value > 0 ? "(1.0/0.0)" : "(-1.0/0.0)";
  return fmt::format("({:a})", value);
}

// In the type of a result, so that float is not computed as double.
std::string number_for(const ElementCall& call, double value) {
  return fmt::format("({}){}", wide_type(call.types.out[0].dtype), number(value));
}

std::string scalar_of(const ElementCall& call) {
  return number_for(call, call.types.attrs.as<ScalarAttrs>().value);
}

using Code = std::string (*)(const ElementCall& call);

// -- what differs from call to call ------------------------------------------------------------------

std::string scale_code(const ElementCall& call) {
  return fmt::format("y0 = x0 * {};", scalar_of(call));
}
std::string add_scalar_code(const ElementCall& call) {
  return fmt::format("y0 = x0 + {};", scalar_of(call));
}
std::string pow_scalar_code(const ElementCall& call) {
  return fmt::format("y0 = pow(x0, {});", scalar_of(call));
}

std::string clamp_code(const ElementCall& call) {
  const auto& attrs = call.types.attrs.as<ClampAttrs>();
  return fmt::format("y0 = x0 < {0} ? {0} : x0 > {1} ? {1} : x0;", number_for(call, attrs.low),
                     number_for(call, attrs.high));
}

bool by_tanh(const ElementCall& call) {
  return call.types.attrs.as<GeluAttrs>().approximate;
}
std::string gelu_code(const ElementCall& call) {
  return by_tanh(call) ? "y0 = gelu_by_tanh(x0);" : "y0 = gelu_by_erf(x0);";
}
std::string gelu_grad_code(const ElementCall& call) {
  return by_tanh(call) ? "y0 = x1 * gelu_by_tanh_slope(x0);" : "y0 = x1 * gelu_by_erf_slope(x0);";
}

std::string cast_code(const ElementCall& call) {
  if (call.types.out[0].dtype == DType::kBool) return "y0 = x0 != 0;";
  return fmt::format("y0 = ({})x0;", wide_type(call.types.out[0].dtype));
}

std::string full_code(const ElementCall& call) {
  return fmt::format("y0 = {};", number_for(call, call.types.attrs.as<FullAttrs>().value));
}

std::string huber_code(const ElementCall& call) {
  const std::string delta = number_for(call, call.types.attrs.get<double>("delta"));
  return fmt::format("const auto d = fabs(x0 - x1); y0 = d <= {0} ? d * d / 2 : {0} * (d - {0} / 2);", delta);
}

// -- places ------------------------------------------------------------------------------------------

int64_t out_start_of(const ElementCall& call, int dim) {
  return call.args == nullptr ? 0 : call.args->out_start(0, dim);
}

std::string iota_code(const ElementCall& call) {
  const auto dim = static_cast<int>(call.types.attrs.as<IotaAttrs>().dim);
  return fmt::format("y0 = ({})({}LL + i{});", wide_type(call.types.out[0].dtype), out_start_of(call, dim), dim);
}

std::string fill_beyond_code(const ElementCall& call) {
  const auto& attrs = call.types.attrs.as<FillBeyondAttrs>();
  const auto dim = static_cast<int>(attrs.dim);
  constexpr double kMost = std::numeric_limits<double>::infinity();
  const double with = attrs.with == "zero" ? 0 : attrs.with == "lowest" ? -kMost : kMost;
  return fmt::format("y0 = {}LL + i{} < {}LL ? x0 : {};", out_start_of(call, dim), dim, attrs.size,
                     number_for(call, with));
}

// The row-major index of the element in the whole tensor.
std::string place_in_whole(const ElementCall& call) {
  const Shape& whole = call.args == nullptr ? call.types.out[0].shape : call.args->out_whole(0);
  const auto strides = whole.strides();
  std::string out = "0LL";
  for (int dim = 0; dim < whole.rank(); ++dim)
    out += fmt::format(" + (i{} + {}LL) * {}LL", dim, out_start_of(call, dim), strides[static_cast<size_t>(dim)]);
  return out;
}

std::string dropout_code(const ElementCall& call) {
  const auto& attrs = call.types.attrs.as<DropoutAttrs>();
  const auto key = key_of({static_cast<uint64_t>(attrs.seed), static_cast<uint64_t>(attrs.stream)});
  return fmt::format("y0 = (double)uniform01({}u, {}u, {}, x1) >= {} ? x0 * {} : ({})0;", key[0], key[1],
                     place_in_whole(call), number(attrs.p), number_for(call, 1 / (1 - attrs.p)),
                     wide_type(call.types.out[0].dtype));
}

// -- updates -----------------------------------------------------------------------------------------

std::string adam_code(const ElementCall& call) {
  const auto& attrs = call.types.attrs.as<AdamAttrs>();
  // The step's own numbers are few and need the bits of double; elements do not.
  return fmt::format(
      "const double lr = x4; const W c1 = (W)(1 - pow({b1}, (double)x5)), c2 = (W)(1 - pow({b2}, (double)x5));\n"
      "const W g = (W)x6 * x1 + (W){l2} * x0;\n"
      "y1 = (W){b1} * x2 + (W){one_b1} * g;\n"
      "y2 = (W){b2} * x3 + (W){one_b2} * g * g;\n"
      "y0 = (W)(1 - lr * {decay}) * x0 - (W)lr * (y1 / c1 / (sqrt(y2 / c2) + (W){eps}));",
      fmt::arg("b1", number(attrs.beta1)), fmt::arg("b2", number(attrs.beta2)),
      fmt::arg("one_b1", number(1 - attrs.beta1)), fmt::arg("one_b2", number(1 - attrs.beta2)),
      fmt::arg("eps", number(attrs.eps)), fmt::arg("decay", number(attrs.decoupled ? attrs.weight_decay : 0)),
      fmt::arg("l2", number(attrs.decoupled ? 0 : attrs.weight_decay)));
}

std::string sgd_code(const ElementCall& call) {
  const auto& attrs = call.types.attrs.as<SgdAttrs>();
  return fmt::format(
      "const W g = (W)x5 * x1 + (W){decay} * x0;\n"
      "y1 = x4 == 1 ? g : (W){momentum} * x2 + (W){rest} * g;\n"
      "y0 = x0 - (W)x3 * ({direction});",
      fmt::arg("decay", number(attrs.weight_decay)), fmt::arg("momentum", number(attrs.momentum)),
      fmt::arg("rest", number(1 - attrs.dampening)),
      fmt::arg("direction", attrs.nesterov ? fmt::format("g + (W){} * y1", number(attrs.momentum)) : "y1"));
}

std::string sgd_plain_code(const ElementCall& call) {
  return fmt::format("y0 = x0 - (W)x2 * ((W)x3 * x1 + (W){} * x0);",
                     number(call.types.attrs.as<SgdPlainAttrs>().weight_decay));
}

// -- what is the same in every call ------------------------------------------------------------------

const std::map<std::string_view, std::string_view>& plain_code() {
  static const std::map<std::string_view, std::string_view> code = {
      {"stop_gradient", "y0 = x0;"},
      {"broadcast_to", "y0 = x0;"},
      {"add", "y0 = x0 + x1;"},
      {"sub", "y0 = x0 - x1;"},
      {"mul", "y0 = x0 * x1;"},
      {"div", "y0 = x0 / x1;"},
      {"maximum", "y0 = x1 > x0 || x1 != x1 ? x1 : x0;"},
      {"minimum", "y0 = x1 < x0 || x1 != x1 ? x1 : x0;"},
      {"pow", "y0 = pow(x0, x1);"},
      {"equal", "y0 = x0 == x1;"},
      {"less", "y0 = x0 < x1;"},
      {"greater", "y0 = x0 > x1;"},
      {"logical_and", "y0 = x0 && x1;"},
      {"logical_not", "y0 = !x0;"},
      {"select", "y0 = x0 ? x1 : x2;"},
      {"neg", "y0 = -x0;"},
      {"abs", "y0 = x0 < 0 ? -x0 : x0;"},
      {"sign", "y0 = (x0 > 0) - (x0 < 0);"},
      {"exp", "y0 = exp(x0);"},
      {"log", "y0 = log(x0);"},
      {"sqrt", "y0 = sqrt(x0);"},
      {"rsqrt", "y0 = 1 / sqrt(x0);"},
      {"reciprocal", "y0 = 1 / x0;"},
      {"square", "y0 = x0 * x0;"},
      {"tanh", "y0 = tanh(x0);"},
      {"sigmoid", "y0 = 1 / (1 + exp(-x0));"},
      {"erf", "y0 = erf(x0);"},
      {"sin", "y0 = sin(x0);"},
      {"cos", "y0 = cos(x0);"},
      {"relu", "y0 = x0 > 0 || x0 != x0 ? x0 : 0;"},
      {"relu_grad", "y0 = x0 > 0 ? x1 : 0;"},
      {"silu", "y0 = x0 / (1 + exp(-x0));"},
      {"silu_grad", "const auto s = 1 / (1 + exp(-x0)); y0 = x1 * s * (1 + x0 * (1 - s));"},
  };
  return code;
}

const std::map<std::string_view, Code>& code_of_calls() {
  static const std::map<std::string_view, Code> code = {{"scale", scale_code},
                                                        {"add_scalar", add_scalar_code},
                                                        {"pow_scalar", pow_scalar_code},
                                                        {"clamp", clamp_code},
                                                        {"gelu", gelu_code},
                                                        {"gelu_grad", gelu_grad_code},
                                                        {"cast", cast_code},
                                                        {"full", full_code},
                                                        {"fill_beyond", fill_beyond_code},
                                                        {"iota", iota_code},
                                                        {"dropout", dropout_code},
                                                        {"adam_update", adam_code},
                                                        {"sgd_update", sgd_code},
                                                        {"huber", huber_code},
                                                        {"sgd_plain_update", sgd_plain_code}};
  return code;
}

constexpr std::string_view kFunctions = R"cuda(
template <class F> __device__ F gelu_by_tanh(F x) {
  return (F)0.5 * x * (1 + tanh((F)0.7978845608028654 * (x + (F)0.044715 * x * x * x)));
}
template <class F> __device__ F gelu_by_tanh_slope(F x) {
  const F t = tanh((F)0.7978845608028654 * (x + (F)0.044715 * x * x * x));
  return (F)0.5 * (1 + t) + (F)0.5 * x * (1 - t * t) * (F)0.7978845608028654 * (1 + (F)0.134145 * x * x);
}
template <class F> __device__ F gelu_by_erf(F x) { return (F)0.5 * x * (1 + erf(x * (F)0.7071067811865476)); }
template <class F> __device__ F gelu_by_erf_slope(F x) {
  return (F)0.5 * (1 + erf(x * (F)0.7071067811865476)) + x * exp((F)-0.5 * x * x) * (F)0.3989422804014327;
}
// Philox4x32-10, as base/rng.h has it.
__device__ inline float uniform01(unsigned key0, unsigned key1, i64 index, i64 step) {
  const unsigned long long block = (unsigned long long)index / 4;
  unsigned a = (unsigned)block, b = (unsigned)(block >> 32), c = (unsigned)step,
           d = (unsigned)((unsigned long long)step >> 32);
  for (int round = 0; round < 10; ++round) {
    const unsigned long long p = 0xD2511F53ull * a, q = 0xCD9E8D57ull * c;
    const unsigned next_a = (unsigned)(q >> 32) ^ b ^ key0, next_c = (unsigned)(p >> 32) ^ d ^ key1;
    b = (unsigned)q, d = (unsigned)p, a = next_a, c = next_c;
    key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
  }
  const unsigned word = index % 4 == 0 ? a : index % 4 == 1 ? b : index % 4 == 2 ? c : d;
  return (float)(word >> 8) * 5.9604644775390625e-8f;
}
)cuda";

}  // namespace

std::optional<std::string> element_code(const ElementCall& call) {
  if (call.op == "fill_beyond" && !is_floating(call.types.out[0].dtype)) return std::nullopt;
  if (const auto plain = plain_code().find(call.op); plain != plain_code().end()) return std::string(plain->second);
  if (const auto made = code_of_calls().find(call.op); made != code_of_calls().end()) return made->second(call);
  return std::nullopt;
}

std::vector<std::string_view> ops_with_element_code() {
  std::vector<std::string_view> out;
  for (const auto& [op, code] : plain_code()) out.push_back(op);
  for (const auto& [op, code] : code_of_calls()) out.push_back(op);
  return out;
}

bool reads_coordinates(std::string_view op) {
  return op == "dropout" || op == "fill_beyond" || op == "iota";
}

std::string_view wide_type(DType dtype) {
  if (dtype == DType::kF64) return "double";
  return is_floating(dtype) ? "float" : "i64";
}

std::string_view stored_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "float";
    case DType::kF64:
      return "double";
    case DType::kBF16:
      return "bf16";
    case DType::kI32:
      return "int";
    case DType::kI64:
      return "i64";
    case DType::kI8:
      return "signed char";
    case DType::kU8:
      return "unsigned char";
    case DType::kBool:
      return "bool";
    default:
      fail(ErrorKind::kUnsupported, "cuda: no kernel for {}", to_string(dtype));
  }
}

std::string element_functions() {
  return std::string(kFunctions);
}

}  // namespace trireme::cuda
