// Which keys the queries of an attention see when both are pieces in a ring, for all kernels of attention.
#pragma once

#include "trireme/op/op_attrs.h"
#include "trireme/op/op_def.h"

namespace trireme {

enum class KeysSeen {
  kAll,      // no mask, or keys from before all queries
  kUpToOwn,  // the causal mask
  kNone,     // keys after all queries
};

// Of attention and attention_grad, whose operand 1 is the piece of the keys. In step n of a ring it is the piece of the
// rank n places before; a rank's own stands where its queries do.
inline KeysSeen keys_seen(const KernelArgs& args) {
  const auto& attrs = args.attrs.as<AttentionAttrs>();
  if (!attrs.causal) return KeysSeen::kAll;
  const int64_t size = args.in[1].type.shape[1];
  const int64_t pieces = args.in_whole(1)[1] / size;
  const int64_t own = args.in_start(1, 1) / size;
  const int64_t piece = ((own - attrs.ring_step) % pieces + pieces) % pieces;
  if (piece == own) return KeysSeen::kUpToOwn;
  return piece < own ? KeysSeen::kAll : KeysSeen::kNone;
}

}  // namespace trireme
