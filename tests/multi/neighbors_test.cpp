// What ranks pass to their neighbours, and groups of ranks by number: the values that contracts 17.1
// documents, on groups of all ranks and of some, and what is refused (1.7, 17.1).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multi/hand_cut.h"
#include "trireme/ops/collectives/uneven_exchange.h"

namespace trireme::neighbors_test {
namespace {

using namespace testing_support;
using testing::ElementsAre;
using testing::HasSubstr;

int64_t own_rank(int64_t rank, int64_t) {
  return rank;
}

class Neighbors : public testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(Types, Neighbors, testing::Values(DType::kF32, DType::kBF16, DType::kI32, DType::kI64),
                         [](const auto& about) { return std::string(to_string(about.param)); });

// Contracts 17.1, NeighborExchangeV2: two tiles of 2x2, of ones and of twos, each with a row of the other.
TEST_P(Neighbors, contracts_17_1_two_tiles_get_the_documented_rows) {
  const Mesh mesh({{"a", 2}});
  const auto rows = results_of(
      mesh, {GetParam(), {2, 2}}, [](int64_t rank, int64_t) { return rank + 1; },
      [&](const Tensor& x) {
        return take_windows(x, over_axes(mesh, "a"), {.dim = 0, .offset = 0, .step = 1, .length = 3});
      });
  EXPECT_THAT(rows, ElementsAre(ElementsAre(1, 1, 1, 1, 2, 2), ElementsAre(1, 1, 2, 2, 2, 2)));
}

// Contracts 17.1: in a grid of 4x4 rank 10 has 6, 7, 11, 15, 14, 13, 9 and 5 around it, clockwise from the top.
TEST_P(Neighbors, contracts_17_1_a_tile_of_a_grid_gets_sides_and_corners_of_all_eight) {
  const Mesh mesh({{"y", 4}, {"x", 4}});
  const auto tiles = results_of(mesh, {GetParam(), {1, 2, 2, 1}}, own_rank, [&](const Tensor& x) {
    return halo(halo(x, over_axes(mesh, "y"), 1, 1, 1), over_axes(mesh, "x"), 2, 1, 1);
  });
  EXPECT_THAT(tiles[10], ElementsAre(5, 6, 6, 7, 9, 10, 10, 11, 9, 10, 10, 11, 13, 14, 14, 15));
  EXPECT_THAT(tiles[0], ElementsAre(0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 4, 4, 5)) << "zeros outside the grid";
}

TEST_P(Neighbors, what_is_passed_on_comes_to_the_next_and_nothing_is_zero) {
  const Mesh mesh({{"a", 4}});
  const auto got = results_of(
      mesh, {GetParam(), {1}}, [](int64_t rank, int64_t) { return rank + 1; },
      [&](const Tensor& x) {
        return neighbor_exchange({&x, 1}, over_axes(mesh, "a"), {{1, 2, 3, -1}})[0];
      });
  EXPECT_THAT(got, ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2), ElementsAre(3)));
}

// Contracts 17.1: of all operators this one takes ranks with other shapes.
TEST_P(Neighbors, contracts_17_1_neighbours_pass_on_what_they_have_in_shapes_of_their_own) {
  const Mesh mesh({{"a", 3}});
  const auto got = results_of(
      mesh, {GetParam(), {2, 3}}, [](int64_t rank, int64_t i) { return 10 * rank + i + 1; },
      [&](const Tensor& x) {
        return neighbor_exchange({&x, 1}, over_axes(mesh, "a"), {{1, 2, 0}},
                                 {{Shape{1, 2}, Shape{2, 3}, Shape{2, 1}}})[0];
      });
  EXPECT_THAT(got, ElementsAre(ElementsAre(21, 0, 0, 24, 0, 0), ElementsAre(1, 2, 0, 0, 0, 0),
                               ElementsAre(11, 12, 13, 14, 15, 16)));
}

