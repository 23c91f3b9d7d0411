#include "trireme/base/utf8.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace trireme {

namespace {

// Of the character that the text begins with, in bytes; 0: it begins with none.
size_t length_of_first(std::string_view text) {
  const auto first = static_cast<uint8_t>(text.front());
  const size_t more = first < 0x80 ? 0 : first >= 0xc2 && first < 0xe0 ? 1 : first >= 0xe0 && first < 0xf0 ? 2 : 3;
  if (more == 3 && (first < 0xf0 || first > 0xf4)) return 0;
  if (text.size() <= more) return 0;
  for (size_t i = 1; i <= more; ++i) {
    if ((static_cast<uint8_t>(text[i]) & 0xc0) != 0x80) return 0;
  }
  // The second byte tells the rest: e0 and f0 would be longer forms, ed a surrogate, f4 beyond the last character.
  const auto second = static_cast<uint8_t>(more > 0 ? text[1] : 0);
  const bool wrong = (first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
                     (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f);
  return wrong ? 0 : more + 1;
}

// C0, DEL and C1 (U+0080 to U+009F), some of which a terminal obeys.
bool is_control(std::string_view character) {
  const auto first = static_cast<uint8_t>(character.front());
  if (first == '\n' || first == '\t') return false;
  return first < 0x20 || first == 0x7f || (first == 0xc2 && static_cast<uint8_t>(character[1]) < 0xa0);
}

}  // namespace

bool is_utf8(std::string_view text) {
  return utf8_length(text) == text.size();
}

size_t utf8_length(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = length_of_first(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return text.size();
}

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  return text.starts_with(kMark) ? text.substr(kMark.size()) : text;
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = length_of_first(text);
    const std::string_view character = text.substr(0, std::max<size_t>(1, length));
    out += length == 0 || is_control(character) ? std::string_view("\xef\xbf\xbd") : character;
    text.remove_prefix(character.size());
  }
  return out;
}

}  // namespace trireme
