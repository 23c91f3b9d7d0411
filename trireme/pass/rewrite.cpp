#include "trireme/pass/rewrite.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme {

Rewrite::Rewrite(const Program& from)
    : from_(from),
      to_{Graph(from.graph.name()), from.mesh, {}, {}, from.by_hand, from.micro_batches, from.seq_chunks},
      map_(from.graph.values().size(), kNoValue),
      made_of_(from.graph.nodes().size(), -1) {
  to_.graph.take_scopes(from.graph);
  to_.graph.expect_nodes(from.graph.nodes().size());
  to_.layouts.reserve(map_.size());
  to_.whole.reserve(map_.size());
  to_.parts.reserve(from.parts.size());
  for (const Input& input : from.graph.inputs()) {
    define(input.value, to_.graph.add_input(input.name, from.graph.type(input.value), input.role, input.init,
                                            input.saved_as, input.piece));
  }
}

const Rewrite::NewValue* Rewrite::new_one(ValueId id) const {
  const size_t old = from_.graph.values().size();
  return static_cast<size_t>(id) < old ? nullptr : &new_values_[static_cast<size_t>(id) - old];
}

ValueId Rewrite::new_value(const TensorType& type) {
  return new_value(type, Layout::replicated(type.shape.rank()), type.shape);
}

ValueId Rewrite::new_value(const TensorType& type, Layout layout, Shape whole) {
  new_values_.push_back({type, std::move(layout), std::move(whole)});
  map_.push_back(kNoValue);
  return static_cast<ValueId>(map_.size() - 1);
}

ValueId Rewrite::new_value_like(ValueId like) {
  const auto at = static_cast<size_t>(like);
  new_values_.push_back({from_.graph.shared_type(like), from_.layouts[at], from_.whole[at], like});
  map_.push_back(kNoValue);
  return static_cast<ValueId>(map_.size() - 1);
}

void Rewrite::define(ValueId old_id, ValueId id) {
  map_[static_cast<size_t>(old_id)] = id;
  if (const NewValue* made = new_one(old_id); made != nullptr) {
    if (made->like != kNoValue) to_.set_part_of(id, from_.part_of(made->like));
    to_.layouts.push_back(made->layout);
    to_.whole.push_back(made->whole);
    return;
  }
  to_.set_part_of(id, from_.part_of(old_id));
  to_.layouts.push_back(from_.layouts[static_cast<size_t>(old_id)]);
  to_.whole.push_back(from_.whole[static_cast<size_t>(old_id)]);
}

void Rewrite::copy(NodeId id) {
  const Node& node = from_.graph.node(id);
  copy(id, node.inputs, node.outputs);
}

void Rewrite::copy(NodeId like, std::span<const ValueId> in, std::span<const ValueId> out) {
  const Node& node = from_.graph.node(like);
  add(*node.op, node.attrs, std::span(&like, 1), in, out);
}

void Rewrite::add(const OpBase& op, const Attrs& attrs, std::span<const NodeId> instead_of, std::span<const ValueId> in,
                  std::span<const ValueId> out) {
  const Node& like = from_.graph.node(instead_of.back());
  const NodeId made = make(op, attrs, like, like.on_host || on_host_, in, out);
  for (const NodeId id : instead_of) made_of_[static_cast<size_t>(id)] = made;
}

void Rewrite::insert(const OpBase& op, const Attrs& attrs, NodeId beside, std::span<const ValueId> in,
                     std::span<const ValueId> out, std::optional<int> micro_batch) {
  make(op, attrs, from_.graph.node(beside), false, in, out, micro_batch);
}

NodeId Rewrite::make(const OpBase& op, const Attrs& attrs, const Node& like, bool on_host, std::span<const ValueId> in,
                     std::span<const ValueId> out, std::optional<int> micro_batch) {
  inputs_.clear();
  types_.clear();
  for (const ValueId id : in) {
    inputs_.push_back(map_[static_cast<size_t>(id)]);
    invariant(inputs_.back() != kNoValue, "%{} is read before it is made", id);
  }
  for (const ValueId id : out)
    types_.push_back(new_one(id) != nullptr ? new_one(id)->type : from_.graph.shared_type(id));
  to_.graph.mark_as(from_.graph, like, like.gradient_of < 0 ? -1 : made_of_[static_cast<size_t>(like.gradient_of)]);
  to_.graph.set_on_host(on_host);
  if (micro_batch) to_.graph.set_micro_batch(*micro_batch);
  const bool again =
      std::any_of(out.begin(), out.end(), [&](ValueId id) { return map_[static_cast<size_t>(id)] != kNoValue; });
  if (again) to_.graph.set_made_again();
  const NodeId made = to_.graph.add_node(op, attrs, inputs_, types_);
  for (size_t i = 0; i < out.size(); ++i) define(out[i], to_.graph.node(made).outputs[i]);
  return made;
}

Program Rewrite::finish() {
  for (const Output& output : from_.graph.outputs()) {
    to_.graph.add_output(output.name, map_[static_cast<size_t>(output.value)],
                         output.updates == kNoValue ? kNoValue : map_[static_cast<size_t>(output.updates)]);
  }
  to_.graph.carry_gradients(from_.graph, map_);
  to_.graph.carry_updates(from_.graph, map_);
  return std::move(to_);
}

}  // namespace trireme
