#include "trireme/op/computed_rule.h"

#include <gtest/gtest.h>

#include "trireme/op/op_attrs.h"
#include "trireme/op/registry.h"

namespace trireme::computed_rule_test {
namespace {

int times_read = 0;

ShardingRule counted(const TypeArgs& args) {
  ++times_read;
  return parse_rule("*->*", args.in, args.out);
}

TEST(ComputedRule, IsReadOnceForCallsThatAreAlike) {
  OpDef op = *find_op("scale");
  op.shard = Facet<ShardFn>(counted);
  const std::vector<TensorType> small{{DType::kF32, {4, 6}}}, large{{DType::kF32, {8, 6}}};
  const Attrs twice = Attrs::of(ScalarAttrs{2}), thrice = Attrs::of(ScalarAttrs{3});

  const RuleOf first = computed_rule(op, {small, small, twice});
  EXPECT_EQ(computed_rule(op, {small, small, twice}), first);
  EXPECT_EQ(times_read, 1);
  EXPECT_EQ(to_string(*first), to_string(parse_rule("*->*", small, small))) << "as the op's facet says";
  EXPECT_NE(computed_rule(op, {large, large, twice}), first);
  EXPECT_NE(computed_rule(op, {small, small, thrice}), first) << "attributes may change a rule";
  EXPECT_EQ(times_read, 3);
}

TEST(ComputedRule, OfAnOpWithoutOneCutsNothing) {
  OpDef op = *find_op("scale");
  op.shard = Facet<ShardFn>::none("because");
  const std::vector<TensorType> types{{DType::kF32, {4, 6}}};
  const RuleOf rule = computed_rule(op, {types, types, Attrs::of(ScalarAttrs{})});
  for (const Factor& factor : rule->factors) EXPECT_FALSE(factor.can_cut);
}

TEST(ComputedRule, OlderOnesAreForgottenAndReadAgain) {
  OpDef op = *find_op("scale");
  op.shard = Facet<ShardFn>(counted);
  const Attrs attrs = Attrs::of(ScalarAttrs{});
  const std::vector<TensorType> types{{DType::kF32, {3}}};
  const RuleOf kept = computed_rule(op, {types, types, attrs});
  for (int64_t size = 1; size <= 5000; ++size) {
    const std::vector<TensorType> other{{DType::kF32, {10, size}}};
    computed_rule(op, {other, other, attrs});
  }
  times_read = 0;
  EXPECT_EQ(to_string(*computed_rule(op, {types, types, attrs})), to_string(*kept));
  EXPECT_EQ(times_read, 1);
}

}  // namespace
}  // namespace trireme::computed_rule_test
