// The element type that a job's layers compute in, by name.
#pragma once

#include <string>

#include "trireme/base/keys.h"
#include "trireme/tensor/dtype.h"

namespace trireme {

inline constexpr NameOf<DType> kComputeTypes[] = {{"f32", DType::kF32}, {"bf16", DType::kBF16}};

// Of one of kComputeTypes; another name throws kInvalidArgument saying what exists, after `where`.
DType parse_compute_type(const std::string& name, const std::string& where);

// Says in the log that products of this type are slow on this machine, where they are.
void log_slow_products(DType compute);

}  // namespace trireme
