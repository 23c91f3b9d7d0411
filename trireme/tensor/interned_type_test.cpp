#include "trireme/tensor/interned_type.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace trireme::interned_type_test {
namespace {

TEST(InternedType, equal_types_are_one_and_others_are_not) {
  const TensorType& one = interned({DType::kF32, {4, 8}});
  EXPECT_EQ(one, (TensorType{DType::kF32, {4, 8}}));
  EXPECT_EQ(&one, &interned({DType::kF32, {4, 8}}));
  EXPECT_NE(&one, &interned({DType::kF32, {8, 4}}));
  EXPECT_NE(&one, &interned({DType::kBF16, {4, 8}}));
  EXPECT_NE(&one, &interned({DType::kF32, {4, 8, 1}}));
  EXPECT_EQ(&one, &interned(one));
}

TEST(InternedType, are_those_of_all_threads) {
  constexpr int64_t kTypes = 2000;  // more than a thread remembers
  const auto all = [] {
    std::vector<const TensorType*> out;
    for (int64_t i = 0; i < kTypes; ++i) out.push_back(&interned({DType::kI32, {i, 3}}));
    return out;
  };
  std::vector<std::vector<const TensorType*>> of_threads(3);
  std::vector<std::thread> threads;
  for (auto& found : of_threads) threads.emplace_back([&] { found = all(); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& found : of_threads) EXPECT_EQ(found, all());
}

}  // namespace
}  // namespace trireme::interned_type_test
