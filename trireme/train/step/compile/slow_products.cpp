// Apart from precision.cpp, so that reading a configuration needs no kernels.
#include "trireme/backend/cpu/isa/isa.h"
#include "trireme/base/log.h"
#include "trireme/train/step/graphs/precision.h"

namespace trireme {

void log_slow_products(DType compute) {
  if (compute != DType::kBF16 || isa() >= Isa::kAvx512Bf16) return;
  TRIREME_LOG(kWarn, "train",
              "bf16 saves memory here and no time: '{}' has no products of bf16, so that their operands "
              "are widened to f32",
              to_string(isa()));
}

}  // namespace trireme
