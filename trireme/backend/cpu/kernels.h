// Kernels: for each op an ordered list of ways to compute it on this machine, ending in the
// reference kernel of its OpDef. The choice is made once, when a step is planned; its name goes
// into the plan.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/mesh/tuning.h"
#include "trireme/op/numerics.h"
#include "trireme/op/op_def.h"

namespace trireme {

// What the bits of an element of a kernel's result depend on, beside the operands' elements it is computed from.
enum class Bits {
  kElement,  // nothing else, as long as no dimension it sums over is cut
  kLeaves,   // nothing else, also where one of the dimensions it sums over is cut (cpu/leaves.h)
  kExact,    // nothing else, whatever is cut: its sums are exact
  kShape,    // the sizes of the piece
};

// Kernels of an op that do the same in several ways, of which measuring finds the quickest (mesh/tuning.h).
struct Rivals {
  // What their times depend on, as one word; "": the call takes so little that it is not measured.
  std::string (*key)(const TypeArgs& args);
  // Measures: the way that takes the least time, the end of a kernel's name after its '.'.
  std::string_view (*quickest)(const TypeArgs& args);
};

struct Kernel {
  std::string_view op;
  std::string_view name;  // "matmul.sgemm"; "reference" for the op's own
  // "" when it can run on these local types, otherwise the reason. Null: it always can.
  std::string (*why_not)(const TypeArgs& args) = nullptr;
  // Bytes of KernelArgs::scratch it needs with a pool of `threads`. Null: none.
  int64_t (*scratch)(const TypeArgs& args, int threads) = nullptr;
  KernelFn* run = nullptr;
  Bits bits = Bits::kShape;  // what is not claimed is not kept
  // The factor of the op's rule that kLeaves speaks of; "": the first summed over that is longer than one element.
  std::string_view leaf_factor = "";
  const Rivals* rivals = nullptr;  // the same of all of them

  int64_t scratch_bytes(const TypeArgs& args, int threads) const {
    return scratch == nullptr ? 0 : scratch(args, threads);
  }
};

// Whether a factor of the op's rule may be cut and the bits stay: any that stands in every result; of those that a
// result sums over, that of the leaves under kLeaves and any under kExact.
bool invariant_over(const Kernel& kernel, const ShardingRule& rule, int factor);

// All kernels of an op, best first; the last is the reference, if the op has one.
std::vector<const Kernel*> kernels_of(const OpDef& def);

// The first of them that can run and, under kInvariant, whose bits do not depend on shapes; each
// refusal is logged (component `dispatch`, level debug). Throws kUnsupported when there is none,
// with the op's reason. The result lives as long as the program.
const Kernel& choose_kernel(const OpDef& def, const TypeArgs& args, Numerics numerics = Numerics::kFast);
// As kFast, but of rivals the one that was found to be the quickest.
const Kernel& choose_kernel(const OpDef& def, const TypeArgs& args, const Tuning& tuning);

}  // namespace trireme
