#include "trireme/launch/rank/failure.h"

#include <algorithm>
#include <charconv>

namespace trireme::launch {
namespace {

constexpr std::string_view kFailureMagic = "trireme-failure ";
constexpr size_t kLongestHead = 100;

}  // namespace

std::string encode(const Failure& failure) {
  return fmt::format("{}{} {:.9f}\n{}", kFailureMagic, static_cast<int>(failure.kind), failure.at_s, failure.text);
}

std::optional<Failure> decode(std::string_view bytes) {
  constexpr double kLatest = 1e12;  // seconds
  const size_t line = bytes.find('\n');
  std::string_view head = bytes.substr(0, std::min(line, kLongestHead));
  if (line == std::string_view::npos || line > kLongestHead || !head.starts_with(kFailureMagic)) return std::nullopt;
  head.remove_prefix(kFailureMagic.size());
  const char* const end = head.data() + head.size();
  int kind = -1;
  Failure failure;
  const auto first = std::from_chars(head.data(), end, kind);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ' ') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, failure.at_s, std::chars_format::fixed);
  const bool is_time = second.ec == std::errc() && second.ptr == end && failure.at_s >= 0 && failure.at_s < kLatest;
  if (!is_time || kind < 0 || kind > static_cast<int>(ErrorKind::kInternal)) return std::nullopt;
  failure.kind = static_cast<ErrorKind>(kind);
  failure.text = bytes.substr(line + 1);
  return failure;
}

}  // namespace trireme::launch
