// What the tables of a certificate imply for each other. The bounds of ways without a table of their own rest on this.
#pragma once

#include "trireme/planner/certificate/certificate.h"
#include "trireme/planner/certificate/certified_space.h"

namespace trireme {

// Checks that no table is below the bounds that follow for it from other tables, wherever these exist. Throws
// kInvalidArgument, naming the cut.
void check_table_bounds(const Certificate& certificate, const CertifiedTiers& tiers);

}  // namespace trireme
