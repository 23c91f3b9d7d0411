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

// What a rule may ask of a way, "tp" and "4". Of a searched way only that it is one, and what it computes again: the
// others are found for each op.
std::vector<std::pair<std::string_view, std::string>> terms_of(const Way& way);

// Terms apart by spaces or commas. Throws kInvalidArgument for names that there are not and values that none of these
// ways has, saying which there are.
WayRule parse_way_rule(std::string_view text, std::span<const Way> ways);

}  // namespace trireme
