// Borders of tiles from eight neighbours (contracts 17.1, NeighborExchangeV2): the documented values, a picture in
// tiles, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multi/hand_cut.h"
#include "tests/multi/tile_grid.h"
#include "trireme/base/error.h"
#include "trireme/op/box_messages.h"
#include "trireme/op/registry.h"

namespace trireme::tile_borders_test {
namespace {

using namespace testing_support;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr size_t kTop = 0, kRight = 2, kBottomRight = 3, kBottom = 4, kLeft = 6;

// Two tiles, one above the other: each has a row of the other's.
std::vector<TileBorders> two_rows() {
  std::vector<TileBorders> out(2);
  out[0].send_rank_ids[kBottom] = out[0].recv_rank_ids[kBottom] = 1;
  out[0].send_lens = out[0].recv_lens = {0, 1, 0, 0};
  out[1].send_rank_ids[kTop] = out[1].recv_rank_ids[kTop] = 0;
  out[1].send_lens = out[1].recv_lens = {1, 0, 0, 0};
  return out;
}

class TileBordersOf : public testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(Types, TileBordersOf, testing::Values(DType::kF32, DType::kBF16, DType::kI32, DType::kI64),
                         [](const auto& about) { return std::string(to_string(about.param)); });

TEST_P(TileBordersOf, contracts_17_1_two_tiles_get_the_documented_rows) {
  const Mesh mesh({{"a", 2}});
  const auto got = results_of(
      mesh, {GetParam(), {1, 1, 2, 2}}, [](int64_t rank, int64_t) { return rank + 1; },
      [&](const Tensor& x) { return exchange_borders(x, over_axes(mesh, "a"), two_rows()); });
  EXPECT_THAT(got, ElementsAre(ElementsAre(1, 1, 1, 1, 2, 2), ElementsAre(1, 1, 2, 2, 2, 2)));
}

TEST_P(TileBordersOf, contracts_17_1_tiles_with_their_borders_are_windows_of_the_whole_picture) {
  constexpr int64_t kChannels = 3, kHeight = 4, kWidth = 3;  // of a tile
  const std::array<int64_t, 4> lens{1, 2, 3, 1};
  const Mesh mesh({{"y", 2}, {"x", 2}});
  const auto pixel = [](int64_t n, int64_t c, int64_t row, int64_t column) -> int64_t {
    if (row < 0 || row >= 2 * kHeight || column < 0 || column >= 2 * kWidth) return 0;
    return 1 + ((n * kChannels + c) * 2 * kHeight + row) * 2 * kWidth + column;
  };
  // The picture's pixels, or those of the window of so many rows and columns more, of one rank.
  const auto part_of = [&](int64_t rank, const std::array<int64_t, 4>& more) {
    std::vector<int64_t> out;
    for (int64_t n = 0; n < 2 * kChannels; ++n) {
      for (int64_t row = -more[0]; row < kHeight + more[1]; ++row) {
        for (int64_t column = -more[2]; column < kWidth + more[3]; ++column) {
          out.push_back(pixel(n / kChannels, n % kChannels, rank / 2 * kHeight + row, rank % 2 * kWidth + column) %
                        251);
        }
      }
    }
    return out;
  };
  const auto got = results_of(
      mesh, {GetParam(), {2, kChannels, kHeight, kWidth}},
      [&](int64_t rank, int64_t i) { return part_of(rank, {})[static_cast<size_t>(i)]; },
      [&](const Tensor& x) { return exchange_borders(x, over_axes(mesh, "y*x"), grid_of_tiles(2, 2, lens)); });
  for (int64_t rank = 0; rank < 4; ++rank) EXPECT_EQ(got[static_cast<size_t>(rank)], part_of(rank, lens)) << rank;
}

TEST(TileBorders, contracts_17_1_rank_10_of_a_grid_of_4_x_4_has_the_documented_neighbors_and_their_corners) {
  const Mesh mesh({{"y", 4}, {"x", 4}});
  const std::vector<TileBorders> grid = grid_of_tiles(4, 4, {1, 1, 1, 1});
  EXPECT_THAT(grid[10].send_rank_ids, ElementsAre(6, 7, 11, 15, 14, 13, 9, 5));
  const auto got = results_of(
      mesh, {DType::kF32, {1, 1, 1, 1}}, [](int64_t rank, int64_t) { return rank; },
      [&](const Tensor& x) { return exchange_borders(x, over_axes(mesh, "y*x"), grid); });
  EXPECT_THAT(got[10], ElementsAre(5, 6, 7, 9, 10, 11, 13, 14, 15));
}

TEST(TileBorders, ranks_by_number_are_counted_in_their_group) {
  const Mesh mesh({{"a", 4}});
  const auto got = results_of(
      mesh, {DType::kI32, {1, 1, 1, 1}}, [](int64_t rank, int64_t) { return rank; },
      [&](const Tensor& x) {
        return exchange_borders(x, over_ranks({{3, 1}, {0, 2}}), grid_of_tiles(1, 2, {0, 0, 0, 1}));
      });
  EXPECT_THAT(got, ElementsAre(ElementsAre(0, 2), ElementsAre(1, 0), ElementsAre(2, 0), ElementsAre(3, 1)));
}

// What two tiles of 2x2 are refused for.
std::string borders_error(const std::vector<TileBorders>& borders, const TensorType& tile = {DType::kF32, {1, 1, 2, 2}},
                          std::string_view format = "NCHW") {
  return refusal(tile, [&](const Tensor& x) { return exchange_borders(x, {.axes = {0}, .size = 2}, borders, format); });
}

TEST(TileBorders, contracts_17_1_ranks_lengths_and_formats_that_cannot_be_are_refused) {
  EXPECT_EQ(borders_error(two_rows()), "none");
  EXPECT_EQ(borders_error(two_rows(), {DType::kF32, {1, 1, 2, 2}}, "NHWC"),
            "exchange_borders: data_format 'NHWC'; it must be 'NCHW'");
  EXPECT_EQ(borders_error(two_rows(), {DType::kF32, {2, 2}}),
            "exchange_borders: a tile f32[2,2]; it must be [n,c,h,w] and not empty");
  EXPECT_THAT(borders_error(two_rows(), {DType::kBool, {1, 1, 2, 2}}),
              HasSubstr("exchange_boxes: a bool tensor cannot be sent"));
  EXPECT_EQ(borders_error({TileBorders{}}),
            "exchange_borders: borders are given for 1 ranks, and the group has 2; give them for each");

  const auto changed = [](const std::function<void(TileBorders&, TileBorders&)>& change) {
    std::vector<TileBorders> borders = two_rows();
    change(borders[0], borders[1]);
    return borders_error(borders);
  };
  EXPECT_EQ(changed([](auto& a, auto&) { a.send_rank_ids[kRight] = -2; }),
            "exchange_borders: send_rank_ids of rank 0 name rank -2 of the group (right); use 0 to 1, or -1 for none");
  EXPECT_THAT(changed([](auto&, auto& b) { b.recv_rank_ids[kLeft] = 2; }),
              HasSubstr("recv_rank_ids of rank 1 name rank 2 of the group (left)"));
  EXPECT_EQ(changed([](auto& a, auto&) { a.send_rank_ids[kTop] = 1; }),
            "exchange_borders: send_rank_ids of rank 0 name rank 1 twice (top and bottom); name each once");
  EXPECT_EQ(
      changed([](auto& a, auto&) { a.send_lens[2] = -1; }),
      "exchange_borders: send_lens of rank 0 are 0,1,-1,0; each must be from 0 to what the tile f32[1,1,2,2] has");
  EXPECT_THAT(changed([](auto& a, auto&) { a.recv_lens[1] = 3; }),
              HasSubstr("recv_lens of rank 0 are 0,3,0,0; each must be from 0 to what a neighbour's"));
  EXPECT_EQ(
      changed([](auto& a, auto&) { a.recv_lens[3] = 1; }),
      "exchange_borders: rank 0 gets 0,1,0,1 around its tile and rank 1 gets 1,0,0,0; all results must have one shape");
}

TEST(TileBorders, what_is_sent_and_what_is_awaited_must_fit) {
  const auto changed = [](const std::function<void(TileBorders&, TileBorders&)>& change) {
    std::vector<TileBorders> borders = two_rows();
    change(borders[0], borders[1]);
    return borders_error(borders);
  };
  EXPECT_EQ(changed([](auto& a, auto&) { a.send_rank_ids[kBottom] = -1; }),
            "exchange_borders: rank 1 expects its top from rank 0, which sends it nothing");
  EXPECT_EQ(changed([](auto&, auto& b) { b.recv_rank_ids[kTop] = -1; }),
            "exchange_borders: rank 0 sends its bottom to rank 1, which expects nothing from it");
  EXPECT_EQ(changed([](auto& a, auto&) { a.send_lens[1] = 2; }),
            "exchange_borders: rank 0 sends its bottom, [1,1,2,2], to rank 1, which expects [1,1,1,2] as its top");
  EXPECT_THAT(changed([](auto& a, auto&) { a.send_rank_ids[kBottom] = -1, a.send_rank_ids[kBottomRight] = 1; }),
              HasSubstr("rank 0 sends its bottom right, [1,1,1,0], to rank 1, which expects [1,1,1,2] as its top"));
}

// The op below it, whose attributes may come from a text.
TEST(ExchangeBoxes, boxes_that_are_outside_and_ranks_that_are_not_there_are_refused) {
  const auto error = [](std::vector<int64_t> boxes, const Shape& shape = {2}) {
    return refusal({DType::kF32, {3}}, [&](const Tensor& x) {
      return apply1(op("exchange_boxes"), {x},
                    Attrs::of(BoxesAttrs{.axes = {0}, .size = 2, .shape = shape, .boxes = boxes}));
    });
  };
  EXPECT_EQ(error({0, 1, 1, 0, 2}), "none");
  EXPECT_EQ(error({0, 1, 1, 0}), "exchange_boxes: 4 numbers are no messages of 5 each, for a result [2]");
  EXPECT_EQ(error({0, 2, 1, 0, 2}), "exchange_boxes: a message from rank 0 of the group to rank 2; use 0 to 1");
  EXPECT_EQ(
      error({0, 1, 2, 0, 2}),
      "exchange_boxes: a box of [2] at [2] of an operand f32[3] goes to [0] of a result [2]; it must lie inside both");
  EXPECT_THAT(error({0, 1, 0, 0, 3}), HasSubstr("it must lie inside both"));
  EXPECT_THAT(error({0, 1, 0, 0, 0}), HasSubstr("it must lie inside both"));
  EXPECT_THAT(error({0, 1, int64_t{1} << 57, 0, 1}), HasSubstr("it must lie inside both"));
  EXPECT_THAT(error({0, 1, -1, 0, 1}), HasSubstr("dimension 0 has size -1"));
  EXPECT_THAT(error({}, {2, 1}), HasSubstr("both must have the same number of dimensions"));
}

}  // namespace
}  // namespace trireme::tile_borders_test
