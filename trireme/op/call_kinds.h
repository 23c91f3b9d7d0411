// CallKinds: calls that are of one op, with equal attributes and types, are of one kind. What follows from these alone
// (its time, its kernel, how its rows depend on rows) is found once for all of them: a step has hundreds of kinds,
// however many layers and micro-batches it has.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trireme/op/op_def.h"

namespace trireme {

struct CallKind {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<TensorType> in, out;

  TypeArgs types() const { return {in, out, attrs}; }
};

class CallKinds {
 public:
  // The number of the call's kind. Kinds are numbered from 0, in the order in which they are met first. `type_of` gives
  // the type of a value by its number.
  template <class TypeOf>
  int of(const OpDef& op, const Attrs& attrs, std::span<const ValueId> in, std::span<const ValueId> out,
         TypeOf&& type_of) {
    in_.clear();
    out_.clear();
    for (const ValueId id : in) in_.push_back(&type_of(id));
    for (const ValueId id : out) out_.push_back(&type_of(id));
    return find(op, attrs);
  }
  int of(const Graph& graph, const Node& node) {
    return of(def_of(node), node.attrs, node.inputs, node.outputs,
              [&](ValueId id) -> const TensorType& { return graph.type(id); });
  }

  size_t size() const { return kinds_.size(); }
  const CallKind& operator[](int kind) const { return kinds_[static_cast<size_t>(kind)]; }

 private:
  // A call as it was met: attributes by where their text lies, so that those that nodes share are not read. `attrs_`
  // keeps them there.
  struct Met {
    const std::string* attrs = nullptr;
    uint64_t hash = 0;
    int kind = -1;  // none: the place is free
  };

  int find(const OpDef& op, const Attrs& attrs);
  int find_by_text(const OpDef& op, const Attrs& attrs);
  int number_of(const Attrs& attrs);  // equal texts have one
  bool is_of(int kind, const OpDef& op) const;
  Met& place_of(const OpDef& op, const std::string* attrs, uint64_t hash);  // where it is, or would be
  void make_room();

  std::vector<const TensorType*> in_, out_;  // of the call that is looked for
  std::vector<CallKind> kinds_;
  std::vector<int> attrs_of_;  // of kinds, by number_of
  std::unordered_map<std::string_view, int> by_text_;
  std::unordered_map<const std::string*, int> by_place_;
  std::vector<Attrs> attrs_;
  std::unordered_multimap<uint64_t, int> by_hash_;  // of number, op and types
  std::vector<Met> met_;                            // by hash; the next place where that is taken
  size_t count_met_ = 0;
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
