// Tables in CSV files, a sample a row: the source (source.h) and its spec for jobs.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/utf8.h"
#include "trireme/data/data_spec.h"

namespace trireme::data {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') text = text.substr(1, text.size() - 2);
  return text;
}

// Of a cell that begins with a quotation mark, the place after the one that closes it; else 0.
size_t end_of_quoted(std::string_view line) {
  const size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos || line[begin] != '"') return 0;
  for (size_t at = begin + 1; at < line.size(); ++at) {
    if (line[at] != '"') continue;
    if (!line.substr(at + 1).starts_with('"')) return at + 1;
    ++at;  // a doubled one is part of the cell
  }
  return 0;
}

std::vector<std::string_view> cells_of(std::string_view line, char delimiter) {
  std::vector<std::string_view> out;
  while (true) {
    const size_t end = line.find(delimiter, end_of_quoted(line));
    out.push_back(trimmed(line.substr(0, end)));
    if (end == std::string_view::npos) return out;
    line.remove_prefix(end + 1);
  }
}

// A field's columns in the file, and its values row by row: one of the two is filled.
struct Column {
  CsvField field;
  std::vector<size_t> columns;
  std::vector<float> numbers;
  std::vector<int32_t> whole;

  FieldSpec spec() const {
    return {field.name, {field.dtype, field.scalar ? Shape{} : Shape{static_cast<int64_t>(columns.size())}}};
  }
};

class Csv final : public Source {
 public:
  Csv(std::vector<Column> columns, int64_t rows) : columns_(std::move(columns)), rows_(rows) {}

  int64_t size() const override { return rows_; }
  std::vector<FieldSpec> fields() const override {
    std::vector<FieldSpec> out;
    for (const Column& column : columns_) out.push_back(column.spec());
    return out;
  }

  void read(int64_t sample, std::span<const View> out) const override {
    require(sample >= 0 && sample < size(), "sample {} of a table of {} rows", sample, size());
    require(out.size() == columns_.size(), "{} views for the {} fields of a table", out.size(), columns_.size());
    for (size_t i = 0; i < out.size(); ++i) {
      if (out[i].data == nullptr) continue;
      const auto first = static_cast<std::ptrdiff_t>(sample) * static_cast<std::ptrdiff_t>(columns_[i].columns.size());
      const auto copy = [&](const auto& from, auto to) { std::copy_n(from.begin() + first, to.size(), to.begin()); };
      if (columns_[i].field.dtype == DType::kI32) {
        copy(columns_[i].whole, out[i].as<int32_t>());
      } else {
        copy(columns_[i].numbers, out[i].as<float>());
      }
    }
  }

 private:
  std::vector<Column> columns_;
  int64_t rows_;
};

size_t column_of(const std::vector<std::string>& names, const std::string& name, const std::string& path) {
  const auto at = std::find(names.begin(), names.end(), name);
  if (at == names.end()) {
    fail(ErrorKind::kNotFound, "'{}' has no column '{}'.{}", path, name, suggestion(name, names));
  }
  if (std::count(at, names.end(), name) > 1)
    fail(ErrorKind::kCorrupt, "'{}' has several columns '{}'; give each a name of its own", path, name);
  return static_cast<size_t>(at - names.begin());
}

struct Place {
  const std::string& path;
  int64_t line;
  const std::string& column;
};

double number_of(std::string_view cell, const Place& place) {
  double value = 0;
  const auto [end, code] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  const bool is_finite = std::isfinite(static_cast<float>(value));  // 1e39 is not, as an f32
  if (code != std::errc() || end != cell.data() + cell.size() || !is_finite) {
    fail(ErrorKind::kCorrupt, "'{}' line {}: '{}' in column '{}' is not a finite number", place.path, place.line, cell,
         place.column);
  }
  return value;
}

