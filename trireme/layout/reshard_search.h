// The search that plan_reshard does, on a problem stripped of names: units (groups of mesh axes that
// move together) that stand on a dimension, are partial, or are idle.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "trireme/layout/reshard_step.h"

namespace trireme::detail {

inline constexpr int kMaxUnits = 8;

struct ReshardUnit {
  int64_t size = 1;
  int axes = 1;  // mesh axes in the unit
  LinkCost link;
};

// Where each unit stands, a byte per unit: dimension * 16 + place among the dimension's units, or
// one of the two words below. A state is the eight bytes.
using UnitState = uint64_t;
inline constexpr uint8_t kIdle = 0xff;
inline constexpr uint8_t kPartial = 0xfe;

constexpr uint8_t place_of(UnitState state, int unit) {
  return static_cast<uint8_t>(state >> (8 * (kMaxUnits - 1 - unit)));
}
constexpr UnitState with_place(UnitState state, int unit, uint8_t place) {
  const int shift = 8 * (kMaxUnits - 1 - unit);
  return (state & ~(UnitState{0xff} << shift)) | (UnitState{place} << shift);
}

struct ReshardProblem {
  std::vector<ReshardUnit> units;
  std::vector<int64_t> dims;  // sizes of a piece before any unit cuts it
  double bytes = 0;           // of that piece
  UnitState from = ~UnitState{0};
  UnitState to = ~UnitState{0};
};

struct UnitMove {
  ReshardStep::Kind kind = ReshardStep::Kind::kSlice;
  int8_t dim = -1;
  int8_t from_dim = -1;
  int8_t count = 0;
  std::array<int8_t, kMaxUnits> units{};  // most significant first
};

// Seconds of a step in which `axes` mesh axes with `size` ranks take part; of the payload see among_all.
double step_seconds(ReshardStep::Kind kind, int axes, int64_t size, LinkCost link, double payload,
                    const ReshardCosts& costs);

// The cheapest chain of moves, ties going to fewer moves. After visiting costs.max_states states it
// is the best chain found so far; nothing when none was found, or none is cheaper than `bound`
// seconds.
std::optional<std::vector<UnitMove>> cheapest_moves(const ReshardProblem& problem, double bound,
                                                    const ReshardCosts& costs);

}  // namespace trireme::detail
