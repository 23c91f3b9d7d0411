#include "tests/house/checks.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <sstream>

namespace house {

namespace {

using Lines = std::vector<std::string_view>;

Lines lines_of(std::string_view text) {
  Lines lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return lines;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

bool is_header(const SourceFile& file) {
  return file.path.ends_with(".h");
}
bool is_cpp(const SourceFile& file) {
  return is_header(file) || file.path.ends_with(".cpp");
}
bool is_library(const SourceFile& file) {
  return file.path.starts_with("trireme/") && !is_test(file.path);
}

// Calls fn(line number, line) for each line.
void each_line(std::string_view text, const std::function<void(int, std::string_view)>& fn) {
  int number = 0;
  for (const std::string_view line : lines_of(text)) fn(++number, line);
}

// Where `word` stands in the line as a whole word; npos when it does not.
size_t find_word(std::string_view line, std::string_view word, size_t from = 0) {
  for (size_t at = line.find(word, from); at != std::string_view::npos; at = line.find(word, at + 1)) {
    const bool starts = at == 0 || !is_word(line[at - 1]);
    const size_t end = at + word.size();
    if (starts && (end == line.size() || !is_word(line[end]))) return at;
  }
  return std::string_view::npos;
}

// "trireme/ir/graph.h" of a line that includes it; "" of any other.
std::string_view included(std::string_view line) {
  line = trim(line);
  constexpr std::string_view kStart = "#include \"";
  if (!line.starts_with(kStart)) return {};
  line.remove_prefix(kStart.size());
  return line.substr(0, line.find('"'));
}

// The folder of trireme/ that a path lies in; "" for files at its top.
std::string folder_of(std::string_view path) {
  constexpr std::string_view kStart = "trireme/";
  if (!path.starts_with(kStart)) return {};
  path.remove_prefix(kStart.size());
  const size_t end = path.find('/');
  return end == std::string_view::npos ? std::string() : std::string(path.substr(0, end));
}

}  // namespace

LayerTable parse_layers(std::string_view text) {
  LayerTable table;
  std::set<std::string> above;
  each_line(text, [&](int number, std::string_view line) {
    line = trim(line.substr(0, line.find('#')));
    if (line.empty()) return;
    const size_t colon = line.find(':');
    LayerRow row{.folder = std::string(line.substr(0, colon)), .may_include = {}};
    std::istringstream names{std::string(colon == std::string_view::npos ? "" : line.substr(colon + 1))};
    for (std::string name; names >> name;) {
      if (name == "*") {
        row.may_include = above;
      } else if (above.contains(name)) {
        row.may_include.insert(name);
      } else {
        table.findings.push_back(fmt::format(
            "tools/layers.txt:{}: '{}' may not include '{}', which is not a row above it", number, row.folder, name));
      }
    }
    above.insert(row.folder);
    table.rows.push_back(std::move(row));
  });
  return table;
}

std::vector<std::string> check_layers(const LayerTable& table, std::span<const SourceFile> files) {
  std::vector<std::string> findings = table.findings;
  std::set<std::string> without_row;
  for (const SourceFile& file : files) {
    const std::string folder = folder_of(file.path);
    if (folder.empty() || !is_cpp(file)) continue;
    const auto row = std::ranges::find(table.rows, folder, &LayerRow::folder);
    if (row == table.rows.end()) {
      without_row.insert(folder);
      continue;
    }
    // A unit test may stand on anything that is linked into the library.
    if (is_test(file.path)) continue;
    each_line(file.text, [&](int number, std::string_view line) {
      const std::string other = folder_of(included(line));
      if (other.empty() || other == folder || row->may_include.contains(other)) return;
      findings.push_back(
          fmt::format("{}:{}: '{}' may not include '{}' (tools/layers.txt)", file.path, number, folder, other));
    });
  }
  for (const std::string& folder : without_row) {
    findings.push_back(fmt::format("trireme/{}: the folder has no row in tools/layers.txt", folder));
  }
  return findings;
}

std::vector<std::string> check_device_seam(std::span<const SourceFile> files) {
  constexpr std::string_view kBackend = "trireme/backend/";
  std::vector<std::string> findings;
  for (const SourceFile& file : files) {
    if (!is_cpp(file) || is_test(file.path) || file.path.starts_with(kBackend)) continue;
    each_line(file.text, [&](int number, std::string_view line) {
      const std::string_view name = included(line);
      if (!name.starts_with(kBackend) || name.find('/', kBackend.size()) == std::string_view::npos) return;
      findings.push_back(
          fmt::format("{}:{}: '{}' is of one device; ask trireme/backend/device.h, which all of them are", file.path,
                      number, name));
    });
  }
  return findings;
}

std::vector<std::string> check_op_list(std::span<const SourceFile> files) {
  std::set<std::string, std::less<>> listed;
  for (const SourceFile& file : files) {
    if (file.path != "trireme/ops/op_list.def") continue;
    each_line(file.text, [&](int, std::string_view line) {
      line = trim(line);
      if (line.starts_with("OP(")) listed.emplace(line.substr(3, line.find(')') - 3));
    });
  }
  std::vector<std::string> findings;
  for (const SourceFile& file : files) {
    if (!file.path.starts_with("trireme/ops/") || is_test(file.path) || file.path.ends_with("/op_list.cpp")) continue;
    each_line(without_comments_and_literals(file.text), [&](int number, std::string_view line) {
      constexpr std::string_view kStart = "extern const OpDef ";
      if (!line.starts_with(kStart)) return;
      line.remove_prefix(kStart.size());
      const auto end = std::ranges::find_if_not(line, is_word);
      const std::string_view name = line.substr(0, static_cast<size_t>(end - line.begin()));
      if (!listed.contains(name)) {
        findings.push_back(fmt::format("{}:{}: op '{}' is not in trireme/ops/op_list.def", file.path, number, name));
      }
    });
  }
  return findings;
}

namespace {

struct Word {
  std::string_view word;
  bool call;  // only as a call of a free function
  std::string_view instead;
};
constexpr std::array kWords{
    Word{"getenv", false, "ask base/flags, which documents every variable"},
    Word{"abort", true, "throw an Error"},
    Word{"exit", true, "throw an Error"},
    Word{"_exit", true, "throw an Error"},
    Word{"quick_exit", true, "throw an Error"},
    Word{"terminate", true, "throw an Error"},
    Word{"printf", true, "log through base/log"},
    Word{"fprintf", true, "log through base/log"},
    Word{"puts", true, "log through base/log"},
    Word{"fputs", true, "log through base/log"},
    Word{"cout", false, "log through base/log"},
    Word{"cerr", false, "log through base/log"},
    Word{"clog", false, "log through base/log"},
};

// `exit(1)`, `std::exit(1)` and `::exit(1)`, but not `engine.exit(1)`, `Engine::exit(` or `void
// exit(`.
bool is_free_call(std::string_view line, size_t at, std::string_view word) {
  if (!trim(line.substr(at + word.size())).starts_with("(")) return false;
  const std::string_view before = trim(line.substr(0, at));
  if (before.ends_with("::")) {
    const std::string_view scope = before.substr(0, before.size() - 2);
    return scope.ends_with("std") || scope.empty() || !is_word(scope.back());
  }
  if (before.ends_with(".") || before.ends_with("->")) return false;
  return before.empty() || !is_word(before.back()) || before.ends_with("return") || before.ends_with("else");
}

std::string_view macro_name(std::string_view line) {
  line = trim(line);
  if (!line.starts_with("#")) return {};
  line = trim(line.substr(1));
  if (!line.starts_with("define ")) return {};
  line = trim(line.substr(7));
  const auto end = std::ranges::find_if_not(line, is_word);
  return line.substr(0, static_cast<size_t>(end - line.begin()));
}

}  // namespace

std::vector<std::string> check_words(std::span<const SourceFile> files) {
  std::vector<std::string> findings;
  for (const SourceFile& file : files) {
    if (!is_library(file) || !is_cpp(file)) continue;
    each_line(without_comments_and_literals(file.text), [&](int number, std::string_view line) {
      for (const Word& word : kWords) {
        const size_t at = find_word(line, word.word);
        if (at == std::string_view::npos || (word.call && !is_free_call(line, at, word.word))) continue;
        findings.push_back(fmt::format("{}:{}: '{}': {}", file.path, number, word.word, word.instead));
      }
      const std::string_view macro = macro_name(line);
      if (!macro.empty() && !macro.starts_with("TRIREME_") && macro != "OP" && macro != "KERNELS" &&
          macro != "DEVICE") {
        findings.push_back(
            fmt::format("{}:{}: macro '{}': a function or a constant will do", file.path, number, macro));
      }
    });
  }
  return findings;
}

std::vector<std::string> check_headers(std::span<const SourceFile> files) {
  std::vector<std::string> findings;
  for (const SourceFile& file : files) {
    if (!is_header(file)) continue;
    const std::string text = without_comments_and_literals(file.text);
    if (!trim(text).starts_with("#pragma once")) {
      findings.push_back(fmt::format("{}:1: no '#pragma once' before anything else", file.path));
    }
    if (!file.text.starts_with("//")) {
      findings.push_back(fmt::format("{}:1: no sentence at the head that says what the header is", file.path));
    }
    each_line(text, [&](int number, std::string_view line) {
      if (line.find("using namespace") != std::string_view::npos) {
        findings.push_back(fmt::format("{}:{}: 'using namespace' in a header", file.path, number));
      }
    });
  }
  return findings;
}

std::vector<std::string> check_sizes(std::span<const SourceFile> files) {
  constexpr size_t kSourceLines = 500, kHeaderLines = 250;
  std::vector<std::string> findings;
  for (const SourceFile& file : files) {
    if (!is_cpp(file)) continue;
    const size_t lines = lines_of(file.text).size();
    const size_t limit = is_header(file) ? kHeaderLines : kSourceLines;
    if (lines > limit) findings.push_back(fmt::format("{}:{}: longer than {} lines", file.path, lines, limit));
  }
  return findings;
}

std::vector<std::string> check_functions(std::span<const SourceFile> files) {
  constexpr int kLines = 60;
  constexpr std::array<std::string_view, 5> kOthers{"namespace", "struct", "class", "enum", "union"};
  std::vector<std::string> findings;
  for (const SourceFile& file : files) {
    if (!is_cpp(file)) continue;
    int opened = 0;  // the line that opened the body at hand
    each_line(without_comments_and_literals(file.text), [&](int number, std::string_view line) {
      // What stands in no class begins and ends in the first column; the brace may end a later,
      // indented line.
      if (line == "}" && opened > 0) {
        const int lines = number - opened + 1;
        if (lines > kLines) {
          findings.push_back(
              fmt::format("{}:{}: a function of {} lines; {} is the limit", file.path, opened, lines, kLines));
        }
        opened = 0;
      } else if (line.starts_with("}")) {
        opened = 0;
      } else if (opened == 0 && trim(line).ends_with("{") &&
                 std::ranges::none_of(kOthers, [&](std::string_view word) { return line.starts_with(word); })) {
        opened = number;
      }
    });
  }
  return findings;
}

std::vector<std::string> check_worst(std::span<const SourceFile> files) {
  std::vector<std::string> findings;
  for (const SourceFile& file : files) {
    if (!is_test(file.path) || !is_cpp(file)) continue;
    std::string open;  // a statement with a maximum that has not ended
    each_line(without_comments_and_literals(file.text), [&](int number, std::string_view line) {
      const size_t at = line.find("std::max(");
      if (open.empty() && at == std::string_view::npos) return;
      open += open.empty() ? line.substr(at) : line;
      const bool found = open.find("abs(") != std::string::npos;
      if (found || open.find(';') != std::string::npos) open.clear();
      if (!found) return;
      findings.push_back(
          fmt::format("{}:{}: 'std::max' forgets a difference that is no number; take worse() of tests/worst.h",
                      file.path, number));
    });
  }
  return findings;
}

std::vector<std::string> check_test_namespaces(std::span<const SourceFile> files) {
  std::vector<std::string> findings;
  for (const SourceFile& file : files) {
    if (!file.path.ends_with("_test.cpp")) continue;
    const std::string text = without_comments_and_literals(file.text);
    if (text.find("\nTEST") == std::string::npos) continue;
    const size_t start = file.path.rfind('/') + 1;
    const std::string name = file.path.substr(start, file.path.size() - start - std::string_view(".cpp").size());
    bool found = false;
    each_line(text, [&](int, std::string_view line) {
      found = found || (line.starts_with("namespace ") && line.ends_with(" {") && find_word(line, name) != line.npos);
    });
    if (!found) findings.push_back(fmt::format("{}:1: its tests must stand in a namespace '{}'", file.path, name));
  }
  return findings;
}

std::vector<std::string> check_text(std::span<const SourceFile> files) {
  // In pieces, so that this file does not hold them.
  const std::array<std::string, 6> words{
      "TO"
      "DO",
      "FIX"
      "ME",
      "X"
      "XX",
      "/ho"
      "me/",
      "/ro"
      "ot/",
      "/wo"
      "rk/"};
  std::vector<std::string> findings;
  for (const SourceFile& file : files) {
    each_line(file.text, [&](int number, std::string_view line) {
      for (const std::string& word : words) {
        const bool path = word.starts_with("/");
        if (path ? line.find(word) == std::string_view::npos : find_word(line, word) == std::string_view::npos)
          continue;
        findings.push_back(fmt::format("{}:{}: '{}': {}", file.path, number, word,
                                       path ? "a path of one machine" : "finish it or take it out"));
      }
      if (std::ranges::any_of(line, [](char c) { return static_cast<unsigned char>(c) > 126; })) {
        findings.push_back(fmt::format("{}:{}: a character that is not ASCII", file.path, number));
      }
      if (line.ends_with(' ') || line.ends_with('\r') || line.ends_with('\t')) {
        findings.push_back(fmt::format("{}:{}: blanks at the end of the line", file.path, number));
      }
      if (is_cpp(file) && line.find('\t') != std::string_view::npos) {
        findings.push_back(fmt::format("{}:{}: a tab", file.path, number));
      }
    });
  }
  return findings;
}

std::vector<std::string> without_exceptions(std::vector<std::string> findings, std::string_view exceptions,
                                            std::string_view check) {
  std::vector<std::string> wrong;
  each_line(exceptions, [&](int number, std::string_view line) {
    line = trim(line);
    if (line.empty() || line.starts_with("#")) return;
    const size_t hash = line.find('#');
    const std::string_view rule = trim(line.substr(0, hash));
    const std::string_view start = trim(rule.substr(std::min(rule.find(' '), rule.size())));
    if (hash == std::string_view::npos || trim(line.substr(hash + 1)).empty()) {
      wrong.push_back(fmt::format("tests/house/exceptions.txt:{}: no reason after '#'", number));
    }
    if (rule.substr(0, rule.find(' ')) != check) return;
    // A finding is excused by its file and, after a second colon, the word it names: lines move.
    const size_t taken = std::erase_if(findings, [&](const std::string& finding) {
      const std::string_view path = std::string_view(finding).substr(0, finding.find(':'));
      const size_t colon = start.find(':');
      if (path != start.substr(0, colon)) return false;
      return colon == std::string_view::npos ||
             finding.find(fmt::format("'{}'", trim(start.substr(colon + 1)))) != std::string::npos;
    });
    if (taken == 0) {
      wrong.push_back(fmt::format("tests/house/exceptions.txt:{}: excuses nothing any more; take it out", number));
    }
  });
  findings.insert(findings.end(), wrong.begin(), wrong.end());
  return findings;
}

}  // namespace house