int32_t whole_of(std::string_view cell, const CsvField& field, const Place& place) {
  const double value = number_of(cell, place);
  if (value != std::floor(value) || std::abs(value) > std::numeric_limits<int32_t>::max()) {
    fail(ErrorKind::kCorrupt, "'{}' line {}: '{}' in column '{}' is not a whole number of 32 bits, as field '{}' is of",
         place.path, place.line, cell, place.column, field.name);
  }
  if (field.below > 0 && (value < 0 || value >= static_cast<double>(field.below))) {
    fail(ErrorKind::kInvalidArgument,
         "'{}' line {}: {} in column '{}' is out of range: the model takes field '{}' from 0 to {}", place.path,
         place.line, cell, place.column, field.name, field.below - 1);
  }
  return static_cast<int32_t>(value);
}

// The columns of each field, by the header's names.
std::vector<Column> columns_of(const CsvOptions& options, const std::vector<std::string>& names,
                               const std::string& path) {
  require(!options.fields.empty(), "csv '{}': no field is asked for", path);
  std::vector<Column> out;
  std::vector<bool> taken(names.size(), false);
  for (const CsvField& field : options.fields) {
    require(field.dtype == DType::kF32 || field.dtype == DType::kI32,
            "csv '{}': field '{}' is {}; it must be f32 or i32", path, field.name, to_string(field.dtype));
    Column& column = out.emplace_back(Column{field, {}, {}, {}});
    for (const std::string& name : field.columns) {
      column.columns.push_back(column_of(names, name, path));
      taken[column.columns.back()] = true;
    }
  }
  for (Column& column : out) {
    for (size_t i = 0; i < names.size() && column.field.columns.empty(); ++i) {
      if (!taken[i]) column.columns.push_back(i);
    }
    require(!column.columns.empty() && (!column.field.scalar || column.columns.size() == 1),
            "csv '{}': field '{}' has {} columns; it must have {}", path, column.field.name, column.columns.size(),
            column.field.scalar ? "one" : "one or more");
  }
  return out;
}

void append_row(Column& column, const std::vector<std::string_view>& cells, const std::vector<std::string>& names,
                const std::string& path, int64_t line) {
  for (const size_t i : column.columns) {
    const Place place{path, line, names[i]};
    if (column.field.dtype == DType::kI32) {
      column.whole.push_back(whole_of(cells[i], column.field, place));
    } else {
      column.numbers.push_back(static_cast<float>(number_of(cells[i], place)));
    }
  }
}

}  // namespace

