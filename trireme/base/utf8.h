// Text that goes into JSON, TOML or a terminal must be UTF-8 (RFC 3629).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trireme {

// Whether all of it is well formed: no piece of a character, no longer form of a shorter one, no half of a surrogate
// pair, nothing above U+10FFFF.
bool is_utf8(std::string_view text);
// How many bytes of its beginning are.
size_t utf8_length(std::string_view text);

// The text without the byte order mark (U+FEFF) that some editors and spreadsheets write before it.
std::string_view without_byte_order_mark(std::string_view text);

// The text as a terminal, a log or a page can show it: what is not well formed, and control characters but for line
// feeds and tabs, become U+FFFD, the sign for what cannot be shown.
std::string printable(std::string_view text);

}  // namespace trireme
