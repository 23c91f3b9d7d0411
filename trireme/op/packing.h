// Packing: if the pieces that a collective sends and receives do not lie as the group moves them, they are copied to
// scratch memory and from there. Several operands of one gather or scatter are packed in slots: one for each rank of
// the group, in which that rank's pieces of all operands follow each other.
#pragma once

#include "trireme/op/op_def.h"

namespace trireme {

// Bytes of scratch, of what is sent and of what comes; 0 where it is moved from, or to, where it lies.
struct Packing {
  int64_t sent = 0;
  int64_t come = 0;
};
// Of a collective that is no exchange (exec/background/bound_exchange.h). A rank's own slot is the operand of a gather
// and the result of a scatter, so that slots need one region only.
Packing packing_of(const OpDef& op, const TypeArgs& types);

// Whether its operands are packed in slots.
bool packs_slots(const GroupCall& call, size_t operands);

}  // namespace trireme
