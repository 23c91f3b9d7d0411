// What parallel.keep and parallel.home ask to leave the device, where nothing of it does: said in words.
#pragma once

#include <span>

#include "trireme/pass/home_trips_impl.h"
#include "trireme/pass/passes.h"

namespace trireme {

// Of a training step, by the values that leave.
void say_what_stays(const Graph& graph, const PassOptions& options, std::span<const Trip> trips);

}  // namespace trireme
