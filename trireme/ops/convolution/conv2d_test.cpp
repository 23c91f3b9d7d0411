#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/ops/run_op_for_tests.h"

namespace trireme::conv2d_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

HostTensor image(const Shape& shape, const std::vector<float>& values) {
  return HostTensor::of<float>(shape, values);
}
HostTensor counting(const Shape& shape) {
  HostTensor out({DType::kF32, shape});
  for (size_t i = 0; i < out.as<float>().size(); ++i) out.as<float>()[i] = static_cast<float>(i + 1);
  return out;
}

TEST(Conv2d, SlidesTheKernelOverTheImage) {
  // 1 2 3
  // 4 5 6   with the kernel 1 0 / 0 10
  // 7 8 9
  const auto y = run_op("conv2d", {counting({1, 3, 3, 1}), image({1, 2, 2, 1}, {1, 0, 0, 10})});

  EXPECT_EQ(y[0].shape(), Shape({1, 2, 2, 1}));
  EXPECT_THAT(values(y[0]), ElementsAre(51, 62, 84, 95));
}

TEST(Conv2d, PadsEachSideByItsOwnAmountAndSteps) {
  const auto y = run_op("conv2d", {counting({1, 2, 2, 1}), image({1, 2, 2, 1}, {1, 10, 100, 1000})},
                        "{stride=[2,1], padding=[1,1,0,1]}");

  // The image with padding: 0 0 0 / 1 2 0 / 3 4 0 / 0 0 0, rows two by two.
  EXPECT_EQ(y[0].shape(), Shape({1, 2, 2, 1}));
  EXPECT_THAT(values(y[0]), ElementsAre(2100, 200, 43, 4));
}

TEST(Conv2d, DilationLeavesGaps) {
  const auto y = run_op("conv2d", {counting({1, 1, 5, 1}), image({1, 1, 2, 1}, {1, 100})}, "{dilation=[1,3]}");

  EXPECT_THAT(values(y[0]), ElementsAre(401, 502));
}

TEST(Conv2d, GroupsSeeTheirOwnChannels) {
  // Two groups of one input and two output channels each.
  const auto y = run_op("conv2d", {image({1, 1, 1, 2}, {3, 5}), image({4, 1, 1, 1}, {1, 10, 100, 1000})}, "{groups=2}");

  EXPECT_THAT(values(y[0]), ElementsAre(3, 30, 500, 5000));
}

TEST(Conv2d, RefusesChannelsThatDoNotMatch) {
  const std::string text = error_text([] { run_op("conv2d", {counting({1, 3, 3, 2}), counting({1, 2, 2, 3})}); });

  EXPECT_THAT(text, HasSubstr("conv2d: channels do not fit 1 groups: the weight must have x's 2 channels"));
}

TEST(Conv2d, RefusesAKernelLargerThanTheImage) {
  const std::string text = error_text([] { run_op("conv2d", {counting({1, 3, 3, 1}), counting({1, 5, 1, 1})}); });

  EXPECT_EQ(text,
            "conv2d: a window of 5 positions does not fit dimension 1, which has 3 with padding (x "
            "f32[1,3,3,1])");
}

TEST(Conv2d, RefusesAStrideOfZeroAndPaddingOfThreeSides) {
  const auto refusal = [](std::string_view attrs) {
    return error_text([&] { run_op("conv2d", {counting({1, 3, 3, 1}), counting({1, 1, 1, 1})}, attrs); });
  };

  EXPECT_EQ(refusal("{stride=[0,1]}"), "conv2d: stride is [0,1]; it must be [h,w], each at least 1 and at most 2^24");
  EXPECT_EQ(refusal("{padding=[1,1,1]}"),
            "conv2d: padding is [1,1,1]; it must be [h,w] or [top,bottom,left,right], none negative or above 2^24");
}

TEST(MaxPool2d, TakesTheLargestOfEachWindow) {
  const auto y = run_op("max_pool2d", {image({1, 2, 4, 1}, {1, 9, 3, 4, 5, 6, 8, 7})});

  EXPECT_THAT(values(y[0]), ElementsAre(9, 8));
}

TEST(MaxPool2d, PaddingNeverWins) {
  const auto y = run_op("max_pool2d", {image({1, 1, 2, 1}, {-5, -7})}, "{kernel=[1,2], stride=[1,2], padding=[0,1]}");

  EXPECT_THAT(values(y[0]), ElementsAre(-5, -7));
}

TEST(MaxPool2d, SendsTheGradientToTheFirstLargest) {
  const auto dx = run_op("max_pool2d_grad", {image({1, 1, 4, 1}, {2, 2, 1, 3}), image({1, 1, 2, 1}, {10, 20})},
                         "{kernel=[1,2], stride=[1,2]}");

  EXPECT_THAT(values(dx[0]), ElementsAre(10, 0, 0, 20));
}

TEST(MaxPool2d, RefusesPaddingAsLargeAsTheKernel) {
  const std::string text = error_text([] { run_op("max_pool2d", {counting({1, 4, 4, 1})}, "{padding=[2,2]}"); });

  EXPECT_EQ(text, "max_pool2d: padding of 2 and 2 for a kernel of 2; it must be smaller than the kernel");
}

TEST(AvgPool2d, AveragesWithOrWithoutPadding) {
  const auto pool = [](std::string_view attrs) {
    return values(run_op("avg_pool2d", {image({1, 1, 2, 1}, {4, 8})}, attrs)[0]);
  };

  EXPECT_THAT(pool("{kernel=[1,2], stride=[1,1], padding=[0,1]}"), ElementsAre(2, 6, 4));
  EXPECT_THAT(pool("{kernel=[1,2], stride=[1,1], padding=[0,1], count_padding=false}"), ElementsAre(4, 6, 8));
}

}  // namespace
}  // namespace trireme::conv2d_test
