#include "trireme/base/toml_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <map>
#include <vector>

#include "trireme/base/utf8.h"

namespace trireme {
namespace {

bool is_ascii(char c) {
  return static_cast<unsigned char>(c) < 0x80;
}

// What follows the string that begins at a place. One that is not closed ends with its line, or with the text; a long
// one before a character that is not ASCII and the first after a line that ends with a backslash.
struct StringEnd {
  size_t at;
  bool is_closed = true;
};

StringEnd end_of_string(std::string_view toml, size_t at) {
  const char quote = toml[at];
  const size_t opened = std::min(toml.find_first_not_of(quote, at), toml.size()) - at;
  if (opened == 2 || opened >= 6) return {at + (opened == 2 ? 2 : 6)};  // an empty one
  const bool is_long = opened >= 3;
  for (size_t i = at + (is_long ? 3 : 1); i < toml.size(); ++i) {
    if (toml[i] == '\\' && quote == '"') {
      const size_t next = std::min(toml.find_first_not_of(" \t\r\n", i + 1), toml.size());
      if (is_long && next > i + 1 && next < toml.size() && !is_ascii(toml[next])) return {next};
      if (!is_long && i + 1 < toml.size() && toml[i + 1] == '\n') return {i + 1, false};
      ++i;
    } else if (toml[i] == '\n' && !is_long) {
      return {i, false};
    } else if (toml[i] == quote && !is_long) {
      return {i + 1};
    } else if (toml[i] == quote && toml.substr(i, 3) == std::string_view(toml.data() + at, 3)) {
      const size_t run = std::min(toml.find_first_not_of(quote, i), toml.size()) - i;
      return {i + std::min<size_t>(run, 5)};  // two quotes may precede the three that close
    }
  }
  return {toml.size(), false};
}

bool begins_character(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
}

TomlMistake mistake_at(std::string_view toml, size_t at, std::string text) {
  const std::string_view before = toml.substr(0, at);
  const size_t line = before.rfind('\n') + 1;  // npos + 1 is 0
  return {1 + static_cast<int>(std::ranges::count(before, '\n')),
          1 + static_cast<int>(std::ranges::count_if(before.substr(line), begins_character)), std::move(text)};
}

// Of a place in in_ascii(toml), which has three characters for a byte that is not ASCII.
size_t offset_of(std::string_view toml, int line, int column) {
  size_t at = 0;
  for (int i = 1; i < line; ++i) at = std::min(toml.find('\n', at), toml.size() - 1) + 1;
  for (int seen = 1; at < toml.size() && toml[at] != '\n' && seen < column; ++at) seen += is_ascii(toml[at]) ? 1 : 3;
  return at;
}

// Reads a text, up to a place at which it is wrong, by what lines of TOML look like.
class LinesOfToml {
 public:
  LinesOfToml(std::string_view toml, size_t end) : toml_(toml), end_(std::min(end, toml.size())) {}

  // The first thing that is not closed or has no value; nothing where that is not what is wrong.
  std::optional<TomlMistake> unfinished() {
    while (at_ < end_ && !wrong_) {
      skip_spaces();
      if (is_line_end()) {
        skip_line();
      } else if (toml_[at_] == '[') {
        header();
      } else {
        pair();
      }
    }
    if (!wrong_ && end_ >= toml_.size() && !open_.empty()) {
      wrong_ = mistake_at(toml_, open_.back(),
                          fmt::format("the {} that begins here is not closed; end it with '{}'", word(open_.back()),
                                      toml_[open_.back()] == '[' ? ']' : '}'));
    }
    return wrong_;
  }

  // What is still open at the end, as a clause; "" when nothing is.
  std::string still_open() const {
    if (open_.empty()) return "";
    const TomlMistake begin = mistake_at(toml_, open_.back(), "");
    return fmt::format("; the {} that begins in line {}, column {} is open here", word(open_.back()), begin.line,
                       begin.column);
  }

  // The last key or table, where its name stands before as well.
  std::optional<TomlMistake> repeated() const {
    if (first_line_ == 0) return std::nullopt;
    return mistake_at(toml_, last_,
                      fmt::format("{} stands twice, first in line {}; keep one", last_name_, first_line_));
  }

 private:
  std::string_view word(size_t open) const { return toml_[open] == '[' ? "list" : "table"; }

  bool is_line_end() const {
    return at_ >= toml_.size() || toml_[at_] == '\n' || toml_[at_] == '\r' || toml_[at_] == '#';
  }
  void skip_spaces() { at_ = std::min(toml_.find_first_not_of(" \t", at_), toml_.size()); }
  void skip_line() { at_ = std::min(toml_.find('\n', at_), toml_.size() - 1) + 1; }

  // The name that was read, from `begin` on.
  void note(std::string name, size_t begin) {
    const int line = mistake_at(toml_, begin, "").line;
    const auto [known, is_new] = lines_.try_emplace(name, line);
    first_line_ = is_new ? 0 : known->second;
    last_ = begin;
    last_name_ = std::move(name);
  }

  // Passes strings and other characters of the line up to one of `ends`, or the line's end.
  void skip_to(std::string_view ends) {
    while (!is_line_end() && ends.find(toml_[at_]) == std::string_view::npos && !wrong_) skip_one();
  }

  void skip_one() {
    if (toml_[at_] != '"' && toml_[at_] != '\'') {
      ++at_;
      return;
    }
    const StringEnd end = end_of_string(toml_, at_);
    if (!end.is_closed) {
      const bool is_long = toml_.substr(at_, 3) == std::string(3, toml_[at_]);
      wrong_ = mistake_at(toml_, at_,
                          fmt::format("the string that begins here is not closed; end it with {}{}",
                                      std::string(is_long ? 3 : 1, toml_[at_]), is_long ? "" : " on this line"));
    }
    at_ = end.at;
  }

