// The bytes of text files in order, a sample so many of them: the source (source.h) and its spec for jobs.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <variant>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/joined_text.h"
#include "trireme/data/data_spec.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSniffBytes = 8192;           // how much of a file is looked at for a zero byte
constexpr int64_t kMapFrom = int64_t{1} << 20;  // smaller files are copied: mappings are limited in number

bool has_extension(const fs::path& path, const std::vector<std::string>& extensions) {
  return extensions.empty() ||
         std::find(extensions.begin(), extensions.end(), path.extension().string()) != extensions.end();
}

bool looks_like_text(const std::string& path) {
  const InputFile file(path);
  std::vector<std::byte> head(static_cast<size_t>(std::min(file.bytes(), kSniffBytes)));
  file.read(0, head);
  return std::find(head.begin(), head.end(), std::byte{0}) == head.end();
}

void walk(const std::string& folder, const TextOptions& options, std::vector<std::string>& files) {
  std::vector<std::string> found;
  std::error_code code;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied, code);
  for (; !code && entry != fs::recursive_directory_iterator(); entry.increment(code)) {
    std::error_code ignored;
    const bool hidden = entry->path().filename().string().starts_with('.');
    if (hidden && entry->is_directory(ignored)) entry.disable_recursion_pending();
    if (hidden || !entry->is_regular_file(ignored)) continue;
    if (has_extension(entry->path(), options.extensions)) found.push_back(entry->path().string());
  }
  if (code) {
    fail(ErrorKind::kIo, "cannot list the directory '{}': {}", folder, code.message());
  }
  std::sort(found.begin(), found.end());
  for (const std::string& path : found) {
    if (looks_like_text(path)) files.push_back(path);
  }
}

// The files joined to one text. Large files are mapped; runs of small ones are copied into one part
// each, because a process may have only some ten thousand mappings.
class JoinedText {
 public:
  void append(const std::string& path) {
    if (file_bytes(path) < kMapFrom) return append_bytes(read_file(path));
    parts_.push_back({bytes_, MappedFile(path)});
    bytes_ += static_cast<int64_t>(bytes_of(parts_.back()).size());
  }

  void append_bytes(std::string_view text) {
    if (parts_.empty() || !std::holds_alternative<std::string>(parts_.back().content)) {
      parts_.push_back({bytes_, std::string()});
    }
    std::get<std::string>(parts_.back().content) += text;
    bytes_ += static_cast<int64_t>(text.size());
  }

  int64_t bytes() const { return bytes_; }

  void copy(int64_t from, std::span<int32_t> to) const {
    auto part =
        std::upper_bound(parts_.begin(), parts_.end(), from, [](int64_t at, const Part& p) { return at < p.start; });
    --part;
    while (true) {
      const auto rest = bytes_of(*part).subspan(static_cast<size_t>(from - part->start));
      const size_t count = std::min(rest.size(), to.size());
      for (size_t i = 0; i < count; ++i) to[i] = std::to_integer<int32_t>(rest[i]);
      to = to.subspan(count);
      if (to.empty()) return;
      from += static_cast<int64_t>(count);
      ++part;
    }
  }

 private:
  struct Part {
    int64_t start;
    std::variant<std::string, MappedFile> content;
  };

  static std::span<const std::byte> bytes_of(const Part& part) {
    if (const auto* text = std::get_if<std::string>(&part.content)) return std::as_bytes(std::span(*text));
    return std::get<MappedFile>(part.content).bytes();
  }

  std::vector<Part> parts_;
  int64_t bytes_ = 0;
};

std::vector<FieldSpec> fields_of_text(int64_t seq) {
  return {{"tokens", {DType::kI32, {seq}}}, {"targets", {DType::kI32, {seq}}}};
}

class Text final : public Source {
 public:
  Text(JoinedText joined, int64_t seq, int64_t stride) : text_(std::move(joined)), seq_(seq), stride_(stride) {}

  int64_t size() const override { return (text_.bytes() - seq_ - 1) / stride_ + 1; }
  int64_t overlap() const override { return seq_ / stride_; }
  std::vector<FieldSpec> fields() const override { return fields_of_text(seq_); }

