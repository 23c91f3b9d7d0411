// Environment variables: the only place that reads the environment. Every variable the system knows
// is in one table with a line of documentation (`trireme help env` prints it); asking for one that
// is not in the table is a bug. Values are read at each call, so a test may set and unset them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

struct Flag {
  std::string_view name;
  std::string_view form;  // what a value looks like
  std::string_view doc;   // one line: what it does and what holds without it
};

std::span<const Flag> all_flags();

// Without a value when the variable is not set or empty.
std::optional<std::string> flag_text(std::string_view name);
// A whole number in [low, high]; anything else throws kInvalidArgument naming variable and value.
std::optional<int64_t> flag_int(std::string_view name, int64_t low, int64_t high);
// The number that a variable's text is; throws in the same way.
int64_t flag_number(std::string_view name, std::string_view text, int64_t low, int64_t high);
// 1, true, yes, on and 0, false, no, off.
std::optional<bool> flag_bool(std::string_view name);

// Every variable of the table that is set and not empty, for code that is to be a function of the
// environment.
std::map<std::string, std::string, std::less<>> flag_values();

// Variables of the environment that begin with TRIREME_ and are not in the table: misspelt ones.
std::vector<std::string> unknown_flags();

}  // namespace trireme
