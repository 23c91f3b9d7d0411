// Checks of a TOML text before toml++ reads it, and what is wrong with one that it refuses, for people who wrote it.
// Outside of quotes and comments TOML is ASCII only, but toml++ 3.3 does not refuse every other character there: at
// some it runs into code that it declares unreachable. The same happens at the first character of a string's line that
// a backslash joins to the line before.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trireme {

// The same text with "?c3" for a byte of 0xc3 and so on, to be parsed first: if toml++ accepts it, the text is TOML,
// because a question mark is allowed exactly where a character that is not ASCII is. Empty when all of it is ASCII.
std::string in_ascii(std::string_view toml);

// What is wrong, and where: lines and columns (characters, not bytes) count from 1.
struct TomlMistake {
  int line = 1, column = 1;
  std::string text;
};

// Of a text that is not to be parsed: it is not UTF-8, or has a character that is not ASCII in the wrong place.
std::optional<TomlMistake> mistake_before_parsing(std::string_view toml);

// Of a text that toml++ refuses: `said` is what it says of in_ascii(toml), or of the text itself where that is ASCII. A
// string, list or header that is not closed is told by where it begins, and a key that stands twice by both places.
TomlMistake mistake_of(std::string_view toml, const TomlMistake& said);

}  // namespace trireme
