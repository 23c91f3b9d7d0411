#include "trireme/tensor/view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "trireme/base/error.h"

namespace trireme::view_test {
namespace {

std::string error_of(const View& view) {
  try {
    view.as<float>();
  } catch (const Error& error) {
    return error.what();
  }
  return "read";
}

TEST(View, of_another_type_or_elsewhere_is_refused_with_what_it_is) {
  std::array<float, 2> values{};
  View view{reinterpret_cast<std::byte*>(values.data()), {DType::kF32, Shape{2}}};
  EXPECT_EQ(error_of(view), "read");
  EXPECT_THAT(error_of(view.with({DType::kI32, Shape{2}})), testing::HasSubstr("view of i32[2] read as f32"));
  view.memory = Memory::kDevice;
  EXPECT_THAT(error_of(view), testing::HasSubstr("a view of f32[2] lies in device memory, which the host cannot"));
}

}  // namespace
}  // namespace trireme::view_test
