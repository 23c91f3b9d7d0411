#include "trireme/backend/cpu/isa/isa.h"

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <string>

#include "trireme/base/error.h"
#include "trireme/base/flags.h"

namespace trireme {
namespace {

constexpr std::array kEveryIsa{Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx};
constexpr int kUnknown = -1;
std::atomic<int> current{kUnknown};
std::atomic<bool> is_emulated{false};

Isa from_environment() {
  const std::string text = flag_text("TRIREME_ISA").value_or("native");
  if (text == "native") return machine_isa();
  for (Isa each : kEveryIsa) {
    if (to_string(each) == text) return std::min(each, machine_isa());
  }
  fail(ErrorKind::kInvalidArgument,
       "environment variable TRIREME_ISA='{}': it must be baseline, avx2, avx512, avx512_bf16, amx or native", text);
}

#if defined(__x86_64__)
// The CPU has tiles of bf16, and the kernel lets this process use them, which it has to be asked for.
bool may_use_tiles() {
  constexpr long kAskForState = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, and the number of the state
  return __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") &&
         syscall(SYS_arch_prctl, kAskForState, kTileData) == 0;
}
#endif

}  // namespace

std::string_view to_string(Isa isa) {
  switch (isa) {
    case Isa::kBaseline:
      return "baseline";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512_bf16";
    case Isa::kAmx:
      return "amx";
  }
  return "?";
}

Isa machine_isa() {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx512 && __builtin_cpu_supports("avx512bf16")) {
    static const bool tiles = may_use_tiles();
    return tiles ? Isa::kAmx : Isa::kAvx512Bf16;
  }
  if (avx512) return Isa::kAvx512;
  if (avx2) return Isa::kAvx2;
#endif
  return Isa::kBaseline;
}

Isa process_isa() {
  static const Isa chosen = from_environment();
  return chosen;
}

Isa isa() {
  const int known = current.load(std::memory_order_relaxed);
  if (known != kUnknown) return static_cast<Isa>(known);
  const Isa chosen = process_isa();
  current.store(static_cast<int>(chosen), std::memory_order_relaxed);
  return chosen;
}

void set_isa(Isa cap) {
  const Isa most = is_emulated.load(std::memory_order_relaxed) ? kEveryIsa.back() : machine_isa();
  current.store(static_cast<int>(std::min(cap, most)), std::memory_order_relaxed);
}

void emulate_isa(bool emulated) {
  is_emulated.store(emulated, std::memory_order_relaxed);
}

}  // namespace trireme
