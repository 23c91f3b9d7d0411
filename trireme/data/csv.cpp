#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/data/source.h"

namespace trireme::data {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') text = text.substr(1, text.size() - 2);
  return text;
}

std::vector<std::string_view> cells_of(std::string_view line, char delimiter) {
  std::vector<std::string_view> out;
  while (true) {
    const size_t end = line.find(delimiter);
    out.push_back(trimmed(line.substr(0, end)));
    if (end == std::string_view::npos) return out;
    line.remove_prefix(end + 1);
  }
}

struct Table {
  std::vector<float> features;  // row by row
  std::vector<float> floats;    // labels, one of the two
  std::vector<int32_t> classes;
  int64_t rows = 0;
  int64_t columns = 0;
  bool integer_label = true;
};

class Csv final : public Source {
 public:
  explicit Csv(Table table) : table_(std::move(table)) {}

  int64_t size() const override { return table_.rows; }
  std::vector<FieldSpec> fields() const override {
    return {{"features", {DType::kF32, {table_.columns}}},
            {"label", {table_.integer_label ? DType::kI32 : DType::kF32, {}}}};
  }

  void read(int64_t sample, std::span<const View> out) const override {
    require(sample >= 0 && sample < size(), "sample {} of a table of {} rows", sample, size());
    require(out.size() == 2, "{} views for the 2 fields of a table", out.size());
    const auto row = static_cast<size_t>(sample);
    if (out[0].data != nullptr) {
      const auto to = out[0].as<float>();
      std::copy_n(table_.features.begin() + static_cast<std::ptrdiff_t>(row * to.size()), to.size(), to.begin());
    }
    if (out[1].data == nullptr) return;
    if (table_.integer_label) {
      out[1].as<int32_t>()[0] = table_.classes[row];
    } else {
      out[1].as<float>()[0] = table_.floats[row];
    }
  }

 private:
  Table table_;
};

size_t column_of(const std::vector<std::string>& names, const std::string& name, const std::string& path) {
  const auto at = std::find(names.begin(), names.end(), name);
  if (at == names.end()) {
    fail(ErrorKind::kNotFound, "'{}' has no column '{}'.{}", path, name, suggestion(name, names));
  }
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
  if (code != std::errc() || end != cell.data() + cell.size() || !std::isfinite(value)) {
    fail(ErrorKind::kCorrupt, "'{}' line {}: '{}' in column '{}' is not a finite number", place.path, place.line, cell,
         place.column);
  }
  return value;
}

int32_t class_of(std::string_view cell, const Place& place) {
  const double value = number_of(cell, place);
  if (value != std::floor(value) || std::abs(value) > std::numeric_limits<int32_t>::max()) {
    fail(ErrorKind::kCorrupt, "'{}' line {}: '{}' in column '{}' is not a class (an integer)", place.path, place.line,
         cell, place.column);
  }
  return static_cast<int32_t>(value);
}

}  // namespace

SourcePtr csv(const std::string& path, const CsvOptions& options) {
  const MappedFile file(path);
  std::string_view rest(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  const auto next_line = [&] {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return line;
  };
  std::vector<std::string> names;
  for (const std::string_view cell : cells_of(next_line(), options.delimiter)) names.emplace_back(cell);
  const size_t label = column_of(names, options.label, path);
  std::vector<size_t> columns;
  for (const std::string& name : options.features) columns.push_back(column_of(names, name, path));
  for (size_t i = 0; i < names.size() && options.features.empty(); ++i) {
    if (i != label) columns.push_back(i);
  }
  Table table;
  table.columns = static_cast<int64_t>(columns.size());
  table.integer_label = options.integer_label;
  for (int64_t line = 2; !rest.empty(); ++line) {
    const std::string_view text = next_line();
    if (trimmed(text).empty()) continue;
    const auto cells = cells_of(text, options.delimiter);
    if (cells.size() != names.size()) {
      fail(ErrorKind::kCorrupt, "'{}' line {} has {} cells; the header has {}", path, line, cells.size(), names.size());
    }
    for (const size_t i : columns) {
      table.features.push_back(static_cast<float>(number_of(cells[i], {path, line, names[i]})));
    }
    const Place place{path, line, names[label]};
    if (options.integer_label) {
      table.classes.push_back(class_of(cells[label], place));
    } else {
      table.floats.push_back(static_cast<float>(number_of(cells[label], place)));
    }
    ++table.rows;
  }
  if (table.rows == 0) fail(ErrorKind::kCorrupt, "'{}' has no line after its header", path);
  return std::make_shared<Csv>(std::move(table));
}

}  // namespace trireme::data
