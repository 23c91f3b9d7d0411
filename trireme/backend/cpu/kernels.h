// Kernels: for each op an ordered list of ways to compute it on this machine, ending in the
// reference kernel of its OpDef. The choice is made once, when a step is planned; its name goes
// into the plan.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/cores.h"
#include "trireme/mesh/tuning.h"
#include "trireme/op/kept_bits.h"
#include "trireme/op/numerics.h"
#include "trireme/op/op_def.h"

namespace trireme {

// Kernels of an op that do the same in several ways, of which measuring finds the quickest (mesh/tuning.h).
struct Rivals {
  // What their times depend on, as one word; "": the call takes so little that it is not measured.
  std::string (*key)(const TypeArgs& args);
  // Measures, while other threads do the same on these cores: the way that takes the least time, the end of a kernel's
  // name after its '.'.
  std::string_view (*quickest)(const TypeArgs& args, std::span<const Cores> others);
};

struct Kernel {
  std::string_view op;
  std::string_view name;  // "matmul.sgemm"; "reference" for the op's own
  // "" when it can run on these local types, otherwise the reason. Null: it always can.
  std::string (*why_not)(const TypeArgs& args) = nullptr;
  // Bytes of KernelArgs::scratch it needs with a pool of `threads`. Null: none.
  int64_t (*scratch)(const TypeArgs& args, int threads) = nullptr;
  KernelFn* run = nullptr;
  Bits bits = Bits::kShape;           // KeptBits (op/kept_bits.h)
  std::string_view leaf_factor = "";  // the same
  const Rivals* rivals = nullptr;     // the same of all of them

  int64_t scratch_bytes(const TypeArgs& args, int threads) const {
    return scratch == nullptr ? 0 : scratch(args, threads);
  }
  KeptBits kept() const { return {bits, leaf_factor}; }
};

// All kernels of an op, best first; the last is the reference, if the op has one.
std::vector<const Kernel*> kernels_of(const OpDef& def);

// The first of them that can run and, under kInvariant, whose bits do not depend on shapes; each
// refusal is logged (component `dispatch`, level debug). Throws kUnsupported when there is none,
// with the op's reason. The result lives as long as the program.
const Kernel& choose_kernel(const OpDef& def, const TypeArgs& args, Numerics numerics = Numerics::kFast);
// As kFast, but of rivals the one that was found to be the quickest.
const Kernel& choose_kernel(const OpDef& def, const TypeArgs& args, const Tuning& tuning);

}  // namespace trireme
