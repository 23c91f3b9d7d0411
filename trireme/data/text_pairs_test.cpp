#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/data/source.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::data::text_pairs_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

SourcePtr opened(const TempDirectory& dir, const std::string& table, TextPairsOptions options = {}) {
  atomic_write(dir / "table", table);
  if (options.seq == 0) options.seq = 10;
  return text_pairs(dir / "table", options);
}

std::string error_of(const std::string& table, const TextPairsOptions& options = {}) {
  const TempDirectory dir;
  try {
    opened(dir, table, options);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

// A sample's four fields; bytes as letters, and what is around them as <, | and _.
std::vector<std::string> shown(const Source& source, int64_t sample) {
  std::vector<HostTensor> tensors;
  for (const FieldSpec& field : source.fields()) tensors.emplace_back(field.sample);
  std::vector<View> views;
  for (HostTensor& tensor : tensors) views.push_back(tensor.view());
  source.read(sample, views);
  std::vector<std::string> out(4);
  for (const int32_t token : views[0].as<int32_t>())
    out[0] += token < 256 ? static_cast<char>(token) : "<|_"[token - 256];
  for (size_t i = 1; i < 4; ++i) {
    for (const int32_t value : views[i].as<int32_t>()) out[i] += std::to_string(value);
  }
  return out;
}

TEST(TextPairs, a_sample_is_both_texts_with_their_segments_and_mask) {
  const TempDirectory dir;
  const SourcePtr source = opened(dir, "label,sentence1,sentence2\n1,ab,cde\n0,x,\n");
  ASSERT_EQ(source->size(), 2);
  EXPECT_EQ(to_string(source->fields()), "tokens i32[10], segments i32[10], mask i32[10], label i32[]");
  EXPECT_THAT(shown(*source, 0), ElementsAre("<ab|cde|__", "0000111100", "1111111100", "1"));
  EXPECT_THAT(shown(*source, 1), ElementsAre("<x||______", "0001000000", "1111000000", "0"));
}

TEST(TextPairs, the_longer_text_loses_its_end) {
  const TempDirectory dir;
  const SourcePtr source = opened(dir,
                                  "sentence1,sentence2,label\nabcdefghij,xyz,0\nab,tuvwxyz12,0\nabcdefgh,"
                                  "stuvwxyz,0\n");
  EXPECT_EQ(shown(*source, 0)[0], "<abcd|xyz|");
  EXPECT_EQ(shown(*source, 1)[0], "<ab|tuvwx|");
  EXPECT_EQ(shown(*source, 2)[0], "<abcd|stu|");
}

TEST(TextPairs, cells_in_quotation_marks_hold_delimiters_and_ends_of_lines) {
  const TempDirectory dir;
  const SourcePtr source =
      opened(dir, "\xEF\xBB\xBFsentence1,sentence2,label\r\n\"a,b\",\"c\"\"d\",1\r\n\r\n\"e\nf\",g,0\r\n");
  ASSERT_EQ(source->size(), 2);
  EXPECT_EQ(shown(*source, 0)[0], "<a,b|c\"d|_");
  EXPECT_EQ(shown(*source, 1)[0], "<e\nf|g|___");
}

TEST(TextPairs, between_tabs_quotation_marks_are_characters) {
  const TempDirectory dir;
  const SourcePtr source =
      opened(dir, "is\ta\tb\nyes\t\"q\tr\nno\ts\tt",
             {.first = "a", .second = "b", .label = "is", .labels = {"no", "yes"}, .delimiter = '\t'});
  ASSERT_EQ(source->size(), 2);
  EXPECT_EQ(shown(*source, 0)[0], "<\"q|r|____");
  EXPECT_EQ(shown(*source, 0)[3], "1");
  EXPECT_EQ(shown(*source, 1)[3], "0");
}

TEST(TextPairs, what_is_wrong_in_a_table_is_said_with_its_line) {
  const std::string header = "sentence1,sentence2,label\n";
  EXPECT_THAT(error_of("a,b,label\n1,2,0\n"), HasSubstr("has no column 'sentence1'. One of 'a', 'b' or 'label'."));
  EXPECT_THAT(error_of(header), HasSubstr("has no line after its header"));
  EXPECT_THAT(error_of(header + "a,b\n"), HasSubstr("line 2 has 2 cells; the header has 3"));
  EXPECT_THAT(error_of(header + "a,b,0\n\"a\n\n,b,0\n"), HasSubstr("line 3: a quotation mark is not closed"));
  EXPECT_THAT(error_of(header + "\"a\"c,b,0\n"), HasSubstr("line 2: 'c' follows a closed quotation mark"));
  EXPECT_THAT(error_of(header + "a,b,0\na,b,\n"), HasSubstr("line 3: '' in column 'label' is not a whole number"));
  EXPECT_THAT(error_of(header + "a,b,0\na,b,2\n", {.classes = 2}),
              HasSubstr("line 3: class 2 in column 'label' is out of range: the model has classes 0 to 1"));
  EXPECT_THAT(error_of(header + "a,b,yess\n", {.labels = {"no", "yes"}}),
              HasSubstr("line 2: 'yess' in column 'label' is none of the labels. Did you mean 'yes'?"));
  EXPECT_THAT(error_of(header + "a,b,0\n", {.seq = 3}), HasSubstr("3 tokens in a sample; it takes 4 or more"));
}

}  // namespace
}  // namespace trireme::data::text_pairs_test
