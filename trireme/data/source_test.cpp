#include "trireme/data/source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/rng.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::data::source_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Caught {
  ErrorKind kind = ErrorKind::kInternal;
  std::string text = "no error";
};

template <class F>
Caught caught(F f) {
  try {
    f();
  } catch (const Error& e) {
    return {e.kind(), e.text()};
  }
  return {};
}

struct Sample {
  std::vector<HostTensor> fields;
};

Sample read(const Source& source, int64_t sample) {
  Sample out;
  std::vector<View> views;
  for (const FieldSpec& field : source.fields()) {
    out.fields.emplace_back(field.sample);
    views.push_back(out.fields.back().view());
  }
  source.read(sample, views);
  return out;
}

std::string tokens_of(const Source& source, int64_t sample) {
  return decode(read(source, sample).fields[0].as<int32_t>());
}
std::string targets_of(const Source& source, int64_t sample) {
  return decode(read(source, sample).fields[1].as<int32_t>());
}

TEST(Text, WindowsFollowEachOtherAndTargetsAreOneByteLater) {
  const TempDirectory dir;
  atomic_write(dir / "a.txt", "abcdefghij");

  const auto source = text({dir / "a.txt"}, {.seq = 3});

  ASSERT_EQ(source->size(), 3);
  EXPECT_EQ(tokens_of(*source, 0), "abc");
  EXPECT_EQ(targets_of(*source, 0), "bcd");
  EXPECT_EQ(tokens_of(*source, 2), "ghi");
  EXPECT_EQ(targets_of(*source, 2), "hij");
  EXPECT_EQ(source->fields()[0], (FieldSpec{"tokens", {DType::kI32, {3}}}));
}

TEST(Text, AWindowThatLacksItsLastTargetIsNotASample) {
  const TempDirectory dir;
  for (int bytes = 4; bytes < 20; ++bytes) {
    atomic_write(dir / "a", std::string(static_cast<size_t>(bytes), 'x'));
    EXPECT_EQ(text({dir / "a"}, {.seq = 3})->size(), (bytes - 1) / 3) << bytes;
  }
}

TEST(Text, AStrideBelowTheLengthMakesWindowsOverlap) {
  const TempDirectory dir;
  atomic_write(dir / "a", "abcdefgh");

  const auto source = text({dir / "a"}, {.seq = 4, .stride = 1});

  ASSERT_EQ(source->size(), 4);
  EXPECT_EQ(tokens_of(*source, 3), "defg");
  EXPECT_EQ(targets_of(*source, 3), "efgh");
  EXPECT_EQ(source->overlap(), 4);
}

TEST(Text, FoldersAreWalkedInOrderOfPathAndOddFilesPassedOver) {
  const TempDirectory dir;
  disk().make_directory(dir / "in/b/c");
  disk().make_directory(dir / "in/.git");
  atomic_write(dir / "in/z.txt", "last");
  atomic_write(dir / "in/b/c/2.txt", "second");
  atomic_write(dir / "in/b/1.txt", "first");
  atomic_write(dir / "in/b/binary.txt", std::string("x\0y", 3));
  atomic_write(dir / "in/b/other.md", "markdown");
  atomic_write(dir / "in/.hidden.txt", "hidden");
  atomic_write(dir / "in/.git/x.txt", "hidden");
  disk().symlink("nowhere", dir / "in/dangling.txt");
  atomic_write(dir / "head", "0");

  const auto source = text({dir / "head", dir / "in"}, {.seq = 18, .extensions = {".txt"}, .separator = '|'});

  ASSERT_EQ(source->size(), 1);
  EXPECT_EQ(tokens_of(*source, 0), "0|first|second|las");
  EXPECT_EQ(targets_of(*source, 0), "|first|second|last");
}

