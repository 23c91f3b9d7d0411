#include "trireme/backend/cpu/products/panels.h"

#include <algorithm>
#include <numeric>

#include "trireme/backend/cpu/isa/loops.h"

namespace trireme::cpu {

namespace {

// Terms that are packed at once of all panels, since their lines share pages of memory and lines of the cache: as many
// as the first-level cache has room for. Where terms lie a multiple of 4 KiB apart, they have eight lines of it.
int64_t terms_together(int64_t bytes_apart) {
  constexpr int64_t kSetsBytes = 4096, kLineBytesOfSet = 64, kLinesOfSet = 8, kMost = 32;
  const int64_t sets = kSetsBytes / std::max(std::gcd(bytes_apart, kSetsBytes), kLineBytesOfSet);
  return std::min(kMost, kLinesOfSet * sets);
}

}  // namespace

template <class T>
void pack_panels(const PanelSourceOf<T>& from, int64_t lines, int64_t width, std::span<const LeafRun> runs,
                 int64_t length, float* to) {
  const auto pack_panel = from.lines_beside ? loops_on<T>().pack_beside : loops_on<T>().pack_apart;
  for (const LeafRun& run : runs) {
    const int64_t together =
        from.lines_beside ? terms_together(from.stride * static_cast<int64_t>(sizeof(T))) : run.length;
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
