#include "trireme/op/row_steps.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/op/op_attrs.h"
#include "trireme/op/registry.h"

namespace trireme::row_steps_test {
namespace {

Attrs steps(const char* text, std::vector<int64_t> results) {
  return Attrs::of(FusedRowsAttrs{1, text, std::move(results)});
}

TEST(RowCall, is_read_once_for_calls_that_are_alike) {
  const std::vector<TensorType> small{{DType::kF32, {6, 4}}, {DType::kF32, {4}}};
  const std::vector<TensorType> large{{DType::kF32, {8, 4}}, {DType::kF32, {4}}};
  const char* const text = "2=add(0,1){}; 3=mul(2,0){}";

  const auto call = row_call(steps(text, {3}), small);
  EXPECT_EQ(row_call(steps(text, {3}), small), call);
  EXPECT_NE(row_call(steps(text, {3}), large), call);
  EXPECT_NE(row_call(steps(text, {2, 3}), small), call);

  ASSERT_EQ(call->steps.steps.size(), 2U);
  EXPECT_EQ(call->steps.results, std::vector{3});
  ASSERT_EQ(call->values.size(), 4U);
  EXPECT_EQ(call->values[3].type, small[0]);
  EXPECT_TRUE(call->values[3].by_row);
  EXPECT_FALSE(call->values[1].by_row);
}

TEST(RowCall, what_cannot_be_read_is_refused_each_time) {
  const std::vector<TensorType> types{{DType::kF32, {6, 4}}};
  for (int time = 0; time < 2; ++time) EXPECT_THROW(row_call(steps("1=add(0,3){}", {1}), types), Error);
}

TEST(RowCall, older_ones_are_forgotten_and_read_again) {
  const Attrs twice = steps("1=add(0,0){}", {1});
  const std::vector<TensorType> types{{DType::kF32, {6, 4}}};
  const auto kept = row_call(twice, types);
  for (int64_t rows = 1; rows <= 5000; ++rows) row_call(twice, std::vector<TensorType>{{DType::kF32, {rows, 3}}});
  const auto again = row_call(twice, types);
  EXPECT_NE(again, kept);
  EXPECT_EQ(again->values[1].type, kept->values[1].type);
}

int times_inferred = 0;

std::vector<TensorType> counted(const InferArgs& args) {
  ++times_inferred;
  return {args.in[0]};
}
std::vector<TensorType> of_no_type(const InferArgs&) {
  return {};
}

TEST(CheapRowOp, is_found_once_for_calls_that_are_alike) {
  OpDef op = *find_op("scale");
  op.infer = Facet<InferFn>(counted);
  const std::vector<TensorType> small{{DType::kF32, {6, 4}}}, large{{DType::kF32, {8, 4}}};
  const Attrs attrs = Attrs::of(ScalarAttrs{2});
  for (int time = 0; time < 2; ++time) {
    const std::optional<RowOp> found = cheap_row_op(op, {small, small, attrs});
    ASSERT_TRUE(found);
    EXPECT_EQ(found->by_row, std::vector<char>{1});
    EXPECT_EQ(times_inferred, 1);
  }
  EXPECT_FALSE(cheap_row_op(op, {small, large, attrs})) << "the op makes no such results";
  EXPECT_FALSE(cheap_row_op(op, {small, large, attrs}));
  EXPECT_EQ(times_inferred, 2) << "that it is none is known as well";
  op.infer = Facet<InferFn>(of_no_type);
  EXPECT_FALSE(cheap_row_op(op, {small, small, attrs})) << "another op that lies in the same place";
}

}  // namespace
}  // namespace trireme::row_steps_test
