#include "trireme/train/step/compile/slow_products.h"

#include <string>

#include "trireme/base/log.h"

namespace trireme {

void log_slow_products(const Device& device, DType compute) {
  const std::string why = device.why_no_quicker(compute);
  if (!why.empty()) TRIREME_LOG(kWarn, "train", "{} saves memory here and no time: {}", to_string(compute), why);
}

}  // namespace trireme
