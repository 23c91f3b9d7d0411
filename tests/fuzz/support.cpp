#include "tests/fuzz/support.h"

#include <cstdio>
#include <cstdlib>

#include "trireme/base/log.h"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  trireme::set_log_sink([](std::string_view) {});
  return 0;
}

namespace trireme::fuzz {

std::pair<std::string_view, std::string_view> split(std::string_view text, std::string_view separator) {
  const size_t at = text.find(separator);
  if (at == std::string_view::npos) return {text, {}};
  return {text.substr(0, at), text.substr(at + separator.size())};
}

void demand(bool holds, std::string_view what, std::string_view one, std::string_view other) {
  if (holds) return;
  fmt::print(stderr, "finding: {}\n--- one\n{}\n--- other\n{}\n", what, one, other);
  std::abort();
}

}  // namespace trireme::fuzz