  void read(int64_t sample, std::span<const View> out) const override {
    check(sample);
    require(out.size() == 2, "{} views for the 2 fields of a text", out.size());
    const FieldPart parts[] = {{{0}, out[0]}, {{0}, out[1]}};
    read_parts(sample, parts);
  }

  void read_parts(int64_t sample, std::span<const FieldPart> parts) const override {
    check(sample);
    require(parts.size() == 2, "{} parts for the 2 fields of a text", parts.size());
    for (size_t field = 0; field < 2; ++field) {
      if (parts[field].to.data == nullptr) continue;
      const int64_t first = sample * stride_ + static_cast<int64_t>(field) + parts[field].start[0];
      text_.copy(first, parts[field].to.as<int32_t>());
    }
  }

 private:
  void check(int64_t sample) const {
    require(sample >= 0 && sample < size(), "sample {} of a text of {} samples", sample, size());
  }

  JoinedText text_;
  int64_t seq_;
  int64_t stride_;
};

}  // namespace

SourcePtr text(const std::vector<std::string>& paths, const TextOptions& options) {
  require(options.seq > 0, "text: {} tokens in a sample; seq must be positive", options.seq);
  require(options.stride >= 0, "text: stride {} is negative", options.stride);
  require(!paths.empty(), "text: no file or folder is given");
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    if (is_directory(path)) {
      walk(path, options, files);
    } else {
      files.push_back(path);
    }
  }
  JoinedText joined;
  for (const std::string& path : files) {
    if (joined.bytes() > 0) joined.append_bytes({&options.separator, 1});
    joined.append(path);
  }
  require(joined.bytes() > options.seq,
          "text: '{}'{} holds {} bytes in {} files; a sample of {} tokens and its next one needs {}", paths.front(),
          paths.size() > 1 ? " and the others" : "", joined.bytes(), files.size(), options.seq, options.seq + 1);
  return std::make_shared<Text>(std::move(joined), options.seq, options.stride > 0 ? options.stride : options.seq);
}

namespace {

class TextSpec final : public DataSpecOf<TextSpec> {
 public:
  std::string_view kind() const override { return "text"; }
  std::string_view doc() const override { return "bytes of text files as tokens"; }

  std::vector<Key> keys() override {
    return {{"paths", &paths_, "files and folders"},
            {"extensions", &options_.extensions,
             "extensions of the files to take from folders, like \".txt\"; an empty list takes all"},
            {.name = "seq",
             .target = &options_.seq,
             .doc = "tokens in a sample",
             .check = check_size,
             .on_resume = OnResume::kRefused},
            {.name = "validation_blocks",
             .target = &blocks_,
             .doc = "divide the text into this many equal parts and hold out the end of each; 1: the end of the text",
             .check = check_count,
             .on_resume = OnResume::kRefused}};
  }
  void check(std::span<const FieldNeed> needs) const override {
    for (const FieldNeed& need : needs) {
      require(need.below == 0 || need.below >= kByteVocabulary,
              "configuration: model.vocabulary = {}; text is read as bytes and needs {}", need.below, +kByteVocabulary);
    }
    require(!paths_.empty(), "configuration: data.paths is empty; name the files or folders with the text");
    for (const std::string& extension : options_.extensions) {
      require(extension.size() > 1 && extension.front() == '.',
              "configuration: data.extensions has '{}'; an extension begins with a dot, as in '.{}'", extension,
              extension.empty() || extension == "." ? "txt" : extension);
    }
  }

  std::vector<FieldSpec> fields(std::span<const FieldNeed>) const override { return fields_of_text(options_.seq); }
  SourcePtr open(std::span<const FieldNeed>) const override {
    for (const std::string& path : paths_) require_path("data.paths", path);
    return text(paths_, options_);
  }
  std::string reads() const override { return "data.paths"; }
  int64_t validation_blocks() const override { return blocks_; }

  std::string describe() const override {
    return fmt::format("text of {}, {} bytes a sample", joined_text(paths_, " "), options_.seq);
  }

 private:
  std::vector<std::string> paths_;
  TextOptions options_{.seq = 256};
  int64_t blocks_ = 1;
};

}  // namespace

std::unique_ptr<DataSpec> text_spec() {
  return std::make_unique<TextSpec>();
}

}  // namespace trireme::data
