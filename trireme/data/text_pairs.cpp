// A table of two texts and a class in each row, for models that compare them (Devlin et al., 2018, section 4.1).
#include <algorithm>
#include <charconv>
#include <functional>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/utf8.h"
#include "trireme/data/data_spec.h"

namespace trireme::data {
namespace {

constexpr int32_t kBegins = kByteVocabulary;  // before the first text
constexpr int32_t kEnds = kBegins + 1;        // after each of them
constexpr int32_t kNothing = kEnds + 1;       // fills a sample up
constexpr int64_t kPairVocabulary = kNothing + 1;
constexpr int64_t kMarks = 3;  // that stand around two texts

// Rows of cells. A cell that begins with a quotation mark ends at the next one that is not doubled, and may hold
// delimiters and ends of lines; where tabs divide cells, quotation marks are characters like any other.
class TableReader {
 public:
  TableReader(std::string_view rest, char delimiter, const std::string& path)
      : rest_(rest), delimiter_(delimiter), path_(path) {}

  // Of the row that next() gave, from 1.
  int64_t line() const { return line_; }

  // False: there is no row left. Lines without anything are passed over.
  bool next(std::vector<std::string>& cells) {
    cells.clear();
    line_ = next_line_;
    for (bool row_ends = false; !rest_.empty() && !row_ends;) {
      cells.push_back(cell());
      row_ends = rest_.empty() || rest_.front() == '\n';
      if (!rest_.empty()) take(1);
      if (rest_.empty() && !row_ends) cells.emplace_back();  // after the last delimiter
      if (row_ends && cells.size() == 1 && cells.front().empty()) {
        cells.clear();
        line_ = next_line_;
        row_ends = false;
      }
    }
    return !cells.empty();
  }

 private:
  void take(size_t characters) {
    next_line_ += std::ranges::count(rest_.substr(0, characters), '\n');
    rest_.remove_prefix(characters);
  }

  std::string cell() {
    if (delimiter_ != '\t' && rest_.front() == '"') return quoted();
    const size_t end = std::min({rest_.find(delimiter_), rest_.find('\n'), rest_.size()});
    std::string out(rest_.substr(0, end));
    take(end);
    if (out.ends_with('\r')) out.pop_back();
    return out;
  }

  std::string quoted() {
    std::string out;
    const int64_t first = next_line_;
    take(1);
    for (;;) {
      const size_t end = rest_.find('"');
      if (end == std::string_view::npos)
        fail(ErrorKind::kCorrupt, "'{}' line {}: a quotation mark is not closed", path_, first);
      out += rest_.substr(0, end);
      take(end + 1);
      if (!rest_.starts_with('"')) break;
      out += '"';
      take(1);
    }
    if (rest_.starts_with('\r')) take(1);
    if (!rest_.empty() && rest_.front() != delimiter_ && rest_.front() != '\n')
      fail(ErrorKind::kCorrupt, "'{}' line {}: '{}' follows a closed quotation mark; double marks inside a cell", path_,
           next_line_, printable(rest_.substr(0, 1)));
    return out;
  }

  std::string_view rest_;
  char delimiter_;
  const std::string& path_;
  int64_t line_ = 1, next_line_ = 1;
};

struct TextPair {
  std::string first, second;
  int32_t label = 0;
};

std::vector<FieldSpec> fields_of_pairs(int64_t seq) {
  const TensorType row{DType::kI32, {seq}};
  return {{"tokens", row}, {"segments", row}, {"mask", row}, {"label", {DType::kI32, {}}}};
}

class TextPairs final : public Source {
 public:
  TextPairs(std::vector<TextPair> pairs, int64_t seq) : pairs_(std::move(pairs)), seq_(seq) {}

  int64_t size() const override { return static_cast<int64_t>(pairs_.size()); }
  std::vector<FieldSpec> fields() const override { return fields_of_pairs(seq_); }

  void read(int64_t sample, std::span<const View> out) const override {
    require(sample >= 0 && sample < size(), "sample {} of {} pairs of texts", sample, size());
    require(out.size() == 4, "{} views for the 4 fields of pairs of texts", out.size());
    const TextPair& pair = pairs_[static_cast<size_t>(sample)];
    std::string_view first = pair.first, second = pair.second;
    // What is too long loses bytes at the end of the longer text.
    const auto room = static_cast<size_t>(seq_ - kMarks);
    if (first.size() + second.size() > room) {
      const size_t half = room / 2;
      const size_t of_second = first.size() < half ? room - first.size() : std::min(second.size(), half);
      second = second.substr(0, std::min(second.size(), of_second));
      first = first.substr(0, room - second.size());
    }
    std::vector<int32_t> tokens{kBegins};
    append(tokens, first);
    const auto second_from = static_cast<int64_t>(tokens.size());
    append(tokens, second);
    const auto end = static_cast<int64_t>(tokens.size());
    tokens.resize(static_cast<size_t>(seq_), kNothing);
    fill(out[0], [&](int64_t at) { return tokens[static_cast<size_t>(at)]; });
    fill(out[1], [&](int64_t at) { return at >= second_from && at < end ? 1 : 0; });
    fill(out[2], [&](int64_t at) { return at < end ? 1 : 0; });
    fill(out[3], [&](int64_t) { return pair.label; });
  }

 private:
  static void append(std::vector<int32_t>& tokens, std::string_view text) {
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    tokens.push_back(kEnds);
  }
  static void fill(const View& to, const std::function<int32_t(int64_t)>& value) {
    if (to.data == nullptr) return;
    int64_t at = 0;
    for (int32_t& element : to.as<int32_t>()) element = value(at++);
  }

