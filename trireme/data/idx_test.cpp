#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/memory_file_for_tests.h"
#include "trireme/base/rng.h"
#include "trireme/data/source.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::data::idx_test {
namespace {

using testing::HasSubstr;

std::string idx_bytes(const std::vector<uint32_t>& shape, const std::string& data, char type = 8) {
  std::string out = {0, 0, type, static_cast<char>(shape.size())};
  for (const uint32_t size : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<char>(size >> shift));
  }
  return out + data;
}

std::string gzip(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// Three images of 2 x 4 and their labels, in a fresh directory.
struct Files {
  std::string pixels =
      std::string("\x00\x01\x02\x03\x04\x05\x06\x07", 8) + std::string(8, '\xff') + std::string(8, '\x33');
  std::string image_bytes = idx_bytes({3, 2, 4}, pixels);
  std::string label_bytes = idx_bytes({3}, "\x07\x01\x09");
  TempDirectory dir;
  std::string images = dir / "images";
  std::string labels = dir / "labels";

  SourcePtr open(const ImageOptions& options = {}) const {
    atomic_write(images, image_bytes);
    atomic_write(labels, label_bytes);
    return idx(images, labels, options);
  }
  Error error() const {
    try {
      open();
    } catch (const Error& e) {
      return e;
    }
    return Error(ErrorKind::kInternal, "no error");
  }
};

std::vector<float> image_of(const Source& source, int64_t sample) {
  const HostTensor image(source.fields()[0].sample);
  source.read(sample, std::vector<View>{image.view(), {nullptr, {DType::kI32, {}}}});
  return {image.as<float>().begin(), image.as<float>().end()};
}

int32_t label_of(const Source& source, int64_t sample) {
  const HostTensor label(source.fields()[1].sample);
  source.read(sample, std::vector<View>{{nullptr, source.fields()[0].sample}, label.view()});
  return label.as<int32_t>()[0];
}

TEST(Idx, ImagesAndLabelsAreReadPlainAndCompressed) {
  Files files;
  for (const bool compressed : {false, true}) {
    if (compressed) {
      files.image_bytes = gzip(files.image_bytes);
      files.label_bytes = gzip(files.label_bytes);
    }
    const auto source = files.open();

    EXPECT_EQ(source->size(), 3);
    EXPECT_EQ(source->fields()[0], (FieldSpec{"image", {DType::kF32, {2, 4, 1}}}));
    EXPECT_EQ(source->fields()[1], (FieldSpec{"label", {DType::kI32, {}}}));
    EXPECT_EQ(image_of(*source, 0)[5], 5.0F / 255.0F);
    EXPECT_EQ(image_of(*source, 1)[0], 1.0F);
    EXPECT_EQ(label_of(*source, 0), 7);
    EXPECT_EQ(label_of(*source, 2), 9);
  }
}

TEST(Idx, APartOfAnImageIsThatPartOfTheWhole) {
  const Files files;
  const auto source = files.open();
  const HostTensor whole(TensorType{DType::kF32, {2, 4, 1}});
  source->read(0, std::vector<View>{whole.view(), {nullptr, {DType::kI32, {}}}});
  const HostTensor tile(TensorType{DType::kF32, {1, 2, 1}});
  source->read_parts(0, std::vector<FieldPart>{{{1, 2, 0}, tile.view()}, {{}, {nullptr, {DType::kI32, {}}}}});
  EXPECT_EQ(tile.as<float>()[0], whole.as<float>()[6]);
  EXPECT_EQ(tile.as<float>()[1], whole.as<float>()[7]);
  EXPECT_NE(tile.as<float>()[0], tile.as<float>()[1]);
}

TEST(Idx, MeanAndStdScaleThePixels) {
  const Files files;
  const auto source = files.open({.mean = 0.5F, .std = 0.25F});

  EXPECT_EQ(image_of(*source, 0)[0], -2.0F);
  EXPECT_EQ(image_of(*source, 1)[0], 2.0F);
}

TEST(Idx, AHeaderThatLiesIsRefusedWithTheValues) {
  const auto text_with = [](const std::string& image_bytes) {
    Files files;
    files.image_bytes = image_bytes;
    const Error e = files.error();
    EXPECT_EQ(e.kind(), ErrorKind::kCorrupt) << e.what();
    return e.text().substr(e.text().find("images") + 8);
  };
  const std::string data(24, 'x');

  EXPECT_EQ(text_with(idx_bytes({4, 2, 4}, data)), "claims [4,2,4] and so 32 bytes of data, but holds 24");
  EXPECT_EQ(text_with(idx_bytes({2, 2, 4}, data)), "claims [2,2,4] and so 16 bytes of data, but holds at least 17");
  EXPECT_EQ(text_with(gzip(idx_bytes({2, 2, 4}, data))),
            "claims [2,2,4] and so 16 bytes of data, but holds at least 17");
  EXPECT_EQ(text_with(idx_bytes({60000, 2000, 100}, data)),
            "claims [60000,2000,100] and so 12000000000 bytes of data, but holds 24");
  EXPECT_EQ(text_with(idx_bytes({0xffffffff, 0xffffffff, 0xffffffff}, data)),
            "claims a shape of [4294967295,4294967295] and more elements; at most 17179869184 "
            "bytes are read");
  EXPECT_EQ(text_with("PK" + data), "is not an IDX file: it starts with bytes 50 4b, not 00 00");
  EXPECT_EQ(text_with(idx_bytes({1, 1, 1, 1, 1}, data)), "claims 5 dimensions; images have 2 to 4 and labels 1");
  EXPECT_EQ(text_with(idx_bytes({3, 2, 4}, "").substr(0, 9)), "ends after 9 bytes, inside its IDX header");
  EXPECT_EQ(text_with(""), "ends after 0 bytes, inside its IDX header");
}

TEST(Idx, CountsAndKindsThatDisagreeAreRefused) {
  Files counts;
  counts.label_bytes = idx_bytes({2}, "\x01\x02");
  Files exchanged;
  std::swap(exchanged.image_bytes, exchanged.label_bytes);
  Files labels;
  labels.label_bytes = labels.image_bytes;
  Files floats;
  floats.image_bytes = idx_bytes({3}, std::string(12, 'x'), 0x0d);

  EXPECT_EQ(counts.error().text(), fmt::format("'{}' holds 3 images but '{}' 2 labels; they must be equal in number",
                                               counts.images, counts.labels));
  EXPECT_THAT(exchanged.error().text(), HasSubstr("holds [3], not images; are images and labels swapped?"));
  EXPECT_THAT(labels.error().text(), HasSubstr("holds [3,2,4], not labels; are images and labels swapped?"));
  EXPECT_EQ(floats.error().kind(), ErrorKind::kUnsupported);
  EXPECT_THAT(floats.error().text(), HasSubstr("elements of type 0x0d; only unsigned bytes (0x08) are read"));
}

TEST(Idx, CompressedDataCutAtAnyByteIsRefused) {
  Files files;
  const std::string whole = gzip(files.image_bytes);
  for (size_t size = 0; size < whole.size(); ++size) {
    files.image_bytes = whole.substr(0, size);
    const Error e = files.error();
    ASSERT_EQ(e.kind(), ErrorKind::kCorrupt) << size << " " << e.what();
  }
  files.image_bytes = whole.substr(0, whole.size() - 3);
  EXPECT_THAT(files.error().text(), HasSubstr("is cut short: its gzip data ends after"));
}

TEST(Idx, DamagedCompressedDataIsRefused) {
  Files files;
  std::string bytes = gzip(files.image_bytes);
  bytes[bytes.size() - 6] ^= 0x40;  // in the checksum
  files.image_bytes = bytes;

  EXPECT_EQ(files.error().kind(), ErrorKind::kCorrupt);
  EXPECT_THAT(files.error().text(), HasSubstr("incorrect data check"));
}

TEST(Idx, AStdOfZeroIsRefused) {
  const Files files;
  EXPECT_THROW(files.open({.std = 0}), Error);
}

// Any bytes at all: an answer or an Error, and no memory beyond what the file can hold.
TEST(Idx, TwentyThousandRandomMutationsOnlyEverGiveErrors) {
  Files files;
  const std::string plain = files.image_bytes;
  const std::string packed = gzip(plain);
  const MemoryFile image_file;
  atomic_write(files.labels, files.label_bytes);
  int refused = 0;
  for (uint64_t round = 0; round < 20000; ++round) {
    files.image_bytes = round % 2 == 0 ? plain : packed;
    std::array<uint32_t, 8> r{};
    fill_random_bits({99, 1}, 0, round, r);
    for (size_t i = 0; i < 1 + r[0] % 3; ++i) {
      const size_t at = r[i + 1] % files.image_bytes.size();
      files.image_bytes[at] = static_cast<char>(r[i + 4]);
    }
    if (r[7] % 4 == 0) files.image_bytes.resize(r[7] / 4 % files.image_bytes.size());
    image_file.write(files.image_bytes);
    try {
      const auto source = idx(image_file.path(), files.labels);
      image_of(*source, 2);
    } catch (const Error& e) {
      ASSERT_TRUE(e.kind() == ErrorKind::kCorrupt || e.kind() == ErrorKind::kUnsupported) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 5000);
}

TEST(Idx, a_label_beyond_the_classes_is_named_before_anything_is_trained) {
  const Files files;
  EXPECT_NO_THROW(files.open({.classes = 10}));
  try {
    files.open({.classes = 8});
    FAIL() << "not refused";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInvalidArgument);
    EXPECT_EQ(
        e.text(),
        fmt::format("'{}': sample 2 has label 9, and the model has 8 classes, of labels 0 to 7; give it 10 or more",
                    files.labels));
  }
}

}  // namespace
}  // namespace trireme::data::idx_test
