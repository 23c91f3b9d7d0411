// Readers: the nodes that read each value of a graph, in their order. A node that reads a value twice is listed twice.
#pragma once

#include <span>
#include <vector>

#include "trireme/ir/graph.h"

namespace trireme {

class Readers {
 public:
  explicit Readers(const Graph& graph) : begin_(graph.values().size() + 1, 0) {
    for (const Node& node : graph.nodes()) {
      for (const ValueId operand : node.inputs) ++begin_[static_cast<size_t>(operand) + 1];
    }
    for (size_t i = 1; i < begin_.size(); ++i) begin_[i] += begin_[i - 1];
    nodes_.resize(begin_.back());
    std::vector<size_t> at(begin_.begin(), begin_.end() - 1);
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      for (const ValueId operand : graph.nodes()[i].inputs) {
        nodes_[at[static_cast<size_t>(operand)]++] = static_cast<NodeId>(i);
      }
    }
  }

  std::span<const NodeId> of(ValueId value) const {
    const auto at = static_cast<size_t>(value);
    return std::span(nodes_).subspan(begin_[at], begin_[at + 1] - begin_[at]);
  }

 private:
  std::vector<size_t> begin_;  // by value, of its readers among all
  std::vector<NodeId> nodes_;
};

}  // namespace trireme
