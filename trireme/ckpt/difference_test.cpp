#include "trireme/ckpt/difference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "trireme/ckpt/checkpoint.h"
#include "trireme/ckpt/checkpoints_for_tests.h"
#include "trireme/ckpt/open_tensors.h"
#include "trireme/ckpt/safetensors.h"

namespace trireme::ckpt::difference_test {
namespace {

using testing::ElementsAre;

Weights weights(const std::string& path, const std::vector<std::pair<std::string, HostTensor>>& tensors) {
  std::vector<NamedView> views;
  for (const auto& [name, tensor] : tensors) views.push_back({name, tensor.view()});
  write_safetensors(path, views);
  return Weights::open(path);
}

HostTensor floats(const std::vector<float>& values) {
  return HostTensor::of<float>({static_cast<int64_t>(values.size())}, values);
}

std::vector<std::pair<std::string, HostTensor>> listed(
    std::initializer_list<std::pair<const char*, HostTensor*>> tensors) {
  std::vector<std::pair<std::string, HostTensor>> out;
  for (const auto& [name, tensor] : tensors) out.emplace_back(name, tensor->clone());
  return out;
}

TEST(Difference, SaysWhichTensorsAndByHowMuch) {
  const TempDirectory dir;
  HostTensor same = floats({1, NAN}), a = floats({1, -4, 3}), b = floats({1, -4.5F, 3}), longer = floats({1, 2, 3, 4});
  HostTensor ids = HostTensor::of<int64_t>({3}, std::vector<int64_t>{1, 2, 3}),
             others = HostTensor::of<int64_t>({3}, std::vector<int64_t>{1, 5, 6});
  const Weights first =
      weights(dir / "1.safetensors", listed({{"same", &same}, {"w", &a}, {"shape", &a}, {"ids", &ids}, {"mine", &a}}));
  const Weights second = weights(
      dir / "2.safetensors", listed({{"same", &same}, {"w", &b}, {"shape", &longer}, {"ids", &others}, {"yours", &a}}));
  const Difference found = difference(first, second);
  EXPECT_FALSE(found.none());
  EXPECT_EQ(found.equal, 1);
  EXPECT_THAT(found.only_first, ElementsAre("mine"));
  EXPECT_THAT(found.only_second, ElementsAre("yours"));
  ASSERT_EQ(found.types.size(), 1u);
  EXPECT_EQ(found.types[0].second, (TensorType{DType::kF32, {4}}));
  ASSERT_EQ(found.values.size(), 2u);
  EXPECT_EQ(found.values[0].name, "ids");
  EXPECT_EQ(found.values[0].elements, 2);
  EXPECT_EQ(found.values[1].name, "w");
  EXPECT_EQ(found.values[1].elements, 1);
  EXPECT_EQ(found.values[1].largest, 0.5);
  EXPECT_EQ(found.values[1].magnitude, 4);
  EXPECT_EQ(found.types[0].elements, 0) << "other shapes have no elements to compare";
  EXPECT_TRUE(difference(first, first).none());
}

TEST(Difference, NumbersThatAreNoneAreFoundAndZerosOfBothSignsAreEqual) {
  const TempDirectory dir;
  HostTensor a = floats({0.0F, NAN, 1, INFINITY}), b = floats({-0.0F, NAN, NAN, INFINITY});
  const Difference found = difference(weights(dir / "1.safetensors", listed({{"w", &a}})),
                                      weights(dir / "2.safetensors", listed({{"w", &b}})));
  ASSERT_EQ(found.values.size(), 1u);
  EXPECT_EQ(found.values[0].elements, 1);
  EXPECT_EQ(found.values[0].largest, std::numeric_limits<double>::infinity());
}

TEST(Difference, OtherTypesAreADifferenceAndTheirNumbersAreCompared) {
  const TempDirectory dir;
  HostTensor a = floats({1, 1.001F}), b(TensorType{DType::kBF16, {2}});
  b.as<BFloat16>()[0] = b.as<BFloat16>()[1] = BFloat16(1.0F);
  const Difference found = difference(weights(dir / "1.safetensors", listed({{"w", &a}})),
                                      weights(dir / "2.safetensors", listed({{"w", &b}})));
  ASSERT_EQ(found.types.size(), 1u);
  EXPECT_EQ(found.types[0].elements, 1);
  EXPECT_NEAR(found.types[0].largest, 1e-3, 1e-6);
}

// More elements than are looked at together: the last one differs.
TEST(Difference, LargeTensorsAreComparedToTheirEnd) {
  const TempDirectory dir;
  HostTensor a(TensorType{DType::kBF16, {200'001}}), b(a.type());
  b.as<BFloat16>().back() = BFloat16(2.0F);
  const Difference found = difference(weights(dir / "1.safetensors", listed({{"w", &a}})),
                                      weights(dir / "2.safetensors", listed({{"w", &b}})));
  ASSERT_EQ(found.values.size(), 1u);
  EXPECT_EQ(found.values[0].elements, 1);
  EXPECT_EQ(found.values[0].largest, 2);
}

TEST(Difference, BetweenACheckpointInBoxesAndItsTensorsUnderOtherNamesIsNone) {
  const TempDirectory dir;
  const Shared whole = shared(filled({DType::kF32, {6, 5}}, 3));
  World world(3);
  world.save_or_throw(dir / "checkpoints", {random_cut("h.0.w", whole, 3, 11)}, {.step = 1});
  HostTensor copy = whole->clone();
  const Weights published = weights(dir / "w.safetensors", listed({{"model.h.0.w", &copy}}));
  const auto saved = open_tensors(dir.path());  // as a run's folder
  EXPECT_FALSE(difference(*saved, published).none());
  EXPECT_TRUE(difference(*saved, published, {.renames = {{"*", "model.*"}}}).none());
}

}  // namespace
}  // namespace trireme::ckpt::difference_test
