#include "trireme/backend/cpu/isa/isa.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "trireme/base/error.h"
#include "trireme/base/flags.h"

namespace trireme {
namespace {

constexpr std::array kEveryIsa{Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16};
constexpr int kUnknown = -1;
std::atomic<int> current{kUnknown};
std::atomic<bool> is_emulated{false};

Isa from_environment() {
  if (!isa_is_named()) return machine_isa();
  const auto text = flag_text("TRIREME_ISA");
  for (Isa each : kEveryIsa) {
    if (to_string(each) == *text) return std::min(each, machine_isa());
  }
  fail(ErrorKind::kInvalidArgument,
       "environment variable TRIREME_ISA='{}': it must be baseline, avx2, avx512, avx512_bf16 or "
       "native",
       *text);
}

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
  }
  return "?";
}

Isa machine_isa() {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx512 && __builtin_cpu_supports("avx512bf16")) return Isa::kAvx512Bf16;
  if (avx512) return Isa::kAvx512;
  if (avx2) return Isa::kAvx2;
#endif
  return Isa::kBaseline;
}

bool isa_is_named() {
  static const bool named = flag_text("TRIREME_ISA").value_or("native") != "native";
  return named;
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
