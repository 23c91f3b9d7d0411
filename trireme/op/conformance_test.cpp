#include "trireme/op/conformance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "trireme/op/build.h"
#include "trireme/op/ops_document.h"
#include "trireme/op/registry.h"

namespace trireme::conformance_test {
namespace {

using conformance::Property;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// -- every op has every property
// ------------------------------------------------------------------------------

class EveryOp : public ::testing::TestWithParam<std::tuple<const OpDef*, Property>> {};

TEST_P(EveryOp, HasTheProperty) {
  const auto& [op, property] = GetParam();

  EXPECT_THAT(property.check(*op, 1), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Conformance, EveryOp,
                         ::testing::Combine(::testing::ValuesIn(all_ops().begin(), all_ops().end()),
                                            ::testing::ValuesIn(conformance::all_properties().begin(),
                                                                conformance::all_properties().end())),
                         [](const auto& case_info) {
                           return fmt::format("{}_{}", std::get<0>(case_info.param)->name,
                                              std::get<1>(case_info.param).name);
                         });

TEST(EveryCollective, FitsTogether) {
  int collectives = 0;
  for (const OpDef* op : all_ops()) {
    EXPECT_THAT(conformance::check_collective(*op, 1), IsEmpty());
    collectives += op->collective ? 1 : 0;
  }
  EXPECT_GT(collectives, 0);
}

// -- and a defect in any facet is found
// -----------------------------------------------------------------------

OpDef copy_of(std::string_view name) {
  return op(name);
}

TEST(ConformanceFinds, InferThatFailsAsIfItWereOurs) {
  OpDef defect = copy_of("add");
  defect.infer = Facet<InferFn>([](const InferArgs& args) -> std::vector<TensorType> {
    invariant(args.in[0] == args.in[1], "shapes differ");
    return {args.in[0]};
  });
  defect.examples = [] { return std::vector<Example>{op("add").examples()[0]}; };

  EXPECT_THAT(conformance::check_shapes(defect, 1), Contains(HasSubstr("gives an error of kind internal")));
}

TEST(ConformanceFinds, InferThatThrowsSomethingElse) {
  OpDef defect = copy_of("neg");
  defect.infer = Facet<InferFn>([](const InferArgs& args) -> std::vector<TensorType> {
    if (args.in[0].shape.rank() != 2) throw std::out_of_range("rank");
    return {args.in[0]};
  });
  defect.examples = [] { return std::vector<Example>{op("neg").examples()[0]}; };

  EXPECT_THAT(conformance::check_shapes(defect, 1), Contains(HasSubstr("throws something else than Error: rank")));
}

TEST(ConformanceFinds, AKernelThatDividesByZero) {
  OpDef defect = copy_of("neg");
  defect.kernel = Facet<KernelFn>([](const KernelArgs& args) {
    op("neg").kernel.get()(args);
    if (args.out[0].type.dtype == DType::kF32) args.out[0].as<float>()[0] = INFINITY;
  });

  EXPECT_THAT(conformance::check_shapes(defect, 1), Contains(HasSubstr("element 0 of a result is inf")));
}

TEST(ConformanceFinds, AGradientWithTheWrongSign) {
  OpDef defect = copy_of("sub");
  defect.grad = Facet<GradFn>([](const GradArgs& args) { return std::vector<Tensor>{args.dout[0], args.dout[0]}; });
  defect.examples = [] { return std::vector<Example>{op("sub").examples()[0]}; };

  EXPECT_THAT(conformance::check_gradient(defect, 1), Contains(HasSubstr("operand 1, element 0: the gradient is")));
}

TEST(ConformanceFinds, AGradientThatIsMissing) {
  OpDef defect = copy_of("exp");
  defect.grad = Facet<GradFn>([](const GradArgs&) { return std::vector<Tensor>(1); });

  EXPECT_THAT(conformance::check_gradient(defect, 1),
              Contains(HasSubstr("the gradient is 0 where the numeric one is")));
}

TEST(ConformanceFinds, AGradientOfTheWrongShape) {
  OpDef defect = copy_of("add");
  defect.grad = Facet<GradFn>([](const GradArgs& args) { return std::vector<Tensor>{args.dout[0], args.dout[0]}; });

  EXPECT_THAT(conformance::check_gradient(defect, 1),
              Contains(HasSubstr("gives a gradient f32[2,3,6] for operand 1 of f32[6]")));
}

TEST(ConformanceFinds, AGradientForTheWrongNumberOfOperands) {
  OpDef defect = copy_of("add");
  defect.grad = Facet<GradFn>([](const GradArgs& args) { return std::vector<Tensor>{args.dout[0]}; });

  EXPECT_THAT(conformance::check_gradient(defect, 1), Contains(HasSubstr("gives 1 gradients for 2 operands")));
}

TEST(ConformanceFinds, AnExampleFilledAtAKink) {
  OpDef defect = copy_of("relu");
  defect.examples = [] {
    return std::vector<Example>{{{{DType::kF32, {4}}}, Attrs(), {{Fill::Kind::kUniform, 1e-4, 4e-4}}}};
  };

  EXPECT_THAT(conformance::check_gradient(defect, 1), Contains(HasSubstr("too rough for a numeric gradient")));
}

TEST(ConformanceFinds, ACutOfADimensionThatMustStayWhole) {
  OpDef defect = copy_of("cumsum");
  defect.shard = Facet<ShardFn>([](const TypeArgs& args) { return parse_rule("*->*", args.in, args.out); });

  EXPECT_THAT(conformance::check_sharding(defect, 1), Contains(HasSubstr("cut *1:2: result 0 element")));
}

TEST(ConformanceFinds, LinearSetsThatAreNotLinear) {
  OpDef defect = copy_of("add");
  defect.shard =
      Facet<ShardFn>([](const TypeArgs& args) { return parse_rule("*,*->*", args.in, args.out, {.linear = {{0}}}); });
  defect.examples = [] { return std::vector<Example>{op("add").examples()[0]}; };

  EXPECT_THAT(conformance::check_sharding(defect, 1), Contains(HasSubstr("cut partial through set 0: result 0")));
}

TEST(ConformanceFinds, TheWrongReduction) {
  OpDef defect = copy_of("reduce_max");
  defect.shard = op("reduce_sum").shard;

  EXPECT_THAT(conformance::check_sharding(defect, 1), Contains(HasSubstr("result 0 element")));
}

TEST(ConformanceFinds, ALookupThatForgetsWhereItsPieceLies) {
  OpDef defect = copy_of("iota");
  defect.kernel = Facet<KernelFn>([](const KernelArgs& args) {
    KernelArgs lost = args;
    lost.out_place = {};
    op("iota").kernel.get()(lost);
  });

  EXPECT_THAT(conformance::check_sharding(defect, 1), Contains(HasSubstr("result 0 element")));
}

TEST(ConformanceFinds, ExamplesThatNoCutFits) {
  OpDef defect = copy_of("neg");
  defect.examples = [] { return std::vector<Example>{{{{DType::kF32, {5, 7}}}}}; };

  EXPECT_THAT(conformance::check_sharding(defect, 1), IsEmpty()) << "its linear set is still checked";
  defect.shard = Facet<ShardFn>([](const TypeArgs& args) { return parse_rule("*->*", args.in, args.out); });
  EXPECT_THAT(conformance::check_sharding(defect, 1), Contains("neg: no example has a size that 2 or 3 divides"));
}

TEST(ConformanceFinds, FacetsAbsentWithoutAReason) {
  OpDef defect = copy_of("neg");
  defect.grad = Facet<GradFn>::none("");
  defect.shard = Facet<ShardFn>::none("");
  defect.cost = Facet<CostFn>::none("");

  EXPECT_THAT(conformance::check_gradient(defect, 1), Contains("has no gradient and no reason"));
  EXPECT_THAT(conformance::check_sharding(defect, 1), Contains("has no rule and no reason"));
  EXPECT_THAT(conformance::check_cost(defect, 1), Contains("has no cost and no reason"));
}

TEST(ConformanceFinds, ACostThatIgnoresTheCut) {
  OpDef defect = copy_of("matmul");
  defect.cost = Facet<CostFn>([](const TypeArgs& args) { return Cost{1e6, tensor_bytes(args)}; });

  EXPECT_THAT(conformance::check_cost(defect, 1), Contains(HasSubstr("the pieces do 2000000 operations in all")));
}

TEST(ConformanceFinds, ACostBelowWhatMustMove) {
  OpDef defect = copy_of("neg");
  defect.cost = Facet<CostFn>([](const TypeArgs&) { return Cost{-1, 0}; });

  EXPECT_THAT(conformance::check_cost(defect, 1), Contains(HasSubstr("flops -1, bytes 0")));
  EXPECT_THAT(conformance::check_cost(defect, 1), Contains(HasSubstr("0 bytes moved, but its results have 96")));
}

TEST(ConformanceFinds, AttributesThatAreLost) {
  OpDef defect = copy_of("scale");
  defect.parse_attrs = [](std::string_view) { return op("scale").parse_attrs("{}"); };

  EXPECT_THAT(conformance::check_text(defect, 1), Contains(HasSubstr("attributes read back as {value=1}")));
}

TEST(ConformanceFinds, AWriteOutsideTheResult) {
  OpDef defect = copy_of("neg");
  defect.kernel = Facet<KernelFn>([](const KernelArgs& args) {
    op("neg").kernel.get()(args);
    args.out[0].data[args.out[0].bytes()] = std::byte{7};
  });

  EXPECT_THAT(conformance::check_memory(defect, 1), Contains(HasSubstr("writes outside result 0")));
}

TEST(ConformanceFinds, AnElementThatIsNotWritten) {
  OpDef defect = copy_of("neg");
  defect.kernel = Facet<KernelFn>([](const KernelArgs& args) {
    std::vector<std::byte> old(args.out[0].raw().begin(), args.out[0].raw().end());
    op("neg").kernel.get()(args);
    args.out[0].raw().back() = old.back();
  });

  EXPECT_THAT(conformance::check_memory(defect, 1),
              Contains(HasSubstr("result 0 depends on what was in its bytes before")));
}

TEST(ConformanceFinds, AnOperandThatIsChanged) {
  OpDef defect = copy_of("neg");
  defect.kernel = Facet<KernelFn>([](const KernelArgs& args) {
    op("neg").kernel.get()(args);
    args.in[0].data[0] ^= std::byte{1};
  });

  EXPECT_THAT(conformance::check_memory(defect, 1), Contains(HasSubstr("changes operand 0")));
}

TEST(ConformanceFinds, AResultThatMayNotBeWrittenOverItsOperand) {
  OpDef defect = copy_of("transpose");
  defect.may_overwrite = {{0, 0}};

  EXPECT_THAT(conformance::check_memory(defect, 1),
              Contains(HasSubstr("result 0 differs when result 0 is written over operand 0")));
}

TEST(ConformanceFinds, AViewThatIsNone) {
  OpDef defect = copy_of("neg");
  defect.traits.zero_cost_view = true;

  EXPECT_THAT(conformance::check_memory(defect, 1), Contains(HasSubstr("is called a view")));
}

TEST(ConformanceFinds, CollectivesThatDoNotFitTogether) {
  OpDef defect = copy_of("all_to_all");
  defect.collective->call = [](const Attrs&) { return GroupCall{.parted = 0}; };
  EXPECT_THAT(conformance::check_collective(defect, 1), Contains(HasSubstr("its pieces make f32[2,4] of f32[6,4]")));
  defect.collective->call = nullptr;
  EXPECT_THAT(conformance::check_collective(defect, 1), Contains(HasSubstr("a collective has groups, and a call")));

  defect = copy_of("take_windows");
  defect.collective->exchange = [](const TypeArgs& types, int64_t place) {
    Exchange out = op("take_windows").collective->exchange(types, place);
    if (place == 1) out.sends.clear();
    return out;
  };
  EXPECT_THAT(conformance::check_collective(defect, 1), Contains(HasSubstr("place 1 sends other boxes to 0")));
  defect.collective->exchange = [](const TypeArgs& types, int64_t place) {
    Exchange out = op("take_windows").collective->exchange(types, place);
    for (Exchange::Part& part : out.receipts) part.box.start[1] += 100;
    return out;
  };
  EXPECT_THAT(conformance::check_collective(defect, 1), Contains(HasSubstr("place 0 has a box outside its tensor")));
}

TEST(CheckKernel, AcceptsRoundingAndFindsWrongElements) {
  const OpDef& exp = op("exp");
  const Example example = exp.examples()[0];
  KernelFn* rounding = [](const KernelArgs& args) {
    op("exp").kernel.get()(args);
    if (args.out[0].type.dtype == DType::kF32) args.out[0].as<float>()[3] *= 1.0000001F;
  };
  KernelFn* wrong = [](const KernelArgs& args) {
    op("exp").kernel.get()(args);
    if (args.out[0].type.dtype == DType::kF32) args.out[0].as<float>()[3] *= 1.001F;
  };

  EXPECT_THAT(conformance::check_kernel(exp, example, exp.kernel.get(), 1), IsEmpty());
  EXPECT_THAT(conformance::check_kernel(exp, example, rounding, 1), IsEmpty());
  EXPECT_THAT(conformance::check_kernel(exp, example, wrong, 1),
              Contains(HasSubstr("exp(f32[4,6]) {}: result 0 element 3")));
}

TEST(Filled, DrawsWhatTheFillSays) {
  const TensorType type{DType::kF32, {64}};
  const HostTensor uniform = conformance::filled(type, {Fill::Kind::kUniform, 2, 3}, 5);
  const HostTensor integers = conformance::filled(type, {Fill::Kind::kIntegers, -2, 2}, 5);
  const HostTensor distinct = conformance::filled(type, {Fill::Kind::kDistinct, -1, 1}, 5);
  std::vector<float> sorted(distinct.as<float>().begin(), distinct.as<float>().end());
  std::sort(sorted.begin(), sorted.end());

  for (const float x : uniform.as<float>()) EXPECT_TRUE(x >= 2 && x < 3) << x;
  for (const float x : integers.as<float>()) EXPECT_TRUE(x == std::floor(x) && x >= -2 && x < 2) << x;
  for (size_t i = 1; i < sorted.size(); ++i) EXPECT_NEAR(sorted[i] - sorted[i - 1], 2.0 / 64, 1e-6);
  EXPECT_FALSE(std::equal(sorted.begin(), sorted.end(), distinct.as<float>().begin()));
}

// -- the document
// ---------------------------------------------------------------------------------------------

TEST(OpsDocument, IsTheCommittedOne) {
  const auto committed = std::filesystem::path(TRIREME_SOURCE_DIR) / "docs/ops.md";
  std::ifstream file(committed, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (text.str() == ops_document()) return;
  const std::filesystem::path written = std::filesystem::absolute("ops.md");
  std::ofstream(written, std::ios::binary) << ops_document();

  FAIL() << "docs/ops.md is not what the registry says; to update it: cp " << written << " " << committed;
}

TEST(OpsDocument, NamesAbsentFacetsAndTheirReasons) {
  const std::string text = ops_document();

  EXPECT_THAT(text, HasSubstr("## argmax\n\n`argmax(x)`: y = first index of the largest element along dim\n"));
  EXPECT_THAT(text, HasSubstr("- no gradient: integer result\n"));
  EXPECT_THAT(text, HasSubstr("- attributes and defaults: `{transpose_a=false, transpose_b=false}`\n"));
  EXPECT_THAT(text, HasSubstr("`mk,kn->mn m=4 k=6 n=8`\n- linear in: a; b\n"));
}

}  // namespace
}  // namespace trireme::conformance_test
