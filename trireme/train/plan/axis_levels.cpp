#include "trireme/train/plan/axis_levels.h"

#include <algorithm>

namespace trireme {
namespace {

// The smallest level in which both stand in one block.
size_t level_joining(const Machine& machine, int64_t a, int64_t b) {
  size_t level = 0;
  while (level + 1 < machine.levels.size() && a / machine.levels[level].devices != b / machine.levels[level].devices)
    ++level;
  return level;
}

}  // namespace

std::vector<AxisLevel> axis_levels(const Machine& machine, const Mesh& mesh, int64_t crews) {
  std::vector<AxisLevel> out;
  for (const MeshAxis& axis : mesh.user_axes()) {
    if (axis.size == 1) continue;
    AxisLevel& row = out.emplace_back(AxisLevel{.axis = axis.name, .ranks = axis.size});
    const Axes axes = mesh.find(axis.name);
    for (const std::vector<int64_t>& group : mesh.groups(axes)) {
      for (int64_t crew = 0; crew < crews; ++crew) {
        const int64_t first = crew * mesh.devices();
        row.level = std::max(row.level, level_joining(machine, first + group.front(), first + group.back()));
      }
    }
  }
  if (crews > 1) {
    AxisLevel& row = out.emplace_back(AxisLevel{.axis = "pp", .ranks = crews});
    for (int64_t rank = 0; rank + mesh.devices() < crews * mesh.devices(); ++rank)
      row.level = std::max(row.level, level_joining(machine, rank, rank + mesh.devices()));
  }
  return out;
}

}  // namespace trireme
