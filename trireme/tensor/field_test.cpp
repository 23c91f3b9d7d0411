#include "trireme/tensor/field.h"

#include <gtest/gtest.h>

namespace trireme::field_test {
namespace {

const std::vector<FieldNeed> kTable{{"dense", DType::kF32, {0}}, {"ids", DType::kI32, {2}}, {"label", DType::kI32, {}}};

TEST(Fields, several_fit_by_name_type_and_the_sizes_that_are_said) {
  const FieldSpec dense{"dense", {DType::kF32, {5}}}, ids{"ids", {DType::kI32, {2}}}, label{"label", {DType::kI32, {}}};
  EXPECT_TRUE(meets(std::vector<FieldSpec>{dense, ids, label}, kTable));
  EXPECT_FALSE(meets(std::vector<FieldSpec>{ids, dense, label}, kTable)) << "another order";
  EXPECT_FALSE(meets(std::vector<FieldSpec>{dense, ids}, kTable)) << "one is missing";
  EXPECT_FALSE(meets(std::vector<FieldSpec>{dense, {"ids", {DType::kI32, {3}}}, label}, kTable)) << "another size";
  EXPECT_FALSE(meets(std::vector<FieldSpec>{dense, {"ids", {DType::kF32, {2}}}, label}, kTable)) << "another type";
  EXPECT_FALSE(meets(std::vector<FieldSpec>{{"numbers", dense.sample}, ids, label}, kTable)) << "another name";
}

TEST(Fields, two_are_the_input_and_the_target_whatever_they_are_called) {
  const std::vector<FieldNeed> needs{{.name = "image", .sizes = {0, 0, 0}, .any_shape = true},
                                     {"label", DType::kI32, {}}};
  EXPECT_TRUE(meets(std::vector<FieldSpec>{{"x", {DType::kF32, {7}}}, {"y", {DType::kI32, {}}}}, needs));
  EXPECT_FALSE(meets(std::vector<FieldSpec>{{"y", {DType::kI32, {}}}, {"x", {DType::kF32, {7}}}}, needs));
}

TEST(Fields, what_is_given_and_what_is_taken_are_told) {
  EXPECT_EQ(to_string(kTable), "dense f32[?], ids i32[2], label i32[]");
  EXPECT_EQ(to_string(std::vector<FieldNeed>{{.name = "image", .any_shape = true}}), "image f32[...]");
  EXPECT_EQ(to_string(std::vector<FieldSpec>{{"x", {DType::kF32, {7, 2}}}, {"y", {DType::kI32, {}}}}),
            "x f32[7,2], y i32[]");
}

}  // namespace
}  // namespace trireme::field_test