TEST(NeighborShapes, what_an_operand_does_not_hold_is_refused) {
  const Mesh mesh({{"a", 2}});
  const auto refused = [&](const std::vector<int64_t>& to, const std::vector<Shape>& shapes) {
    return refusal({DType::kF32, {2, 3}}, [&](const Tensor& x) {
      return neighbor_exchange({&x, 1}, over_axes(mesh, "a"), {to}, {shapes})[0];
    });
  };
  EXPECT_EQ(refused({1, 0}, {{2, 3}, {1, 1}}), "none");
  EXPECT_THAT(refused({1, 0}, {{2, 4}, {1, 1}}),
              HasSubstr("rank 0 of the group sends [2,4] of operand 0 (f32[2,3]), which must hold that"));
  EXPECT_THAT(refused({1, 0}, {{2}, {1, 1}}), HasSubstr("which must hold that"));
  EXPECT_THAT(
      refused({1, 1}, {{2, 3}, {1, 1}}),
      HasSubstr("operand 0 goes to rank 1 of the group from rank 0 and from rank 1; a rank receives it from one"));
  EXPECT_THAT(refused({1}, {{2, 3}}),
              HasSubstr("1 receivers and 1 shapes are given for operand 0; the group has 2 ranks"));
  EXPECT_THAT(refused({2, 0}, {{2, 3}, {1, 1}}), HasSubstr("rank 0 of the group sends operand 0 to 2; use 0 to 1"));
}

// -- groups by number (contracts 17.3) ------------------------------------------------------------

const CollectiveAttrs& odd_ranks() {
  static const CollectiveAttrs kOdd = over_ranks({{1, 3}});
  return kOdd;
}

TEST_P(Neighbors, contracts_17_3_collectives_of_ranks_1_and_3_leave_the_others_alone) {
  const Mesh mesh({{"a", 4}});
  const TensorType one{GetParam(), {1}};
  const auto sums = results_of(mesh, one, own_rank, [](const Tensor& x) {
    return all_reduce({&x, 1}, odd_ranks())[0];
  });
  EXPECT_THAT(sums, ElementsAre(ElementsAre(0), ElementsAre(4), ElementsAre(2), ElementsAre(4)));

  CollectiveAttrs from_three = odd_ranks();
  from_three.root = 1;
  const auto copies = results_of(mesh, one, own_rank, [&](const Tensor& x) {
    return broadcast({&x, 1}, from_three)[0];
  });
  EXPECT_THAT(copies, ElementsAre(ElementsAre(0), ElementsAre(3), ElementsAre(2), ElementsAre(3)));

  const auto swapped = results_of(mesh, one, own_rank, [](const Tensor& x) {
    return neighbor_exchange({&x, 1}, odd_ranks(), {{1, 0}})[0];
  });
  EXPECT_THAT(swapped, ElementsAre(ElementsAre(0), ElementsAre(3), ElementsAre(0), ElementsAre(1)));
}

TEST_P(Neighbors, contracts_17_3_groups_of_listed_ranks_have_the_order_of_the_list) {
  const Mesh mesh({{"a", 4}});
  const CollectiveAttrs groups = over_ranks({{3, 1}, {0, 2}});
  const auto joined =
      results_of(mesh, {GetParam(), {1}}, own_rank, [&](const Tensor& x) { return all_gather(x, groups); });
  EXPECT_THAT(joined, ElementsAre(ElementsAre(0, 2), ElementsAre(3, 1), ElementsAre(0, 2), ElementsAre(3, 1)));
  const auto place = [](int64_t, int64_t i) { return i; };
  const auto rows =
      results_of(mesh, {GetParam(), {2, 1}}, place, [&](const Tensor& x) { return reduce_scatter(x, groups); });
  EXPECT_THAT(rows, ElementsAre(ElementsAre(0), ElementsAre(2), ElementsAre(2), ElementsAre(0)));
  const auto cut = results_of(mesh, {GetParam(), {2}}, place, [&](const Tensor& x) { return shard_slice(x, groups); });
  EXPECT_THAT(cut, ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(1), ElementsAre(0)));
  CollectiveAttrs exchange = groups;
  exchange.from_dim = 1;
  const auto swapped = results_of(
      mesh, {GetParam(), {2, 1}}, [](int64_t rank, int64_t i) { return 10 * rank + i; },
      [&](const Tensor& x) { return all_to_all(x, exchange); });
  EXPECT_THAT(swapped, ElementsAre(ElementsAre(0, 20), ElementsAre(31, 11), ElementsAre(1, 21), ElementsAre(30, 10)));
}

// -- refusals (contracts 1.7, 17.1) ---------------------------------------------------------------

std::string list_error(const std::vector<std::vector<int64_t>>& groups) {
  try {
    over_ranks(groups);
  } catch (const Error& e) {
    return e.text();
  }
  return "none";
}

