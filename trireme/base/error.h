// The one error type of the library. Errors are thrown, never printed, and say in one line where, what is
// wrong with the actual values, and what would be right. Context is added as the error passes up (`note`).
#pragma once

#include <fmt/core.h>

#include <exception>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace trireme {

enum class ErrorKind {
  kInvalidArgument,  // the caller's: fix the call
  kNotFound,         // the caller's: pick one of the candidates printed
  kUnsupported,      // known and not done: the text names another way
  kIo,               // the machine's: disk, file system, memory
  kCorrupt,          // the data's: fall back to an older checkpoint
  kComm,             // a peer's: rebuild the group and resume
  kTimeout,          // a peer's or ours
  kInternal,         // ours, a bug
};

std::string_view to_string(ErrorKind kind);

// Exit code of a program that ends with an error of this kind: 2 the caller's, 3 the machine's or a
// peer's, 4 ours.
int exit_code(ErrorKind kind);

class Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string text, std::source_location where = std::source_location::current());

  ErrorKind kind() const { return kind_; }
  const std::string& text() const { return text_; }                     // the line, without notes
  const char* what() const noexcept override { return what_.c_str(); }  // the line and its notes
  const std::source_location& where() const { return where_; }

  // Adds the outer story: `e.note("while reading 'gpt.toml'"); throw;`
  Error& note(std::string_view context);

 private:
  void rebuild();

  ErrorKind kind_;
  std::string text_;
  std::string notes_;
  std::string what_;
  std::source_location where_;
};

namespace detail {

// A format string checked against its arguments at compile time that also remembers where it stands.
template <class... Args>
struct Located {
  template <class S>
  consteval Located(const S& s, std::source_location loc = std::source_location::current())  // NOLINT
      : format(s), where(loc) {}
  fmt::format_string<Args...> format;
  std::source_location where;
};

// What the templates below have in common: they are instantiated for each list of types that an error's text is made
// of.
[[noreturn]] void throw_error(ErrorKind kind, fmt::string_view format, fmt::format_args args,
                              std::source_location where);

}  // namespace detail

template <class... Args>
[[noreturn]] void fail(ErrorKind kind, detail::Located<std::type_identity_t<Args>...> text, const Args&... args) {
  detail::throw_error(kind, text.format, fmt::make_format_args(args...), text.where);
}

// The caller's mistakes: throws kInvalidArgument.
template <class... Args>
void require(bool ok, detail::Located<std::type_identity_t<Args>...> text, const Args&... args) {
  if (!ok) [[unlikely]] {
    detail::throw_error(ErrorKind::kInvalidArgument, text.format, fmt::make_format_args(args...), text.where);
  }
}

// Our own mistakes: throws kInternal. If a test can trigger it, it should have been `require`.
template <class... Args>
void invariant(bool ok, detail::Located<std::type_identity_t<Args>...> text, const Args&... args) {
  if (!ok) [[unlikely]] {
    detail::throw_error(ErrorKind::kInternal, text.format, fmt::make_format_args(args...), text.where);
  }
}

// "'a', 'b' or 'c'", and the closest candidate to a misspelt word ("" if none is close).
std::string quoted_list(const std::vector<std::string>& words);
std::string closest(std::string_view word, const std::vector<std::string>& candidates);
// " Did you mean 'x'?" or " One of 'a', 'b' or 'c'." for the end of an error text; of many words only those most alike.
std::string suggestion(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace trireme
