#include "trireme/ops/elementwise/elementwise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "trireme/op/interpret.h"
#include "trireme/op/registry.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/run_op_for_tests.h"

namespace trireme::elementwise_test {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

double at(std::string_view name, double x, std::string_view attrs = "{}") {
  return run_op(name, {HostTensor::of<double>({}, {x})}, attrs)[0].as<double>()[0];
}

// Values to 12 digits from tables of functions, not from the C library.
TEST(Elementwise, UnaryFunctionsHaveTheirTabulatedValues) {
  EXPECT_NEAR(at("exp", 1), 2.718281828459, 1e-12);
  EXPECT_NEAR(at("log", 2), 0.693147180560, 1e-12);
  EXPECT_NEAR(at("sqrt", 2), 1.414213562373, 1e-12);
  EXPECT_NEAR(at("rsqrt", 4), 0.5, 1e-15);
  EXPECT_NEAR(at("reciprocal", -4), -0.25, 1e-15);
  EXPECT_NEAR(at("tanh", 1), 0.761594155956, 1e-12);
  EXPECT_NEAR(at("sigmoid", 1), 0.731058578630, 1e-12);
  EXPECT_NEAR(at("erf", 1), 0.842700792950, 1e-12);
  EXPECT_NEAR(at("sin", 1), 0.841470984808, 1e-12);
  EXPECT_NEAR(at("cos", 1), 0.540302305868, 1e-12);
  EXPECT_NEAR(at("silu", 1), 0.731058578630, 1e-12);
  EXPECT_NEAR(at("gelu", 1), 0.841344746069, 1e-12);
  EXPECT_NEAR(at("gelu", 1, "{approximate=true}"), 0.841191990608, 1e-12);
  EXPECT_NEAR(at("gelu", -2), -0.045500263896, 1e-12);
  EXPECT_EQ(at("neg", 3), -3);
  EXPECT_EQ(at("abs", -3), 3);
  EXPECT_EQ(at("square", -3), 9);
  EXPECT_EQ(at("relu", -3), 0);
  EXPECT_EQ(at("relu", 3), 3);
  EXPECT_EQ(at("sign", -3), -1);
  EXPECT_EQ(at("sign", 0), 0);
  EXPECT_EQ(at("scale", 3, "{value=-2.5}"), -7.5);
  EXPECT_EQ(at("add_scalar", 3, "{value=-2.5}"), 0.5);
  EXPECT_EQ(at("pow_scalar", 3, "{value=3}"), 27);
  EXPECT_EQ(at("clamp", 3, "{low=-1, high=2}"), 2);
  EXPECT_EQ(at("clamp", -3, "{low=-1, high=2}"), -1);
}

TEST(Elementwise, NotANumberStaysOne) {
  const double nan = std::nan("");

  EXPECT_TRUE(std::isnan(at("relu", nan)));
  const HostTensor x = HostTensor::of<double>({}, {nan});
  const HostTensor one = HostTensor::of<double>({}, {1});
  for (const std::string_view name : {"maximum", "minimum"}) {
    EXPECT_TRUE(std::isnan(run_op(name, {x, one})[0].as<double>()[0])) << name;
    EXPECT_TRUE(std::isnan(run_op(name, {one, x})[0].as<double>()[0])) << name;
  }
}

TEST(Elementwise, BinaryFunctionsBroadcastAsNumpyDoes) {
  const HostTensor column = HostTensor::of<float>({2, 1}, {1, 10});
  const HostTensor row = HostTensor::of<float>({3}, {1, 2, 4});

  EXPECT_THAT(run_op("add", {column, row})[0].as<float>(), ElementsAre(2, 3, 5, 11, 12, 14));
  EXPECT_THAT(run_op("sub", {column, row})[0].as<float>(), ElementsAre(0, -1, -3, 9, 8, 6));
  EXPECT_THAT(run_op("mul", {column, row})[0].as<float>(), ElementsAre(1, 2, 4, 10, 20, 40));
  EXPECT_THAT(run_op("div", {column, row})[0].as<float>(), ElementsAre(1, 0.5, 0.25, 10, 5, 2.5));
  EXPECT_THAT(run_op("maximum", {column, row})[0].as<float>(), ElementsAre(1, 2, 4, 10, 10, 10));
  EXPECT_THAT(run_op("minimum", {column, row})[0].as<float>(), ElementsAre(1, 1, 1, 1, 2, 4));
  EXPECT_THAT(run_op("pow", {column, row})[0].as<float>(), ElementsAre(1, 1, 1, 10, 100, 10000));
  EXPECT_THAT(run_op("equal", {column, row})[0].as<bool>(), ElementsAre(true, false, false, false, false, false));
  EXPECT_THAT(run_op("less", {column, row})[0].as<bool>(), ElementsAre(false, true, true, false, false, false));
  EXPECT_THAT(run_op("greater", {column, row})[0].as<bool>(), ElementsAre(false, false, false, true, true, true));
}

TEST(Elementwise, BroadcastsAMiddleDimensionAndAScalar) {
  const HostTensor x = HostTensor::of<int32_t>({2, 1, 2}, {1, 2, 3, 4});
  const HostTensor y = HostTensor::of<int32_t>({3, 1}, {10, 20, 30});
  const HostTensor s = HostTensor::of<int32_t>({}, {100});

  EXPECT_THAT(run_op("add", {x, y})[0].as<int32_t>(), ElementsAre(11, 12, 21, 22, 31, 32, 13, 14, 23, 24, 33, 34));
  EXPECT_THAT(run_op("add", {s, x})[0].as<int32_t>(), ElementsAre(101, 102, 103, 104));
}

TEST(Elementwise, SelectAndLogicFollowTheirConditions) {
  const HostTensor yes = HostTensor::of<float>({2}, {1, 2});
  const HostTensor no = HostTensor::of<float>({}, {-1});
  HostTensor a({DType::kBool, {2}}), b({DType::kBool, {2}});
  a.as<bool>()[0] = a.as<bool>()[1] = b.as<bool>()[1] = true;

  EXPECT_THAT(run_op("select", {b, yes, no})[0].as<float>(), ElementsAre(-1, 2));
  EXPECT_THAT(run_op("logical_and", {a, b})[0].as<bool>(), ElementsAre(false, true));
  EXPECT_THAT(run_op("logical_not", {b})[0].as<bool>(), ElementsAre(true, false));
}

// dy = 1.
std::vector<double> gradients_of_pow(double a, double b) {
  Graph graph;
  std::vector<Tensor> in;
  std::map<std::string, HostTensor> values;
  for (const auto& [name, value] : {std::pair{"a", a}, {"b", b}, {"dy", 1.0}}) {
    in.emplace_back(graph, graph.add_input(name, {DType::kF64, {}}, Role::kData));
    values.emplace(name, HostTensor::of<double>({}, {value}));
  }
  const std::vector<Tensor> operands{in[0], in[1]}, out{pow(in[0], in[1])}, dout{in[2]};
  const std::vector<char> wanted{1, 1};
  const std::vector<Tensor> d = find_op("pow")->grad.get()({operands, out, dout, wanted, Attrs()});
  graph.add_output("da", d[0].id());
  graph.add_output("db", d[1].id());
  const auto found = interpret(graph, values);
  return {found.at("da").as<double>()[0], found.at("db").as<double>()[0]};
}

// As PyTorch has them.
TEST(Elementwise, PowersOfZeroHaveGradients) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  EXPECT_THAT(gradients_of_pow(0, 2), ElementsAre(0, 0));
  EXPECT_THAT(gradients_of_pow(0, 1), ElementsAre(1, 0));
  EXPECT_THAT(gradients_of_pow(0, 0), ElementsAre(0, 0));
  EXPECT_THAT(gradients_of_pow(0, -1), ElementsAre(-inf, -inf));
  EXPECT_THAT(gradients_of_pow(-2, 2), ElementsAre(-4, testing::IsNan()));
  EXPECT_THAT(gradients_of_pow(-2, 0), ElementsAre(0, testing::IsNan()));
  EXPECT_THAT(gradients_of_pow(0, nan), ElementsAre(testing::IsNan(), testing::IsNan()));
}

