// What reading a configuration (config_toml.cpp) asks of its keys (config.cpp).
#pragma once

#include "trireme/train/config.h"

namespace trireme {

// Throws kInvalidArgument, naming the key, where a value is out of range or two do not fit together.
void check_values(const JobConfig& config);

}  // namespace trireme
