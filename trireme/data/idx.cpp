// IDX: two zero bytes, a type byte (8 = unsigned byte), the number of dimensions, their sizes as
// big-endian 32-bit integers, then the elements. A file may be compressed with gzip.
#include <zlib.h>

#include <cstring>
#include <limits>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/data/data_spec.h"

namespace trireme::data {
namespace {

constexpr int64_t kMostBytes = int64_t{16} << 30;  // of one file, decompressed
constexpr uint8_t kUnsignedByte = 8;

struct IdxFile {
  Shape shape;
  std::string bytes;
};

uint8_t byte_at(std::string_view text, size_t at) {
  return static_cast<uint8_t>(text[at]);
}

struct Header {
  Shape shape;
  size_t bytes = 0;
};

// The header, or nothing when `head` is too short to hold it.
std::optional<Header> parse_header(std::string_view head, const std::string& path) {
  if (head.size() < 4) return std::nullopt;
  if (head[0] != 0 || head[1] != 0) {
    fail(ErrorKind::kCorrupt, "'{}' is not an IDX file: it starts with bytes {:02x} {:02x}, not 00 00", path,
         byte_at(head, 0), byte_at(head, 1));
  }
  if (byte_at(head, 2) != kUnsignedByte) {
    fail(ErrorKind::kUnsupported, "'{}' holds IDX elements of type {:#04x}; only unsigned bytes (0x08) are read", path,
         byte_at(head, 2));
  }
  const int rank = byte_at(head, 3);
  if (rank < 1 || rank > 4) {
    fail(ErrorKind::kCorrupt, "'{}' claims {} dimensions; images have 2 to 4 and labels 1", path, rank);
  }
  Header out;
  out.bytes = 4 + 4 * static_cast<size_t>(rank);
  if (head.size() < out.bytes) return std::nullopt;
  int64_t elements = 1;
  for (int dim = 0; dim < rank; ++dim) {
    uint32_t size = 0;
    for (size_t k = 0; k < 4; ++k) size = size << 8 | byte_at(head, 4 + 4 * static_cast<size_t>(dim) + k);
    if (size > 0 && elements > kMostBytes / size) {  // a Shape need not hold so many
      std::string shape = to_string(out.shape);
      shape.insert(shape.size() - 1, fmt::format("{}{}", dim > 0 ? "," : "", size));
      fail(ErrorKind::kCorrupt, "'{}' claims a shape of {} and more elements; at most {} bytes are read", path, shape,
           kMostBytes);
    }
    out.shape.push_back(size);
    elements *= size;
  }
  return out;
}

[[noreturn]] void fail_size(const std::string& path, const Shape& shape, int64_t expected, int64_t found) {
  fail(ErrorKind::kCorrupt, "'{}' claims {} and so {} bytes of data, but holds {}{}", path, to_string(shape), expected,
       found > expected ? "at least " : "", found);
}

// Hands out the file's bytes, decompressed if its first two bytes are gzip's.
class ByteStream {
 public:
  explicit ByteStream(std::string path) : path_(std::move(path)), file_(path_) {
    const auto raw = file_.bytes();
    gzip_ = raw.size() >= 2 && raw[0] == std::byte{0x1f} && raw[1] == std::byte{0x8b};
    rest_ = raw;
    if (!gzip_) return;
    constexpr int kGzipOnly = 16;
    if (inflateInit2(&zlib_, MAX_WBITS + kGzipOnly) != Z_OK) {
      fail(ErrorKind::kIo, "cannot decompress '{}': zlib does not start", path_);
    }
  }
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;
  ~ByteStream() {
    if (gzip_) inflateEnd(&zlib_);
  }

  // Appends up to `count` bytes to `out`; fewer only at the end.
  void read(size_t count, std::string& out) {
    if (!gzip_) {
      const size_t take = std::min(count, rest_.size());
      out.append(reinterpret_cast<const char*>(rest_.data()), take);
      rest_ = rest_.subspan(take);
      return;
    }
    constexpr size_t kStep = size_t{1} << 20;  // memory grows with what is there, not with what is claimed
    while (count > 0 && !ended_) {
      const size_t before = out.size();
      const size_t step = std::min(count, kStep);
      out.resize(before + step);
      const size_t got = inflate_some(out.data() + before, step);
      out.resize(before + got);
      count -= got;
    }
  }