TEST(Elementwise, CastRoundsAndTruncates) {
  const HostTensor x = HostTensor::of<float>({4}, {-1.75F, 0, 2.5F, 1 + 0x1p-9F});

  EXPECT_THAT(run_op("cast", {x}, "{dtype=i64}")[0].as<int64_t>(), ElementsAre(-1, 0, 2, 1));
  EXPECT_THAT(run_op("cast", {x}, "{dtype=bool}")[0].as<bool>(), ElementsAre(true, false, true, true));
  EXPECT_EQ(static_cast<float>(run_op("cast", {x}, "{dtype=bf16}")[0].as<BFloat16>()[3]), 1);
}

TEST(Elementwise, IntegersAreNotComputedInFloatingPoint) {
  const int64_t big = (int64_t{1} << 60) + 1;
  const HostTensor x = HostTensor::of<int64_t>({}, {big});
  const HostTensor two = HostTensor::of<int64_t>({}, {2});

  EXPECT_EQ(run_op("mul", {x, two})[0].as<int64_t>()[0], 2 * big);
  EXPECT_EQ(run_op("add_scalar", {x}, "{value=2}")[0].as<int64_t>()[0], big + 2);
}

TEST(Elementwise, OperatorsMeanWhatTheySay) {
  Graph graph;
  const Tensor x(graph, graph.add_input("x", f32({2}), Role::kData));
  const Tensor y(graph, graph.add_input("y", f32({2}), Role::kData));
  graph.add_output("tensors", ((x + y) * (x - y) / y).id());
  graph.add_output("numbers", (1 - (2 * x + 3) / 4 + -x - 1 + 6 / y + (x * 2) + (1 + x)).id());
  std::map<std::string, HostTensor> in;
  in.emplace("x", vec({5, -1}));
  in.emplace("y", vec({2, 4}));

  const auto out = interpret(graph, in);

  EXPECT_THAT(out.at("tensors").as<float>(), ElementsAre(10.5F, -3.75F));
  // 1 - 13/4 - 5 - 1 + 3 + 10 + 6; 1 - 1/4 + 1 - 1 + 1.5 - 2 + 0
  EXPECT_THAT(out.at("numbers").as<float>(), ElementsAre(10.75F, 0.25F));
}

