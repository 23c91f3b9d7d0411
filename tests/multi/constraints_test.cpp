// Which cuts ops take: contracts 5.3 and 5.7, a row of docs/howto/come_from_mindspore.md each. What is refused is
// refused with what would be right; what is taken computes what one device computes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multi/contract_support.h"
#include "tests/multi/small_graphs.h"
#include "trireme/base/error.h"

namespace trireme::constraints_test {
namespace {

using namespace testing_support;
using testing::HasSubstr;

struct Row {
  std::string name;
  Tensor (*make)(Graph&);  // in the scope "op"; the op that is asked is named in `rule`
  std::string rule;        // "op/softmax"
  std::string cuts;
  std::string refused;  // part of the error, or "": four ranks compute what one does
};

Tensor softmax_of(Graph& g) {
  return softmax(data_input(g, "x", {8, 8}));
}
Tensor cumsum_of(Graph& g) {
  return cumsum(data_input(g, "x", {8, 8}), 1);
}
Tensor concat_of(Graph& g) {
  return concat({data_input(g, "x", {8, 8}), data_input(g, "y", {8, 8})}, 1);
}
Tensor split_of(Graph& g) {
  return split(data_input(g, "x", {8, 8}), 1, 2)[0];
}
Tensor argmax_of(Graph& g) {
  return cast(argmax(data_input(g, "x", {8, 8})), DType::kF32);
}
Tensor loss_of(Graph& g) {
  return cross_entropy(data_input(g, "x", {8, 8}), data_input(g, "labels", {8}, DType::kI32));
}
Tensor loss_in_parts_of(Graph& g) {
  return cross_entropy_in_parts(matmul(data_input(g, "x", {8, 4}), parameter(g, "w", {4, 8})),
                                data_input(g, "labels", {8}, DType::kI32));
}
Tensor norm_of(Graph& g) {
  return layer_norm(data_input(g, "x", {8, 8}), parameter(g, "gamma", {8}), parameter(g, "beta", {8})).y;
}
Tensor lookup_of(Graph& g) {
  return embedding(parameter(g, "table", {8, 4}), data_input(g, "ids", {8, 2}, DType::kI32));
}
Tensor scalar_lookup_of(Graph& g) {
  return embedding(parameter(g, "table", {8, 4}), cast(reshape(data_input(g, "id", {1}), {}), DType::kI32));
}
Tensor max_of(Graph& g) {
  return reduce_max(data_input(g, "x", {8, 8}), {0});
}
Tensor sum_of(Graph& g) {
  return reduce_sum(data_input(g, "x", {8, 8}), {0, 1});
}
Tensor one_hot_of(Graph& g) {
  return scale(one_hot(data_input(g, "ids", {4, 2}, DType::kI32), 8), 2);
}
Tensor slice_of(Graph& g) {
  return slice(data_input(g, "x", {8, 8}), 1, 2, 4);
}
Tensor reshape_of(Graph& g) {
  return reshape(data_input(g, "x", {8, 8}), {8, 2, 4});
}
Tensor cast_of(Graph& g) {
  return cast(cast(data_input(g, "x", {8, 8}), DType::kF64), DType::kF32);
}
Tensor transpose_of(Graph& g) {
  return transpose(data_input(g, "x", {8, 8}), {1, 0});
}
Tensor tile_of(Graph& g) {
  return broadcast_to(reshape(data_input(g, "x", {8}), {8, 1}), {8, 8});
}
Tensor product_of(Graph& g) {
  return matmul(data_input(g, "x", {8, 6}), parameter(g, "w", {6, 8}));
}

std::vector<Row> rows() {
  const std::string no = "cannot be cut";
  return {
      {"softmax_along_its_axis", softmax_of, "op/softmax", "{{1,4}}", no},
      {"softmax_by_rows", softmax_of, "op/softmax", "{{4,1}}", ""},
      {"cumsum_along_its_axis", cumsum_of, "op/cumsum", "{{1,4}}", no},
      {"concat_along_its_axis", concat_of, "op/concat", "{{1,4},{1,4}}", no},
      {"split_along_its_axis", split_of, "op/split", "{{1,4}}", no},
      {"argmax_along_its_axis", argmax_of, "op/argmax", "{{1,4}}", no},
      {"cross_entropy_by_classes", loss_of, "op/cross_entropy", "{{1,4},{1}}", no},
      {"cross_entropy_in_parts_by_classes", loss_in_parts_of, "op/matmul", "{{1,1},{1,4}}", ""},
      {"layer_norm_along_its_axis", norm_of, "op/layer_norm", "{{1,4},{4},{4}}", no},
      {"layer_norm_by_rows", norm_of, "op/layer_norm", "{{4,1},{1},{1}}", ""},
      {"lookup_in_a_cut_table_by_cut_indices", lookup_of, "op/embedding", "{{2,1},{2,1}}", ""},
      {"lookup_by_columns_of_table_and_indices", lookup_of, "op/embedding", "{{1,2},{1,2}}", ""},
      {"lookup_whose_result_is_scattered", lookup_of, "op/embedding", "{{4,1},{1,1}} -> {{4,1,1}}", ""},
      {"lookup_by_a_scalar", scalar_lookup_of, "op/embedding", "{{4,1},{}}", ""},
      {"lookup_in_uneven_parts", lookup_of, "op/embedding", "manual_split (1,3,2,2)", "cuts make parts of one size"},
      {"reduce_max_along_a_cut_dimension", max_of, "op/reduce_max", "{{4,1}}", ""},
      {"reduce_sum_of_two_cut_dimensions", sum_of, "op/reduce_sum", "{{2,2}}", ""},
      {"one_hot_by_classes_of_indices_of_two_dimensions", one_hot_of, "op/scale", "{{2,1,2}}", ""},
      {"slice_of_a_cut_dimension", slice_of, "op/slice", "{{1,4}}", no},
      {"slice_beside_a_cut_dimension", slice_of, "op/slice", "{{4,1}}", ""},
      {"reshape_takes_a_strategy", reshape_of, "op/reshape", "{{2,2}}", ""},
      {"cast_takes_a_strategy", cast_of, "op/cast", "{{1,4}}", ""},
      {"transpose", transpose_of, "op/transpose", "{{2,2}}", ""},
      {"tile", tile_of, "op/broadcast_to", "{{4,1}}", ""},
      {"uneven_cuts", product_of, "op/matmul", "{{1,4},{4,1}}", "cannot be divided into 4 parts; use 1, 2, 3, 6"},
      {"more_parts_than_ranks", product_of, "op/matmul", "{{4,2},{2,1}}", "need 8 devices"},
      {"fewer_parts_than_ranks", product_of, "op/matmul", "{{2,1},{1,1}}", ""},
  };
}

class Constraints : public testing::TestWithParam<Row> {};

TEST_P(Constraints, hold_as_the_guide_says) {
  const Row& row = GetParam();
  Graph graph;
  graph.set_scope("op");
  graph.add_output("y", row.make(graph).id());
  const auto asked = [&] { return Parallel{.dataset = "full_batch", .ops = {{row.rule, row.cuts}}}; };
  if (row.refused.empty()) {
    const std::vector<float> one = run_on_ranks(graph, 1, {}).outputs.at("y");
    const std::vector<float> four = run_on_ranks(graph, 4, asked()).outputs.at("y");
    ASSERT_EQ(four.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i) ASSERT_NEAR(four[i], one[i], 64 * 0x1p-22) << i;
    return;
  }
  try {
    semi_auto(graph, 4, asked());
    FAIL() << "it is not refused";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInvalidArgument);
    EXPECT_THAT(e.what(), HasSubstr(row.refused));
    EXPECT_THAT(e.what(), HasSubstr(row.cuts)) << "the value that is wrong";
  }
}

INSTANTIATE_TEST_SUITE_P(Contracts_5_7, Constraints, testing::ValuesIn(rows()),
                         [](const auto& about) { return about.param.name; });

}  // namespace
}  // namespace trireme::constraints_test
