#include "trireme/backend/cpu/device/cpu_model.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace trireme {

std::string cpu_model() {
#if defined(__x86_64__)
  constexpr uint32_t kFirst = 0x80000002, kLast = 0x80000004;  // each a third of the name
  std::array<uint32_t, 12> words{};
  for (uint32_t leaf = kFirst; leaf <= kLast; ++leaf) {
    uint32_t* const at = words.data() + 4 * static_cast<size_t>(leaf - kFirst);
    if (__get_cpuid(leaf, at, at + 1, at + 2, at + 3) == 0) return "";
  }
  std::array<char, sizeof(words) + 1> text{};
  std::memcpy(text.data(), words.data(), sizeof(words));
  std::string out(text.data());
  for (char& c : out) c = c < ' ' || c > '~' ? '?' : c;
  out.erase(0, std::min(out.find_first_not_of(' '), out.size()));
  while (out.ends_with(' ')) out.pop_back();
  return out;
#else
  return "";
#endif
}

}  // namespace trireme
