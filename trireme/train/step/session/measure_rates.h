// What the ranks of a job compute and what the links between them bring, measured as it starts.
#pragma once

#include "trireme/backend/device.h"
#include "trireme/base/thread_pool.h"
#include "trireme/comm/comm.h"
#include "trireme/mesh/machine.h"
#include "trireme/mesh/mesh.h"

namespace trireme {

// Times multiplications and copies on the pool, and sums over the ranks along each axis of the mesh, of which one may
// be micro-batches; a fifth of a second at most where a link brings 1 Gbit/s. The slowest rank's figures, on all ranks
// the same, as a machine with a device a rank and a level an axis. Where the device does not measure its peak, it
// computes as a host usually does. Collective.
Machine measure_rates(comm::World& world, ThreadPool& pool, const Mesh& mesh, const Device& device);

// The share of a sum's time that computing on the pool loses while the sum is under way in the background, on the rank
// that loses most (Machine::overlap_slowdown). Takes a second, or two. Collective.
double measure_overlap_slowdown(comm::World& world, ThreadPool& pool);

}  // namespace trireme
