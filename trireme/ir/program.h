// Program: what every rank of a mesh runs; ranks differ in coordinates only. `partition` makes it, passes change
// it, exec plans it.
#pragma once

#include <vector>

#include "trireme/ir/graph.h"
#include "trireme/layout/layout.h"

namespace trireme {

struct Program {
  Graph graph;                  // local types
  Mesh mesh;
  std::vector<Layout> layouts;  // of graph.values()
  std::vector<Shape> whole;     // whole shapes of graph.values()
};

}  // namespace trireme
