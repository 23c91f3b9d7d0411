// Compiled for its instruction set, with TRIREME_ISA_NAMESPACE=isa_amx; see trireme/CMakeLists.txt. AMX adds only
// products in tiles and attention made of them; all other loops are those of avx512_bf16 (loops.cpp).
#include "trireme/backend/cpu/isa/tile_attention_grad_impl.h"

namespace trireme::isa_amx {

extern const cpu::TileLoops kTileLoops;
constinit const cpu::TileLoops kTileLoops = make_tile_table();

extern const cpu::TileAttentionLoops kTileAttentionLoops;
constinit const cpu::TileAttentionLoops kTileAttentionLoops = make_tile_attention_table();

}  // namespace trireme::isa_amx
