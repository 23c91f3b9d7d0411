#include "trireme/partition/repeat.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/op/structural.h"
#include "trireme/partition/fewer_micro_batches.h"
#include "trireme/partition/moving_attrs_impl.h"

namespace trireme {
namespace {

// The part of a program that is there several times, the last time from node `begin` on, `length` nodes long; and once
// more after that.
struct Part {
  NodeId begin = 0;
  NodeId length = 0;
  int times = 0;          // before its end
  ValueId values = 0;     // that it makes
  int micro_batches = 0;  // of the program

  NodeId end() const { return begin + length; }
};

// Finds the part and what of it moves.
class FoundPart {
 public:
  FoundPart(const Program& program, const Repeat& repeat, int of_each)
      : program_(program), graph_(program.graph), repeat_(repeat), of_each_(of_each), is_of_all_(program) {}

  bool find() {
    const NodeId first = first_of_unit();
    if (first < 0) return false;
    part_.micro_batches = repeat_.micro_batches * of_each_;
    for (NodeId next = first + 1; next < nodes(); ++next) {
      part_.length = next - first;
      if (next + part_.length > nodes()) return false;
      if (!is_same_kind(first, next)) continue;
      part_.begin = first - part_.length;
      part_.values = first_value(first) - first_value(part_.begin);
      if (part_.begin < part_.length || part_.values == 0 || !is_found()) continue;
      return true;
    }
    return false;
  }

  const Part& part() const { return part_; }
  const MovingAttrs& attrs() const { return *attrs_; }
  // What is made from here on, before the place, moves: who reads it later reads what is made times later.
  ValueId first_moving() const { return first_moving_; }
  NodeId first_moving_node() const { return first_moving_node_; }
  ValueId first_value(NodeId id) const { return first_values_[static_cast<size_t>(id)]; }

 private:
  const Node& node(NodeId id) const { return graph_.node(id); }
  NodeId nodes() const { return static_cast<NodeId>(graph_.nodes().size()); }

  NodeId first_of_unit() {
    ValueId value = static_cast<ValueId>(graph_.inputs().size());
    NodeId first = -1;
    const int of_unit = (repeat_.at.micro_batch * of_each_) + repeat_.at.seq_chunk;
    const Phase phase = repeat_.at.pass == Unit::Pass::kForward ? Phase::kForward : Phase::kBackward;
    for (NodeId id = 0; id < nodes(); ++id) {
      const Node& n = node(id);
      first_values_.push_back(value);
      value += static_cast<ValueId>(n.outputs.size());
      const bool is_of_stage = repeat_.at.stage < 0 || n.stage == repeat_.at.stage;
      const bool is_of_unit = is_of_stage && micro_batch_of(program_, is_of_all_, n) == of_unit && n.phase == phase;
      if (first < 0 && is_of_unit && n.op != &structural().recv) first = id;
    }
    first_values_.push_back(value);
    return first;
  }

  // Whether they do the same, of micro-batches a time apart.
  bool is_same_kind(NodeId a, NodeId b) const {
    const Node &x = node(a), &y = node(b);
    const int later = x.micro_batch < 0 ? 0 : part_.micro_batches;
    return x.op == y.op && x.scope == y.scope && x.phase == y.phase && x.again == y.again && x.stage == y.stage &&
           x.on_host == y.on_host && y.micro_batch == x.micro_batch + later && x.inputs.size() == y.inputs.size() &&
           x.outputs.size() == y.outputs.size() && (x.gradient_of < 0) == (y.gradient_of < 0);
  }

  bool makes_same(NodeId a, NodeId b) const {
    const Node &x = node(a), &y = node(b);
    for (size_t i = 0; i < x.outputs.size(); ++i) {
      const ValueId from = x.outputs[i], to = y.outputs[i];
      const auto p = static_cast<size_t>(from), q = static_cast<size_t>(to);
      if (&graph_.type(from) != &graph_.type(to) || !(program_.layouts[p] == program_.layouts[q]) ||
          !(program_.whole[p] == program_.whole[q])) {
        return false;
      }
      const auto &part = program_.part_of(from), &next = program_.part_of(to);
      if ((part == nullptr) != (next == nullptr)) return false;
      if (part == nullptr) continue;
      const int64_t later = is_of_all_(*part) ? 0 : part_.micro_batches;
      if (next->micro_batch != part->micro_batch + later || part->whole != next->whole ||
          !(part->layout == next->layout)) {
        return false;
      }
    }
    return true;
  }

