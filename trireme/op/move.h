// Moves: a value goes from one tier of a rank's memory to another (docs/design/tiers.md). They stand in programs, after
// layouts are chosen, and run beside the ops.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "trireme/op/op_def.h"

namespace trireme {

// Memory that a rank has, each kind with an arena of its own.
enum class Tier {
  kDevice,  // where kernels work
  // Besides, of the host's: what need not lie where kernels work all the time, and staging of what is sent for devices
  // whose memory the host cannot touch.
  kHost,
  kDisk,  // a file of the rank's own (exec/disk/swap_file.h)
};
inline constexpr int kTiers = 3;
inline constexpr std::array<std::string_view, kTiers> kTierNames{"device", "host", "disk"};
inline constexpr std::array<Tier, kTiers> kEveryTier{Tier::kDevice, Tier::kHost, Tier::kDisk};
std::string_view to_string(Tier tier);
Tier parse_tier(std::string_view name);  // throws kNotFound with the names there are

struct MoveAttrs {
  std::string from = "host";
  std::string to = "device";
  static constexpr auto fields() { return std::tuple{field("from", &MoveAttrs::from), field("to", &MoveAttrs::to)}; }
};

struct Move {
  Tier from = Tier::kHost;
  Tier to = Tier::kDevice;
  bool meets_disk() const { return from == Tier::kDisk || to == Tier::kDisk; }
  friend bool operator==(const Move&, const Move&) = default;
};

inline bool is_move(const OpDef& op) {
  return op.traits.move;
}

// What a move's attributes say.
Move move_of(const Attrs& attrs);
Attrs attrs_of(const Move& move);

}  // namespace trireme
