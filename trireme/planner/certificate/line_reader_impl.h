// The lines of a certificate, or of a file of tables, read word by word. Throws kInvalidArgument with the line's
// number.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/planner/certificate/certificate_fields_impl.h"

namespace trireme {

class LineReader {
 public:
  // `what` it is, for errors.
  LineReader(std::string_view text, std::string_view what) : rest_(text), what_(what) {}

  bool is_at_end() const { return rest_.empty(); }

  void next_line() {
    const size_t end = rest_.find('\n');
    words_ = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    ++line_;
  }
  // The word that the next line begins with.
  std::string_view next_kind() const { return rest_.substr(0, rest_.find_first_of(" \n")); }

  [[noreturn]] void wrong(std::string_view what) const {
    fail(ErrorKind::kInvalidArgument, "{}, line {}: {}", what_, line_, what);
  }

  // What follows these words on the next line.
  std::string_view line_of(std::string_view words) {
    next_line();
    if (!words_.starts_with(words) || words_.size() <= words.size() + 1 || words_[words.size()] != ' ')
      wrong(fmt::format("'{}' should be '{} ...'", words_.substr(0, 60), words));
    words_.remove_prefix(words.size() + 1);
    return words_;
  }
  void end_line() const {
    if (!words_.empty()) wrong(fmt::format("'{}' is too many", words_.substr(0, 60)));
  }

  std::string_view word() {
    const size_t space = std::min(words_.find(' '), words_.size());
    const std::string_view out = words_.substr(0, space);
    words_.remove_prefix(std::min(space + 1, words_.size()));
    return out;
  }
  // Whether what is left of the line begins so.
  bool next_is(std::string_view words) const { return words_.starts_with(words); }
  std::string rest_of_line() {
    std::string out(words_);
    words_ = {};
    return out;
  }
  bool takes(std::string_view expected) {
    if (words_ != expected) return false;
    words_ = {};
    return true;
  }
  std::string_view value(std::string_view name) {
    const std::string_view out = word();
    if (out.size() <= name.size() || !out.starts_with(name) || out[name.size()] != '=')
      wrong(fmt::format("'{}' should be {}=...", out.substr(0, 60), name));
    return out.substr(name.size() + 1);
  }
  int64_t number_in(std::string_view text, int64_t least = 0) const {
    int64_t out = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), out);
    // One text for one number, so that what is read prints as it was.
    if (status != std::errc() || fmt::format("{}", out) != text || out < least || out > kCertifiedMost)
      wrong(fmt::format("'{}' is no whole number from {} to {}", text.substr(0, 60), least, kCertifiedMost));
    return out;
  }
  int64_t number(std::string_view name) { return number_in(value(name)); }
  int64_t number_from(std::string_view name, int64_t least, int64_t most) {
    const int64_t out = number(name);
    if (out < least || out > most) wrong(fmt::format("{}={}; it must be {} to {}", name, out, least, most));
    return out;
  }
  std::vector<int64_t> numbers(std::string_view name, int64_t least = 0) {
    std::vector<int64_t> out;
    std::string_view list = value(name);
    while (true) {
      const size_t comma = std::min(list.find(','), list.size());
      out.push_back(number_in(list.substr(0, comma), least));
      if (comma == list.size()) return out;
      list.remove_prefix(comma + 1);
    }
  }
  // One of these by its name.
  template <class Choice, size_t n>
  Choice choice(std::string_view name, const std::array<Choice, n>& choices) {
    const std::string_view text = value(name);
    std::string names;
    for (size_t i = 0; i < n; ++i) {
      if (to_string(choices[i]) == text) return choices[i];
      names += fmt::format("{}{}", i == 0 ? "" : i + 1 == n ? " or " : ", ", to_string(choices[i]));
    }
    wrong(fmt::format("{}={}; it must be {}", name, text.substr(0, 60), names));
  }
  template <class Struct, size_t n>
  void named_numbers(Struct& into, const CertifiedNames<Struct, n>& names) {
    for (const auto& [name, field] : names) into.*field = number(name);
  }

 private:
  std::string_view rest_, words_, what_;
  int line_ = 0;
};

}  // namespace trireme
