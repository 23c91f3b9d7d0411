#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/ops/run_op_for_tests.h"

namespace trireme::embedding_test {
namespace {

using testing::ElementsAre;

HostTensor table() {
  return HostTensor::of<float>({3, 2}, {0, 1, 10, 11, 20, 21});
}
HostTensor ids(const std::vector<int32_t>& values) {
  return HostTensor::of<int32_t>({static_cast<int64_t>(values.size())}, values);
}

TEST(Embedding, CopiesTheRowOfEachId) {
  EXPECT_THAT(values(run_op("embedding", {table(), ids({2, 0, 2})})[0]), ElementsAre(20, 21, 0, 1, 20, 21));
}

TEST(Embedding, OfAPieceOfTheTableGivesZerosForRowsElsewhere) {
  const std::vector<Place> places{{{6, 2}, {3, 0}}, {{3}, {0}}};  // the piece is rows 3 to 5 of 6
  const auto out = run_op("embedding", {table(), ids({4, 0, 5})}, "{}", places, {});

  EXPECT_THAT(values(out[0]), ElementsAre(10, 11, 0, 0, 20, 21));
}

TEST(Embedding, NamesAnIdOutsideTheVocabulary) {
  EXPECT_EQ(error_text([] {
              run_op("embedding", {table(), ids({0, 3})});
            }),
            "embedding: id 3 at position 1 of a vocabulary of 3; use 0 to 2");
}

TEST(EmbeddingGrad, AddsTheRowsOfEqualIds) {
  const HostTensor dy = HostTensor::of<float>({3, 2}, {1, 2, 3, 4, 5, 6});
  const auto out = run_op("embedding_grad", {ids({2, 0, 2}), dy}, "{vocabulary=3}");

  EXPECT_THAT(values(out[0]), ElementsAre(3, 4, 0, 0, 6, 8));
}

// Sums that were rounded to bf16 at each term would end at 256, to which 1 adds nothing.
TEST(EmbeddingGrad, SumsOfBf16AreTakenInF32) {
  const HostTensor dy = HostTensor::of<BFloat16>({300, 1}, std::vector<BFloat16>(300, BFloat16(1.0F)));
  const auto out = run_op("embedding_grad", {ids(std::vector<int32_t>(300, 1)), dy}, "{vocabulary=2}");

  EXPECT_EQ(static_cast<float>(out[0].as<BFloat16>()[0]), 0.0F);
  EXPECT_EQ(static_cast<float>(out[0].as<BFloat16>()[1]), 300.0F);
}

TEST(EmbeddingGradRows, SumsOfBf16AreTakenInF32) {
  const HostTensor dy = HostTensor::of<BFloat16>({300, 1}, std::vector<BFloat16>(300, BFloat16(1.0F)));
  const auto out = run_op("embedding_grad_rows", {ids(std::vector<int32_t>(300, 1)), dy}, "{vocabulary=2, rows=2}");

  EXPECT_EQ(out[0].as<int64_t>()[0], 1);
  EXPECT_EQ(static_cast<float>(out[1].as<BFloat16>()[0]), 300.0F);
}

TEST(EmbeddingGrad, OfAPieceOfTheTableKeepsItsOwnRows) {
  const HostTensor dy = HostTensor::of<float>({3, 2}, {1, 2, 3, 4, 5, 6});
  const std::vector<Place> places{{{4, 2}, {2, 0}}};
  const TensorType piece{DType::kF32, {2, 2}};
  const auto out = run_op("embedding_grad", {ids({3, 0, 2}), dy}, "{vocabulary=4}", {}, places, std::span(&piece, 1));

  EXPECT_THAT(values(out[0]), ElementsAre(5, 6, 1, 2));
}

}  // namespace
}  // namespace trireme::embedding_test
