#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "tests/house/checks.h"

namespace house {
namespace {

constexpr std::array<std::string_view, 6> kMayName{
    "trireme/ops/",  "trireme/backend/",          "trireme/nn/",
    "trireme/comm/", "trireme/op/structural.cpp", "trireme/train/job/parallel_settings"};

bool may_name_ops(std::string_view path) {
  if (!path.starts_with("trireme/") && !path.starts_with("cli/")) return true;
  if (!path.ends_with(".cpp") && !path.ends_with(".h")) return true;
  if (is_test(path)) return true;
  return std::ranges::any_of(kMayName, [&](std::string_view place) { return path.starts_with(place); });
}

std::set<std::string, std::less<>> listed_ops(std::span<const SourceFile> files) {
  std::set<std::string, std::less<>> ops;
  for (const SourceFile& file : files) {
    if (file.path != "trireme/ops/op_list.def") continue;
    const std::string_view text = file.text;
    for (size_t at = text.find("\nOP("); at != std::string_view::npos; at = text.find("\nOP(", at + 1)) {
      ops.emplace(text.substr(at + 4, text.find(')', at) - at - 4));
    }
  }
  return ops;
}

// The op that a literal is, or that it is a pattern of: "matmul", "*/mlp/matmul", "attn/matmul#1".
std::string_view op_part(std::string_view literal) {
  literal = literal.substr(0, literal.find('#'));
  const size_t slash = literal.rfind('/');
  return slash == std::string_view::npos ? literal : literal.substr(slash + 1);
}

}  // namespace

std::vector<std::string> check_op_names(std::span<const SourceFile> files) {
  const std::set<std::string, std::less<>> ops = listed_ops(files);
  std::vector<std::string> findings;
  for (const SourceFile& file : files) {
    if (may_name_ops(file.path)) continue;
    const std::string_view text = file.text;
    for (const Literal& literal : string_literals(text)) {
      // An attribute's own name: field("relu", &BatchNormAttrs::relu).
      const bool attribute = text.substr(0, literal.at).ends_with("field(");
      if (attribute || !ops.contains(op_part(literal.text))) continue;
      findings.push_back(fmt::format("{}:{}: '{}' is named; ask a facet of OpDef, or op/structural.h", file.path,
                                     literal.line, op_part(literal.text)));
    }
  }
  return findings;
}

}  // namespace house
