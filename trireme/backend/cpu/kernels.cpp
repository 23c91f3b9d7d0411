#include "trireme/backend/cpu/kernels.h"

#include <map>
#include <mutex>
#include <span>

#include "trireme/base/error.h"
#include "trireme/base/log.h"

namespace trireme {
namespace cpu {

#define KERNELS(file) std::span<const Kernel> file##_kernels();
#include "trireme/backend/cpu/kernels.def"
#undef KERNELS

}  // namespace cpu

namespace {

const std::vector<const Kernel*>& kernels_of_files() {
  static const std::vector<const Kernel*> kAll = [] {
    std::vector<const Kernel*> all;
    for (const std::span<const Kernel> file : {
#define KERNELS(file) cpu::file##_kernels(),
#include "trireme/backend/cpu/kernels.def"
#undef KERNELS
         }) {
      for (const Kernel& kernel : file) all.push_back(&kernel);
    }
    return all;
  }();
  return kAll;
}

// The op's own kernel in the form of the others; made once per op.
const Kernel* reference_of(const OpDef& def) {
  if (!def.kernel) return nullptr;
  static std::mutex mutex;
  static std::map<const OpDef*, Kernel> made;
  const std::lock_guard lock(mutex);
  return &made.try_emplace(&def,
                           Kernel{.op = def.name, .name = "reference", .run = def.kernel.get(), .bits = Bits::kElement})
              .first->second;
}

}  // namespace

std::vector<const Kernel*> kernels_of(const OpDef& def) {
  std::vector<const Kernel*> all;
  for (const Kernel* kernel : kernels_of_files()) {
    if (kernel->op == def.name) all.push_back(kernel);
  }
  if (const Kernel* reference = reference_of(def)) all.push_back(reference);
  return all;
}

const Kernel& choose_kernel(const OpDef& def, const TypeArgs& args, Numerics numerics) {
  for (const Kernel* kernel : kernels_of(def)) {
    std::string reason = kernel->why_not == nullptr ? "" : kernel->why_not(args);
    if (numerics == Numerics::kInvariant && kernel->bits == Bits::kShape) reason = "its bits depend on the cuts";
    if (reason.empty()) return *kernel;
    TRIREME_LOG(kDebug, "dispatch", "'{}' does not run '{}': {}", kernel->name, def.name, reason);
  }
  fail(ErrorKind::kUnsupported, "no kernel computes '{}': {}", def.name, def.kernel.reason());
}

const Kernel& choose_kernel(const OpDef& def, const TypeArgs& args, const Tuning& tuning) {
  const Kernel& usual = choose_kernel(def, args);
  if (usual.rivals == nullptr || tuning.ways.empty()) return usual;
  const std::string* const way = tuning.way_of(usual.rivals->key(args));
  if (way == nullptr) return usual;
  for (const Kernel* kernel : kernels_of(def)) {
    if (kernel->rivals == usual.rivals && kernel->name.ends_with("." + *way) &&
        (kernel->why_not == nullptr || kernel->why_not(args).empty()))
      return *kernel;
  }
  return usual;
}

}  // namespace trireme
