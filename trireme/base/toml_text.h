// What is checked of a TOML text before toml++ reads it. Outside of quotes and comments TOML has ASCII only, but toml++ 3.3 does
// not refuse every other character there: it runs into code that it says is never reached.
#pragma once

#include <string_view>

namespace trireme {

// The line, from 1, of the first character outside of quotes and comments that is not ASCII; 0: there is none.
int line_of_bare_character(std::string_view toml);

}  // namespace trireme
