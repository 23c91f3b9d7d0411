// What products in tiles stand between: a state of the thread that other code does not want.
#pragma once

#include "trireme/backend/cpu/isa/loops.h"

namespace trireme::cpu {

class TileState {
 public:
  TileState() { loops().tiles.begin(); }
  ~TileState() { loops().tiles.end(); }
  TileState(const TileState&) = delete;
  TileState& operator=(const TileState&) = delete;
};

}  // namespace trireme::cpu
