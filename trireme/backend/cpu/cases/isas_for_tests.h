// The instruction sets on which kernels are tested: those of this machine, and amx, whose instructions and those of
// avx512_bf16 are emulated on any machine.
#pragma once

#include <string>
#include <vector>

#include "trireme/backend/cpu/isa/isa.h"
#include "trireme/backend/cpu/isa/loops.h"

namespace trireme::isa_emulated {
extern const cpu::Loops kLoops;
}

namespace trireme {

struct TestIsa {
  Isa isa;
  bool emulated = false;

  std::string name() const { return emulated ? "emulated" : std::string(to_string(isa)); }
  bool is_there() const { return emulated || isa <= machine_isa(); }
  void use() const {
    cpu::emulate_loops(emulated ? &isa_emulated::kLoops : nullptr);
    set_isa(isa);
  }
};

inline void use_machine_isa() {
  TestIsa{machine_isa()}.use();
}

inline std::vector<TestIsa> all_test_isas() {
  return {{Isa::kBaseline}, {Isa::kAvx2}, {Isa::kAvx512}, {Isa::kAvx512Bf16}, {Isa::kAmx}, {Isa::kAmx, true}};
}

}  // namespace trireme
