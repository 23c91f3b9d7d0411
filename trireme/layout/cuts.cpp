#include "trireme/layout/cuts.h"

#include <fmt/format.h>

#include <charconv>

#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"

namespace trireme {
namespace {

// Splits at the commas that stand outside all brackets.
std::vector<std::string_view> items_of(std::string_view text) {
  std::vector<std::string_view> out;
  int depth = 0;
  size_t from = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    depth += (text[i] == '{' || text[i] == '[') - (text[i] == '}' || text[i] == ']');
    if (text[i] == ',' && depth == 0) {
      out.push_back(trim(text.substr(from, i - from)));
      from = i + 1;
    }
  }
  const std::string_view last = trim(text.substr(from));
  if (!last.empty() || !out.empty()) out.push_back(last);
  return out;
}

std::string_view inside(std::string_view text, std::string_view whole) {
  text = trim(text);
  require(text.size() >= 2 && text.front() == '{' && text.back() == '}',
          "cuts '{}': '{}' must stand in braces, like {{{{2, 1}}, {{1, 4}}}}, or be layouts, like [dp, -], [-, tp]",
          whole, text);
  return text.substr(1, text.size() - 2);
}

PartsOfDims numbers_of(std::string_view tensor, std::string_view whole) {
  PartsOfDims out;
  for (const std::string_view item : items_of(inside(tensor, whole))) {
    int64_t value = 0;
    const auto [end, status] = std::from_chars(item.data(), item.data() + item.size(), value);
    require(status == std::errc() && end == item.data() + item.size() && value >= 1,
            "cuts '{}': '{}' is not a number of parts; it must be a whole number from 1", whole, item);
    out.push_back(value);
  }
  return out;
}

std::vector<PartsOfDims> all_numbers_of(std::string_view side, std::string_view whole) {
  std::vector<PartsOfDims> out;
  for (const std::string_view tensor : items_of(inside(side, whole))) out.push_back(numbers_of(tensor, whole));
  return out;
}

TensorCuts side_of(std::string_view text, std::string_view whole) {
  text = trim(text);
  if (text.starts_with('{')) return all_numbers_of(text, whole);
  return parse_named_layouts(text);
}

}  // namespace

size_t count_of(const TensorCuts& cuts) {
  return std::visit([](const auto& tensors) { return tensors.size(); }, cuts);
}

std::vector<int> ranks_of(const TensorCuts& cuts) {
  std::vector<int> out;
  if (const auto* numbers = std::get_if<std::vector<PartsOfDims>>(&cuts)) {
    for (const PartsOfDims& tensor : *numbers) out.push_back(static_cast<int>(tensor.size()));
  } else {
    for (const NamedLayout& layout : std::get<std::vector<NamedLayout>>(cuts)) out.push_back(layout.rank());
  }
  return out;
}

std::vector<NamedLayout> parse_named_layouts(std::string_view text) {
  std::vector<NamedLayout> out;
  for (const std::string_view item : items_of(trim(text))) out.emplace_back(item);
  return out;
}

std::vector<PartsOfDims> parse_parts(std::string_view text) {
  return all_numbers_of(text, text);
}

Cuts Cuts::by_parts(std::vector<PartsOfDims> operands) {
  Cuts out;
  std::vector<std::string> tensors;
  for (const PartsOfDims& tensor : operands) tensors.push_back(fmt::format("{{{}}}", joined_text(tensor, ",")));
  out.text = fmt::format("{{{}}}", joined_text(tensors, ","));
  out.operands = std::move(operands);
  return out;
}

Cuts Cuts::read(std::string_view text) {
  text = trim(text);
  const size_t arrow = text.find("->");
  Cuts out;
  out.text = text;
  out.operands = side_of(text.substr(0, arrow), text);
  if (arrow != std::string_view::npos) out.results = side_of(text.substr(arrow + 2), text);
  return out;
}

}  // namespace trireme
