// What a kernel keeps from call to call of the same action.
#pragma once

#include <memory>

#include "trireme/op/op_def.h"

namespace trireme::cuda {

// Made by make() in the first call.
template <class Made, class Make>
std::shared_ptr<Made> kept(const KernelArgs& args, Make&& make) {
  if (args.state == nullptr) return std::make_shared<Made>(make());
  if (!*args.state) *args.state = std::make_shared<Made>(make());
  return std::static_pointer_cast<Made>(*args.state);
}

}  // namespace trireme::cuda
