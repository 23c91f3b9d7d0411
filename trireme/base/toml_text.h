// Checks of a TOML text before toml++ reads it. Outside of quotes and comments TOML is ASCII only, but toml++ 3.3 does
// not refuse every other character there: at some it runs into code that it declares unreachable. The same happens at
// the first character of a string's line that a backslash joins to the line before.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

// The line, from 1, of the first character that is not ASCII and stands in such a place; 0: there is none. Right for
// valid TOML only: in other texts toml++ may see quotes elsewhere.
int line_of_bare_character(std::string_view toml);

// The same text with "?c3" for a byte of 0xc3 and so on, to be parsed first: if toml++ accepts it, the text is TOML,
// because a question mark is allowed exactly where a character that is not ASCII is. Empty when all of it is ASCII.
std::string in_ascii(std::string_view toml);

}  // namespace trireme
