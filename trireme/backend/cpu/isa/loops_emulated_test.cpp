// The loops of avx512_bf16 and amx over emulated instructions (emulated_impl.h), with
// TRIREME_ISA_NAMESPACE=isa_emulated; see trireme/CMakeLists.txt.
#include "trireme/backend/cpu/isa/table_impl.h"