  // Whether all times before the place, and the one after it, are the same.
  bool is_found() {
    attrs_.emplace(program_, is_of_all_, MovingAttrs::Time{part_.begin, part_.length, part_.micro_batches}, of_each_);
    part_.times = 0;
    for (NodeId begin = part_.begin; begin >= 0; begin -= part_.length, ++part_.times) {
      if (!is_same_time(begin)) break;
    }
    if (part_.times < 3) return false;
    // One time less, so that it holds a time before the place too.
    first_moving_node_ = part_.begin - (part_.times - 2) * part_.length;
    first_moving_ = first_value(first_moving_node_);
    return reads_same() && crosses_same() && has_same_gradients() && later_attrs_move();
  }

  // From `begin` on, and a time later.
  bool is_same_time(NodeId begin) {
    const bool is_last = begin == part_.begin;
    if (first_value(begin + part_.length) - first_value(begin) != part_.values) return false;
    for (NodeId id = begin; id < begin + part_.length; ++id) {
      const NodeId next = id + part_.length;
      if (!is_same_kind(id, next) || !attrs_->note(id, is_last) || !makes_same(id, next)) return false;
      for (size_t i = 0; i < node(id).inputs.size(); ++i) {
        if (!is_later(node(id).inputs[i], node(next).inputs[i])) return false;
      }
    }
    return true;
  }

  // Whether the second may be what the first is a time later. What was made before the part is there at other
  // distances.
  bool is_later(ValueId a, ValueId b) const {
    if (b == a || b == a + part_.values) return true;
    const Value &from = graph_.value(a), &to = graph_.value(b);
    return from.producer >= 0 && to.producer >= 0 && from.index == to.index && is_same_kind(from.producer, to.producer);
  }

  // Of the last time before the place and the one after it.
  bool reads_same() const {
    for (NodeId id = part_.begin; id < part_.end(); ++id) {
      const Node &a = node(id), &b = node(id + part_.length);
      for (size_t i = 0; i < a.inputs.size(); ++i) {
        if (b.inputs[i] != a.inputs[i] + (a.inputs[i] >= first_moving_ ? part_.values : 0)) return false;
      }
      if (b.gradient_of != a.gradient_of + (a.gradient_of >= first_moving_node_ ? part_.length : 0)) return false;
    }
    return true;
  }

  // The values that are made before a place and read after it.
  std::vector<ValueId> crossing(NodeId at) const {
    const ValueId end = first_value(at);
    std::vector<ValueId> out;
    const auto add = [&](ValueId id) {
      if (id < end) out.push_back(id);
    };
    for (NodeId id = at; id < nodes(); ++id) std::ranges::for_each(node(id).inputs, add);
    for (const Output& output : graph_.outputs()) add(output.value);
    std::ranges::sort(out);
    out.erase(std::ranges::unique(out).begin(), out.end());
    return out;
  }

  bool crosses_same() const {
    const std::vector<ValueId> here = crossing(part_.end());
    std::vector<ValueId> before = crossing(part_.begin);
    for (ValueId& id : before) id += id >= first_moving_ - part_.values ? part_.values : 0;
    return here == before;
  }

