// Checks the proof of a certificate without the search, with its own count of the ways and its own arithmetic: that the
// best way is legal, fits and takes the time stated, and that each other way has a reason not to be faster.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/planner/certificate/certificate.h"

namespace trireme {

// Throws kInvalidArgument, saying which line's figure does not follow and what does.
void verify_certificate(const Certificate& certificate);

// What a certificate that was verified proves, for people.
std::string proven_text(const Certificate& certificate);

}  // namespace trireme
