// Cuts inputs about which nothing is asked as the first op that reads them needs them, which moves no bytes.
#pragma once

#include "trireme/parallel/propagate/propagated.h"

namespace trireme {

// Of the node that was chosen last: what it reads and nothing is known of, an input or a cast of one.
void settle_inputs(Propagated& known, const Node& node);

}  // namespace trireme