SourcePtr csv(const std::string& path, const CsvOptions& options) {
  const MappedFile file(path);
  std::string_view rest(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  rest = without_byte_order_mark(rest);
  const auto next_line = [&] {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return line;
  };
  std::vector<std::string> names;
  for (const std::string_view cell : cells_of(next_line(), options.delimiter)) names.emplace_back(cell);
  std::vector<Column> columns = columns_of(options, names, path);
  int64_t rows = 0;
  for (int64_t line = 2; !rest.empty(); ++line) {
    const std::string_view text = next_line();
    if (trimmed(text).empty()) continue;
    const auto cells = cells_of(text, options.delimiter);
    if (cells.size() != names.size()) {
      fail(ErrorKind::kCorrupt, "'{}' line {} has {} cells; the header has {}", path, line, cells.size(), names.size());
    }
    for (Column& column : columns) append_row(column, cells, names, path, line);
    ++rows;
  }
  if (rows == 0) fail(ErrorKind::kCorrupt, "'{}' has no line after its header", path);
  return std::make_shared<Csv>(std::move(columns), rows);
}

namespace {

// "dense = [age, hours]", "ids i32 = [region, device]", "label i32 = bought".
CsvField parse_field(const std::string& text) {
  const auto wrong = [&](std::string_view why) {
    fail(
        ErrorKind::kInvalidArgument,
        "configuration: data.fields: '{}' {}; it must be a name, f32 or i32 (f32 where neither is given), and columns, "
        "like 'dense = [age, hours]' or 'label i32 = bought'",
        text, why);
  };
  const size_t equals = text.find('=');
  if (equals == std::string::npos) wrong("has no '='");
  const std::string_view left = trimmed(std::string_view(text).substr(0, equals));
  std::string_view right = trimmed(std::string_view(text).substr(equals + 1));
  const size_t blank = left.find(' ');
  CsvField out{.name = std::string(left.substr(0, blank)), .scalar = true};
  if (out.name.empty()) wrong("has no name");
  if (blank != std::string_view::npos) {
    const std::string_view type = trimmed(left.substr(blank));
    if (type != "f32" && type != "i32") wrong(fmt::format("has the type '{}'", type));
    if (type == "i32") out.dtype = DType::kI32;
  }
  if (right.starts_with('[')) {
    if (!right.ends_with(']')) wrong("has a '[' without its ']'");
    right = right.substr(1, right.size() - 2);
    out.scalar = false;
  }
  for (const std::string_view column : cells_of(right, ',')) {
    if (column.empty()) wrong("names an empty column");
    out.columns.emplace_back(column);
  }
  if (out.scalar && out.columns.size() != 1) wrong("names several columns without '[' and ']'");
  return out;
}

class CsvSpec final : public DataSpecOf<CsvSpec> {
 public:
  std::string_view kind() const override { return "csv"; }
  std::string_view doc() const override { return "a table of numbers with a header line"; }

  std::vector<Key> keys() override {
    return {{"path", &path_, "the table's file"},
            {"fields", &fields_,
             "the batch's fields and their columns, like \"dense = [age, hours]\", \"ids i32 = [region, device]\" and "
             "\"label i32 = bought\""},
            {"delimiter", &delimiter_, "the character between cells"}};
  }
  void check(std::span<const FieldNeed>) const override {
    require(!path_.empty(), "configuration: data.path is empty; name the table's file");
    require(delimiter_.size() == 1, "configuration: data.delimiter = '{}'; it must be one character, like ';'",
            delimiter_);
  }

  bool fields_are_keys() const override { return true; }
  std::vector<FieldSpec> fields(std::span<const FieldNeed> needs) const override {
    require(!fields_.empty(),
            "configuration: data.fields is empty; say which columns are which field, like \"dense = [age, hours]\" and "
            "\"label i32 = bought\"; the model takes {}",
            to_string(needs));
    std::vector<FieldSpec> out;
    for (const CsvField& field : in_order(needs))
      out.push_back(Column{field, std::vector<size_t>(field.columns.size()), {}, {}}.spec());
    return out;
  }
  SourcePtr open(std::span<const FieldNeed> needs) const override {
    require_path("data.path", path_);
    CsvOptions options{.fields = in_order(needs), .delimiter = delimiter_.front()};
    for (size_t i = 0; i < std::min(options.fields.size(), needs.size()); ++i) options.fields[i].below = needs[i].below;
    return csv(path_, options);
  }
  std::string reads() const override { return "data.path"; }

  std::string describe() const override { return fmt::format("{}, {} fields", path_, fields_.size()); }

 private:
  // As the model has them, where it has their names.
  std::vector<CsvField> in_order(std::span<const FieldNeed> needs) const {
    std::vector<CsvField> all;
    for (const std::string& text : fields_) {
      all.push_back(parse_field(text));
      const bool again = std::ranges::count(all, all.back().name, &CsvField::name) > 1;
      require(!again, "configuration: data.fields has two fields named '{}'; give each a name of its own",
              all.back().name);
    }
    std::vector<CsvField> out;
    for (const FieldNeed& need : needs) {
      const auto found = std::ranges::find(all, need.name, &CsvField::name);
      if (found != all.end()) out.push_back(*found);
    }
    return out.size() == all.size() ? out : all;
  }

  std::string path_;
  std::vector<std::string> fields_;
  std::string delimiter_ = ",";
};

}  // namespace

std::unique_ptr<DataSpec> csv_spec() {
  return std::make_unique<CsvSpec>();
}

}  // namespace trireme::data
