// Model FLOPs utilisation (Chowdhery et al., 2022: PaLM, appendix B): the arithmetic that a step does for the model, as
// a share of what its ranks could do in that time. Recomputation does not count.
#pragma once

#include "trireme/backend/device.h"
#include "trireme/base/thread_pool.h"
#include "trireme/comm/comm.h"
#include "trireme/ir/graph.h"
#include "trireme/tensor/dtype.h"

namespace trireme {

// Floating-point operations of the graph's ops as they are before they are cut, by their cost functions.
double flops_of(const Graph& graph);

// What all ranks can do together, measured at the same time on each: some tens of milliseconds. 0 where the device does
// not measure it. Collective; a null world is one rank.
double peak_flops_per_s(comm::World* world, ThreadPool& pool, const Device& device, DType compute);

}  // namespace trireme
