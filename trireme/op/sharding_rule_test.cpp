#include "trireme/op/sharding_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::sharding_rule_test {
namespace {

TensorType f32(std::initializer_list<int64_t> shape) {
  return {DType::kF32, Shape(shape)};
}

std::string printed(std::string_view text, std::vector<TensorType> in, std::vector<TensorType> out,
                    const RuleOptions& options = {}) {
  try {
    return to_string(parse_rule(text, in, out, options));
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInternal);
    return e.text();
  }
}

FactorCuts cuts_of(const ShardingRule& rule, std::map<std::string, std::vector<int>> axes) {
  FactorCuts cuts;
  for (const Factor& factor : rule.factors) cuts.axes.push_back(axes[factor.name]);
  return cuts;
}

TEST(ShardingRule, TakesSizesFromDimensions) {
  EXPECT_EQ(printed("mk,kn->mn", {f32({4, 8}), f32({8, 16})}, {f32({4, 16})}), "mk,kn->mn m=4 k=8 n=16");
  EXPECT_EQ(printed("*k!->*k", {f32({2, 3, 5})}, {f32({2, 3, 5})}), "*0*1k!->*0*1k! *0=2 *1=3 k=5");
  EXPECT_EQ(printed("a.->a", {f32({4, 1})}, {f32({4})}), "a.->a a=4");
  EXPECT_EQ(printed("->*", {}, {f32({4, 2})}), "->*0*1 *0=4 *1=2");
  EXPECT_EQ(printed(",ab->ab", {f32({}), f32({4, 2})}, {f32({4, 2})}), ",ab->ab a=4 b=2");
}

TEST(ShardingRule, DividesCompoundDimensions) {
  EXPECT_EQ(printed("s(hd)->shd", {f32({5, 12})}, {f32({5, 3, 4})}), "s(hd)->shd s=5 h=3 d=4");
  EXPECT_EQ(printed("(gr)d->g", {f32({12, 2})}, {f32({3})}), "(gr)d->g g=3 r=4 d=2");
  EXPECT_EQ(printed("(ab)->(ab)", {f32({12})}, {f32({12})}, {.sizes = {{'a', 3}}}), "(ab)->(ab) a=3 b=4");
  EXPECT_EQ(printed("b*(xy)->b*(xy)", {f32({2, 3, 6})}, {f32({2, 3, 6})}, {.sizes = {{'x', 2}}}),
            "b*0(xy)->b*0(xy) b=2 *0=3 x=2 y=3");
}

TEST(ShardingRule, RefusesTextThatDoesNotFit) {
  EXPECT_EQ(printed("ab", {f32({2, 2})}, {}), "sharding rule 'ab' has no '->'");
  EXPECT_EQ(printed("ab,c->ab", {f32({2, 2})}, {f32({2, 2})}),
            "sharding rule 'ab,c->ab' names more tensors than the op has");
  EXPECT_EQ(printed("ab->ab", {f32({2, 2}), f32({2})}, {f32({2, 2})}), "sharding rule 'ab->ab' names 1 tensors of 2");
  EXPECT_EQ(printed("abc->ab", {f32({2, 2})}, {f32({2, 2})}), "sharding rule 'abc->ab': 'abc' does not fit f32[2,2]");
  EXPECT_EQ(printed("*abc->a", {f32({2, 2})}, {f32({2})}), "sharding rule '*abc->a': f32[2,2] has too few dimensions");
  EXPECT_EQ(printed("ab->ab", {f32({2, 3})}, {f32({2, 4})}),
            "sharding rule 'ab->ab': factors give 3 where a dimension has 4");
}

TEST(ShardingRule, GivesTheLayoutsOfAChoice) {
  const std::vector<TensorType> in = {f32({4, 8}), f32({8, 16})};
  const std::vector<TensorType> out = {f32({4, 16})};
  const ShardingRule rule = parse_rule("mk,kn->mn", in, out, {.linear = {{0}, {1}}});
  const Mesh mesh({{"dp", 2}, {"tp", 4}});
  FactorCuts cuts = cuts_of(rule, {{"m", {0}}, {"k", {1, 2}}});

  const auto operands = operand_layouts(rule, cuts);
  const auto results = result_layouts(rule, cuts);

  EXPECT_EQ(to_string(operands[0], mesh), "[dp, tp]");
  EXPECT_EQ(to_string(operands[1], mesh), "[tp, -]");
  EXPECT_EQ(to_string(results[0], mesh), "[dp, -] partial(sum: tp)");
}

