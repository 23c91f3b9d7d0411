#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "tests/house/checks.h"

namespace house {

namespace fs = std::filesystem;

namespace {

// At the root: everything that is written by hand.
constexpr std::array kFolders{".ci",      "bench",    "cli",   "cmake", "docs",
                              "examples", "machines", "tests", "tools", "trireme"};
constexpr std::array kEndings{".h", ".cpp", ".def", ".md", ".txt", ".toml", ".cmake", ".in", ".sh", ".py", ".json"};

bool is_text(const fs::path& path) {
  if (path.parent_path().parent_path().filename() == "corpus") return false;  // inputs of the fuzzers: any bytes
  const std::string ending = path.extension().string();
  if (ending.empty()) return true;  // scripts: tools/install_deps
  return std::ranges::find(kEndings, ending) != kEndings.end();
}

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

// Copies a literal or comment as blanks, keeping the ends of lines, and gives the place after it.
size_t blank(std::string_view text, size_t from, size_t to, std::string& out) {
  to = std::min(to, text.size());
  for (size_t i = from; i < to; ++i) out += text[i] == '\n' ? '\n' : ' ';
  return to;
}

size_t end_of_quoted(std::string_view text, size_t at) {
  const char quote = text[at];
  for (++at; at < text.size() && text[at] != quote && text[at] != '\n'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return at + 1;
}

size_t end_of_raw(std::string_view text, size_t quote) {
  const size_t open = text.find('(', quote);
  if (open == std::string_view::npos) return text.size();
  const std::string close = ")" + std::string(text.substr(quote + 1, open - quote - 1)) + "\"";
  const size_t end = text.find(close, open);
  return end == std::string_view::npos ? text.size() : end + close.size();
}

// The place after a comment or literal that begins at `at`; `at` itself when none does.
size_t end_of_blank(std::string_view text, size_t at) {
  const std::string_view rest = text.substr(at);
  const bool after_word = at > 0 && is_word(text[at - 1]);
  if (rest.starts_with("//")) return std::min(text.find('\n', at), text.size());
  if (rest.starts_with("/*")) {
    const size_t end = text.find("*/", at + 2);
    return end == std::string_view::npos ? text.size() : end + 2;
  }
  if (rest.starts_with("R\"") && !after_word) return end_of_raw(text, at + 1);
  if (rest[0] == '"') return end_of_quoted(text, at);
  if (rest[0] == '\'' && !after_word) return end_of_quoted(text, at);  // not the one in 1'000
  return at;
}

}  // namespace

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

bool is_test(std::string_view path) {
  return path.ends_with("_test.cpp") || path.ends_with("_for_tests.h") || path.starts_with("tests/");
}

std::vector<SourceFile> read_tree(const std::string& root) {
  std::vector<SourceFile> files;
  const auto add = [&](const fs::path& path) {
    if (is_text(path)) files.push_back({fs::relative(path, root).generic_string(), read(path)});
  };
  for (const auto& entry : fs::directory_iterator(root)) {
    if (entry.is_regular_file() && !entry.path().filename().string().starts_with(".")) add(entry.path());
  }
  for (const char* folder : kFolders) {
    if (!fs::exists(fs::path(root) / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(root) / folder)) {
      if (entry.is_regular_file() && !entry.path().filename().string().starts_with(".")) add(entry.path());
    }
  }
  std::ranges::sort(files, {}, &SourceFile::path);
  return files;
}

std::string without_comments_and_literals(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t end = end_of_blank(text, at);
    if (end != at) {
      at = blank(text, at, end, out);
    } else {
      out += text[at++];
    }
  }
  return out;
}

std::vector<Literal> string_literals(std::string_view text) {
  std::vector<Literal> out;
  int line = 1;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::max(end_of_blank(text, at), at + 1);
    const std::string_view token = text.substr(at, end - at);
    if (token.size() >= 2 && token.starts_with('"')) out.push_back({line, at, token.substr(1, token.size() - 2)});
    line += static_cast<int>(std::ranges::count(token, '\n'));
    at = end;
  }
  return out;
}

}  // namespace house
