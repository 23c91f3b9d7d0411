#include "trireme/backend/cpu/isa/loops.h"

#include <atomic>

#include "trireme/backend/cpu/isa/isa.h"

namespace trireme {

namespace isa_baseline {
extern const cpu::Loops kLoops;
}
#if defined(__x86_64__)
namespace isa_avx2 {
extern const cpu::Loops kLoops;
}
namespace isa_avx512 {
extern const cpu::Loops kLoops;
}
namespace isa_avx512_bf16 {
extern const cpu::Bf16Loops kBf16Loops;
}
namespace isa_amx {
extern const cpu::TileLoops kTileLoops;
extern const cpu::TileAttentionLoops kTileAttentionLoops;
}  // namespace isa_amx
#endif

namespace cpu {

namespace {

std::atomic<const Loops*> emulated{nullptr};

#if defined(__x86_64__)
const Loops& avx512_bf16() {
  static const Loops table = [] {
    Loops made = isa_avx512::kLoops;
    static_cast<Bf16Loops&>(made) = isa_avx512_bf16::kBf16Loops;
    return made;
  }();
  return table;
}

const Loops& amx() {
  static const Loops table = [] {
    Loops made = avx512_bf16();
    made.tiles = isa_amx::kTileLoops;
    made.bf16_peak = made.tiles.peak;
    made.tile_attention = isa_amx::kTileAttentionLoops;
    return made;
  }();
  return table;
}
#endif

}  // namespace

void emulate_loops(const Loops* loops) {
  emulated.store(loops, std::memory_order_relaxed);
  emulate_isa(loops != nullptr);
}

const Loops& loops() {
  if (const Loops* instead = emulated.load(std::memory_order_relaxed)) return *instead;
#if defined(__x86_64__)
  switch (isa()) {
    case Isa::kBaseline:
      return isa_baseline::kLoops;
    case Isa::kAvx2:
      return isa_avx2::kLoops;
    case Isa::kAvx512:
      return isa_avx512::kLoops;
    case Isa::kAvx512Bf16:
      return avx512_bf16();
    case Isa::kAmx:
      return amx();
  }
#endif
  return isa_baseline::kLoops;
}

}  // namespace cpu
}  // namespace trireme
