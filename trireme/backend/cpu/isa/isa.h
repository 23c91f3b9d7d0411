// Which instruction set the CPU kernels use: the best of the machine, capped by TRIREME_ISA.
#pragma once

#include <string_view>

namespace trireme {

enum class Isa { kBaseline, kAvx2, kAvx512, kAvx512Bf16, kAmx };

std::string_view to_string(Isa isa);  // "baseline", "avx2", "avx512", "avx512_bf16", "amx"

// What the machine has, what this process has of it by TRIREME_ISA, and what is used, which is the same but in tests.
// The environment is read at the first call; an unknown word in TRIREME_ISA throws kInvalidArgument.
Isa machine_isa();
Isa process_isa();
Isa isa();

// Caps the instruction set from now on (never above the machine's, unless it is emulated): for tests, which compare
// all.
void set_isa(Isa cap);
// Takes the machine for one that has them all: for tests whose loops do without (cpu/isa/loops.h).
void emulate_isa(bool emulated);

}  // namespace trireme
