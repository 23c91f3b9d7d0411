#include "trireme/base/utf8.h"

#include <cstddef>
#include <cstdint>

namespace trireme {

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const auto first = static_cast<uint8_t>(text.front());
    const size_t more = first < 0x80 ? 0 : first >= 0xc2 && first < 0xe0 ? 1 : first >= 0xe0 && first < 0xf0 ? 2 : 3;
    if (more == 3 && (first < 0xf0 || first > 0xf4)) return false;
    if (text.size() <= more) return false;
    for (size_t i = 1; i <= more; ++i) {
      if ((static_cast<uint8_t>(text[i]) & 0xc0) != 0x80) return false;
    }
    // The second byte tells the rest: e0 and f0 would be longer forms, ed a surrogate, f4 beyond the last character.
    const auto second = static_cast<uint8_t>(more > 0 ? text[1] : 0);
    if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) || (first == 0xf0 && second < 0x90) ||
        (first == 0xf4 && second > 0x8f)) {
      return false;
    }
    text.remove_prefix(more + 1);
  }
  return true;
}

}  // namespace trireme
