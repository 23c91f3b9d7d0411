#include "trireme/layout/window_cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "trireme/base/error.h"

namespace trireme::window_cut_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

HostTensor row(const std::vector<float>& values) {
  return HostTensor::of<float>({static_cast<int64_t>(values.size())}, values);
}

std::vector<float> values_of(const HostTensor& tensor) {
  return {tensor.as<float>().begin(), tensor.as<float>().end()};
}

const WindowCut kHalo{.parts = 2, .extent = 6, .offset = -1, .step = 3, .length = 5};

TEST(WindowCut, windows_overlap_and_what_is_outside_is_filled) {
  EXPECT_THAT(values_of(take_windows(row({1, 2, 3, 4, 5, 6}), 0, kHalo, -9)),
              ElementsAre(-9, 1, 2, 3, 4, 3, 4, 5, 6, -9));
}

TEST(WindowCut, what_overlaps_is_added) {
  EXPECT_THAT(values_of(add_windows(row({100, 1, 2, 3, 4, 10, 20, 30, 40, 100}), 0, kHalo)),
              ElementsAre(1, 2, 13, 24, 30, 40));
}

TEST(WindowCut, a_window_has_parts_of_the_blocks_it_meets) {
  EXPECT_EQ(common(kHalo, 0, 1).start, 3);
  EXPECT_EQ(common(kHalo, 0, 1).size, 1);
  EXPECT_EQ(common(kHalo, 1, 1).size, 3);
  EXPECT_EQ(common({.parts = 3, .extent = 9, .offset = 0, .step = 3, .length = 3}, 0, 2).size, 0);
}

// <take(x), y> = <x, add(y)> for any windows.
TEST(WindowCut, adding_is_the_adjoint_of_taking) {
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 draw(seed);
    const auto below = [&](int64_t n) { return static_cast<int64_t>(draw() % static_cast<uint64_t>(n)); };
    WindowCut cut{.parts = 1 + below(4), .extent = 0, .offset = below(7) - 3, .step = below(6), .length = 1 + below(6)};
    cut.extent = cut.parts * (1 + below(5));
    const auto drawn = [&](int64_t extent) {
      HostTensor out(TensorType{DType::kF32, {2, extent, 3}});
      for (float& value : out.as<float>()) value = static_cast<float>(below(9) - 4);
      return out;
    };
    const auto dot = [](const HostTensor& a, const HostTensor& b) {
      double sum = 0;
      for (size_t i = 0; i < a.as<float>().size(); ++i) sum += static_cast<double>(a.as<float>()[i]) * b.as<float>()[i];
      return sum;
    };
    const HostTensor x = drawn(cut.extent);
    const HostTensor y = drawn(cut.parts * cut.length);
    EXPECT_EQ(dot(take_windows(x, 1, cut, 0), y), dot(x, add_windows(y, 1, cut)));
  }
}

TEST(WindowCut, windows_that_see_past_a_neighbour_are_refused) {
  EXPECT_EQ(why_not(kHalo), "");
  EXPECT_THAT(why_not({.parts = 4, .extent = 8, .offset = -3, .step = 2, .length = 8}),
              HasSubstr("part 0 of 4 needs positions [0,5) and has a block of 2; it can only reach into the blocks "
                        "next to it, [0,4)"));
  EXPECT_THAT(why_not({.parts = 3, .extent = 8, .offset = 0, .step = 2, .length = 2}),
              HasSubstr("3 ranks do not divide 8 positions"));
  EXPECT_THAT(why_not({.parts = 2, .extent = 8, .offset = 0, .step = 2, .length = 0}),
              HasSubstr("windows of 0 positions"));
}

TEST(WindowCut, only_floating_types_are_filled_with_other_values_than_zero) {
  const HostTensor ints(TensorType{DType::kI32, {2}});
  EXPECT_NO_THROW(fill(ints.view(), 0));
  EXPECT_THROW(fill(ints.view(), 1), Error);
}

}  // namespace
}  // namespace trireme::window_cut_test
