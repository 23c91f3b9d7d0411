// The instruction set of a case, while it is compiled and runs.
#pragma once

#include <algorithm>
#include <string>

#include "trireme/backend/cpu/isa/isa.h"

namespace trireme::equivalence {

// While it lives, kernels use what this instruction set has.
class UsedIsa {
 public:
  explicit UsedIsa(const std::string& name) {
    for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
      if (to_string(isa) == name) set_isa(std::min(isa, before_));
    }
  }
  ~UsedIsa() { set_isa(before_); }
  UsedIsa(const UsedIsa&) = delete;
  UsedIsa& operator=(const UsedIsa&) = delete;

 private:
  Isa before_ = isa();
};

}  // namespace trireme::equivalence