 private:
  size_t inflate_some(char* to, size_t size) {
    zlib_.next_out = reinterpret_cast<Bytef*>(to);
    zlib_.avail_out = static_cast<uInt>(size);
    while (zlib_.avail_out > 0 && !ended_) {
      if (zlib_.avail_in == 0 && !rest_.empty()) {
        const size_t take = std::min<size_t>(rest_.size(), std::numeric_limits<uInt>::max());
        zlib_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(rest_.data()));
        zlib_.avail_in = static_cast<uInt>(take);
        rest_ = rest_.subspan(take);
      }
      const int code = inflate(&zlib_, Z_NO_FLUSH);
      if (code == Z_STREAM_END) {
        ended_ = true;
      } else if (code == Z_BUF_ERROR) {
        fail(ErrorKind::kCorrupt, "'{}' is cut short: its gzip data ends after {} compressed bytes", path_,
             zlib_.total_in);
      } else if (code != Z_OK) {
        fail(ErrorKind::kCorrupt, "'{}' has damaged gzip data after {} compressed bytes: {}", path_, zlib_.total_in,
             zlib_.msg != nullptr ? zlib_.msg : "no reason is given");
      }
    }
    return size - zlib_.avail_out;
  }

  std::string path_;
  MappedFile file_;
  std::span<const std::byte> rest_;
  bool gzip_ = false;
  bool ended_ = false;
  z_stream zlib_{};
};

IdxFile read_idx(const std::string& path) {
  constexpr size_t kLongestHeader = 4 + 4 * 4;
  ByteStream stream(path);
  IdxFile out;
  stream.read(kLongestHeader, out.bytes);
  const auto header = parse_header(out.bytes, path);
  if (!header) {
    fail(ErrorKind::kCorrupt, "'{}' ends after {} bytes, inside its IDX header", path, out.bytes.size());
  }
  out.shape = header->shape;
  const int64_t expected = out.shape.elements();
  out.bytes.erase(0, header->bytes);
  // One byte more than expected is asked for, so that a file that is too long shows, and gzip's
  // checksum at the end is met.
  const auto wanted = static_cast<size_t>(expected) + 1;
  if (out.bytes.size() < wanted) stream.read(wanted - out.bytes.size(), out.bytes);
  const auto found = static_cast<int64_t>(out.bytes.size());
  if (found != expected) fail_size(path, out.shape, expected, found);
  return out;
}

class Idx final : public Source {
 public:
  Idx(IdxFile images, IdxFile labels, const ImageOptions& options)
      : images_(std::move(images)), labels_(std::move(labels)) {
    for (int dim = 1; dim < images_.shape.rank(); ++dim) image_.push_back(images_.shape[dim]);
    if (image_.rank() == 2) image_.push_back(1);
    for (int byte = 0; byte < 256; ++byte) {
      value_[static_cast<size_t>(byte)] = (static_cast<float>(byte) / 255.0F - options.mean) / options.std;
    }
  }

  int64_t size() const override { return images_.shape[0]; }
  std::vector<FieldSpec> fields() const override {
    return {{"image", {DType::kF32, image_}}, {"label", {DType::kI32, {}}}};
  }

  void read(int64_t sample, std::span<const View> out) const override {
    check(sample);
    require(out.size() == 2, "{} views for the 2 fields of an image", out.size());
    Shape origin = image_;
    for (int dim = 0; dim < origin.rank(); ++dim) origin[dim] = 0;
    const FieldPart parts[] = {{origin, out[0]}, {{}, out[1]}};
    read_parts(sample, parts);
  }

  void read_parts(int64_t sample, std::span<const FieldPart> parts) const override {
    check(sample);
    require(parts.size() == 2, "{} parts for the 2 fields of an image", parts.size());
    if (parts[0].to.data != nullptr) {
      float* to = parts[0].to.as<float>().data();
      const int64_t first = sample * image_.elements();
      each_run(image_, parts[0], [&](int64_t from, int64_t at, int64_t pixels) {
        const auto row = static_cast<size_t>(first + from);
        for (int64_t i = 0; i < pixels; ++i) to[at + i] = value_[byte_at(images_.bytes, row + static_cast<size_t>(i))];
      });
    }
    if (parts[1].to.data != nullptr) {
      parts[1].to.as<int32_t>()[0] = byte_at(labels_.bytes, static_cast<size_t>(sample));
    }
  }