TEST(ShardingRule, LetsPartialOperandsOfALinearSetThrough) {
  const std::vector<TensorType> in = {f32({4, 8}), f32({8, 16})};
  const std::vector<TensorType> out = {f32({4, 16})};
  const ShardingRule rule = parse_rule("mk,kn->mn", in, out, {.linear = {{0}, {1}}});
  const Mesh mesh({{"a", 2}, {"b", 2}});
  FactorCuts cuts = cuts_of(rule, {{"k", {1}}});
  cuts.linear_set = 0;
  cuts.through = {{0, Reduction::kSum}};

  EXPECT_EQ(to_string(operand_layouts(rule, cuts)[0], mesh), "[-, b] partial(sum: a)");
  EXPECT_EQ(to_string(operand_layouts(rule, cuts)[1], mesh), "[b, -]");
  EXPECT_EQ(to_string(result_layouts(rule, cuts)[0], mesh), "[-, -] partial(sum: a*b)");
}

TEST(ShardingRule, UsesTheReductionOfItsFactor) {
  const std::vector<TensorType> in = {f32({4, 8})};
  const std::vector<TensorType> out = {f32({4})};
  const ShardingRule rule = parse_rule("ab->a", in, out, {.reductions = {{'b', Reduction::kMax}}});
  const Mesh mesh({{"x", 2}});

  EXPECT_EQ(to_string(result_layouts(rule, cuts_of(rule, {{"b", {0}}}))[0], mesh), "[-] partial(max: x)");
}

TEST(ShardingRule, SaysWhyAChoiceIsIllegal) {
  const std::vector<TensorType> in = {f32({6, 12})};
  const std::vector<TensorType> out = {f32({6, 3, 4})};
  const ShardingRule rule = parse_rule("s!(hd)->shd", in, out);
  const Mesh mesh({{"x", 2}, {"y", 3}, {"z", 2}});

  EXPECT_EQ(why_illegal(rule, cuts_of(rule, {{"s", {0}}}), mesh), "factor 's' cannot be cut");
  EXPECT_EQ(why_illegal(rule, cuts_of(rule, {{"h", {0}}}), mesh),
            "2 ranks do not divide factor 'h' of size 3, which is only a part of a dimension");
  EXPECT_EQ(why_illegal(rule, cuts_of(rule, {{"h", {1}}, {"d", {0, 0}}}), mesh), "axis 'x' is used twice");
  EXPECT_EQ(why_illegal(rule, cuts_of(rule, {{"d", {0}}}), mesh),
            "a cut inside a compound dimension whose more significant factor is not fully cut");
  EXPECT_EQ(why_illegal(rule, cuts_of(rule, {{"h", {1}}, {"d", {0, 2}}}), mesh), "");
}

TEST(ShardingRule, LetsAFactorFallInUnevenPartsWhereZerosAddNothing) {
  const Mesh mesh({{"x", 2}, {"y", 4}});
  const ShardingRule product =
      parse_rule("mk,kn->mn", std::vector{f32({5, 7}), f32({7, 9})}, std::vector{f32({5, 9})}, {.linear = {{0}, {1}}});
  for (const char* factor : {"m", "k", "n"})
    EXPECT_EQ(why_illegal(product, cuts_of(product, {{factor, {0}}}), mesh), "");
  EXPECT_EQ(why_illegal(product, cuts_of(product, {{"m", {1, 2}}}), mesh),
            "4 ranks do not divide factor 'm' of size 5, and one of them would have nothing of it");
  EXPECT_TRUE(keeps_zeros(product, 0));
  EXPECT_FALSE(keeps_zeros(product, 1)) << "both operands hold it";

  const std::vector<TensorType> in{f32({5, 3})};
  const ShardingRule norm = parse_rule("ab->a", in, std::vector{f32({5})});
  EXPECT_EQ(why_illegal(norm, cuts_of(norm, {{"a", {0}}}), mesh), "");
  EXPECT_EQ(why_illegal(norm, cuts_of(norm, {{"b", {0}}}), mesh),
            "2 ranks do not divide factor 'b' of size 3, and what the op computes beyond the end would count");
  const ShardingRule squares = parse_rule("ab->a", in, std::vector{f32({5})}, {.zeros_add_nothing = "b"});
  EXPECT_EQ(why_illegal(squares, cuts_of(squares, {{"b", {0}}}), mesh), "");
}

TEST(ShardingRule, OfUnknownOpsCutsNothing) {
  const std::vector<TensorType> types = {f32({6, 12})};

  EXPECT_EQ(to_string(replicate_rule(types, types)), "..->..");
}

}  // namespace
}  // namespace trireme::sharding_rule_test
