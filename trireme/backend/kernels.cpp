#include "trireme/backend/kernels.h"

#include <map>
#include <mutex>

#include "trireme/base/error.h"
#include "trireme/base/log.h"

namespace trireme {
namespace cpu {

#define KERNEL(name) extern const Kernel name;
#include "trireme/backend/cpu/kernels.def"
#undef KERNEL

}  // namespace cpu

namespace {

constexpr const Kernel* kKernels[] = {
#define KERNEL(name) &cpu::name,
#include "trireme/backend/cpu/kernels.def"
#undef KERNEL
};

// The op's own kernel in the form of the others; made once per op.
const Kernel* reference_of(const OpDef& def) {
  if (!def.kernel) return nullptr;
  static std::mutex mutex;
  static std::map<const OpDef*, Kernel> made;
  const std::lock_guard lock(mutex);
  return &made.try_emplace(&def, Kernel{def.name, "reference", nullptr, nullptr, def.kernel.get()})
              .first->second;
}

}  // namespace

std::vector<const Kernel*> kernels_of(const OpDef& def) {
  std::vector<const Kernel*> all;
  for (const Kernel* kernel : kKernels) {
    if (kernel->op == def.name) all.push_back(kernel);
  }
  if (const Kernel* reference = reference_of(def)) all.push_back(reference);
  return all;
}

const Kernel& choose_kernel(const OpDef& def, const TypeArgs& args) {
  for (const Kernel* kernel : kernels_of(def)) {
    const std::string reason = kernel->why_not == nullptr ? "" : kernel->why_not(args);
    if (reason.empty()) return *kernel;
    TRIREME_LOG(kDebug, "dispatch", "'{}' does not run '{}': {}", kernel->name, def.name, reason);
  }
  fail(ErrorKind::kUnsupported, "no kernel computes '{}': {}", def.name, def.kernel.reason());
}

}  // namespace trireme
