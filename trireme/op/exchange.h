// Exchange: what one rank sends and gets in a collective in which ranks send each other boxes of their own: windows
// taken from and added to the blocks of neighbours, whole tensors passed on, boxes that the model names. It depends on
// the rank's place in its group alone. The ops make it (OpDef::collective), exec runs it
// (exec/background/bound_exchange.h).
#pragma once

#include <vector>

#include "trireme/layout/box.h"

namespace trireme {

struct Exchange {
  struct Part {
    int64_t peer = 0;  // place in the group
    size_t tensor = 0;
    Box box;  // of the operand that is sent, or of the result that is filled
  };
  std::vector<Part> sends;     // by peer
  std::vector<Part> receipts;  // by peer
  // What the rank itself has of its result: part i of `kept_from` goes to part i of `kept_to`.
  std::vector<Part> kept_from, kept_to;
  bool adds = false;  // parts of a result overlap and are added, in the order of the peers
  double fill = 0;    // where nothing comes
};

}  // namespace trireme
