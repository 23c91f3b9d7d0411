#include "trireme/op/kept_bits.h"

#include <algorithm>

namespace trireme {

bool invariant_over(const KeptBits& kept, const ShardingRule& rule, int factor) {
  // A piece of windows finds its neighbours' edges in a larger block.
  const bool slides = std::any_of(rule.windows.begin(), rule.windows.end(),
                                  [&](const WindowedDim& windowed) { return windowed.factor == factor; });
  if (kept.bits == Bits::kShape || slides) return false;
  if (kept.bits == Bits::kExact || !is_summed(rule, factor)) return true;
  if (kept.bits == Bits::kElement) return false;
  for (int f = 0; f < static_cast<int>(rule.factors.size()); ++f) {
    const Factor& each = rule.factors[static_cast<size_t>(f)];
    if (!is_summed(rule, f) || each.size <= 1 || !each.can_cut) continue;
    if (kept.leaf_factor.empty() || kept.leaf_factor == each.name) return f == factor;
  }
  return false;
}

}  // namespace trireme
