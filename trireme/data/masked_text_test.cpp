#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/data/source.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::data::masked_text_test {
namespace {

constexpr int64_t kSeq = 50;
constexpr int64_t kWords = 400;

SourcePtr plain_text(const TempDirectory& dir) {
  std::string bytes;
  for (int64_t i = 0; i <= kSeq * kWords; ++i) bytes += static_cast<char>('a' + i % 26);
  atomic_write(dir / "a.txt", bytes);
  return text({dir / "a.txt"}, {.seq = kSeq});
}

struct Pair {
  HostTensor tokens{{DType::kI32, {kSeq}}}, targets{{DType::kI32, {kSeq}}};
};

Pair read_pair(const Source& source, int64_t sample) {
  Pair out;
  source.read(sample, std::vector<View>{out.tokens.view(), out.targets.view()});
  return out;
}

TEST(MaskedText, what_is_told_is_what_was_there_and_most_of_it_is_hidden) {
  const TempDirectory dir;
  const SourcePtr plain = plain_text(dir);
  const SourcePtr masked = masked_text(plain, {.share = 0.2});
  ASSERT_EQ(masked->size(), plain->size());
  EXPECT_EQ(masked->fields(), plain->fields());
  int told = 0, hidden = 0, another = 0;
  for (int64_t sample = 0; sample < masked->size(); ++sample) {
    const Pair was = read_pair(*plain, sample), is = read_pair(*masked, sample);
    int of_sample = 0;
    for (size_t i = 0; i < kSeq; ++i) {
      const int32_t before = was.tokens.as<int32_t>()[i], shown = is.tokens.as<int32_t>()[i];
      const int32_t target = is.targets.as<int32_t>()[i];
      if (target == -100) {
        EXPECT_EQ(shown, before);
        continue;
      }
      EXPECT_EQ(target, before);
      ++of_sample;
      hidden += shown == kByteVocabulary ? 1 : 0;
      another += shown != kByteVocabulary && shown != before ? 1 : 0;
    }
    EXPECT_GE(of_sample, 1);
    told += of_sample;
  }
  const double all = static_cast<double>(masked->size() * kSeq);
  EXPECT_NEAR(told / all, 0.2 + 0.8 / kSeq, 0.02);
  EXPECT_NEAR(static_cast<double>(hidden) / told, 0.8, 0.03);
  EXPECT_NEAR(static_cast<double>(another) / told, 0.1, 0.03);
}

TEST(MaskedText, a_part_of_a_sample_is_what_the_whole_sample_has_there) {
  const TempDirectory dir;
  const SourcePtr masked = masked_text(plain_text(dir), {});
  const Pair whole = read_pair(*masked, 3);
  HostTensor tokens({DType::kI32, {10}}), targets({DType::kI32, {7}});
  const std::array<FieldPart, 2> parts{FieldPart{{20}, tokens.view()}, FieldPart{{43}, targets.view()}};
  masked->read_parts(3, parts);
  EXPECT_TRUE(std::ranges::equal(tokens.as<int32_t>(), whole.tokens.as<int32_t>().subspan(20, 10)));
  EXPECT_TRUE(std::ranges::equal(targets.as<int32_t>(), whole.targets.as<int32_t>().subspan(43, 7)));
}

TEST(MaskedText, samples_and_seeds_hide_other_tokens_and_shares_must_be_possible) {
  const TempDirectory dir;
  const SourcePtr plain = plain_text(dir);
  const auto targets = [&](uint64_t seed, int64_t sample) {
    const Pair pair = read_pair(*masked_text(plain, {.seed = seed}), sample);
    std::vector<int> out;
    for (size_t i = 0; i < kSeq; ++i) {
      if (pair.targets.as<int32_t>()[i] != -100) out.push_back(static_cast<int>(i));
    }
    return out;
  };
  EXPECT_EQ(targets(1, 0), targets(1, 0));
  EXPECT_NE(targets(1, 0), targets(2, 0));
  EXPECT_NE(targets(1, 0), targets(1, 1));
  EXPECT_THROW(masked_text(plain, {.share = 0}), Error);
  EXPECT_THROW(masked_text(plain, {.share = 1.5}), Error);
}

}  // namespace
}  // namespace trireme::data::masked_text_test