  std::vector<TextPair> pairs_;
  int64_t seq_;
};

int32_t label_of(const std::string& cell, const TextPairsOptions& options, const std::string& path, int64_t line) {
  if (!options.labels.empty()) {
    const auto found = std::ranges::find(options.labels, cell);
    if (found != options.labels.end()) return static_cast<int32_t>(found - options.labels.begin());
    fail(ErrorKind::kCorrupt, "'{}' line {}: '{}' in column '{}' is none of the labels.{}", path, line, printable(cell),
         options.label, suggestion(cell, options.labels));
  }
  int32_t value = 0;
  const auto [end, code] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (code != std::errc() || end != cell.data() + cell.size())
    fail(ErrorKind::kCorrupt, "'{}' line {}: '{}' in column '{}' is not a whole number; name classes in data.labels",
         path, line, printable(cell), options.label);
  require(value >= 0 && (options.classes == 0 || value < options.classes),
          "'{}' line {}: class {} in column '{}' is out of range: the model has classes 0 to {}", path, line, value,
          options.label, options.classes - 1);
  return value;
}

}  // namespace

SourcePtr text_pairs(const std::string& path, const TextPairsOptions& options) {
  require(options.seq > kMarks, "pairs of texts: {} tokens in a sample; it takes {} or more", options.seq, kMarks + 1);
  const MappedFile file(path);
  const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  TableReader rows(without_byte_order_mark(bytes), options.delimiter, path);
  std::vector<std::string> names, cells;
  rows.next(names);
  const auto column_of = [&](const std::string& name) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end())
      fail(ErrorKind::kNotFound, "'{}' has no column '{}'.{}", path, name, suggestion(name, names));
    if (std::ranges::count(names, name) > 1)
      fail(ErrorKind::kCorrupt, "'{}' has several columns '{}'; give each a name of its own", path, name);
    return static_cast<size_t>(found - names.begin());
  };
  const size_t first = column_of(options.first), second = column_of(options.second), label = column_of(options.label);
  std::vector<TextPair> pairs;
  while (rows.next(cells)) {
    if (cells.size() != names.size())
      fail(ErrorKind::kCorrupt, "'{}' line {} has {} cells; the header has {}", path, rows.line(), cells.size(),
           names.size());
    const int32_t of_row = label_of(cells[label], options, path, rows.line());
    pairs.push_back({std::move(cells[first]), std::move(cells[second]), of_row});
  }
  if (pairs.empty()) fail(ErrorKind::kCorrupt, "'{}' has no line after its header", path);
  return std::make_shared<TextPairs>(std::move(pairs), options.seq);
}

namespace {

class TextPairsSpec final : public DataSpecOf<TextPairsSpec> {
 public:
  std::string_view kind() const override { return "text_pairs"; }
  std::string_view doc() const override { return "a table of two texts and their class, with a header line"; }

  std::vector<Key> keys() override {
    return {{"path", &path_, "the table's file"},
            {"delimiter", &delimiter_, "the character between cells"},
            {"first", &options_.first, "column of the first text"},
            {"second", &options_.second, "column of the second text"},
            {"label", &options_.label, "column of the class"},
            {.name = "labels",
             .target = &options_.labels,
             .doc = "the classes as the table writes them, in their order; an empty list: whole numbers from 0",
             .on_resume = OnResume::kRefused,
             .is_meaning = true},
            {.name = "seq",
             .target = &options_.seq,
             .doc = "tokens in a sample",
             .check = check_size,
             .on_resume = OnResume::kRefused}};
  }
  void check(std::span<const FieldNeed> needs) const override {
    require(!path_.empty(), "configuration: data.path is empty; name the table's file");
    require(delimiter_.size() == 1, "configuration: data.delimiter = '{}'; it must be one character, like ','",
            delimiter_);
    require(options_.seq > kMarks, "configuration: data.seq = {}; pairs of texts take {} or more", options_.seq,
            kMarks + 1);
    require(needs.empty() || needs[0].below == 0 || needs[0].below >= kPairVocabulary,
            "configuration: model.vocabulary = {}; pairs of texts need {}: 256 bytes, begin, end and padding",
            needs.empty() ? 0 : needs[0].below, kPairVocabulary);
    const int64_t classes = needs.empty() ? 0 : needs.back().below;
    require(classes == 0 || std::ssize(options_.labels) <= classes,
            "configuration: data.labels has {} classes; the model has {}", options_.labels.size(), classes);
  }

  std::vector<FieldSpec> fields(std::span<const FieldNeed>) const override { return fields_of_pairs(options_.seq); }
  SourcePtr open(std::span<const FieldNeed> needs) const override {
    require_path("data.path", path_);
    TextPairsOptions options = options_;
    options.delimiter = delimiter_.front();
    options.classes = needs.empty() ? 0 : needs.back().below;
    return text_pairs(path_, options);
  }
  std::string reads() const override { return "data.path"; }

  std::string describe() const override { return fmt::format("{}, {} bytes of two texts", path_, options_.seq); }

 private:
  std::string path_;
  std::string delimiter_ = ",";
  TextPairsOptions options_{.seq = 256};
};

}  // namespace

std::unique_ptr<DataSpec> text_pairs_spec() {
  return std::make_unique<TextPairsSpec>();
}

}  // namespace trireme::data
