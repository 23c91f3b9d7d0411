#include "trireme/backend/cpu/products/panels.h"

#include <algorithm>

#include "trireme/backend/cpu/isa/loops.h"

namespace trireme::cpu {

template <class T>
void pack_panels(const PanelSourceOf<T>& from, int64_t lines, int64_t width, std::span<const LeafRun> runs,
                 int64_t length, float* to) {
  constexpr int64_t kTermsTogether = 32;  // of all panels: their lines share pages of memory
  const auto pack_panel = from.lines_beside ? loops_on<T>().pack_beside : loops_on<T>().pack_apart;
  for (const LeafRun& run : runs) {
    const int64_t together = from.lines_beside ? kTermsTogether : run.length;
    for (int64_t first = 0; first < run.length; first += together) {
      const int64_t terms = std::min(together, run.length - first);
      const T* at = from.data + (run.start + first) * (from.lines_beside ? from.stride : 1);
      for (int64_t line = 0; line < lines; line += width) {
        pack_panel(width, std::min(width, lines - line), terms, at + (from.lines_beside ? line : line * from.stride),
                   from.stride, to + line * length + first * width);
      }
    }
    to += run.length * width;
  }
}

template void pack_panels(const PanelSourceOf<float>&, int64_t, int64_t, std::span<const LeafRun>, int64_t, float*);
template void pack_panels(const PanelSourceOf<Bf16>&, int64_t, int64_t, std::span<const LeafRun>, int64_t, float*);

}  // namespace trireme::cpu
