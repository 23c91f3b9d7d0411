#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/data/source.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::data::corrupted_text_test {
namespace {

constexpr int64_t kSeq = 60;
constexpr int32_t kStart = 256, kEnd = 257, kFirstSpan = 258;

SourcePtr letters(const TempDirectory& dir, int64_t samples) {
  std::string bytes;
  for (int64_t i = 0; i <= kSeq * samples; ++i) bytes += static_cast<char>('a' + i % 26);
  atomic_write(dir / "a.txt", bytes);
  return text({dir / "a.txt"}, {.seq = kSeq});
}

std::vector<std::vector<int32_t>> read_all(const Source& source, int64_t sample) {
  std::vector<HostTensor> tensors;
  for (const FieldSpec& field : source.fields()) tensors.emplace_back(field.sample);
  std::vector<View> views;
  for (HostTensor& tensor : tensors) views.push_back(tensor.view());
  source.read(sample, views);
  std::vector<std::vector<int32_t>> out;
  for (const View& view : views) out.emplace_back(view.as<int32_t>().begin(), view.as<int32_t>().end());
  return out;
}

// The spans that a list of tokens tells, by what stands for them.
std::map<int32_t, std::vector<int32_t>> spans_of(const std::vector<int32_t>& told) {
  std::map<int32_t, std::vector<int32_t>> out;
  int32_t span = 0;
  for (const int32_t token : told) {
    if (token >= kFirstSpan) {
      span = token;
      EXPECT_TRUE(out.emplace(span, std::vector<int32_t>{}).second) << "span " << span << " is told twice";
    } else if (token < kStart) {
      out[span].push_back(token);
    }
  }
  return out;
}

TEST(CorruptedText, what_is_shown_with_the_spans_put_back_is_the_text) {
  const TempDirectory dir;
  const SourcePtr plain = letters(dir, 50);
  const SourcePtr missing = corrupted_text(plain, {.share = 0.2, .mean_span = 3, .seed = 4});
  // 12 tokens in 4 spans.
  EXPECT_EQ(to_string(missing->fields()), "tokens i32[53], decoder_tokens i32[17], targets i32[17]");
  ASSERT_EQ(missing->size(), plain->size());
  std::set<std::vector<int32_t>> kinds;
  for (int64_t sample = 0; sample < missing->size(); ++sample) {
    const auto fields = read_all(*missing, sample);
    EXPECT_EQ(fields[0].back(), kEnd);
    EXPECT_EQ(fields[2].back(), kEnd);
    EXPECT_EQ(fields[1].front(), kStart);
    EXPECT_TRUE(std::equal(fields[1].begin() + 1, fields[1].end(), fields[2].begin()));
    const auto spans = spans_of(fields[2]);
    EXPECT_EQ(spans.size(), 4U);
    std::vector<int32_t> whole, lengths;
    for (const int32_t token : fields[0]) {
      if (token < kStart) whole.push_back(token);
      if (token < kFirstSpan) continue;
      ASSERT_TRUE(spans.contains(token)) << token;
      EXPECT_FALSE(spans.at(token).empty());
      whole.insert(whole.end(), spans.at(token).begin(), spans.at(token).end());
      lengths.push_back(static_cast<int32_t>(spans.at(token).size()));
    }
    kinds.insert(lengths);
    EXPECT_EQ(whole, read_all(*plain, sample)[0]);
  }
  EXPECT_GT(kinds.size(), 20U) << "of 50 samples; spans of other lengths in each";
}

TEST(CorruptedText, is_a_function_of_seed_and_sample) {
  const TempDirectory dir;
  const SourcePtr plain = letters(dir, 4);
  const SpanOptions options{.seed = 1};
  EXPECT_EQ(read_all(*corrupted_text(plain, options), 2), read_all(*corrupted_text(plain, options), 2));
  EXPECT_NE(read_all(*corrupted_text(plain, options), 2), read_all(*corrupted_text(plain, {.seed = 2}), 2));
}

TEST(CorruptedText, is_divided_where_few_or_nearly_all_tokens_are_missing) {
  const TempDirectory dir;
  const SourcePtr plain = letters(dir, 3);
  EXPECT_EQ(to_string(corrupted_text(plain, {.share = 1e-6})->fields()),
            "tokens i32[61], decoder_tokens i32[3], targets i32[3]");
  // One token is left before the one span that it has room for.
  EXPECT_EQ(to_string(corrupted_text(plain, {.share = 0.999, .mean_span = 1})->fields()),
            "tokens i32[3], decoder_tokens i32[61], targets i32[61]");
  EXPECT_EQ(read_all(*corrupted_text(plain, {.share = 0.999, .mean_span = 1}), 1)[2].size(), 61U);
}

TEST(CorruptedText, refuses_shares_and_spans_that_nothing_can_have) {
  const TempDirectory dir;
  const SourcePtr plain = letters(dir, 3);
  EXPECT_THROW(corrupted_text(plain, {.share = 0}), Error);
  EXPECT_THROW(corrupted_text(plain, {.share = 1}), Error);
  EXPECT_THROW(corrupted_text(plain, {.mean_span = 0.5}), Error);
}

}  // namespace
}  // namespace trireme::data::corrupted_text_test
