// Program: what every rank of a mesh runs; ranks differ only in their coordinates. `partition` makes it, passes change
// it, and exec plans it.
#pragma once

#include <memory>
#include <vector>

#include "trireme/base/shared.h"
#include "trireme/ir/graph.h"
#include "trireme/layout/layout.h"

namespace trireme {

// A value of one micro-batch as a part of the value for the whole batch: it lies there by `layout`, over the mesh of
// ranks with the micro-batches as its last axis. To the program it is a tensor of its own.
struct PartOf {
  Shape whole;
  Shared<Layout> layout;
  int64_t micro_batch = 0;
};

struct Program {
  Graph graph;  // local types
  Mesh mesh;
  std::vector<Shared<Layout>> layouts;  // of graph.values()
  std::vector<Shared<Shape>> whole;     // whole shapes of graph.values()
  // The model's code works on the ranks' pieces: to its ops each is a tensor of its own, wherever it lies in a whole.
  bool by_hand = false;
  // The micro-batches that a rank computes one after the other (partition/micro_batches.h).
  int64_t micro_batches = 1;
  int64_t seq_chunks = 1;  // of which so many, one after the other, are chunks of one's positions
  // By value, of those that are parts of one micro-batch's; may end before the last value.
  std::vector<std::shared_ptr<const PartOf>> parts = {};

  // Null: the value is not a part.
  const std::shared_ptr<const PartOf>& part_of(ValueId id) const {
    static const std::shared_ptr<const PartOf> kNone;
    const auto at = static_cast<size_t>(id);
    return at < parts.size() ? parts[at] : kNone;
  }
  void set_part_of(ValueId id, std::shared_ptr<const PartOf> part) {
    if (part == nullptr) return;
    const auto at = static_cast<size_t>(id);
    if (parts.size() == at) return parts.push_back(std::move(part));
    if (parts.size() < at) parts.resize(at + 1);
    parts[at] = std::move(part);
  }
};

// The mesh with the axes of micro-batches.
inline Mesh with_micro_batches(const Program& program) {
  return with_micro_batches(program.mesh, program.micro_batches, program.seq_chunks);
}

}  // namespace trireme
