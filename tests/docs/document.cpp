#include "tests/docs/document.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <stdexcept>

namespace docs {

namespace {

constexpr std::string_view kOpen = "<!-- test: ";
constexpr std::string_view kClose = "-->";

bool is_blank(std::string_view line) {
  return line.find_first_not_of(' ') == std::string_view::npos;
}
size_t indent_of(std::string_view line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

std::string trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(' ') - begin + 1));
}

// "word rest" -> "rest" when it begins so.
bool take(std::string_view text, std::string_view start, std::string& rest) {
  if (!text.starts_with(start)) return false;
  rest = trimmed(text.substr(start.size()));
  return true;
}

void read_comment(std::string text, Block& block) {
  const size_t semicolon = text.starts_with("not run") ? text.size() : std::min(text.find("; "), text.size());
  std::string_view options = std::string_view(text).substr(std::min(semicolon + 2, text.size()));
  const std::string what = trimmed(std::string_view(text).substr(0, semicolon));
  constexpr std::array<std::string_view, 8> kVerbs{"run",  "printed by", "table printed by", "more of it",
                                                   "file", "part of",    "not run",          "setup"};
  for (const std::string_view verb : kVerbs) {
    if (what == verb || what.starts_with(std::string(verb) + " ") || what.starts_with(std::string(verb) + ":")) {
      block.verb = verb;
      block.argument = trimmed(std::string_view(what).substr(verb.size()));
    }
  }
  if (block.verb.empty()) throw std::runtime_error(block.where() + ": no test is called '" + what + "'");
  if (block.verb == "not run" && block.argument.size() < 2)
    throw std::runtime_error(block.where() + ": not run, without a reason");
  while (!options.empty()) {
    const size_t end = std::min(options.find("; "), options.size());
    const std::string option = trimmed(options.substr(0, end));
    options.remove_prefix(std::min(end + 2, options.size()));
    if (option == "numbers vary") {
      block.numbers_vary = true;
    } else if (option == "some lines") {
      block.some_lines = true;
    } else if (option == "at once") {
      block.at_once = true;
    } else if (std::string rest; take(option, "shortened:", rest) && rest.find(": ") != std::string::npos) {
      const size_t colon = rest.find(": ");
      block.shortened.emplace_back(rest.substr(0, colon), rest.substr(colon + 2));
    } else if (!take(option, "needs ", block.needs) && !take(option, "after ", block.after)) {
      throw std::runtime_error(block.where() + ": a test has no option '" + option + "'");
    }
  }
}

// Of a block between fences, from the line of the first on.
size_t read_fenced(const Lines& document, size_t at, Block& block) {
  block.indent = indent_of(document[at]);
  const std::string fence = std::string(block.indent, ' ') + "```";
  block.first = at + 1;
  size_t end = at + 1;
  while (end < document.size() && document[end] != fence) ++end;
  block.last = end;
  return end + 1;
}

size_t read_table(const Lines& document, size_t at, Block& block) {
  block.first = at;
  while (at < document.size() && document[at].starts_with("|")) ++at;
  block.last = at;
  return at;
}

// "| a | b |" -> " a ", " b "
Lines cells_of(std::string_view row) {
  Lines out;
  size_t at = row.find('|');
  for (size_t end = row.find('|', at + 1); end != std::string_view::npos; end = row.find('|', at + 1)) {
    out.emplace_back(row.substr(at + 1, end - at - 1));
    at = end;
  }
  return out;
}

size_t read_indented(const Lines& document, size_t at, Block& block) {
  block.indent = indent_of(document[at]);
  block.first = at;
  size_t end = at;
  while (end < document.size() && (is_blank(document[end]) || indent_of(document[end]) >= block.indent)) ++end;
  while (is_blank(document[end - 1])) --end;
  block.last = end;
  return end;
}

// What varies from run to run, made the same. Columns move with the width of numbers, so blanks in a row are one.
std::string masked(std::string_view line) {
  std::string out;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (std::isdigit(static_cast<unsigned char>(c)) != 0) {
      while (i + 1 < line.size() && (std::isdigit(static_cast<unsigned char>(line[i + 1])) != 0 ||
                                     ((line[i + 1] == '.' || line[i + 1] == ',') && i + 2 < line.size() &&
                                      std::isdigit(static_cast<unsigned char>(line[i + 2])) != 0))) {
        ++i;
      }
      out += '#';
    } else if (c != ' ' || (!out.empty() && out.back() != ' ')) {
      out += c;
    }
  }
  return out;
}

bool same_line(std::string_view shown, std::string_view printed, bool numbers_vary) {
  const bool open = shown.ends_with("...");
  if (open) shown.remove_suffix(3);
  const std::string a = numbers_vary ? masked(shown) : std::string(shown);
  const std::string b = numbers_vary ? masked(printed) : std::string(printed);
  return open ? b.starts_with(a) : a == b;
}

}  // namespace

