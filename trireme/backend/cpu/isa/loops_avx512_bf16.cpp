// Compiled for its instruction set, with TRIREME_ISA_NAMESPACE=isa_avx512_bf16; see
// trireme/CMakeLists.txt.
#include "trireme/backend/cpu/isa/table_impl.h"
