// Errors of Winograd's convolutions against the bound that docs/design/numerics.md derives, element by element.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "trireme/backend/cpu/cases/case_types_for_tests.h"
#include "trireme/backend/cpu/cases/isas_for_tests.h"
#include "trireme/backend/cpu/kernels.h"
#include "trireme/op/conformance.h"
#include "trireme/op/op_attrs.h"
#include "trireme/op/registry.h"

namespace trireme::cpu::conv_winograd_test {
namespace {

constexpr double kP = 0.625, kQ = 1.5;
constexpr double kP2 = kP * kP, kQ2 = kQ * kQ, kOf0 = 1 / (kP2 * kQ2), kOfP = 1 / (2 * kP2 * (kP2 - kQ2)),
                 kOfQ = 1 / (2 * kQ2 * (kQ2 - kP2));

using Matrix = std::vector<std::vector<double>>;

const Matrix kPatch{{kP2 * kQ2, 0, -kP2 - kQ2, 0, 1, 0}, {0, -kP* kQ2, -kQ2, kP, 1, 0},
                    {0, kP* kQ2, -kQ2, -kP, 1, 0},       {0, -kQ* kP2, -kP2, kQ, 1, 0},
                    {0, kQ* kP2, -kP2, -kQ, 1, 0},       {0, kP2* kQ2, 0, -kP2 - kQ2, 0, 1}};
const Matrix kWeight{{kOf0, 0, 0},
                     {kOfP, kOfP* kP, kOfP* kP2},
                     {kOfP, -kOfP* kP, kOfP* kP2},
                     {kOfQ, kOfQ* kQ, kOfQ* kQ2},
                     {kOfQ, -kOfQ* kQ, kOfQ* kQ2},
                     {0, 0, 1}};
const Matrix kResult{{1, 1, 1, 1, 1, 0},
                     {0, kP, -kP, kQ, -kQ, 0},
                     {0, kP2, kP2, kQ2, kQ2, 0},
                     {0, kP2* kP, -kP2* kP, kQ2* kQ, -kQ2* kQ, 1}};

Matrix transposed(const Matrix& a) {
  Matrix out(a[0].size(), std::vector<double>(a.size()));
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a[i].size(); ++j) out[j][i] = a[i][j];
  }
  return out;
}

// |m| x |m|^T
Matrix of_sizes(const Matrix& m, const Matrix& x) {
  Matrix out(m.size(), std::vector<double>(m.size()));
  for (size_t i = 0; i < m.size(); ++i) {
    for (size_t j = 0; j < m.size(); ++j) {
      for (size_t a = 0; a < x.size(); ++a) {
        for (size_t b = 0; b < x.size(); ++b) out[i][j] += std::fabs(m[i][a] * x[a][b] * m[j][b]);
      }
    }
  }
  return out;
}

// Sizes of the numbers of one tile's channel: x[i, j, channel] of a tensor [.., side, side, channels].
Matrix sizes_of(const HostTensor& x, int64_t side, int64_t at, int64_t step) {
  Matrix out(static_cast<size_t>(side), std::vector<double>(static_cast<size_t>(side)));
  for (int64_t i = 0; i < side; ++i) {
    for (int64_t j = 0; j < side; ++j)
      out[static_cast<size_t>(i)][static_cast<size_t>(j)] =
          std::fabs(conformance::element(x, at + (i * side + j) * step));
  }
  return out;
}

// What the op's reference gives in f64, and a kernel in f32.
struct Results {
  HostTensor exact, computed;
};

HostTensor in_f64(const HostTensor& x) {
  HostTensor wide({DType::kF64, x.shape()});
  for (int64_t i = 0; i < x.type().elements(); ++i)
    wide.as<double>()[static_cast<size_t>(i)] = conformance::element(x, i);
  return wide;
}

HostTensor run(const Kernel& kernel, const std::vector<HostTensor>& operands, const TensorType& result,
               const Attrs& attrs) {
  HostTensor out(result);
  std::vector<View> in;
  std::vector<TensorType> types;
  for (const HostTensor& operand : operands) {
    in.push_back(operand.view());
    types.push_back(operand.type());
  }
  const std::vector<TensorType> out_types{result};
  std::vector<std::byte> scratch(static_cast<size_t>(kernel.scratch_bytes({types, out_types, attrs}, 1)));
  const std::vector<View> outs{out.view()};
  kernel.run({in, outs, {}, {}, attrs, scratch, nullptr, nullptr});
  return out;
}

Results results(std::string_view name, const std::vector<HostTensor>& operands, const Shape& result,
                const Attrs& attrs) {
  const std::vector<const Kernel*> all = kernels_of(op(name));
  const Kernel* winograd = nullptr;
  for (const Kernel* kernel : all) {
    if (kernel->name.ends_with(".winograd")) winograd = kernel;
  }
  std::vector<HostTensor> wide;
  for (const HostTensor& operand : operands) wide.push_back(in_f64(operand));
  return {run(*all.back(), wide, {DType::kF64, result}, attrs), run(*winograd, operands, {DType::kF32, result}, attrs)};
}

