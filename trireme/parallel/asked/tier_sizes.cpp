#include "trireme/parallel/asked/tier_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "trireme/base/error.h"

namespace trireme {
namespace {

struct SizeUnit {
  std::string_view name;
  int64_t bytes = 1;
};
// Each kind from the largest on.
constexpr std::array<SizeUnit, 9> kSizeUnits{{{"TiB", int64_t{1} << 40},
                                              {"GiB", int64_t{1} << 30},
                                              {"MiB", int64_t{1} << 20},
                                              {"KiB", int64_t{1} << 10},
                                              {"TB", 1000000000000},
                                              {"GB", 1000000000},
                                              {"MB", 1000000},
                                              {"KB", 1000},
                                              {"B", 1}}};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

MemorySize MemorySize::read(std::string_view text) {
  text = trim(text);
  if (text.empty() || text == "0") return {};
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit = trim(text.substr(static_cast<size_t>(end - text.data())));
  constexpr double kMost = 0x1p62;
  for (const SizeUnit& each : kSizeUnits) {
    const double bytes = number * static_cast<double>(each.bytes);
    if (unit == each.name && status == std::errc() && is_digit(text[0]) && bytes >= 1 && bytes <= kMost)
      return MemorySize(static_cast<int64_t>(std::llround(bytes)));
  }
  fail(ErrorKind::kInvalidArgument, "'{}' is no number of bytes with a unit, like '2GB' or '512MiB'", text);
}

std::string to_string(const MemorySize& size) {
  if (!size.is_given()) return "";
  const SizeUnit* best = &kSizeUnits.back();
  for (const SizeUnit& unit : kSizeUnits) {
    if (size.bytes() % unit.bytes == 0 && unit.bytes > best->bytes) best = &unit;
  }
  return fmt::format("{}{}", size.bytes() / best->bytes, best->name);
}

MemorySize TierSizes::of(Tier tier) const {
  if (tier == Tier::kDisk) return disk.size();
  const MemorySize& given = tier == Tier::kDevice ? device : host;
  const double ratio = tier == Tier::kDevice ? device_ratio : host_ratio;
  if (!given.is_given() || ratio == 1) return given;
  return MemorySize(std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(given.bytes()) * ratio)));
}

DiskSpace DiskSpace::read(std::string_view text) {
  text = trim(text);
  DiskSpace out;
  const size_t colon = text.rfind(':');
  const bool has_size = colon != std::string_view::npos && colon + 1 < text.size() && is_digit(text[colon + 1]);
  if (has_size) out.size_ = MemorySize(text.substr(colon + 1));
  out.directory_ = has_size ? text.substr(0, colon) : text;
  return out;
}

std::string to_string(const DiskSpace& space) {
  if (!space.size().is_given()) return space.directory();
  return fmt::format("{}:{}", space.directory(), to_string(space.size()));
}

}  // namespace trireme
