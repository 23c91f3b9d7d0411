#include "trireme/train/precision.h"

#include <algorithm>

#include "trireme/backend/cpu/isa.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"

namespace trireme {

DType parse_compute_type(const std::string& name, const std::string& where) {
  require(std::find(kComputeTypes.begin(), kComputeTypes.end(), name) != kComputeTypes.end(),
          "{} '{}'; layers compute in one of {}", where, name, quoted_list(kComputeTypes));
  return name == "bf16" ? DType::kBF16 : DType::kF32;
}

void log_slow_products(DType compute) {
  if (compute != DType::kBF16 || isa() >= Isa::kAvx512Bf16) return;
  TRIREME_LOG(kWarn, "train",
              "bf16 is slower than f32 here: '{}' has no products of bf16, so that their operands "
              "are widened to f32",
              to_string(isa()));
}

}  // namespace trireme
