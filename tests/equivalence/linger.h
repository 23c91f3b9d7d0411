// What must not depend on time, with other times: kernels, and the parts of operations between ranks, begin late by as
// much as is drawn. Compute, collectives and messages of each rank linger apart from each other.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "trireme/backend/device.h"

namespace trireme::equivalence {

// The device cpu, whose streams linger before some of what they are given.
std::shared_ptr<Device> lingering_cpu(uint32_t seed);

// For WorldOptions::rest of a rank: mostly none.
std::function<std::chrono::microseconds()> drawn_rests(uint32_t seed);

}  // namespace trireme::equivalence