 private:
  void check(int64_t sample) const {
    require(sample >= 0 && sample < size(), "sample {} of {} images", sample, size());
  }

  IdxFile images_;
  IdxFile labels_;
  Shape image_;
  std::array<float, 256> value_{};
};

}  // namespace

SourcePtr idx(const std::string& images, const std::string& labels, const ImageOptions& options) {
  require(options.std > 0, "images '{}': std {} must be positive", images, options.std);
  IdxFile image_file = read_idx(images);
  IdxFile label_file = read_idx(labels);
  if (image_file.shape.rank() < 2) {
    fail(ErrorKind::kCorrupt, "'{}' holds {}, not images; are images and labels swapped?", images,
         to_string(image_file.shape));
  }
  if (label_file.shape.rank() != 1) {
    fail(ErrorKind::kCorrupt, "'{}' holds {}, not labels; are images and labels swapped?", labels,
         to_string(label_file.shape));
  }
  if (image_file.shape[0] != label_file.shape[0]) {
    fail(ErrorKind::kCorrupt, "'{}' holds {} images but '{}' {} labels; they must be equal in number", images,
         image_file.shape[0], labels, label_file.shape[0]);
  }
  for (int64_t sample = 0; sample < label_file.shape[0]; ++sample) {
    const int64_t label = byte_at(label_file.bytes, static_cast<size_t>(sample));
    require(label < options.classes,
            "'{}': sample {} has label {}, and the model has {} classes, of labels 0 to {}; give it {} or more", labels,
            sample, label, options.classes, options.classes - 1, label + 1);
  }
  return std::make_shared<Idx>(std::move(image_file), std::move(label_file), options);
}

namespace {

class IdxSpec final : public DataSpecOf<IdxSpec> {
 public:
  std::string_view kind() const override { return "idx"; }
  std::string_view doc() const override { return "images and labels in IDX files, as MNIST has them"; }

  std::vector<Key> keys() override {
    return {
        {"images", &images_, "the images' file, plain or gzip"},
        {"labels", &labels_, "the labels' file, plain or gzip"},
        {"mean", &mean_,
         "subtracted from the pixels, which are from 0 to 1; the default is the mean of MNIST's training images",
         check_finite},
        {"std", &std_,
         "what the pixels are divided by after that; the default is the standard deviation of MNIST's training images"},
        {.name = "image",
         .target = &image_,
         .doc = "height, width and channels of an image",
         .check = check_size,
         .on_resume = OnResume::kRefused}};
  }
  void check(std::span<const FieldNeed>) const override {
    image_shape(image_);
    require(std_ >= std::numeric_limits<float>::min() && std_ <= std::numeric_limits<float>::max(),
            "configuration: data.std = {}; pixels are divided by it: it must be above 0, within what f32 holds", std_);
    require(!images_.empty() && !labels_.empty(), "configuration: data.images and data.labels must both name a file");
  }

  std::vector<FieldSpec> fields(std::span<const FieldNeed>) const override {
    return {{"image", {DType::kF32, image_shape(image_)}}, {"label", {DType::kI32, {}}}};
  }
  SourcePtr open(std::span<const FieldNeed> needs) const override {
    require_path("data.images", images_);
    require_path("data.labels", labels_);
    ImageOptions options{.mean = static_cast<float>(mean_), .std = static_cast<float>(std_)};
    if (!needs.empty() && needs.back().below > 0) options.classes = needs.back().below;
    SourcePtr images = idx(images_, labels_, options);
    const Shape found = images->fields()[0].sample.shape;
    require(found == image_shape(image_), "'{}' holds images of {} and data.image says {}; they must be equal", images_,
            to_string(found), to_string(image_shape(image_)));
    return images;
  }
  std::string reads() const override { return "data.images and data.labels"; }

  std::string describe() const override { return fmt::format("{}, {}", images_, labels_); }

 private:
  std::string images_, labels_;
  double mean_ = 0.1307, std_ = 0.3081;  // MNIST's
  std::vector<int64_t> image_ = {28, 28, 1};
};

}  // namespace

std::unique_ptr<DataSpec> idx_spec() {
  return std::make_unique<IdxSpec>();
}

}  // namespace trireme::data