  bool has_same_gradients() const {
    const auto of_time = [&](NodeId begin) {
      const auto from = std::ranges::lower_bound(graph_.gradients(), first_value(begin), {}, &GradientOf::gradient);
      const auto to =
          std::ranges::lower_bound(graph_.gradients(), first_value(begin + part_.length), {}, &GradientOf::gradient);
      return std::span(from, to);
    };
    const bool same =
        std::ranges::equal(of_time(part_.begin), of_time(part_.end()), [&](const GradientOf& a, const GradientOf& b) {
          return b.gradient == a.gradient + part_.values && b.of == a.of + (a.of >= first_moving_ ? part_.values : 0);
        });
    // What is made once may be the gradient of values of all micro-batches, as the one of losses is.
    std::vector<GradientOf> here, next;
    for (const GradientOf& each : graph_.gradients()) {
      if (each.gradient >= first_moving_) break;
      const auto is_of = [&](NodeId begin) {
        return each.of >= first_value(begin) && each.of < first_value(begin + part_.length);
      };
      if (is_of(part_.begin)) here.push_back({each.gradient, each.of + part_.values});
      if (is_of(part_.end())) next.push_back(each);
    }
    return same && here == next;
  }

  bool later_attrs_move() const {
    for (NodeId id = part_.end(); id < nodes(); ++id) {
      if (!attrs_->knows(id, first_moving_)) return false;
    }
    return true;
  }

  const Program& program_;
  const Graph& graph_;
  const Repeat& repeat_;
  int of_each_;
  IsOfAll is_of_all_;
  std::vector<ValueId> first_values_;  // by node, what it makes first, or the next one
  Part part_;
  std::optional<MovingAttrs> attrs_;
  ValueId first_moving_ = 0;
  NodeId first_moving_node_ = 0;
};

class Repeated {
 public:
  Repeated(const Program& program, const FoundPart& found, const Repeat& repeat)
      : from_(program),
        graph_(program.graph),
        found_(found),
        part_(found.part()),
        times_(repeat.times),
        is_of_all_(program) {
    to_.graph = Graph(graph_.name());
    to_.mesh = from_.mesh;
    to_.by_hand = from_.by_hand;
    to_.seq_chunks = from_.seq_chunks;
    to_.micro_batches = from_.micro_batches + int64_t{times_} * part_.micro_batches;
    to_.graph.take_scopes(graph_);
    const size_t added = static_cast<size_t>(times_) * static_cast<size_t>(part_.values);
    to_.graph.expect_nodes(graph_.nodes().size() + static_cast<size_t>(times_) * static_cast<size_t>(part_.length));
    to_.layouts.reserve(from_.layouts.size() + added);
    to_.whole.reserve(from_.whole.size() + added);
    to_.parts.reserve(from_.parts.size() + added);
  }

  Program run() {
    for (const Input& input : graph_.inputs()) {
      define(input.value, 0,
             to_.graph.add_input(input.name, graph_.type(input.value), input.role, input.init, input.saved_as,
                                 input.piece));
    }
    for (NodeId id = 0; id < part_.end(); ++id) add(id, 0);
    for (int time = 1; time <= times_; ++time) {
      for (NodeId id = part_.begin; id < part_.end(); ++id) add(id, time);
    }
    for (NodeId id = part_.end(); id < static_cast<NodeId>(graph_.nodes().size()); ++id) add(id, times_);
    for (const Output& output : graph_.outputs())
      to_.graph.add_output(output.name, later(output.value, times_), output.updates);
    add_gradients();
    for (Update update : graph_.updates()) {
      update.gradient = later(update.gradient, times_);
      to_.graph.add_update(std::move(update));
    }
    return std::move(to_);
  }

 private:
  ValueId later(ValueId id, int times) const { return id >= found_.first_moving() ? id + times * part_.values : id; }

  void define(ValueId old_id, int times, ValueId id) {
    to_.layouts.push_back(from_.layouts[static_cast<size_t>(old_id)]);
    to_.whole.push_back(from_.whole[static_cast<size_t>(old_id)]);
    if (const auto& part = from_.part_of(old_id); part != nullptr) to_.set_part_of(id, part_of(part, times));
  }

  // Of what all micro-batches make together.
  std::shared_ptr<const PartOf> part_of(const std::shared_ptr<const PartOf>& part, int times) {
    std::vector<std::shared_ptr<const PartOf>>& all = parts_[part.get()];
    if (all.size() <= static_cast<size_t>(times)) all.resize(static_cast<size_t>(times) + 1);
    std::shared_ptr<const PartOf>& out = all[static_cast<size_t>(times)];
    if (out == nullptr) {
      PartOf later = *part;
      if (!is_of_all_(*part)) later.micro_batch += int64_t{times} * part_.micro_batches;
      out = std::make_shared<const PartOf>(
          among(std::move(later), from_.mesh, {from_.micro_batches, to_.micro_batches, from_.seq_chunks}));
    }
    return out;
  }