TEST(Elementwise, ErrorsNameOpAndTypes) {
  Graph graph;
  const auto input = [&](TensorType type) {
    return Tensor(graph, graph.add_input(fmt::format("x{}", graph.inputs().size()), type, Role::kData));
  };
  const Tensor x = input(f32({2, 3}));
  const Tensor n = input(i64({2, 3}));
  const Tensor b = input({DType::kBool, {2, 3}});

  EXPECT_EQ(error_text([&] {
              add(x, input(f32({4, 3})));
            }),
            "add: size 4 of dimension 0 of operand 1 (f32[4,3]) does not broadcast to 2; sizes "
            "must be equal or 1 "
            "counted from the last dimension");
  EXPECT_EQ(error_text([&] { add(x, n); }),
            "add: operands must be of one type (a f32[2,3], b i64[2,3]); cast one of them");
  EXPECT_EQ(error_text([&] { mul(b, b); }), "mul: operands must be numbers (a bool[2,3], b bool[2,3])");
  EXPECT_EQ(error_text([&] { div(n, n); }), "div: operands must be of a floating type (a i64[2,3], b i64[2,3])");
  EXPECT_EQ(error_text([&] { less(x, n); }),
            "less: operands must be of one type (a f32[2,3], b i64[2,3]); cast one of them");
  EXPECT_EQ(error_text([&] { logical_and(b, x); }), "logical_and: operands must be bool (a bool[2,3], b f32[2,3])");
  EXPECT_EQ(error_text([&] { logical_not(x); }), "logical_not: the operand must be bool (x f32[2,3])");
  EXPECT_EQ(error_text([&] { select(x, x, x); }),
            "select: the condition must be bool, it is f32[2,3]; compare it with a value");
  EXPECT_EQ(error_text([&] { select(b, x, n); }),
            "select: a and b must be of one type (a f32[2,3], b i64[2,3]); cast one of them");
  EXPECT_EQ(error_text([&] { exp(n); }), "exp: the operand must be of a floating type (x i64[2,3])");
  EXPECT_EQ(error_text([&] { neg(b); }), "neg: the operand must be a number (x bool[2,3])");
  EXPECT_EQ(error_text([&] { gelu(n); }), "gelu: the operand must be of a floating type (x i64[2,3])");
  EXPECT_EQ(error_text([&] { relu_grad(x, input(f32({3}))); }),
            "relu_grad: operands must be of one floating type and shape (f32[2,3], f32[3])");
  EXPECT_EQ(error_text([&] { gelu_grad(x, input(f32({3}))); }),
            "gelu_grad: operands must be of one floating type and shape (f32[2,3], f32[3])");
  EXPECT_EQ(error_text([&] { scale(n, 0.5); }), "scale: 0.5 is not a whole number and x is i64[2,3]; cast x first");
  EXPECT_EQ(error_text([&] { scale(b, 2); }), "scale: the operand must be a number (x bool[2,3])");
  EXPECT_EQ(error_text([&] { clamp(x, 2, 1); }), "clamp: low 2 is above high 1; it must not be");
  EXPECT_EQ(error_text([&] { clamp(n, 1, 2); }), "clamp: the operand must be of a floating type (x i64[2,3])");
}

TEST(Elementwise, HalfPrecisionOfTheOtherKindIsTurnedDown) {
  const HostTensor x({DType::kF16, {2}});

  EXPECT_EQ(error_text([&] { run_op("neg", {x}); }), "neg: no kernel for f16; use f32, bf16, f64, i32 or i64");
}

}  // namespace
}  // namespace trireme::elementwise_test
