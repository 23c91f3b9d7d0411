// CallKinds: calls of one op with equal attributes and types are of one kind. What follows from these alone (time,
// kernel, how rows depend on rows) is computed once for all of them. A step has a few hundred kinds, however many
// layers and micro-batches it has.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "trireme/base/shared.h"
#include "trireme/op/op_def.h"

namespace trireme {

struct CallKind {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<TensorType> all;  // of operands, then of results
  size_t operands = 0;

  std::span<const TensorType> in() const { return std::span(all).first(operands); }
  std::span<const TensorType> out() const { return std::span(all).subspan(operands); }
  TypeArgs types() const { return {in(), out(), attrs}; }
};

class CallKinds {
 public:
  // The number of the call's kind. Kinds are numbered from 0, in the order in which they are met first. `type_of` gives
  // the type of a value by its number.
  template <class TypeOf>
  int of(const OpDef& op, const Attrs& attrs, std::span<const ValueId> in, std::span<const ValueId> out,
         TypeOf&& type_of) {
    types_.clear();
    for (const ValueId id : in) types_.push_back(type_of(id));
    for (const ValueId id : out) types_.push_back(type_of(id));
    return find(op, attrs, in.size());
  }
  int of(const OpDef& op, const TypeArgs& types) {
    types_.clear();
    for (const TensorType& type : types.in) types_.push_back(type);
    for (const TensorType& type : types.out) types_.push_back(type);
    return find(op, types.attrs, types.in.size());
  }
  int of(const Graph& graph, const Node& node) {
    types_.clear();
    for (const ValueId id : node.inputs) types_.push_back(graph.shared_type(id));
    for (const ValueId id : node.outputs) types_.push_back(graph.shared_type(id));
    return find(def_of(node), node.attrs, node.inputs.size());
  }

  size_t size() const { return kinds_.size(); }
  const CallKind& operator[](int kind) const { return kinds_[static_cast<size_t>(kind)]; }

 private:
  struct Met {
    uint64_t hash = 0;
    int kind = -1;  // none: the place is free
  };

  int find(const OpDef& op, const Attrs& attrs, size_t operands);
  bool is_of(int kind, const OpDef& op, const Attrs& attrs, size_t operands) const;
  void make_room();

  std::vector<Shared<TensorType>> types_;  // of the call that is looked for: of operands, then of results
  std::vector<CallKind> kinds_;
  std::vector<Shared<TensorType>> types_of_kinds_;  // the same of all kinds
  std::vector<size_t> first_type_;                  // of each kind in these
  std::vector<Met> met_;                            // by hash; the next place where that is taken
};

// What `make` gives for a kind, found when the first call of the kind is met.
template <class T>
class OfKind {
 public:
  template <class Make>
  const T& get(int kind, Make&& make) {
    const auto at = static_cast<size_t>(kind);
    if (found_.size() <= at) found_.resize(at + 1);
    if (!found_[at]) found_[at].emplace(make());
    return *found_[at];
  }

 private:
  std::deque<std::optional<T>> found_;  // a deque: what was given stays where it is
};

}  // namespace trireme
