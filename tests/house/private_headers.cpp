#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "tests/house/checks.h"

namespace house {
namespace {

bool is_for_sources(std::string_view path) {
  return path.ends_with("_impl.h");
}
bool is_for_tests(std::string_view path) {
  return path.ends_with("_for_tests.h");
}
bool is_installed(std::string_view path) {
  return path.starts_with("trireme/") && path.ends_with(".h") && !is_for_sources(path) && !is_for_tests(path);
}

}  // namespace

std::vector<std::string> check_private_headers(std::span<const SourceFile> files) {
  constexpr std::string_view kInclude = "#include \"";
  std::vector<std::string> findings;
  for (const SourceFile& file : files) {
    const bool includes = file.path.ends_with(".h") || file.path.ends_with(".cpp");
    if (!includes || is_test(file.path)) continue;
    int number = 0, conditions = 0;
    for (std::string_view text = file.text; !text.empty();) {
      const std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(line.size() + 1, text.size()));
      ++number;
      if (line.starts_with("#if")) ++conditions;
      if (line.starts_with("#endif")) --conditions;
      if (!line.starts_with(kInclude)) continue;
      const std::string_view name = line.substr(kInclude.size(), line.rfind('"') - kInclude.size());
      if (is_for_tests(name)) {
        findings.push_back(fmt::format("{}:{}: '{}' is for tests", file.path, number, name));
      } else if (is_for_sources(name) && is_installed(file.path) && conditions == 0) {
        findings.push_back(fmt::format("{}:{}: '{}' is not installed, and this header is", file.path, number, name));
      }
    }
  }
  return findings;
}

}  // namespace house
