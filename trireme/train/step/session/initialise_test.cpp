#include "trireme/train/step/session/initialise.h"

#include <gtest/gtest.h>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::initialise_test {
namespace {

const Init kNormal{Init::Kind::kNormal, 0.5, 2};
const Init kUniform{Init::Kind::kUniform, -3, 5};
const Init kSeven{Init::Kind::kConstant, 7, 0};

HostTensor made(const Box& box, const Shape& whole, const Init& init, uint64_t seed = 1, const char* name = "w") {
  HostTensor out(TensorType{DType::kF32, box.size});
  initialise(out.view(), box, whole, init, seed, name);
  return out;
}

std::vector<float> values(const HostTensor& tensor) {
  return {tensor.as<float>().begin(), tensor.as<float>().end()};
}

TEST(Initialise, every_piece_is_the_slice_of_the_whole) {
  const Shape whole{6, 5, 8};
  for (const Init& init : {kNormal, kUniform, kSeven, Init{}}) {
    const HostTensor all = made(Box::whole(whole), whole, init);
    for (const Box& box :
         {Box{{2, 0, 0}, {2, 5, 8}}, Box{{0, 1, 0}, {6, 3, 8}}, Box{{1, 2, 3}, {4, 2, 5}}, Box{{5, 4, 7}, {1, 1, 1}}}) {
      HostTensor slice(TensorType{DType::kF32, box.size});
      copy_region(all.view(), Box::whole(whole), slice.view(), box, box);
      EXPECT_EQ(values(made(box, whole, init)), values(slice)) << to_string(init) << " " << to_string(box);
    }
  }
}

TEST(Initialise, values_have_the_distribution_asked_for) {
  const Shape whole{40000};
  double sum = 0;
  double squares = 0;
  for (const float x : values(made(Box::whole(whole), whole, kNormal))) {
    sum += x;
    squares += (x - 0.5) * (x - 0.5);
  }
  EXPECT_NEAR(sum / 40000, 0.5, 5 * 2 / 200.0);  // five standard errors
  EXPECT_NEAR(squares / 40000, 4, 5 * 4 * std::sqrt(2.0) / 200.0);
  double mean = 0;
  for (const float x : values(made(Box::whole(whole), whole, kUniform))) {
    ASSERT_GE(x, -3);
    ASSERT_LT(x, 5);
    mean += x / 40000.0;
  }
  EXPECT_NEAR(mean, 1, 5 * 8 / std::sqrt(12.0) / 200.0);
}

TEST(Initialise, seed_and_name_each_give_other_values) {
  const Shape whole{16};
  const Box box = Box::whole(whole);
  EXPECT_EQ(values(made(box, whole, kNormal, 1, "w")), values(made(box, whole, kNormal, 1, "w")));
  EXPECT_NE(values(made(box, whole, kNormal, 1, "w")), values(made(box, whole, kNormal, 2, "w")));
  EXPECT_NE(values(made(box, whole, kNormal, 1, "w")), values(made(box, whole, kNormal, 1, "v")));
}

TEST(Initialise, a_scalar_has_a_value_too) {
  EXPECT_EQ(made(Box{}, Shape{}, kSeven).as<float>()[0], 7);
}

TEST(Initialise, only_zeros_are_made_in_other_types_than_f32) {
  HostTensor half(TensorType{DType::kBF16, {4}});
  EXPECT_NO_THROW(initialise(half.view(), Box::whole({4}), {4}, Init{}, 1, "w"));
  try {
    initialise(half.view(), Box::whole({4}), {4}, kSeven, 1, "w");
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "parameter 'w' is bf16[4]; starting values are made in f32");
  }
}

}  // namespace
}  // namespace trireme::initialise_test
