// A rule that a way follows or does not: "tp=4 zero=1". It asks for values of the terms that it names; all other terms
// may have any value.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/train/plan/ways/ways.h"

namespace trireme {

// What a rule may ask of a way.
struct WayTerm {
  std::string_view name;  // "tp"
  int64_t (*value)(const Way& way);
  std::string (*text)(int64_t value);  // "4"
  // Of a way that `--auto` cuts as well: its stages and micro-batches, what it recomputes, and where things lie. The
  // rest is chosen for each op.
  bool is_of_searched = false;

  bool is_said_of(const Way& way) const { return is_of_searched || !way.is_searched; }
};
std::span<const WayTerm> way_terms();

struct WayRule {
  struct Asked {
    const WayTerm* term;
    int64_t value;
  };
  std::vector<Asked> asked;

  bool is_kept_by(const Way& way) const;
  std::string text() const;
};

// Parses terms separated by spaces or commas. Throws kInvalidArgument, listing what exists, for unknown names and for
// values that none of these ways has.
WayRule parse_way_rule(std::string_view text, std::span<const Way> ways);

}  // namespace trireme
