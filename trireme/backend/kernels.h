// Kernels: for each op an ordered list of ways to compute it on this machine, ending in the
// reference kernel of its OpDef. The choice is made once, when a step is planned; its name goes
// into the plan.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/op/op_def.h"

namespace trireme {

struct Kernel {
  std::string_view op;
  std::string_view name;  // "matmul.sgemm"; "reference" for the op's own
  // "" when it can run on these local types, otherwise the reason. Null: it always can.
  std::string (*why_not)(const TypeArgs& args);
  // Bytes of KernelArgs::scratch it needs with a pool of `threads`. Null: none.
  int64_t (*scratch)(const TypeArgs& args, int threads);
  KernelFn* run;

  int64_t scratch_bytes(const TypeArgs& args, int threads) const {
    return scratch == nullptr ? 0 : scratch(args, threads);
  }
};

// All kernels of an op, best first; the last is the reference, if the op has one.
std::vector<const Kernel*> kernels_of(const OpDef& def);

// The first of them that can run; each refusal is logged (component `dispatch`, level debug).
// Throws kUnsupported when there is none, with the op's reason. The result lives as long as the
// program.
const Kernel& choose_kernel(const OpDef& def, const TypeArgs& args);

}  // namespace trireme
