// How numbers in the attributes of nodes differ from one time to the next that a part of a program is repeated
// (repeat.h): the numbers of messages, and where a slice begins that is cut for one micro-batch.
#pragma once

#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "trireme/ir/program.h"
#include "trireme/op/message.h"
#include "trireme/partition/fewer_micro_batches.h"

namespace trireme {

// The micro-batch that the node is marked with or, where nodes are not, that of what it makes; -1: of none.
int micro_batch_of(const Program& program, const IsOfAll& is_of_all, const Node& node);

class MovingAttrs {
 public:
  // One of the times that are the same.
  struct Time {
    NodeId begin = 0;
    NodeId length = 0;
    int micro_batches = 0;  // of the program
  };

  // `time`: the last one before those that are added; `of_each` micro-batches of the program are one of the timetable.
  MovingAttrs(const Program& program, const IsOfAll& is_of_all, const Time& time, int of_each);

  // Notes what the attributes of a node say, and those of the same node a time later. False where they are not the
  // same but for numbers that move alike. `next_is_after`: times are added between the two. What answers a message
  // there may be another one, or the step's end: there are fewer messages behind it.
  bool note(NodeId id, bool next_is_after);

  // The node's attributes so many times later, of `all` times that are added.
  Attrs later(NodeId id, int times, int all) const;

  // Whether it is known how the attributes of a node after the added times move: numbers of messages, where they are of
  // those that do, and slices, where they begin as those before do. What is made from `first_moving` on moves.
  bool knows(NodeId id, ValueId first_moving) const;

 private:
  // What slices for one micro-batch have in common: which of those that are one of the timetable, the module, what they
  // are cut from (where it is made anew for each, only its type), and sizes.
  using Cut = std::tuple<int, std::string_view, ValueId, const TensorType*, std::vector<int64_t>>;
  // Where they begin: for micro-batch m of the timetable at from + m * step.
  struct Begin {
    std::vector<int64_t> from, step;
    bool is_one = true;  // they all begin so
  };

  int64_t of_timetable() const { return time_.micro_batches / of_each_; }  // micro-batches of a time
  bool is_cut_for_one(const Node& node) const;
  Cut cut_of(const Node& node, ValueId from) const;
  bool note_slice(NodeId id);
  bool note_tag(int64_t tag, int64_t next);
  const std::vector<int64_t>* step_of(NodeId id) const;
  size_t place_of(NodeId id) const;

  const Program& program_;
  const Graph& graph_;
  const IsOfAll& is_of_all_;
  Time time_;
  int of_each_;
  bool are_marked_;                                  // nodes of one micro-batch, with its number
  int64_t tags_ = 0;                                 // between the numbers of a message and of the same a time later
  int64_t least_tag_ = kMessageTags, most_tag_ = 0;  // of those that move; what is above is of the step's end
  std::map<Cut, Begin> begins_;
  std::unordered_map<size_t, std::vector<int64_t>> steps_;  // by the node's place in a time
};

}  // namespace trireme
