// Which links of a machine join the ranks along each axis of a job.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/mesh/machine.h"
#include "trireme/mesh/mesh.h"

namespace trireme {

struct AxisLevel {
  std::string axis;  // of the mesh, "tp"; "pp": from crew to crew
  int64_t ranks = 1;
  size_t level = 0;  // of machine.levels: the smallest that joins all groups of ranks along the axis
  friend bool operator==(const AxisLevel&, const AxisLevel&) = default;
};

// Axes of one rank are left out. So many crews of the mesh's ranks follow each other in the machine.
std::vector<AxisLevel> axis_levels(const Machine& machine, const Mesh& mesh, int64_t crews);

}  // namespace trireme
