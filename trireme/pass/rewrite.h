// Rewriting a program: a new one is built from the nodes of the old, copied, left out, joined or in another order.
#pragma once

#include <span>
#include <vector>

#include "trireme/ir/program.h"

namespace trireme {

class Rewrite {
 public:
  // Starts with the inputs of `from`, which must outlive this.
  explicit Rewrite(const Program& from);

  // Adds the node as it is; its operands must be there already.
  void copy(NodeId id);
  // Adds a node like this one that reads and makes these values of the old program.
  void copy(NodeId like, std::span<const ValueId> in, std::span<const ValueId> out);
  // Adds a node of another op in the place of these, in the scope of the last, that reads and makes these values of the old program.
  void add(const OpBase& op, const Attrs& attrs, std::span<const NodeId> instead_of, std::span<const ValueId> in,
           std::span<const ValueId> out);

  // Adds the outputs; nothing may be added after.
  Program finish();

 private:
  void define(ValueId old_id, ValueId id);

  const Program& from_;
  Program to_;
  std::vector<ValueId> map_;
  std::vector<NodeId> made_of_;
};

}  // namespace trireme
