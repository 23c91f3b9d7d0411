// MicroBatchSteps: what becomes of each node of a program when its micro-batches are unrolled (micro_batches.h): for
// which of them it is computed, when, and whether it joins or cuts them.
#pragma once

#include <map>
#include <vector>

#include "trireme/ir/program.h"

namespace trireme {

class MicroBatchSteps {
 public:
  // Of the program's first `count` micro-batches. It must outlive this. Throws kUnsupported for a collective of the
  // model's own over the axis, kInvalidArgument where there would be too many nodes.
  MicroBatchSteps(const Program& program, int64_t count);

  // Which of the axes of micro-batches something differs along: bit i is the i-th.
  using AxisSet = uint32_t;
  enum class Kind { kOrdinary, kSum, kGather, kSlice };

  bool is_ours(int axis) const;
  bool is_chunk(int axis) const;  // of positions
  AxisSet set_of(const Axes& axes) const;
  AxisSet differs_along(const Layout& layout) const;
  AxisSet differs_along(ValueId id) const { return of_values_[static_cast<size_t>(id)]; }
  // What the node makes, and what it reads unless it joins or cuts micro-batches.
  AxisSet differs_along(const Node& node) const {
    return of_nodes_[static_cast<size_t>(&node - graph_.nodes().data())];
  }
  // Whether it is done for one micro-batch. What is done once with a chunk of a sum over all is not.
  bool is_of_one(NodeId id) const;
  Axes axes_of(const Node& collective) const;
  AxisSet summed_over(NodeId sum) const { return summed_over_[static_cast<size_t>(sum)]; }

  Kind kind_of(NodeId id) const { return kinds_[static_cast<size_t>(id)]; }
  // A weight that is gathered from its slices for one micro-batch, or those that are interleaved, is not kept for the
  // next. Neither are the steps before, where it comes in several, as over links of several levels.
  bool repeats(NodeId id) const { return repeats_[static_cast<size_t>(id)] != 0; }
  // Nodes in the order in which they can be done: those before any sum or gather over micro-batches, those that need no
  // other, and so on.
  const std::vector<std::vector<NodeId>>& levels() const { return levels_; }

  int level_of(NodeId id) const { return level_of_[static_cast<size_t>(id)]; }

  // The first micro-batch that has the same coordinates along these axes.
  int64_t first_like(int64_t m, AxisSet along) const { return likes(along).first[static_cast<size_t>(m)]; }
  // All that have.
  const std::vector<int64_t>& all_like(int64_t m, AxisSet along) const {
    const Likes& found = likes(along);
    return found.all[static_cast<size_t>(found.first[static_cast<size_t>(m)])];
  }
  // Of the micro-batches that have m's coordinates along these axes, the one with which the node is done: the first
  // that has its turn, or the last, where the node needs what all chunks have made.
  int64_t turn_of(NodeId id, int64_t m, AxisSet along) const;

  bool has_chunks() const { return !chunk_axes_.empty(); }
  int64_t chunk_of(int64_t m) const;
  std::vector<int64_t> chunks_with(int64_t m) const;  // all of its micro-batch
  // Whether what the node reads or makes goes from chunk to chunk.
  bool goes_by_chunks(const Node& node) const;

 private:
  // By micro-batch: the first like it; by first one: all.
  struct Likes {
    std::vector<int64_t> first;
    std::vector<std::vector<int64_t>> all;
  };
  const Likes& likes(AxisSet along) const;
  const Layout& layout_of(ValueId id) const { return program_.layouts[static_cast<size_t>(id)]; }
  bool moves_ours(const Node& node) const;
  Kind find_kind(const Node& node) const;
  bool brings_parameter(const Node& node) const;
  void keep_what_brings_no_gather();
  void classify(NodeId id);
  AxisSet find_differs_along(const Node& node, Kind kind) const;

  const Program& program_;
  const Graph& graph_;
  int64_t count_;
  Axes axes_;
  Axes chunk_axes_;                            // of them
  std::vector<AxisSet> of_values_, of_nodes_;  // which they differ along
  std::vector<AxisSet> summed_over_;           // of nodes
  std::vector<Kind> kinds_;
  std::vector<char> repeats_, gathers_;  // of nodes; gathers_: itself, or a step before
  std::vector<int> level_of_;            // of nodes
  std::vector<int> level_of_value_;
  std::vector<std::vector<NodeId>> levels_;
  mutable std::map<AxisSet, Likes> likes_;  // of the sets that were asked for
};

}  // namespace trireme
