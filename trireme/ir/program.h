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
  // The model's code works on the ranks' pieces: to its ops each is a tensor of its own, wherever it lies in a whole.
  bool by_hand = false;
};

}  // namespace trireme
