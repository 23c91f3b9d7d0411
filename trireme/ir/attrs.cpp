#include "trireme/ir/attrs.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "trireme/tensor/most_elements.h"

namespace trireme::detail {

void write_attr(std::string& out, bool value) {
  out += value ? "true" : "false";
}
void write_attr(std::string& out, int64_t value) {
  out += std::to_string(value);
}
void write_attr(std::string& out, double value) {
  out += fmt::format("{}", value);
}
void write_attr(std::string& out, DType value) {
  out += to_string(value);
}

void write_attr(std::string& out, const std::string& value) {
  out += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  out += '"';
}

void write_attr(std::string& out, const Shape& value) {
  out += to_string(value);
}

void write_attr(std::string& out, const std::vector<int64_t>& value) {
  out += '[';
  for (size_t i = 0; i < value.size(); ++i) out += (i > 0 ? "," : "") + std::to_string(value[i]);
  out += ']';
}

bool read_attr(std::string_view text, bool& value) {
  value = text == "true";
  return value || text == "false";
}

namespace {

template <class T>
bool read_number(std::string_view text, T& value) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  return status == std::errc() && end == text.data() + text.size();
}

}  // namespace

bool read_attr(std::string_view text, int64_t& value) {
  return read_number(text, value);
}
bool read_attr(std::string_view text, double& value) {
  return read_number(text, value);
}

bool read_attr(std::string_view text, DType& value) {
  const auto dtype = parse_dtype(text);
  if (dtype) value = *dtype;
  return dtype.has_value();
}

bool read_attr(std::string_view text, std::string& value) {
  if (text.size() < 2 || text.front() != '"' || text.back() != '"') return false;
  value.clear();
  for (size_t i = 1; i + 1 < text.size(); ++i) {
    if (text[i] != '\\') {
      value += text[i];
    } else if (i + 2 < text.size()) {
      ++i;
      value += text[i] == 'n' ? '\n' : text[i];
    } else {
      return false;
    }
  }
  return true;
}

bool read_attr(std::string_view text, std::vector<int64_t>& value) {
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return false;
  value.clear();
  text = text.substr(1, text.size() - 2);
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    int64_t item = 0;
    if (!read_number(text.substr(0, comma), item)) return false;
    value.push_back(item);
    if (comma + 1 == text.size()) return false;
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return true;
}

bool read_attr(std::string_view text, Shape& value) {
  std::vector<int64_t> sizes;
  if (!read_attr(text, sizes) || sizes.size() > Shape::kMaxRank) return false;
  int64_t most = kMostElements;
  for (const int64_t size : sizes) {
    if (size < 0 || size > most) return false;
    most /= std::max<int64_t>(size, 1);
  }
  value = Shape(std::span<const int64_t>(sizes));
  return true;
}

namespace {

// Splits "{a=1, b=[2,3]}" into names and value texts.
std::vector<std::pair<std::string_view, std::string_view>> split_attrs(std::string_view text) {
  require(text.size() >= 2 && text.front() == '{' && text.back() == '}',
          "attributes '{}': expected {{name=value, ...}}", text);
  std::string_view rest = text.substr(1, text.size() - 2);
  std::vector<std::pair<std::string_view, std::string_view>> out;
  while (!rest.empty()) {
    const size_t equals = rest.find('=');
    require(equals != std::string_view::npos, "attributes '{}': expected name=value at '{}'", text, rest);
    const std::string_view name = rest.substr(0, equals);
    rest.remove_prefix(equals + 1);
    size_t end = 0;
    bool quoted = false;
    for (int depth = 0; end < rest.size() && (quoted || depth > 0 || rest[end] != ','); ++end) {
      if (rest[end] == '\\' && quoted) {
        ++end;
      } else if (rest[end] == '"') {
        quoted = !quoted;
      } else if (!quoted) {
        depth += (rest[end] == '[') - (rest[end] == ']');
      }
    }
    end = std::min(end, rest.size());
    out.emplace_back(name, rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  }
  return out;
}

}  // namespace

std::string text_of_fields(std::span<const FieldOf> fields) {
  std::string out = "{";
  for (const FieldOf& field : fields) {
    if (out.size() > 1) out += ", ";
    out += field.name;
    out += '=';
    std::visit([&](const auto* value) { write_attr(out, *value); }, field.place);
  }
  return out + "}";
}

void read_fields(std::string_view text, std::span<const FieldOf> fields) {
  for (const auto& [name, item] : split_attrs(text)) {
    const auto field = std::ranges::find(fields, name, &FieldOf::name);
    if (field == fields.end()) {
      std::vector<std::string> names;
      for (const FieldOf& each : fields) names.emplace_back(each.name);
      fail(ErrorKind::kInvalidArgument, "no attribute '{}'.{}", name, suggestion(name, names));
    }
    const bool is_read = std::visit([item = item](auto* value) { return read_attr(item, *value); }, field->place);
    require(is_read, "attribute '{}': cannot read '{}'", name, item);
  }
}

const FieldOf& named(std::string_view name, std::span<const FieldOf> fields) {
  const auto found = std::ranges::find(fields, name, &FieldOf::name);
  invariant(found != fields.end(), "attributes {} have no field '{}'", text_of_fields(fields), name);
  return *found;
}

void fail_of_other_type(std::string_view name, const std::string& text) {
  fail(ErrorKind::kInternal, "'{}' of attributes {} is of another type than it is read as", name, text);
}

}  // namespace trireme::detail
