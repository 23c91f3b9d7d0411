#include "trireme/tensor/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "trireme/tensor/host_tensor.h"

namespace trireme::convert_test {
namespace {

// The value of a binary16 by its definition.
double value_of(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return mantissa != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  return sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
}

TEST(Convert, EveryHalfIsTheValueOfItsDefinitionAndComesBackFromIt) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float x = from_f16(half);
    if (std::isnan(value_of(half))) {
      EXPECT_TRUE(std::isnan(x)) << bits;
      EXPECT_TRUE(std::isnan(value_of(to_f16(x)))) << bits;
      continue;
    }
    ASSERT_EQ(x, value_of(half)) << bits;
    ASSERT_EQ(std::signbit(x), (bits & 0x8000) != 0) << bits;
    ASSERT_EQ(to_f16(x), half) << bits;
  }
}

TEST(Convert, BetweenTwoHalvesTheNearestIsTakenAndOfTwoTheEven) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const double next = bits == 0x7bff ? 65536 : value_of(static_cast<uint16_t>(bits + 1));
    const auto middle = static_cast<float>((value_of(half) + next) / 2);  // exact in f32
    EXPECT_EQ(to_f16(std::nextafter(middle, 0.0F)), half) << bits;
    EXPECT_EQ(to_f16(std::nextafter(middle, 1e6F)), bits + 1) << bits;
    EXPECT_EQ(to_f16(middle), (bits & 1) != 0 ? bits + 1 : bits) << bits;
    EXPECT_EQ(to_f16(-middle), 0x8000 + ((bits & 1) != 0 ? bits + 1 : bits)) << bits;
  }
}

TEST(Convert, EachTypeToEachOther) {
  const std::vector<double> values = {0, -0.0, 1, -2.5, 1.0 / 3, 65504, 1e-3, 7e4, 1e39, std::nan("")};
  const HostTensor from = HostTensor::of<double>({static_cast<int64_t>(values.size())}, values);
  const auto through = [&](DType type) {
    const HostTensor narrow(TensorType{type, from.shape()});
    const HostTensor back(from.type());
    convert(from.view(), narrow.view());
    convert(narrow.view(), back.view());
    return std::vector<double>(back.as<double>().begin(), back.as<double>().end());
  };
  const auto f32 = through(DType::kF32), f16 = through(DType::kF16), bf16 = through(DType::kBF16);
  for (size_t i = 0; i + 1 < values.size(); ++i) {
    EXPECT_EQ(f32[i], static_cast<float>(values[i]));
    EXPECT_EQ(f16[i], value_of(to_f16(static_cast<float>(values[i]))));
    EXPECT_EQ(bf16[i], static_cast<float>(BFloat16(static_cast<float>(values[i]))));
  }
  EXPECT_TRUE(std::isnan(f32.back()) && std::isnan(f16.back()) && std::isnan(bf16.back()));
  EXPECT_TRUE(std::signbit(f16[1]));
}

TEST(Convert, SaysHowManyElementsTheTypeDoesNotReach) {
  const HostTensor from = HostTensor::of<float>({4}, std::vector<float>{1e5F, -7e4F, 1, INFINITY});
  const HostTensor to(TensorType{DType::kF16, {4}});
  convert(from.view(), to.view());
  EXPECT_EQ(overflowed(from.view(), to.view()), 2);
}

TEST(Convert, WhatIsNoFloatingPointNumberIsRefused) {
  const HostTensor numbers(TensorType{DType::kI64, {2}}), floats(TensorType{DType::kF32, {2}}),
      longer(TensorType{DType::kF32, {3}});
  EXPECT_THROW(convert(numbers.view(), floats.view()), Error);
  EXPECT_THROW(convert(floats.view(), longer.view()), Error);
  EXPECT_NO_THROW(convert(numbers.view(), numbers.view()));
}

}  // namespace
}  // namespace trireme::convert_test
