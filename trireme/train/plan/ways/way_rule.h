// A rule that a way follows or does not: "tp=4 zero=1". It asks for values of the terms that it names; all other terms
// may have any value.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/train/plan/ways/ways.h"

namespace trireme {

struct WayRule {
  std::vector<std::pair<std::string, std::string>> terms;  // name, value

  bool is_kept_by(const Way& way) const;
  std::string text() const;
};

// What a rule may ask of a way: name and value, "tp" and "4". Of a way that `--auto` cuts, only that it is one, and
// what it recomputes: the other terms are chosen for each op.
std::vector<std::pair<std::string_view, std::string>> terms_of(const Way& way);

// Parses terms separated by spaces or commas. Throws kInvalidArgument, listing what exists, for unknown names and for
// values that none of these ways has.
WayRule parse_way_rule(std::string_view text, std::span<const Way> ways);

}  // namespace trireme
