// Rewriting a program: a new one is built from the nodes of the old, copied, left out, joined or reordered. What the
// old graph records about training (ir/graph.h) is carried over automatically: nodes keep their phase and gradient,
// values and updates keep their gradients, and a node that makes values a second time is marked as recomputed.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "trireme/ir/program.h"

namespace trireme {

class Rewrite {
 public:
  // Starts with the inputs of `from`, which must outlive this.
  explicit Rewrite(const Program& from);

  // Adds the node as it is; its operands must be in the new program already.
  void copy(NodeId id);
  // Adds a node like this one that reads and makes these values of the old program.
  void copy(NodeId like, std::span<const ValueId> in, std::span<const ValueId> out);
  // Adds a node of another op in the place of these, in the scope of the last, that reads and makes these values of the
  // old program.
  void add(const OpBase& op, const Attrs& attrs, std::span<const NodeId> instead_of, std::span<const ValueId> in,
           std::span<const ValueId> out);

  // The same beside this node, in its scope, and in the place of none. It runs on the device, and belongs to this
  // micro-batch (-1: to all), or without one to the node's.
  void insert(const OpBase& op, const Attrs& attrs, NodeId beside, std::span<const ValueId> in,
              std::span<const ValueId> out, std::optional<int> micro_batch = {});

  // Nodes that are copied or added from now on run on the host; false: where those run that they are in the place of.
  void set_on_host(bool on_host) { on_host_ = on_host; }

  // A value that the old program does not have, to be made by `add`: to each rank a tensor of its own, not a piece of
  // one.
  ValueId new_value(const TensorType& type);
  // The same, of a tensor that is cut so.
  ValueId new_value(const TensorType& type, Layout layout, Shape whole);
  // The same, lying as this value of the old program does.
  ValueId new_value_like(ValueId like);

  // From here on readers of this value of the old program read that one, which has been made.
  void same(ValueId id, ValueId as) { map_[static_cast<size_t>(id)] = map_[static_cast<size_t>(as)]; }

  // Adds the outputs; nothing may be added after.
  Program finish();

 private:
  struct NewValue {
    Shared<TensorType> type;
    Shared<Layout> layout;
    Shared<Shape> whole;
    ValueId like = kNoValue;  // whose part of the batch it is
  };

  void define(ValueId old_id, ValueId id);
  NodeId make(const OpBase& op, const Attrs& attrs, const Node& like, bool on_host, std::span<const ValueId> in,
              std::span<const ValueId> out, std::optional<int> micro_batch = {});
  const NewValue* new_one(ValueId id) const;

  const Program& from_;
  Program to_;
  std::vector<NewValue> new_values_;  // numbered after the old program's
  std::vector<ValueId> map_;
  std::vector<NodeId> made_of_;
  bool on_host_ = false;
  std::vector<ValueId> inputs_;            // of the node that is made
  std::vector<Shared<TensorType>> types_;  // of its results
};

}  // namespace trireme
