// The speed of the disk on which a run's values lie, measured when the run begins.
#pragma once

#include <optional>

#include "trireme/train/step/session/session.h"

namespace trireme {

// Bytes a second of the slower way, by one value that lies there, which is read twice and written once, with the bytes
// that it has: the smallest of 4 MiB and more, or else the largest. Nothing where none lies there, or where a machine
// is named, whose rates are known. It is logged.
std::optional<double> measured_disk(Session& session);

}  // namespace trireme