// Rounded so often on its way at most: `terms` times in the product, 18 times in transforms, and twice as often where
// multiply-adds are not fused.
double of_roundings(int64_t terms) {
  const double u = static_cast<double>(terms + 36) * 0x1p-24;
  return u / (1 - u);
}

constexpr int64_t kChannels = 19, kOutputs = 17;

// Of a channel's patch and taps, at each place.
void add_products(const Matrix& patch, const Matrix& taps, Matrix& sum) {
  const Matrix x = of_sizes(kPatch, patch), w = of_sizes(kWeight, taps);
  for (size_t i = 0; i < 36; ++i) sum[i / 6][i % 6] += x[i / 6][i % 6] * w[i / 6][i % 6];
}

// The 4 x 4 results of one of `channels`, made of sums of so many terms whose sizes sum to `sum`.
void expect_within_bound(const Results& got, const Matrix& sum, int64_t terms, int64_t channel, int64_t channels) {
  const Matrix bound = of_sizes(kResult, sum);
  for (int64_t i = 0; i < 16; ++i) {
    const int64_t at = i * channels + channel;
    EXPECT_NEAR(conformance::element(got.computed, at), conformance::element(got.exact, at),
                of_roundings(terms) * bound[static_cast<size_t>(i / 4)][static_cast<size_t>(i % 4)]);
  }
}

class WinogradOnEveryIsa : public testing::TestWithParam<TestIsa> {
 protected:
  void SetUp() override {
    if (!GetParam().is_there()) GTEST_SKIP() << "this machine has no " << GetParam().name();
    GetParam().use();
  }
  void TearDown() override { use_machine_isa(); }

  static std::vector<HostTensor> operands(const TensorType& a, const TensorType& b) {
    return conformance::operands_of({.in = {a, b}}, 7);
  }
};

INSTANTIATE_TEST_SUITE_P(Isa, WinogradOnEveryIsa, testing::ValuesIn(all_test_isas()),
                         [](const auto& each) { return each.param.name(); });

TEST_P(WinogradOnEveryIsa, ErrorsOfAResultAreWithinTheBound) {
  const auto in = operands(f32_of({1, 6, 6, kChannels}), f32_of({kOutputs, 3, 3, kChannels}));

  const Results got = results("conv2d", in, {1, 4, 4, kOutputs}, Attrs::of(Conv2dAttrs{}));

  for (int64_t o = 0; o < kOutputs; ++o) {
    Matrix sum(6, std::vector<double>(6));
    for (int64_t c = 0; c < kChannels; ++c) {
      add_products(sizes_of(in[0], 6, c, kChannels), sizes_of(in[1], 3, o * 9 * kChannels + c, kChannels), sum);
    }
    expect_within_bound(got, sum, kChannels, o, kOutputs);
  }
}

TEST_P(WinogradOnEveryIsa, ErrorsOfAnInputsGradientAreWithinTheBound) {
  const auto in = operands(f32_of({kOutputs, 3, 3, kChannels}), f32_of({1, 6, 6, kOutputs}));

  const Results got =
      results("conv2d_grad_input", in, {1, 4, 4, kChannels}, Attrs::of(Conv2dAttrs{.padding = {2, 2}, .size = {4, 4}}));

  for (int64_t c = 0; c < kChannels; ++c) {
    Matrix sum(6, std::vector<double>(6));
    for (int64_t o = 0; o < kOutputs; ++o) {
      // The taps in reverse.
      add_products(sizes_of(in[1], 6, o, kOutputs), sizes_of(in[0], 3, (o * 9 + 8) * kChannels + c, -kChannels), sum);
    }
    expect_within_bound(got, sum, kOutputs, c, kChannels);
  }
}

TEST_P(WinogradOnEveryIsa, ErrorsOfAWeightsGradientAreWithinTheBound) {
  const auto in = operands(f32_of({1, 6, 6, kChannels}), f32_of({1, 4, 4, kOutputs}));

  const Results got =
      results("conv2d_grad_weight", in, {kOutputs, 3, 3, kChannels}, Attrs::of(Conv2dAttrs{.size = {3, 3}}));

  for (int64_t o = 0; o < kOutputs; ++o) {
    const Matrix dy = of_sizes(transposed(kResult), sizes_of(in[1], 4, o, kOutputs));
    for (int64_t c = 0; c < kChannels; ++c) {
      Matrix product = of_sizes(kPatch, sizes_of(in[0], 6, c, kChannels));
      for (size_t i = 0; i < 36; ++i) product[i / 6][i % 6] *= dy[i / 6][i % 6];
      const Matrix bound = of_sizes(transposed(kWeight), product);
      for (int64_t i = 0; i < 9; ++i) {
        const int64_t at = (o * 9 + i) * kChannels + c;
        EXPECT_NEAR(conformance::element(got.computed, at), conformance::element(got.exact, at),
                    of_roundings(1) * bound[static_cast<size_t>(i / 3)][static_cast<size_t>(i % 3)]);
      }
    }
  }
}

}  // namespace
}  // namespace trireme::cpu::conv_winograd_test
