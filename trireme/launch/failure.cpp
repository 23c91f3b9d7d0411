#include "trireme/launch/failure.h"

#include <cstdio>

namespace trireme::launch {

std::string encode(const Failure& failure) {
  return fmt::format("trireme-failure {} {:.9f}\n{}", static_cast<int>(failure.kind), failure.at_s,
                     failure.text);
}

std::optional<Failure> decode(std::string_view bytes) {
  const size_t line = bytes.find('\n');
  if (line == std::string_view::npos || line > 100) return std::nullopt;
  Failure failure;
  int kind = 0;
  const std::string head(bytes.substr(0, line));
  if (std::sscanf(head.c_str(), "trireme-failure %d %lf", &kind, &failure.at_s) != 2 || kind < 0 ||
      kind > static_cast<int>(ErrorKind::kInternal)) {
    return std::nullopt;
  }
  failure.kind = static_cast<ErrorKind>(kind);
  failure.text = bytes.substr(line + 1);
  return failure;
}

}  // namespace trireme::launch
