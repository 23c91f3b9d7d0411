#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/house/checks.h"

namespace house {
namespace {

constexpr std::string_view kLog = "trireme/base/log.";
constexpr std::array<std::string_view, 3> kCalls{"TRIREME_LOG(", "log_on(", "write_log("};

// The list that base/log.cpp has.
std::set<std::string, std::less<>> known_components(std::span<const SourceFile> files) {
  std::set<std::string, std::less<>> out;
  for (const SourceFile& file : files) {
    if (file.path != "trireme/base/log.cpp") continue;
    const size_t begin = file.text.find("kComponents{"), end = file.text.find("};", begin);
    for (const Literal& literal : string_literals(file.text)) {
      if (begin < literal.at && literal.at < end) out.emplace(literal.text);
    }
  }
  return out;
}

}  // namespace

std::vector<std::string> check_log_components(std::span<const SourceFile> files) {
  const std::set<std::string, std::less<>> known = known_components(files);
  std::set<std::string, std::less<>> used;
  std::vector<std::string> findings;
  for (const SourceFile& file : files) {
    const bool is_source = file.path.ends_with(".cpp") || file.path.ends_with(".h");
    if (!is_source || is_test(file.path) || file.path.starts_with(kLog)) continue;
    if (std::ranges::none_of(kCalls, [&](std::string_view call) { return file.text.find(call) != file.text.npos; }))
      continue;
    const std::string text = without_comments_and_literals(file.text);
    const std::vector<Literal> literals = string_literals(file.text);
    for (const std::string_view call : kCalls) {
      for (size_t at = text.find(call); at != std::string::npos; at = text.find(call, at + 1)) {
        const auto first = std::ranges::find_if(literals, [&](const Literal& each) { return each.at > at; });
        if (first == literals.end()) continue;
        used.emplace(first->text);
        if (!known.contains(first->text))
          findings.push_back(
              fmt::format("{}:{}: '{}' is no component of {}cpp", file.path, first->line, first->text, kLog));
      }
    }
  }
  for (const std::string& component : known) {
    if (!used.contains(component))
      findings.push_back(fmt::format("{}cpp:1: no line of the log is of component '{}'", kLog, component));
  }
  return findings;
}

}  // namespace house