TEST(RankLists, contracts_1_7_short_doubled_and_uneven_lists_are_refused) {
  EXPECT_EQ(list_error({{1}}), "over_ranks: the group [1] has 1 ranks; a group has 2 or more");
  EXPECT_EQ(list_error({{1, 1}}),
            "over_ranks: rank 1 is listed twice, the second time in the group [1,1]; list each rank once");
  EXPECT_EQ(list_error({{0, 1}, {2, 1}}),
            "over_ranks: rank 1 is listed twice, the second time in the group [2,1]; list each rank once");
  EXPECT_EQ(list_error({{0, 1}, {2, 3, 4}}),
            "over_ranks: the group [2,3,4] has 3 ranks and [0,1] has 2; all groups must be of one size");
  EXPECT_EQ(list_error({{0, -1}}), "over_ranks: rank -1 in the group [0,-1]; ranks count from 0");
  EXPECT_EQ(list_error({}), "over_ranks: no groups are given; give one list of ranks or more");
}

// What the planner says to a collective on four ranks.
std::string plan_error(const Step& step) {
  Graph graph("planned");
  graph.add_output("y", step(data_input(graph, "x", {DType::kF32, {4, 4}})).id());
  try {
    semi_auto(graph, 4, {.dataset = "full_batch"});
  } catch (const Error& e) {
    return e.text();
  }
  return "none";
}

TEST(RankLists, contracts_1_7_ranks_that_the_job_does_not_have_are_refused) {
  EXPECT_EQ(plan_error([](const Tensor& x) {
              return all_reduce({&x, 1}, over_ranks({{1, 9}}))[0];
            }),
            "all_reduce of '' lists rank 9 (ranks [1,9]); the job has the ranks 0 to 3");
}

TEST(RankLists, contracts_17_3_a_result_of_another_shape_needs_every_rank_in_a_group) {
  EXPECT_EQ(
      plan_error([](const Tensor& x) { return all_gather(x, odd_ranks()); }),
      "all_gather of '' is over ranks [1,3], and rank 0 is in none of its groups; its result has another shape than "
      "its operand, so every rank of the 4 must be in a group: list them all");
  EXPECT_EQ(plan_error([](const Tensor& x) { return all_gather(x, over_ranks({{1, 3}, {0, 2}})); }), "none");
}

TEST(RankLists, axes_and_ranks_at_once_are_refused) {
  CollectiveAttrs both = odd_ranks();
  both.axes = {0};
  EXPECT_THAT(plan_error([&](const Tensor& x) {
                return all_reduce({&x, 1}, both)[0];
              }),
              HasSubstr("gives both axes of the mesh and ranks for its group"));
}

TEST(RankLists, contracts_17_1_lengths_and_receivers_that_cannot_be_are_refused) {
  const TensorType tile{DType::kF32, {2, 2}};
  const CollectiveAttrs pair{.axes = {0}, .size = 2};
  EXPECT_THAT(
      refusal(tile, [&](const Tensor& x) { return halo(x, pair, 0, -1, 1); }),
      HasSubstr("halo: -1 positions before and 1 after dimension 0 of f32[2,2]; each must be from 0 to the 2 that a "
                "neighbour has"));
  EXPECT_THAT(refusal(tile, [&](const Tensor& x) { return halo(x, pair, 0, 3, 0); }),
              HasSubstr("halo: 3 positions before"));
  EXPECT_THAT(refusal(tile, [&](const Tensor& x) { return halo(x, pair, 2, 1, 1); }),
              HasSubstr("halo: no dimension 2"));
  EXPECT_THAT(refusal({DType::kBool, {2, 2}}, [&](const Tensor& x) { return halo(x, pair, 0, 1, 1); }),
              HasSubstr("take_windows: a bool tensor cannot be sent"));
  const auto sent = [&](const std::vector<int64_t>& to) {
    return refusal(tile, [&](const Tensor& x) { return neighbor_exchange({&x, 1}, pair, {to})[0]; });
  };
  EXPECT_THAT(sent({1, -2}),
              HasSubstr("neighbor_exchange: rank 1 of the group sends operand 0 to -2; use 0 to 1, or -1"));
  EXPECT_THAT(sent({1, 1}), HasSubstr("neighbor_exchange: operand 0 goes to rank 1 of the group from rank 0 and from "
                                      "rank 1; a rank receives it from one"));
  EXPECT_THAT(sent({1}), HasSubstr("neighbor_exchange: 1 receivers in a list; the group has 2 ranks"));
}

TEST(HandCut, contracts_17_1_reductions_that_there_are_not_are_refused) {
  EXPECT_THAT(refusal({DType::kF32, {4}},
                      [](const Tensor& x) {
                        return all_reduce({&x, 1}, {.axes = {0}, .size = 2, .reduction = "prod"})[0];
                      }),
              HasSubstr("all_reduce: no reduction 'prod'; use 'sum', 'max' or 'min'"));
}

}  // namespace
}  // namespace trireme::neighbors_test