std::string Block::where() const {
  return path + ":" + std::to_string(first + 1);
}

Lines lines_of(std::string_view text) {
  Lines out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    out.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string joined(const Lines& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

std::vector<Block> blocks_of(const std::string& path, const Lines& document) {
  std::vector<Block> out;
  std::string comment;
  size_t at = 0;
  while (at < document.size()) {
    const std::string& line = document[at];
    const std::string text = trimmed(line);
    Block block{.path = path,
                .first = at,
                .last = at,
                .lines = {},
                .verb = {},
                .argument = {},
                .shortened = {},
                .needs = {},
                .after = {}};
    if (text.starts_with(kOpen)) {
      comment = text.substr(kOpen.size());
      if (const size_t end = comment.find(kClose); end != std::string::npos) {
        comment = trimmed(std::string_view(comment).substr(0, end));
        ++at;
        continue;
      }
      read_comment(comment, block);
      for (++at; at < document.size() && document[at] != kClose; ++at) block.lines.push_back(document[at]);
      ++at;
    } else if (line.starts_with("|") && !comment.empty()) {
      at = read_table(document, at, block);
      block.lines.assign(document.begin() + static_cast<std::ptrdiff_t>(block.first),
                         document.begin() + static_cast<std::ptrdiff_t>(block.last));
      read_comment(comment, block);
    } else if (text.starts_with("```") ||
               (indent_of(line) >= 4 && !text.empty() && (at == 0 || is_blank(document[at - 1])))) {
      at = text.starts_with("```") ? read_fenced(document, at, block) : read_indented(document, at, block);
      for (size_t i = block.first; i < block.last; ++i)
        block.lines.push_back(document[i].substr(std::min(block.indent, document[i].size())));
      if (!comment.empty()) read_comment(comment, block);
    } else {
      if (!text.empty() && !comment.empty())
        throw std::runtime_error(path + ":" + std::to_string(at + 1) + ": no block follows the comment");
      ++at;
      continue;
    }
    comment.clear();
    out.push_back(std::move(block));
  }
  return out;
}

bool agree(const Lines& shown, const Lines& printed, bool numbers_vary, bool some_lines, std::vector<int>* places) {
  const size_t n = shown.size();
  const size_t m = printed.size();
  const auto is_gap = [&](size_t i) { return trimmed(shown[i]) == "..."; };
  // can[i][j]: the lines from i on are those printed from j on.
  std::vector<std::vector<char>> can(n + 1, std::vector<char>(m + 1, 0));
  for (size_t i = n + 1; i-- > 0;) {
    for (size_t j = m + 1; j-- > 0;) {
      char& ok = can[i][j];
      if (i == n) {
        ok = static_cast<char>(some_lines || j == m);
      } else if (is_gap(i)) {
        ok = static_cast<char>(can[i + 1][j] != 0 || (j < m && can[i][j + 1] != 0));
      } else {
        ok = static_cast<char>((j < m && can[i + 1][j + 1] != 0 && same_line(shown[i], printed[j], numbers_vary)) ||
                               (some_lines && j < m && can[i][j + 1] != 0));
      }
    }
  }
  if (can[0][0] == 0) return false;
  if (places == nullptr) return true;
  places->assign(n, -1);
  size_t i = 0;
  size_t j = 0;
  while (i < n) {
    if (is_gap(i)) {
      if (can[i + 1][j] != 0) {
        ++i;
      } else {
        ++j;
      }
    } else if (can[i + 1][j + 1] != 0 && same_line(shown[i], printed[j], numbers_vary)) {
      (*places)[i++] = static_cast<int>(j++);
    } else {
      ++j;
    }
  }
  return true;
}

Lines filled_table(const Lines& shown, const Lines& printed) {
  if (shown.size() != printed.size()) return printed;
  Lines out;
  for (size_t i = 0; i < printed.size(); ++i) {
    const Lines old_cells = cells_of(shown[i]);
    Lines cells = cells_of(printed[i]);
    if (old_cells.size() != cells.size()) return printed;
    std::string row;
    for (size_t k = 0; k < cells.size(); ++k) row += "|" + (trimmed(cells[k]) == "..." ? old_cells[k] : cells[k]);
    out.push_back(row + "|");
  }
  return out;
}

bool nearest(const Lines& shown, const Lines& printed, std::vector<int>& places) {
  places.clear();
  size_t from = 0;
  for (const std::string& line : shown) {
    if (trimmed(line) == "...") {
      places.push_back(-1);
      continue;
    }
    size_t best = printed.size();
    size_t longest = line.size() / 2;
    for (size_t j = from; j < printed.size(); ++j) {
      const auto end = std::ranges::mismatch(line, printed[j]).in1;
      const auto common = static_cast<size_t>(end - line.begin());
      if (common > longest) {
        longest = common;
        best = j;
      }
    }
    if (best == printed.size()) return false;
    places.push_back(static_cast<int>(best));
    from = best + 1;
  }
  return true;
}

}  // namespace docs
