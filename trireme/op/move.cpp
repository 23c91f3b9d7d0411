#include "trireme/op/move.h"

#include "trireme/base/error.h"

namespace trireme {

std::string_view to_string(Tier tier) {
  return kTierNames[static_cast<size_t>(tier)];
}

Tier parse_tier(std::string_view name) {
  for (size_t i = 0; i < kTierNames.size(); ++i) {
    if (kTierNames[i] == name) return static_cast<Tier>(i);
  }
  fail(ErrorKind::kNotFound, "there is no tier of memory '{}'; there are 'device', 'host' and 'disk'", name);
}

Move move_of(const Attrs& attrs) {
  const auto& move = attrs.as<MoveAttrs>();
  return {parse_tier(move.from), parse_tier(move.to)};
}

Attrs attrs_of(const Move& move) {
  return Attrs::of(MoveAttrs{std::string(to_string(move.from)), std::string(to_string(move.to))});
}

}  // namespace trireme
