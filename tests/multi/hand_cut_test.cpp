// Models cut by hand: collectives on the pieces of ranks, written where the model's code wants
// them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/multi/hand_cut.h"
#include "tests/worst.h"
#include "trireme/grad/gradients.h"
#include "trireme/op/build.h"

namespace trireme::hand_cut_test {
namespace {

using namespace testing_support;
using testing::ElementsAre;
using testing::HasSubstr;

// -- values
// ----------------------------------------------------------------------------------------

class ValuesOf : public testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(Types, ValuesOf,
                         testing::Values(DType::kF32, DType::kBF16, DType::kI32, DType::kI64, DType::kI8, DType::kU8),
                         [](const auto& about) { return std::string(to_string(about.param)); });

int64_t own_rank(int64_t rank, int64_t) {
  return rank;
}
int64_t own_place(int64_t, int64_t i) {
  return i;
}

TEST_P(ValuesOf, a_sum_of_the_ranks_numbers_is_six_on_all_four) {
  const auto sums = results_of(Mesh({{"a", 4}}), {GetParam(), {2}}, own_rank, [](const Tensor& x) {
    return all_reduce({&x, 1}, {.axes = {0, 1}, .size = 4})[0];
  });
  for (const auto& y : sums) EXPECT_THAT(y, ElementsAre(6, 6));
}

TEST_P(ValuesOf, sums_over_the_first_axis_are_those_of_every_second_rank) {
  const auto sums = results_of(Mesh({{"a", 2}, {"b", 2}}), {GetParam(), {1}}, own_rank, [](const Tensor& x) {
    return all_reduce({&x, 1}, {.axes = {0}, .size = 2})[0];
  });
  EXPECT_THAT(sums, ElementsAre(ElementsAre(2), ElementsAre(4), ElementsAre(2), ElementsAre(4)));
}

TEST_P(ValuesOf, a_gather_joins_the_pieces_in_the_order_of_the_ranks) {
  const auto joined = results_of(
      Mesh({{"a", 2}, {"b", 2}}), {GetParam(), {2}}, [](int64_t rank, int64_t i) { return 10 * rank + i; },
      [](const Tensor& x) { return all_gather(x, {.axes = {0}, .size = 2}); });
  EXPECT_THAT(joined[0], ElementsAre(0, 1, 20, 21));
  EXPECT_THAT(joined[3], ElementsAre(10, 11, 30, 31));
}

TEST_P(ValuesOf, scattered_sums_of_equal_columns_are_four_times_the_own_row) {
  const auto rows = results_of(Mesh({{"a", 4}}), {GetParam(), {4, 1}}, own_place, [](const Tensor& x) {
    return reduce_scatter(x, {.axes = {0, 1}, .size = 4});
  });
  EXPECT_THAT(rows, ElementsAre(ElementsAre(0), ElementsAre(4), ElementsAre(8), ElementsAre(12)));
}

TEST_P(ValuesOf, an_exchange_among_eight_gives_all_of_them_one_from_each) {
  const auto rows = results_of(Mesh({{"a", 8}}), {GetParam(), {1, 1, 8, 1}}, own_rank, [](const Tensor& x) {
    return all_to_all(x, {.axes = {0, 1, 2}, .dim = 2, .from_dim = 3, .size = 8});
  });
  for (const auto& y : rows) EXPECT_THAT(y, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST_P(ValuesOf, a_broadcast_in_a_group_gives_what_its_root_has) {
  const auto copies = results_of(Mesh({{"a", 2}, {"b", 2}}), {GetParam(), {1}}, own_rank, [](const Tensor& x) {
    return broadcast({&x, 1}, {.axes = {0}, .size = 2, .root = 1})[0];
  });
  EXPECT_THAT(copies, ElementsAre(ElementsAre(2), ElementsAre(3), ElementsAre(2), ElementsAre(3)));
}

// -- refusals
// --------------------------------------------------------------------------------------

TEST(HandCut, bools_are_refused_by_every_collective_that_sends) {
  const TensorType bools{DType::kBool, {4, 4}};
  const CollectiveAttrs pair{.axes = {0}, .from_dim = 1, .size = 2};
  const std::string why = "a bool tensor cannot be sent; cast it to u8 first (operand bool[4,4])";
  EXPECT_THAT(refusal(bools, [&](const Tensor& x) { return all_gather(x, pair); }), HasSubstr(why));
  EXPECT_THAT(refusal(bools, [&](const Tensor& x) { return reduce_scatter(x, pair); }), HasSubstr(why));
  EXPECT_THAT(refusal(bools, [&](const Tensor& x) { return all_to_all(x, pair); }), HasSubstr(why));
  EXPECT_THAT(refusal(bools, [&](const Tensor& x) { return broadcast({&x, 1}, pair)[0]; }), HasSubstr(why));
}

TEST(HandCut, dimensions_that_are_not_there_are_refused) {
  const TensorType matrix{DType::kF32, {4, 4}};
  const auto scatter = [](int64_t dim) {
    return [=](const Tensor& x) { return reduce_scatter(x, {.axes = {0}, .dim = dim, .size = 2}); };
  };
  EXPECT_THAT(refusal(matrix, scatter(2)), HasSubstr("reduce_scatter: no dimension 2 in an operand"));
  EXPECT_THAT(refusal(matrix, scatter(-1)), HasSubstr("reduce_scatter: no dimension -1 in an operand"));
  EXPECT_THAT(
      refusal(matrix, [](const Tensor& x) { return all_to_all(x, {.axes = {0}, .dim = 0, .from_dim = 2, .size = 2}); }),
      HasSubstr("all_to_all: no dimension 2 in an operand"));
  EXPECT_THAT(refusal(matrix, [](const Tensor& x) { return shard_slice(x, {.axes = {0}, .dim = 2, .size = 2}); }),
              HasSubstr("shard_slice: no dimension 2 in an operand"));
}

TEST(HandCut, roots_and_groups_that_cannot_be_are_refused) {
  const TensorType vector{DType::kF32, {4}};
  EXPECT_THAT(refusal(vector,
                      [](const Tensor& x) {
                        return broadcast({&x, 1}, {.axes = {0}, .size = 2, .root = -1})[0];
                      }),
              HasSubstr("broadcast: root is -1 in a group of 2 ranks; use 0 to 1"));
  EXPECT_THAT(refusal(vector, [](const Tensor& x) { return all_gather(x, {.size = 0}); }),
              HasSubstr("all_gather: the group has 0 ranks"));
}

// -- a product cut by hand
// -------------------------------------------------------------------------

constexpr int64_t kRows = 32;
constexpr int64_t kInner = 512;
constexpr int64_t kColumns = 128;

// c[m,n] = sum_k a[m,k] b[k,n] in f64, with the sums of absolute values, which bound the rounding.
struct Product {
  std::vector<double> value;
  std::vector<double> absolute;
};

Product product(int64_t m, int64_t n, int64_t k, const auto& a, const auto& b) {
  Product out{std::vector<double>(static_cast<size_t>(m * n)), std::vector<double>(static_cast<size_t>(m * n))};
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t l = 0; l < k; ++l) {
      for (int64_t j = 0; j < n; ++j) {
        const double term = a(i, l) * b(l, j);
        out.value[static_cast<size_t>(i * n + j)] += term;
        out.absolute[static_cast<size_t>(i * n + j)] += std::fabs(term);
      }
    }
  }
  return out;
}

// Every element within gamma_n of the sum of absolute values; n roundings on the way to it.
void expect_product(const HostTensor& got, const Product& want, int64_t n, const std::string& what) {
  const double nu = static_cast<double>(n) * 0x1p-24;
  double worst = 0;
  for (size_t i = 0; i < want.value.size(); ++i) {
    const double error = std::fabs(got.as<float>()[i] - want.value[i]);
    worst = worse(worst, error / (nu / (1 - nu) * want.absolute[i]));
  }
  EXPECT_LE(worst, 1) << what << ": the largest error over its bound";
}

HostTensor rows_of(const HostTensor& whole, int64_t first, int64_t count) {
  const int64_t width = whole.type().elements() / whole.shape()[0];
  HostTensor out(TensorType{DType::kF32, {count, width}});
  std::copy_n(whole.as<float>().begin() + first * width, count * width, out.as<float>().begin());
  return out;
}

HostTensor columns_of(const HostTensor& whole, int64_t first, int64_t count) {
  HostTensor out(TensorType{DType::kF32, {whole.shape()[0], count}});
  for (int64_t i = 0; i < whole.shape()[0]; ++i) {
    std::copy_n(whole.as<float>().begin() + i * whole.shape()[1] + first, count, out.as<float>().begin() + i * count);
  }
  return out;
}

// The two ranks' step: partial products of half of the inner dimension, summed; loss = <c, y>. The
// loss stands on both ranks and each begins its gradient with 1, so each takes half of it.
Graph half_of_a_product() {
  Graph graph("half");
  const Tensor x = data_input(graph, "x", {DType::kF32, {kRows, kInner / 2}});
  const Tensor w = data_input(graph, "w", {DType::kF32, {kInner / 2, kColumns}});
  const Tensor c = data_input(graph, "c", {DType::kF32, {kRows, kColumns}});
  const Tensor partial = matmul(x, w);
  const Tensor y = all_reduce({&partial, 1}, {.axes = {0}, .size = 2})[0];
  const Tensor loss = reduce_sum(mul(c, y)) * 0.5;
  const std::vector<Tensor> grads = gradients(loss, std::vector<Tensor>{x, w});
  graph.add_output("y", y.id());
  graph.add_output("dx", grads[0].id());
  graph.add_output("dw", grads[1].id());
  return graph;
}

TEST(HandCut, a_product_of_two_halves_is_the_dense_product_and_has_its_gradients) {
  const uint32_t seed = 7;
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 draw(seed);
  std::uniform_real_distribution<float> number(-1, 1);
  const auto drawn = [&](int64_t rows, int64_t columns) {
    HostTensor out(TensorType{DType::kF32, {rows, columns}});
    for (float& value : out.as<float>()) value = number(draw);
    return out;
  };
  const HostTensor x = drawn(kRows, kInner);
  const HostTensor w = drawn(kInner, kColumns);
  const HostTensor c = drawn(kRows, kColumns);
  const auto at = [](const HostTensor& t, int64_t i, int64_t j) {
    return static_cast<double>(t.as<float>()[static_cast<size_t>(i * t.shape()[1] + j)]);
  };
  std::vector<Pieces> inputs(2);
  for (int64_t rank = 0; rank < 2; ++rank) {
    Pieces& pieces = inputs[static_cast<size_t>(rank)];
    pieces.emplace("x", columns_of(x, rank * kInner / 2, kInner / 2));
    pieces.emplace("w", rows_of(w, rank * kInner / 2, kInner / 2));
    pieces.emplace("c", c.clone());
  }

  const std::vector<Pieces> got = run_on_ranks(plan_by_hand(half_of_a_product(), Mesh({{"a", 2}})), inputs);

  const Product y = product(
      kRows, kColumns, kInner, [&](int64_t i, int64_t k) { return at(x, i, k); },
      [&](int64_t k, int64_t j) { return at(w, k, j); });
  for (int64_t rank = 0; rank < 2; ++rank) {
    const Pieces& pieces = got[static_cast<size_t>(rank)];
    const int64_t first = rank * kInner / 2;
    const Product dx = product(
        kRows, kInner / 2, kColumns, [&](int64_t i, int64_t k) { return at(c, i, k); },
        [&](int64_t k, int64_t j) { return at(w, first + j, k); });
    const Product dw = product(
        kInner / 2, kColumns, kRows, [&](int64_t i, int64_t k) { return at(x, k, first + i); },
        [&](int64_t k, int64_t j) { return at(c, k, j); });
    expect_product(pieces.at("y"), y, kInner, fmt::format("y of rank {}", rank));
    expect_product(pieces.at("dx"), dx, kColumns, fmt::format("dx of rank {}", rank));
    expect_product(pieces.at("dw"), dw, kRows, fmt::format("dw of rank {}", rank));
  }
  EXPECT_TRUE(std::ranges::equal(got[0].at("y").view().raw(), got[1].at("y").view().raw()));
}

}  // namespace
}  // namespace trireme::hand_cut_test