TEST(Text, LargeAndSmallFilesAreJoinedWithoutASeam) {
  const TempDirectory dir;
  std::string joined;
  for (int i = 0; i < 5; ++i) {
    std::string part(i % 2 == 0 ? 1200000 : 10, ' ');
    for (size_t k = 0; k < part.size(); ++k) part[k] = static_cast<char>('a' + (k * 7 + static_cast<size_t>(i)) % 26);
    atomic_write(dir / std::to_string(i), part);
    joined += (i > 0 ? "\n" : "") + part;
  }

  const auto source = text({dir.path()}, {.seq = 1000});

  ASSERT_EQ(source->size(), (static_cast<int64_t>(joined.size()) - 1) / 1000);
  for (int64_t i = 0; i < source->size(); ++i) {
    ASSERT_EQ(tokens_of(*source, i), joined.substr(static_cast<size_t>(i) * 1000, 1000)) << i;
    ASSERT_EQ(targets_of(*source, i), joined.substr(static_cast<size_t>(i) * 1000 + 1, 1000)) << i;
  }
}

TEST(Text, RefusesEmptyInputAndSaysWhatItNeeds) {
  const TempDirectory dir;
  atomic_write(dir / "a", "abc");
  const auto short_text = caught([&] { text({dir / "a"}, {.seq = 3}); });

  EXPECT_EQ(short_text.kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ(
      short_text.text,
      fmt::format("text: '{}' holds 3 bytes in 1 files; a sample of 3 tokens and its next one needs 4", dir / "a"));
  EXPECT_EQ(caught([&] { text({}, {.seq = 3}); }).text, "text: no file or folder is given");
  EXPECT_EQ(caught([&] { text({dir / "a"}, {}); }).text, "text: 0 tokens in a sample; seq must be positive");
  EXPECT_EQ(caught([&] { text({dir / "a"}, {.seq = 1, .stride = -1}); }).text, "text: stride -1 is negative");
  EXPECT_EQ(caught([&] { text({dir / "none"}, {.seq = 3}); }).kind, ErrorKind::kIo);
  EXPECT_EQ(caught([&] { text({dir / "a"}, {.seq = 1})->read(2, {}); }).text, "sample 2 of a text of 2 samples");
}

TEST(Split, PartsOfIndependentSamplesAreDisjointAndComplete) {
  const auto all = synthetic_tokens({.samples = 101, .seq = 8, .vocabulary = 1 << 30});
  const auto parts = split(all, 20, 5);
  std::multiset<std::vector<int32_t>> expected;
  std::multiset<std::vector<int32_t>> found;
  const auto key = [](const Source& source, int64_t i) {
    const Sample sample = read(source, i);
    const auto values = sample.fields[0].as<int32_t>();
    return std::vector<int32_t>(values.begin(), values.end());
  };

  for (int64_t i = 0; i < 101; ++i) expected.insert(key(*all, i));
  for (int64_t i = 0; i < parts.train->size(); ++i) found.insert(key(*parts.train, i));
  for (int64_t i = 0; i < parts.validation->size(); ++i) found.insert(key(*parts.validation, i));

  EXPECT_EQ(parts.train->size(), 81);
  EXPECT_EQ(parts.validation->size(), 20);
  EXPECT_EQ(found, expected);
  EXPECT_NE(key(*parts.validation, 0), key(*all, 81));  // dealt out, not the end
  EXPECT_EQ(key(*split(all, 20, 5).validation, 3), key(*parts.validation, 3));
}

TEST(Split, PartsOfATextShareNoByteWhateverTheStride) {
  const TempDirectory dir;
  atomic_write(dir / "a", std::string(1000, 'x'));
  for (const int64_t stride : {1, 3, 7, 10, 20, 30}) {
    const int64_t seq = 20;
    const auto all = text({dir / "a"}, {.seq = seq, .stride = stride});
    const auto parts = split_fraction(all, 0.1);

    const int64_t held = std::llround(0.1 * static_cast<double>(all->size()));
    const int64_t last_train_byte = (parts.train->size() - 1) * stride + seq;
    const int64_t first_held_byte = (all->size() - held) * stride;
    EXPECT_EQ(parts.validation->size(), held);
    EXPECT_LT(last_train_byte, first_held_byte) << stride;
    EXPECT_GE(last_train_byte + stride, first_held_byte) << "more than needed is lost at stride " << stride;
  }
}

TEST(Split, BlocksHeldOutOfATextLieAllOverItAndShareNoByteWithTheRest) {
  const TempDirectory dir;
  std::string bytes(4096, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>('a' + random_bits({1, 2}, i, 0) % 26);
  atomic_write(dir / "a", bytes);
  const auto all = text({dir / "a"}, {.seq = 8, .stride = 4});
  const auto parts = split(all, 40, 0, 4);

  // A window is found again by its bytes: this text repeats none of 8.
  std::vector<int> used(bytes.size() + 1, 0);
  const auto mark = [&](const Source& source, int who) {
    for (int64_t i = 0; i < source.size(); ++i) {
      const Sample sample = read(source, i);
      for (int64_t w = 0; w < all->size(); ++w) {
        const Sample other = read(*all, w);
        const auto a = sample.fields[0].as<int32_t>();
        const auto b = other.fields[0].as<int32_t>();
        if (!std::equal(a.begin(), a.end(), b.begin())) continue;
        for (int64_t byte = w * 4; byte < w * 4 + 9; ++byte) used[static_cast<size_t>(byte)] |= who;
        break;
      }
    }
  };
  mark(*parts.validation, 2);
  EXPECT_EQ(parts.validation->size(), 40);
  int runs = 0;
  for (size_t i = 1; i < used.size(); ++i) runs += used[i] == 2 && used[i - 1] != 2 ? 1 : 0;
  EXPECT_EQ(runs, 4);
  EXPECT_EQ(parts.train->size(), all->size() - 40 - 7 * all->overlap());
}

TEST(Split, RefusesToLeaveNothingToTrainOn) {
  const auto all = synthetic_tokens({.samples = 10, .seq = 8});

  EXPECT_EQ(caught([&] { split(all, 10); }).text,
            "cannot hold out 10 of 10 samples (0 more lie on the border); hold out at most 9");
  EXPECT_EQ(caught([&] { split_fraction(all, 1.0); }).text, "validation fraction 1; it must be at least 0 and below 1");
  EXPECT_EQ(caught([&] { slice(all, 5, 6); }).text, "samples [5, 11) of a source of 10");
  EXPECT_EQ(caught([&] { slice(all, 5, 2)->read(2, {}); }).text, "sample 2 of a source of 2");
  EXPECT_EQ(split(all, 0).train->size(), 10);
}

TEST(Synthetic, TokensAreAFunctionOfSeedAndIndexAndCanBeLearnt) {
  const auto a = synthetic_tokens({.samples = 100, .seq = 200, .vocabulary = 97, .seed = 1});
  const auto again = synthetic_tokens({.samples = 200, .seq = 200, .vocabulary = 97, .seed = 1});
  const auto other = synthetic_tokens({.samples = 100, .seq = 200, .vocabulary = 97, .seed = 2});
  const Sample x = read(*a, 42);
  const auto tokens = x.fields[0].as<int32_t>();
  const auto targets = x.fields[1].as<int32_t>();

  EXPECT_TRUE(std::ranges::equal(tokens, read(*again, 42).fields[0].as<int32_t>()));
  EXPECT_FALSE(std::ranges::equal(tokens, read(*other, 42).fields[0].as<int32_t>()));
  EXPECT_FALSE(std::ranges::equal(tokens, read(*a, 43).fields[0].as<int32_t>()));
  EXPECT_TRUE(std::ranges::equal(tokens.subspan(1), targets.first(199)));
  int follow = 0;
  for (size_t i = 0; i < 200; ++i) {
    ASSERT_TRUE(tokens[i] >= 0 && tokens[i] < 97);
    follow += targets[i] == (5 * tokens[i] + 3) % 97 ? 1 : 0;
  }
  EXPECT_NEAR(follow, 150, 30);
}

TEST(Synthetic, ImagesOfOneClassShareItsPattern) {
  const auto source = synthetic_images({.samples = 400, .image = {8, 8, 3}, .classes = 4, .seed = 3});
  std::vector<std::vector<double>> mean(4, std::vector<double>(192));
  std::vector<int> count(4);
  for (int64_t i = 0; i < 400; ++i) {
    const Sample sample = read(*source, i);
    const auto label = static_cast<size_t>(sample.fields[1].as<int32_t>()[0]);
    ASSERT_LT(label, 4U);
    ++count[label];
    for (size_t k = 0; k < 192; ++k) mean[label][k] += sample.fields[0].as<float>()[k];
  }
  for (size_t c = 0; c < 4; ++c) {
    EXPECT_GT(count[c], 60);
    double square = 0;
    for (const double sum : mean[c]) square += sum / count[c] * (sum / count[c]);
    EXPECT_NEAR(square / 192, 1.0, 0.4);  // the pattern's variance; pure noise would leave 0.01
  }
}

TEST(Synthetic, RefusesSizesThatAreNotPositive) {
  EXPECT_EQ(caught([] { synthetic_tokens({.samples = 0, .seq = 8}); }).text,
            "synthetic tokens: 0 samples of 8 tokens from a vocabulary of 256; all must be positive");
  EXPECT_EQ(caught([] {
              synthetic_images({.samples = 1, .image = {0, 2}});
            }).text,
            "synthetic images: 1 samples of shape [0,2] in 10 classes; all must be positive");
}

TEST(Csv, ReadsNamedColumnsAndTheLabel) {
  const TempDirectory dir;
  atomic_write(dir / "t.csv", "a, b ,\"y\",c\r\n1,2.5,0,-3\r\n\r\n4,5e-1,2,6");

  const auto all = csv(dir / "t.csv", {{{"all", {}}, {"y", {"y"}, DType::kI32, true}}});
  const auto some = csv(dir / "t.csv", {{{"some", {"c", "a"}}, {"b", {"b"}, DType::kF32, true}}});

  ASSERT_EQ(all->size(), 2);
  EXPECT_THAT(read(*all, 0).fields[0].as<float>(), ElementsAre(1, 2.5F, -3));
  EXPECT_THAT(read(*all, 1).fields[0].as<float>(), ElementsAre(4, 0.5F, 6));
  EXPECT_THAT(read(*all, 1).fields[1].as<int32_t>(), ElementsAre(2));
  EXPECT_THAT(read(*some, 1).fields[0].as<float>(), ElementsAre(6, 4));
  EXPECT_THAT(read(*some, 1).fields[1].as<float>(), ElementsAre(0.5F));
}

TEST(Csv, QuotationMarksKeepDelimitersInACell) {
  const TempDirectory dir;
  atomic_write(dir / "t.csv", "\"pay, k$\",\"a \"\"b\"\"\",y\n\"1\", \"2\",3\n");

  const auto source = csv(dir / "t.csv", {{{"x", {"pay, k$"}}, {"y", {"y"}, DType::kI32, true}}});

  EXPECT_THAT(read(*source, 0).fields[0].as<float>(), ElementsAre(1));
  EXPECT_THAT(read(*source, 0).fields[1].as<int32_t>(), ElementsAre(3));
}

TEST(Csv, AByteOrderMarkBeforeTheHeaderIsNoPartOfItsFirstName) {
  const TempDirectory dir;
  atomic_write(dir / "t.csv",
               "\xef\xbb\xbf"
               "a,y\n1,2\n");

  const auto source = csv(dir / "t.csv", {{{"x", {"a"}}, {"y", {"y"}, DType::kI32, true}}});

  EXPECT_EQ(source->size(), 1);
}

TEST(Csv, NamesTheLineAndTheColumnThatAreWrong) {
  const TempDirectory dir;
  const std::string path = dir / "t.csv";
  const auto with = [&](std::string_view content) {
    atomic_write(path, content);
    return caught([&] { csv(path, {{{"all", {}}, {"label", {"label"}, DType::kI32, true, 3}}}); });
  };

  EXPECT_EQ(with("a,labl\n1,2\n").text, fmt::format("'{}' has no column 'label'. Did you mean 'labl'?", path));
  EXPECT_EQ(with("a,label\n1,2\n1,2,3\n").text, fmt::format("'{}' line 3 has 3 cells; the header has 2", path));
  EXPECT_EQ(with("a,label\nx,2\n").text, fmt::format("'{}' line 2: 'x' in column 'a' is not a finite number", path));
  EXPECT_EQ(with("a,label\ninf,2\n").kind, ErrorKind::kCorrupt);
  EXPECT_EQ(with("a,label\n1e39,2\n").text,
            fmt::format("'{}' line 2: '1e39' in column 'a' is not a finite number", path));
  EXPECT_EQ(with("label,label\n1,2\n").text,
            fmt::format("'{}' has several columns 'label'; give each a name of its own", path));
  EXPECT_EQ(with("a,label\n1,2.5\n").text,
            fmt::format("'{}' line 2: '2.5' in column 'label' is not a whole number of 32 bits, as field 'label' is of",
                        path));
  EXPECT_EQ(
      with("a,label\n1,3\n").text,
      fmt::format("'{}' line 2: 3 in column 'label' is out of range: the model takes field 'label' from 0 to 2", path));
  EXPECT_THAT(with("a,label\n1,-1\n").text, HasSubstr("-1 in column 'label' is out of range"));
  EXPECT_EQ(with("a,label\n").text, fmt::format("'{}' has no line after its header", path));
}

TEST(SyntheticFields, AreWhatIsAskedForAndOfTheirClass) {
  const std::vector<FieldNeed> fields{
      {"dense", DType::kF32, {3}}, {"ids", DType::kI32, {4}, 50}, {"label", DType::kI32, {}, 3}};
  const auto source = synthetic_fields({.samples = 300, .fields = fields, .seed = 5});
  ASSERT_EQ(source->fields().size(), 3U);
  EXPECT_EQ(source->fields()[1], (FieldSpec{"ids", {DType::kI32, {4}}}));
  std::map<int32_t, std::map<int32_t, int>> first_ids;  // by class: how often each
  for (int64_t sample = 0; sample < source->size(); ++sample) {
    const auto found = read(*source, sample);
    for (const int32_t id : found.fields[1].as<int32_t>()) EXPECT_TRUE(id >= 0 && id < 50);
    const int32_t label = found.fields[2].as<int32_t>()[0];
    EXPECT_TRUE(label >= 0 && label < 3);
    ++first_ids[label][found.fields[1].as<int32_t>()[0]];
  }
  ASSERT_EQ(first_ids.size(), 3U);
  for (const auto& [label, ids] : first_ids) {
    int all = 0, most = 0;
    for (const auto& [id, count] : ids) all += count, most = std::max(most, count);
    EXPECT_GT(2 * most, all) << "a class has ids of its own";
  }
  EXPECT_EQ(caught([] {
              synthetic_fields({.samples = 1, .fields = {{"ids", DType::kI32, {4}}}});
            }).text,
            "synthetic field 'ids' is i32; numbers are f32, and i32 from 0 to below a bound");
}

TEST(Bytes, EncodeAndDecodeAreInverseOnAllBytes) {
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  const auto tokens = encode(all);

  EXPECT_EQ(tokens[200], 200);
  EXPECT_EQ(decode(tokens), all);
  EXPECT_EQ(caught([] { decode(std::vector<int32_t>{256}); }).text, "token 256 is not a byte; bytes are 0 to 255");
}

}  // namespace
}  // namespace trireme::data::source_test
