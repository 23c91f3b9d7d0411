// The speed of the disk on which a run's values lie, measured when the run begins.
#pragma once

#include <optional>

#include "trireme/train/step/session/session.h"

namespace trireme {

// Bytes per second of reading or writing, whichever is slower. One value that lies there is read twice and written once
// with its own bytes: the smallest of 4 MiB and more, or else the largest. Nothing if no value lies there, or if a
// machine is named, whose rates are known. It is logged.
std::optional<double> measured_disk(Session& session);

}  // namespace trireme
