// The table of products by AMX (cpu/isa/tiles.h).
#pragma once

#include "trireme/backend/cpu/isa/pack_bf16_tiles_impl.h"
#include "trireme/backend/cpu/isa/pack_f32_tiles_impl.h"
#include "trireme/backend/cpu/isa/tile_products_impl.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

constexpr cpu::TileLoops make_tile_table() {
  return {begin_tiles,
          end_tiles,
          multiply_bf16_tiles,
          multiply_f32_tiles,
          pack_bf16_tiles,
          pack_f32_tiles,
          {multiply_adds_in_tiles, kTileMultiplyAdds}};
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
