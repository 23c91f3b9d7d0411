// Tags over MPI. An MPI has tags up to a bound of its own (MPI_TAG_UB), of which 32767 are sure; so each kind of
// message has a communicator of its own, and there small tags.
#pragma once

#include <bit>
#include <cstddef>

#include "trireme/base/error.h"
#include "trireme/comm/engine/transport.h"

namespace trireme::comm {

inline constexpr size_t kMpiKinds = 4;  // the last: notices
inline constexpr int kMpiGuaranteedTag = 32767;

struct MpiTag {
  size_t kind = 0;
  int tag = 0;
};

// MPI delivers messages of one tag in their order: those of turns that are far apart may have the same.
inline int mpi_turn(uint32_t turn, int most) {
  return static_cast<int>(turn % std::bit_floor(static_cast<uint32_t>(most) + 1));
}

// `most`: the largest that this MPI takes. kInvalidArgument for a user's tag beyond it; all ranks have the same bound.
inline MpiTag mpi_tag(uint32_t tag, int most) {
  const uint32_t kind = tag / kTagsOfAKind;
  const uint32_t number = tag % kTagsOfAKind;
  if (kind == kCollectiveTags / kTagsOfAKind) return {kind, mpi_turn(number, most)};
  require(number <= static_cast<uint32_t>(most),
          "mpi: a message has tag {}; this MPI takes tags up to {} (MPI_TAG_UB){}; use smaller ones, or another MPI or "
          "transport",
          tag, most, kind > 0 ? fmt::format(", and as many from {} on", kind * kTagsOfAKind) : "");
  return {kind, static_cast<int>(number)};
}

}  // namespace trireme::comm
