// CrewUnits: the crew and the unit of the timetable to which each node of a pipeline's program belongs, and the crews
// that read each value. crews.cpp makes the crews' programs from it.
#pragma once

#include <set>
#include <unordered_map>
#include <vector>

#include "trireme/ir/program.h"
#include "trireme/parallel/timetable/timetable.h"

namespace trireme {

class CrewUnits {
 public:
  // Both must outlive this. Throws kInvalidArgument for a node of a stage that the timetable does not have.
  CrewUnits(const Program& program, const Timetable& timetable);

  const Program& program() const { return program_; }
  const Timetable& timetable() const { return timetable_; }

  // -1: of each crew that reads it.
  int crew_of(NodeId id) const;
  int crew_of_value(ValueId id) const;

  // In order.
  const std::vector<NodeId>& nodes_of(int crew) const { return nodes_[static_cast<size_t>(crew)]; }

  // The position of the node's unit in its crew's order; -1: it belongs to no unit.
  int unit_of(NodeId id) const { return units_[static_cast<size_t>(id)]; }
  // Whether the node belongs to a unit, or depends on a unit of any crew.
  bool follows_unit(NodeId id) const { return follows_unit_[static_cast<size_t>(id)] != 0; }
  // Whether the node depends, through any crews, on a node that follows a unit and belongs to none, that is, on one
  // that works on all micro-batches at once.
  bool follows_whole(NodeId id) const { return follows_whole_[static_cast<size_t>(id)] != 0; }

  // The micro-batches of the program that are one of the timetable, because they are interleaved.
  int copies() const { return copies_; }

  // The crews besides its own that read the value.
  const std::set<int>& readers_of(ValueId id) const;
  bool crosses(ValueId id) const { return crosses_[static_cast<size_t>(id)] != 0; }  // whether there are any

 private:
  const Node& node(NodeId id) const { return graph_.node(id); }
  NodeId nodes() const { return static_cast<NodeId>(graph_.nodes().size()); }
  Unit::Pass pass_of(NodeId id, Unit unit) const;
  int place_of(NodeId id) const;
  void find_stages();
  void find_input_grads();
  void find_units();
  void find_readers();

  const Program& program_;
  const Graph& graph_;
  const Timetable& timetable_;
  std::vector<int> crews_;  // of stages
  UnitIndex index_;
  int copies_;                       // micro-batches of the program in one of the timetable, which are interleaved
  bool in_parts_;                    // some backward passes come in two
  std::vector<int> of_inputs_;       // their stages
  std::vector<char> is_input_grad_;  // of nodes
  std::vector<std::vector<NodeId>> nodes_;  // by crew
  std::vector<int> units_;
  std::vector<char> follows_unit_;
  std::vector<char> follows_whole_;
  std::unordered_map<ValueId, std::set<int>> readers_;  // of values that cross
  std::vector<char> crosses_;                           // of values
};

}  // namespace trireme