  // Whether it is done once for all micro-batches, with a chunk of what they sum.
  bool is_of_all(const Node& node) const {
    bool any = false, any_of_one = false;
    const auto look = [&](ValueId id) {
      if (const auto& part = from_.part_of(id); part != nullptr) (is_of_all_(*part) ? any : any_of_one) = true;
    };
    std::ranges::for_each(node.inputs, look);
    std::ranges::for_each(node.outputs, look);
    return any && !any_of_one;
  }

  void add(NodeId id, int times) {
    const Node& node = graph_.node(id);
    inputs_.clear();
    types_.clear();
    for (const ValueId in : node.inputs) inputs_.push_back(later(in, times));
    for (const ValueId out : node.outputs) types_.push_back(graph_.shared_type(out));
    Mark mark = node;
    if (mark.gradient_of >= found_.first_moving_node()) mark.gradient_of += times * part_.length;
    if (mark.micro_batch >= 0 && !is_of_all(node)) mark.micro_batch += times * part_.micro_batches;
    to_.graph.set_mark(mark);
    const NodeId made = to_.graph.add_node(*node.op, found_.attrs().later(id, times, times_), inputs_, types_);
    for (size_t i = 0; i < node.outputs.size(); ++i) define(node.outputs[i], times, to_.graph.node(made).outputs[i]);
  }

  void add_gradients() {
    const auto from =
        std::ranges::lower_bound(graph_.gradients(), found_.first_value(part_.begin), {}, &GradientOf::gradient);
    const auto to =
        std::ranges::lower_bound(graph_.gradients(), found_.first_value(part_.end()), {}, &GradientOf::gradient);
    std::vector<GradientOf> all;
    for (auto each = graph_.gradients().begin(); each != to;) {
      const auto end =
          std::find_if(each, to, [&](const GradientOf& other) { return other.gradient != each->gradient; });
      add_gradients_that_are({each, end}, all);
      each = end;
    }
    const auto add = [&](std::span<const GradientOf> some, int times) {
      for (const GradientOf& each : some) all.push_back({each.gradient + times * part_.values, later(each.of, times)});
    };
    for (int time = 1; time <= times_; ++time) add({from, to}, time);
    add({to, graph_.gradients().end()}, times_);
    to_.graph.add_gradients(std::move(all));
  }

  // One value before the place, which is the gradient of values that may be of all micro-batches, the last first.
  void add_gradients_that_are(std::span<const GradientOf> one, std::vector<GradientOf>& all) const {
    const ValueId begin = found_.first_value(part_.begin), end = found_.first_value(part_.end());
    if (one[0].gradient >= found_.first_moving()) {
      all.insert(all.end(), one.begin(), one.end());
      return;
    }
    for (const GradientOf& each : one) {
      if (each.of >= end) all.push_back({each.gradient, later(each.of, times_)});
    }
    for (int time = times_; time > 0; --time) {
      for (const GradientOf& each : one) {
        if (each.of >= begin && each.of < end) all.push_back({each.gradient, later(each.of, time)});
      }
    }
    for (const GradientOf& each : one) {
      if (each.of < end) all.push_back(each);
    }
  }

  const Program& from_;
  const Graph& graph_;
  const FoundPart& found_;
  const Part& part_;
  int times_;
  IsOfAll is_of_all_;
  Program to_;
  std::unordered_map<const PartOf*, std::vector<std::shared_ptr<const PartOf>>> parts_;
  std::vector<ValueId> inputs_;            // of the node that is added
  std::vector<Shared<TensorType>> types_;  // of its results
};

}  // namespace

std::optional<Program> repeated(const Program& program, const Repeat& repeat, int of_each) {
  FoundPart found(program, repeat, of_each);
  if (!found.find()) return std::nullopt;
  return Repeated(program, found, repeat).run();
}

}  // namespace trireme
