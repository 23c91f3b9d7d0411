#include "trireme/planner/candidates.h"

#include <algorithm>

namespace trireme {
namespace {

bool takes(const ShardingRule& rule, const FactorCuts& cuts, const Mesh& mesh) {
  if (!why_illegal(rule, cuts, mesh).empty()) return false;
  for (size_t factor = 0; factor < rule.factors.size(); ++factor) {
    if (is_uneven(rule, cuts, factor, mesh)) return false;
  }
  return true;
}

// The ways to give one more axis to the op, but for giving it to nothing.
std::vector<FactorCuts> with_axis(const ShardingRule& rule, const FactorCuts& cuts, int axis) {
  std::vector<FactorCuts> out;
  for (size_t factor = 0; factor < rule.factors.size(); ++factor) {
    out.push_back(cuts);
    out.back().axes[factor].push_back(axis);
  }
  if (rule.ring) {
    out.push_back(cuts);
    out.back().axes[static_cast<size_t>(rule.ring->first)].push_back(axis);
    out.back().axes[static_cast<size_t>(rule.ring->second)].push_back(axis);
  }
  for (size_t set = 0; set < rule.linear.size(); ++set) {
    if (cuts.linear_set >= 0 && cuts.linear_set != static_cast<int>(set)) continue;
    out.push_back(cuts);
    out.back().linear_set = static_cast<int>(set);
    out.back().through.push_back({axis, Reduction::kSum});
    std::sort(out.back().through.begin(), out.back().through.end(),
              [](const PartialAxis& a, const PartialAxis& b) { return a.axis < b.axis; });
  }
  return out;
}

}  // namespace

FactorCuts uncut(const ShardingRule& rule) {
  FactorCuts cuts;
  cuts.axes.resize(rule.factors.size());
  return cuts;
}

std::vector<FactorCuts> candidates(const ShardingRule& rule, const FactorCuts& cuts, const std::vector<int>& axes,
                                   const Mesh& mesh) {
  std::vector<FactorCuts> out{cuts};
  for (const int axis : axes) {
    const size_t before = out.size();
    for (size_t i = 0; i < before; ++i) {
      for (FactorCuts& more : with_axis(rule, out[i], axis)) {
        if (takes(rule, more, mesh)) out.push_back(std::move(more));
      }
    }
  }
  return out;
}

std::vector<Layout> candidates(const Shape& shape, const Layout& layout, const std::vector<int>& axes,
                               const Mesh& mesh) {
  std::vector<Layout> out{layout};
  for (const int axis : axes) {
    const size_t before = out.size();
    for (size_t i = 0; i < before; ++i) {
      for (size_t dim = 0; dim < layout.dims.size(); ++dim) {
        Layout more = out[i];
        more.dims[dim].push_back(axis);
        if (fits(more, shape, mesh, Parts::kEven)) out.push_back(std::move(more));
      }
    }
  }
  return out;
}

}  // namespace trireme
