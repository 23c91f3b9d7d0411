// What is done about a TOML text before toml++ reads it. Outside of quotes and comments TOML has ASCII only, but
// toml++ 3.3 does not refuse every other character there: it runs into code that it says is never reached, and does so
// as well at the first character after a line of a string that a backslash joins to it.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

// The line, from 1, of the first character that is not ASCII and stands in such a place; 0: there is none. Says so of
// TOML only: of what quotes mean in a text that is none, toml++ may have another idea.
int line_of_bare_character(std::string_view toml);

// The same text with "?c3" for a byte of 0xc3 and so on, to be read first: where toml++ takes it, it is TOML, and where
// a character that is not ASCII may not stand, neither may the question mark. Empty when all of it is ASCII.
std::string in_ascii(std::string_view toml);

}  // namespace trireme
