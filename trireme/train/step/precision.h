// The element type that a job's layers compute in, by name.
#pragma once

#include <string>
#include <vector>

#include "trireme/tensor/dtype.h"

namespace trireme {

inline const std::vector<std::string> kComputeTypes{"f32", "bf16"};

// Of one of kComputeTypes; another name throws kInvalidArgument saying what exists, after `where`.
DType parse_compute_type(const std::string& name, const std::string& where);

// Says in the log that products of this type are slow on this machine, where they are.
void log_slow_products(DType compute);

}  // namespace trireme
