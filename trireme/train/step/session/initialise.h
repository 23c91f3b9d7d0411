// The starting values of parameters and state, as functions of (seed, name, global element index): equal under
// any layout.
#pragma once

#include <cstdint>
#include <string_view>

#include "trireme/ir/graph.h"
#include "trireme/layout/box.h"
#include "trireme/tensor/view.h"

namespace trireme {

// Fills the local piece `out`, which is `box` of a tensor of shape `whole`; what goes on beyond it becomes zero.
void initialise(const View& out, const Box& box, const Shape& whole, const Init& init, uint64_t seed,
                std::string_view name);

}  // namespace trireme
