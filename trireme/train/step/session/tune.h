// Finding out which kernels are the quickest on this machine, as a job starts. All ranks go by what the first one
// finds, and their plans name it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/backend/device.h"
#include "trireme/comm/comm.h"
#include "trireme/exec/plan/execution_plan.h"
#include "trireme/mesh/tuning_place.h"

namespace trireme {

// What the file has for the device, for a job of which so many threads compute at a time on a host; nothing where
// nobody has a folder for it, so that ranks of several hosts go the same way; null where nothing is to be measured,
// which the place and the device say. What is wrong with the usual file is told, and it counts as empty; a named file
// is refused (read_tuning).
std::shared_ptr<const Tuning> known_tuning(const TuningPlace& place, const Device& device, int busy = 1);

// That of the first rank. Collective.
std::shared_ptr<const Tuning> agreed_tuning(const std::shared_ptr<const Tuning>& mine, comm::World* world);

// With the ways of all work in these plans that `known` does not have, measured by the first rank and added to the
// file. Meanwhile threads of its own do the same on the cores of the ranks that follow, which wait: as many as will
// compute on its host, known.busy, and 16 at most. Null where it has all of them. Where the usual file cannot be
// written, nothing is measured, since the next run would find other ways and compute other bits: it is told; a named
// file throws kIo. Collective.
std::shared_ptr<const Tuning> tune(const std::vector<const ExecutionPlan*>& plans, const Device& device,
                                   const Tuning& known, const TuningPlace& place, comm::World* world);

}  // namespace trireme
