#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string>

#include "tests/house/checks.h"

namespace house {
namespace {

constexpr std::array<std::string_view, 3> kEnds{".cpp", ".def", ".h"};
// Of no file, but of any.
constexpr std::array<std::string_view, 5> kAnyFile{"x.cpp", "x_test.cpp", "x_impl.h", "x_for_tests.h", "NAME.cpp"};

bool is_of_path(char c) {
  return is_word(c) || c == '/' || c == '.' || c == '-';
}

// From the root: "trireme/exec/" of a file in there or in a room of it, "tests/" of one of the tests.
std::string_view folder_of_folders(std::string_view path) {
  const size_t first = path.find('/');
  if (first == std::string_view::npos || !path.starts_with("trireme/")) return path.substr(0, first + 1);
  return path.substr(0, path.find('/', first + 1) + 1);
}

class Names {
 public:
  explicit Names(std::span<const SourceFile> files) {
    for (const SourceFile& file : files) {
      paths_.insert(file.path);
      by_last_.emplace(file.path.substr(file.path.rfind('/') + 1), file.path);
    }
  }

  // Named from the root, from trireme/, from the folder of the file that names it or a folder around it; or, by its
  // name alone, in the same folder of the library.
  bool has(std::string_view name, std::string_view from) const {
    if (paths_.contains("trireme/" + std::string(name))) return true;
    for (size_t end = from.rfind('/');; end = from.rfind('/', end - 1)) {
      const std::string folder(end == std::string_view::npos ? "" : from.substr(0, end + 1));
      if (paths_.contains(folder + std::string(name))) return true;
      if (folder.empty() || end == 0) break;
    }
    return is_in(name, folder_of_folders(from));
  }

  bool is_in(std::string_view name, std::string_view folder) const {
    const auto [first, last] = by_last_.equal_range(name.substr(name.rfind('/') + 1));
    return std::any_of(first, last, [&](const auto& each) {
      const std::string_view path = each.second;
      return path.starts_with(folder) && (path == name || path.ends_with("/" + std::string(name)));
    });
  }

 private:
  std::set<std::string, std::less<>> paths_;
  std::multimap<std::string, std::string, std::less<>> by_last_;  // by the last part of the path
};

// What of a line of C++ is a comment; "" without one.
std::string_view comment_of(std::string_view line, std::string_view blanked) {
  for (size_t at = line.find("//"); at != std::string_view::npos; at = line.find("//", at + 1)) {
    if (blanked.substr(at).find_first_not_of(' ') == std::string_view::npos) return line.substr(at + 2);
  }
  return {};
}

// The names of source files in a text: "pass/passes.h".
std::vector<std::string_view> named_in(std::string_view text) {
  std::vector<std::string_view> out;
  for (size_t at = 0; at < text.size();) {
    if (!is_of_path(text[at])) {
      ++at;
      continue;
    }
    size_t end = at;
    while (end < text.size() && is_of_path(text[end])) ++end;
    std::string_view word = text.substr(at, end - at);
    while (word.ends_with('.')) word.remove_suffix(1);
    // Not "<tuple>.h", "*_impl.h", "{a,b}.cpp" or an absolute path.
    const char before = at > 0 ? text[at - 1] : ' ';
    const bool is_part = before == '>' || before == '*' || before == '}' || before == '<' || before == '$';
    if (!is_part && is_word(word.empty() ? '.' : word.front()) &&
        std::ranges::any_of(kEnds, [&](std::string_view e) { return word.ends_with(e) && word.size() > e.size(); }))
      out.push_back(word);
    at = end;
  }
  return out;
}

std::string_view next_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

}  // namespace

std::vector<std::string> check_named_files(std::span<const SourceFile> files) {
  const Names names(files);
  std::vector<std::string> findings;
  for (const SourceFile& file : files) {
    const bool is_document =
        file.path.ends_with(".md") && file.path != "CHANGELOG.md" && !file.path.starts_with("docs/decisions/");
    const bool is_source = file.path.ends_with(".h") || file.path.ends_with(".cpp") || file.path.ends_with(".def");
    if (!is_document && !is_source) continue;
    const std::string blank = is_source ? without_comments_and_literals(file.text) : "";
    std::string_view text = file.text, blanked = blank;
    for (int number = 1; !text.empty(); ++number) {
      const std::string_view line = next_line(text), rest = next_line(blanked);
      for (const std::string_view name : named_in(is_document ? line : comment_of(line, rest))) {
        if (std::ranges::find(kAnyFile, name) != kAnyFile.end() || name.starts_with("build/")) continue;
        if (is_document ? names.is_in(name, "") : names.has(name, file.path)) continue;
        findings.push_back(fmt::format("{}:{}: '{}' is no file", file.path, number, name));
      }
    }
  }
  return findings;
}

}  // namespace house
