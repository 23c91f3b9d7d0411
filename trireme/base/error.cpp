#include "trireme/base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "trireme/base/joined_text.h"

namespace trireme {

std::string_view to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalidArgument:
      return "invalid argument";
    case ErrorKind::kNotFound:
      return "not found";
    case ErrorKind::kUnsupported:
      return "unsupported";
    case ErrorKind::kIo:
      return "io";
    case ErrorKind::kCorrupt:
      return "corrupt";
    case ErrorKind::kComm:
      return "communication";
    case ErrorKind::kTimeout:
      return "timeout";
    case ErrorKind::kInternal:
      return "internal";
  }
  return "unknown";
}

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalidArgument:
    case ErrorKind::kNotFound:
    case ErrorKind::kUnsupported:
      return 2;
    case ErrorKind::kIo:
    case ErrorKind::kCorrupt:
    case ErrorKind::kComm:
    case ErrorKind::kTimeout:
      return 3;
    case ErrorKind::kInternal:
      return 4;
  }
  return 4;
}

Error::Error(ErrorKind kind, std::string text, std::source_location where)
    : kind_(kind), text_(std::move(text)), where_(where) {
  rebuild();
}

void detail::throw_error(ErrorKind kind, fmt::string_view format, fmt::format_args args, std::source_location where) {
  throw Error(kind, fmt::vformat(format, args), where);
}

Error& Error::note(std::string_view context) {
  notes_ += "\n  ";
  notes_ += context;
  rebuild();
  return *this;
}

void Error::rebuild() {
  what_ = text_;
  if (kind_ == ErrorKind::kInternal) {
    const char* file = std::strstr(where_.file_name(), "trireme/");
    what_ = fmt::format("internal error, please report: {} (at {}:{})", text_, file ? file : where_.file_name(),
                        where_.line());
  }
  what_ += notes_;
}

std::string quoted_list(const std::vector<std::string>& words) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += i + 1 == words.size() ? " or " : ", ";
    out += fmt::format("'{}'", words[i]);
  }
  return out;
}

std::string closest(std::string_view word, const std::vector<std::string>& candidates) {
  const size_t near = std::max<size_t>(1, std::min<size_t>(3, word.size() / 2));
  size_t best = std::string_view::npos;
  std::string answer;
  for (const std::string& candidate : candidates) {
    // A letter more or less is a change: what differs more in length is not near, and a long word costs nothing.
    if (word.size() > candidate.size() + near || candidate.size() > word.size() + near) continue;
    // Levenshtein's changes, and two neighbours exchanged as one: of the letters so far, of one less and of two less.
    std::vector<size_t> row(candidate.size() + 1), before, two_before;
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 0; i < word.size(); ++i) {
      two_before = std::exchange(before, row);
      row[0] = i + 1;
      for (size_t j = 0; j < candidate.size(); ++j) {
        row[j + 1] = std::min({before[j + 1] + 1, row[j] + 1, before[j] + (word[i] != candidate[j])});
        if (i > 0 && j > 0 && word[i] == candidate[j - 1] && word[i - 1] == candidate[j])
          row[j + 1] = std::min(row[j + 1], two_before[j - 1] + 1);
      }
    }
    if (row.back() < best) {
      best = row.back();
      answer = candidate;
    }
  }
  return best <= near ? answer : "";
}

// That an error lists.
constexpr size_t kMostListed = 12;

std::string suggestion(std::string_view word, const std::vector<std::string>& candidates) {
  if (const std::string near = closest(word, candidates); !near.empty()) {
    return fmt::format(" Did you mean '{}'?", near);
  }
  if (candidates.size() <= kMostListed)
    return candidates.empty() ? "" : fmt::format(" One of {}.", quoted_list(candidates));
  const auto in_common = [&](const std::string& candidate) {
    return std::mismatch(word.begin(), word.end(), candidate.begin(), candidate.end()).first - word.begin();
  };
  std::vector<std::string> first = candidates;  // those that begin as the word does
  std::ranges::stable_sort(first, std::greater(), in_common);
  first.resize(kMostListed);
  return fmt::format(" One of '{}' and {} more.", joined_text(first, "', '"), candidates.size() - kMostListed);
}

}  // namespace trireme
