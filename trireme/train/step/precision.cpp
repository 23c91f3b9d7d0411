#include "trireme/train/step/precision.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme {

DType parse_compute_type(const std::string& name, const std::string& where) {
  require(std::find(kComputeTypes.begin(), kComputeTypes.end(), name) != kComputeTypes.end(),
          "{} '{}'; layers compute in one of {}", where, name, quoted_list(kComputeTypes));
  return name == "bf16" ? DType::kBF16 : DType::kF32;
}

}  // namespace trireme