  void header() {
    const size_t begin = at_;
    const bool is_list = toml_.substr(at_, 2) == "[[";
    at_ += is_list ? 2 : 1;
    const size_t name = at_;
    skip_to("]");
    if (wrong_) return;
    if (is_line_end() || (is_list && toml_.substr(at_, 2) != "]]")) {
      wrong_ = mistake_at(
          toml_, begin,
          fmt::format("the table's header that begins here is not closed; end it with '{}'", is_list ? "]]" : "]"));
      return;
    }
    table_ = std::string(toml_.substr(name, at_ - name));
    if (!is_list) note(fmt::format("the table [{}]", table_), begin);
    if (is_list) table_ += fmt::format("#{}", begin);  // each has keys of its own
    skip_line();
  }

  void pair() {
    const size_t begin = at_;
    skip_to("=");
    if (wrong_) return;
    const std::string_view raw = toml_.substr(begin, at_ - begin);
    const std::string key(raw.substr(0, raw.find_last_not_of(" \t") + 1));
    if (is_line_end()) {
      wrong_ = mistake_at(toml_, begin, fmt::format("'{}' has no '='; write KEY = VALUE", key));
      return;
    }
    ++at_;
    skip_spaces();
    if (is_line_end()) {
      wrong_ = mistake_at(toml_, begin, fmt::format("the key '{}' has no value after '='", key));
      return;
    }
    const bool in_list = table_.find('#') != std::string::npos;
    note(
        table_.empty() || in_list ? fmt::format("the key '{}'", key) : fmt::format("the key '{}' of [{}]", key, table_),
        begin);
    if (in_list) first_line_ = 0;
    value();
  }

  void value() {
    while (at_ < end_ && !wrong_) {
      const char c = toml_[at_];
      if (is_line_end() && open_.empty()) return skip_line();
      if (c == '#') {
        skip_line();
        continue;
      }
      if (c == '[' || c == '{') open_.push_back(at_);
      if ((c == ']' || c == '}') && !open_.empty()) open_.pop_back();
      skip_one();
    }
  }

  std::string_view toml_;
  size_t end_;
  size_t at_ = 0;
  std::vector<size_t> open_;  // brackets
  std::string table_;         // whose header was read
  std::map<std::string, int> lines_;
  size_t last_ = 0;
  std::string last_name_;
  int first_line_ = 0;  // of an earlier one of the last name
  std::optional<TomlMistake> wrong_;
};

// Where the first character stands that is not ASCII, outside of strings and comments; the end: there is none. Right
// for valid TOML only: in other texts toml++ may see quotes elsewhere.
size_t bare_character(std::string_view toml) {
  for (size_t i = 0; i < toml.size();) {
    if (toml[i] == '#') {
      i = std::min(toml.find('\n', i), toml.size());
    } else if (toml[i] == '"' || toml[i] == '\'') {
      i = end_of_string(toml, i).at;
    } else if (!is_ascii(toml[i])) {
      return i;
    } else {
      ++i;
    }
  }
  return toml.size();
}

}  // namespace

std::string in_ascii(std::string_view toml) {
  std::string out;
  if (std::ranges::all_of(toml, is_ascii)) return out;
  for (const char c : toml) {
    if (is_ascii(c)) {
      out += c;
    } else {
      out += fmt::format("?{:02x}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::optional<TomlMistake> mistake_before_parsing(std::string_view toml) {
  if (toml.starts_with("\xff\xfe") || toml.starts_with("\xfe\xff"))
    return TomlMistake{1, 1, "the file is UTF-16 text; save it as UTF-8"};
  if (const size_t whole = utf8_length(toml); whole < toml.size()) {
    return mistake_at(toml, whole,
                      fmt::format("the byte 0x{:02x} is not UTF-8 text; save the file as UTF-8",
                                  static_cast<unsigned char>(toml[whole])));
  }
  const size_t bare = bare_character(toml);
  if (bare == toml.size()) return std::nullopt;
  if (std::optional<TomlMistake> unfinished = LinesOfToml(toml, bare).unfinished()) return unfinished;
  return mistake_at(toml, bare, "a character that is not ASCII must stand in quotes or a comment");
}

TomlMistake mistake_of(std::string_view toml, const TomlMistake& said) {
  const auto says = [&](std::string_view words) { return said.text.find(words) != std::string::npos; };
  const size_t at = says("end-of-file") ? toml.size() : offset_of(toml, said.line, said.column);
  const bool is_twice = says("cannot redefine existing");
  LinesOfToml lines(toml, is_twice ? toml.find('\n', at) : at);  // of a table it is told where that begins
  if (std::optional<TomlMistake> unfinished = lines.unfinished()) return *unfinished;
  if (is_twice) {
    if (std::optional<TomlMistake> repeated = lines.repeated()) return *repeated;
  }
  if (says("expected '\\n' after '\\r'"))
    return mistake_at(toml, at,
                      "a carriage return without a line feed; save the file with line ends of Unix or Windows");
  const std::string_view word = toml.substr(at, toml.substr(at).find_first_of(" \t\r\n,]}#"));
  if (says("could not determine value type") && !word.empty() && std::isalpha(static_cast<unsigned char>(word[0])) != 0)
    return mistake_at(toml, at, fmt::format("{0} is no value; if it is a text, it stands in quotes: \"{0}\"", word));
  constexpr std::string_view kBefore = "Error while parsing ";
  std::string text = said.text.starts_with(kBefore) ? said.text.substr(kBefore.size()) : said.text;
  return mistake_at(toml, at, text + lines.still_open());
}

}  // namespace trireme
