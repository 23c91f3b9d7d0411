#include "trireme/tensor/convert.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace trireme {
namespace {

// How an element is loaded as a double, exactly, and stored.
struct F64 {
  using Bits = double;
  static double load(double x) { return x; }
  static double store(double x) { return x; }
};
struct F32 {
  using Bits = float;
  static double load(float x) { return x; }
  static float store(double x) { return static_cast<float>(x); }
};
struct F16 {
  using Bits = uint16_t;
  static double load(uint16_t x) { return from_f16(x); }
  static uint16_t store(double x) { return to_f16(static_cast<float>(x)); }
};
struct Bf16 {
  using Bits = BFloat16;
  static double load(BFloat16 x) { return static_cast<float>(x); }
  static BFloat16 store(double x) { return BFloat16(static_cast<float>(x)); }
};

template <class F>
void with_format(DType dtype, F use) {
  switch (dtype) {
    case DType::kF64:
      return use(F64{});
    case DType::kF32:
      return use(F32{});
    case DType::kF16:
      return use(F16{});
    case DType::kBF16:
      return use(Bf16{});
    default:
      fail(ErrorKind::kUnsupported, "{} is not converted to another type; only f64, f32, f16 and bf16 are",
           to_string(dtype));
  }
}

template <class Format>
std::span<typename Format::Bits> elements_of(const View& view) {
  view.require_host();
  return {reinterpret_cast<typename Format::Bits*>(view.data), static_cast<size_t>(view.elements())};
}

}  // namespace

uint16_t to_f16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000U);
  const uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return sign | 0x7e00U;                 // NaN
  if (magnitude >= 0x477ff000U) return sign | 0x7c00U;                // from 65,520 up the nearest is an infinity
  const auto half = [](uint32_t kept, uint32_t rest, uint32_t tie) {  // to nearest, ties to even
    return kept + (rest > tie || (rest == tie && (kept & 1U) != 0) ? 1U : 0U);
  };
  if (magnitude < 0x38800000U) {  // below 2^-14: a subnormal, in units of 2^-24
    const int shift = 126 - static_cast<int>(magnitude >> 23);
    if (shift > 25) return sign;
    const uint32_t mantissa = (magnitude & 0x7fffffU) | 0x800000U;
    return static_cast<uint16_t>(sign | half(mantissa >> shift, mantissa & ((1U << shift) - 1), 1U << (shift - 1)));
  }
  return static_cast<uint16_t>(sign | half((magnitude - 0x38000000U) >> 13, magnitude & 0x1fffU, 0x1000U));
}

float from_f16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t exponent = bits >> 10 & 0x1fU;
  const uint32_t mantissa = bits & 0x3ffU;
  if (exponent == 0)
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(std::ldexp(static_cast<float>(mantissa), -24)));
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000U | mantissa << 13);
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

bool is_convertible(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

void convert(const View& from, const View& to) {
  require(from.type.shape == to.type.shape, "{} is not converted to {}: the shapes differ", to_string(from.type),
          to_string(to.type));
  if (from.type.dtype == to.type.dtype) {
    if (from.bytes() > 0) std::memcpy(to.raw().data(), from.raw().data(), static_cast<size_t>(from.bytes()));
    return;
  }
  with_format(from.type.dtype, [&]<class From>(From) {
    with_format(to.type.dtype, [&]<class To>(To) {
      const auto source = elements_of<From>(from);
      const auto target = elements_of<To>(to);
      for (size_t i = 0; i < source.size(); ++i) target[i] = To::store(From::load(source[i]));
    });
  });
}

int64_t overflowed(const View& from, const View& to) {
  int64_t out = 0;
  with_format(from.type.dtype, [&]<class From>(From) {
    with_format(to.type.dtype, [&]<class To>(To) {
      const auto source = elements_of<From>(from);
      const auto target = elements_of<To>(to);
      for (size_t i = 0; i < source.size(); ++i) {
        out += std::isfinite(From::load(source[i])) && !std::isfinite(To::load(target[i])) ? 1 : 0;
      }
    });
  });
  return out;
}

}  // namespace trireme
