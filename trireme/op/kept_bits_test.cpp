#include "trireme/op/kept_bits.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace trireme::kept_bits_test {
namespace {

// The factors of a product over j and k, j of one element, that may be cut.
std::string cuttable(const KeptBits& kept) {
  const std::vector<TensorType> in = {{DType::kF32, {8, 1, 32}}, {DType::kF32, {1, 32, 4}}};
  const std::vector<TensorType> out = {{DType::kF32, {8, 4}}};
  const ShardingRule rule = parse_rule("mjk,jkn->mn", in, out);
  std::string names;
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    if (invariant_over(kept, rule, static_cast<int>(f))) names += rule.factors[f].name;
  }
  return names;
}

TEST(KeptBits, say_which_factors_may_be_cut) {
  EXPECT_EQ(cuttable({}), "") << "what is not claimed is not kept";
  EXPECT_EQ(cuttable({Bits::kElement}), "mn");
  EXPECT_EQ(cuttable({Bits::kLeaves}), "mkn");
  EXPECT_EQ(cuttable({Bits::kLeaves, "k"}), "mkn");
  EXPECT_EQ(cuttable({Bits::kLeaves, "j"}), "mn");
  EXPECT_EQ(cuttable({Bits::kExact}), "mjkn");
}

}  // namespace
}  // namespace trireme::kept_bits_test
