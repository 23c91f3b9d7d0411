#include "trireme/layout/box.h"

#include <gtest/gtest.h>

#include <random>

#include "trireme/base/error.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::box_test {
namespace {

TEST(Box, prints_as_half_open_ranges) {
  EXPECT_EQ(to_string(Box{{0, 8}, {4, 8}}), "[0:4,8:16]");
  EXPECT_EQ(to_string(Box{}), "[]");
}

TEST(Box, of_a_shape_starts_at_zero) {
  EXPECT_EQ(Box::whole({3, 5}), (Box{{0, 0}, {3, 5}}));
}

TEST(Box, intersection_is_the_common_part) {
  EXPECT_EQ(intersect({{0, 0}, {4, 4}}, {{2, 1}, {4, 2}}), (Box{{2, 1}, {2, 2}}));
}

TEST(Box, boxes_that_only_touch_do_not_meet) {
  EXPECT_EQ(intersect({{0}, {4}}, {{4}, {4}}), std::nullopt);
}

TEST(Box, scalars_meet) {
  EXPECT_EQ(intersect(Box{}, Box{}), Box{});
}

TEST(Box, of_different_ranks_are_an_internal_error) {
  EXPECT_THROW(intersect({{0}, {4}}, {{0, 0}, {4, 4}}), Error);
}

// An index of `size`, from its number.
std::vector<int64_t> index_of(const Shape& size, int64_t at) {
  std::vector<int64_t> out(static_cast<size_t>(size.rank()));
  for (int dim = size.rank() - 1; dim >= 0; --dim) {
    out[static_cast<size_t>(dim)] = at % size[dim];
    at /= size[dim];
  }
  return out;
}

TEST(CopyRegion, moves_exactly_the_region_for_random_boxes) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const int rank = static_cast<int>(random() % 5);
    Box a, b;
    for (int dim = 0; dim < rank; ++dim) {
      for (Box* box : {&a, &b}) {
        box->start.push_back(static_cast<int64_t>(random() % 3));
        box->size.push_back(static_cast<int64_t>(1 + random() % 5));
      }
    }
    const auto region = intersect(a, b);
    if (!region) continue;
    HostTensor from({DType::kI32, a.size});
    HostTensor to({DType::kI32, b.size});
    // An element's value is its place in a 10 x 10 x ... tensor.
    const auto place = [](const Box& box, int64_t at) {
      int32_t out = 1;
      const auto index = index_of(box.size, at);
      for (int dim = 0; dim < box.size.rank(); ++dim) {
        out = out * 10 + static_cast<int32_t>(box.start[dim] + index[static_cast<size_t>(dim)]);
      }
      return out;
    };
    for (int64_t i = 0; i < a.elements(); ++i) {
      from.as<int32_t>()[static_cast<size_t>(i)] = place(a, i);
    }

    copy_region(from.view(), a, to.view(), b, *region);

    for (int64_t i = 0; i < b.elements(); ++i) {
      bool inside = true;
      const auto index = index_of(b.size, i);
      for (int dim = 0; dim < rank; ++dim) {
        const int64_t at = b.start[dim] + index[static_cast<size_t>(dim)];
        inside = inside && at >= a.start[dim] && at < a.start[dim] + a.size[dim];
      }
      EXPECT_EQ(to.as<int32_t>()[static_cast<size_t>(i)], inside ? place(b, i) : 0);
    }
  }
}

TEST(CopyRegion, refuses_a_region_outside_a_box) {
  const HostTensor from({DType::kF32, {4}});
  const HostTensor to({DType::kF32, {2}});

  EXPECT_THROW(copy_region(from.view(), {{0}, {4}}, to.view(), {{0}, {2}}, {{1}, {2}}), Error);
}

TEST(CopyRegion, of_an_empty_region_does_nothing) {
  const HostTensor from({DType::kF32, {0, 4}});
  const HostTensor to({DType::kF32, {2, 4}});

  copy_region(from.view(), Box::whole({0, 4}), to.view(), Box::whole({2, 4}), Box::whole({0, 4}));

  EXPECT_EQ(to.as<float>()[0], 0);
}

}  // namespace
}  // namespace trireme::box_test
