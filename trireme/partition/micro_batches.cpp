#include "trireme/partition/micro_batches.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "trireme/base/error.h"
#include "trireme/op/op_attrs.h"
#include "trireme/op/rank_groups.h"
#include "trireme/op/structural.h"

namespace trireme {
namespace {

// Which of the axes of micro-batches something differs along: bit i is the i-th.
using AxisSet = uint32_t;

class Unroll {
 public:
  Unroll(const Program& from, const MicroBatchOptions& options)
      : from_(from),
        graph_(from.graph),
        options_(options),
        axes_(from.mesh.find(kMicroBatchAxis)),
        count_(micro_batches(from.mesh)),
        copies_(graph_.values().size(), std::vector<ValueId>(static_cast<size_t>(count_), kNoValue)),
        level_of_value_(graph_.values().size(), 0),
        repeats_(graph_.nodes().size(), 0) {
    to_.graph = Graph(graph_.name());
    to_.mesh = without_micro_batches(from.mesh);
    to_.micro_batches = count_;
    to_.by_hand = from.by_hand;
    marked_ =
        options.interleave > 1 || std::ranges::any_of(graph_.nodes(), [](const Node& node) { return node.stage >= 0; });
  }

  Program run() {
    for (const Input& input : graph_.inputs()) add_input(input);
    made_of_.assign(graph_.nodes().size(), {});
    std::vector<std::vector<NodeId>> levels;
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      classify(id);
      const auto level = static_cast<size_t>(level_of_.back());
      if (levels.size() <= level) levels.resize(level + 1);
      levels[level].push_back(id);
    }
    for (const std::vector<NodeId>& level : levels) {
      for (int64_t m = 0; m < count_; m += options_.interleave) {
        add_interleaved(level, m);
        add_sent_term();
      }
    }
    for (const Output& output : graph_.outputs()) {
      to_.graph.add_output(output.name, find(output.value, 0),
                           output.updates == kNoValue ? kNoValue : find(output.updates, 0));
    }
    std::vector<ValueId> became(copies_.size(), kNoValue);
    for (int64_t m = count_; m-- > 0;) {
      for (size_t id = 0; id < became.size(); ++id) became[id] = copies_[id][static_cast<size_t>(m)];
      to_.graph.carry_gradients(graph_, became);
    }
    to_.graph.carry_updates(graph_, became);
    return std::move(to_);
  }

 private:
  enum class Step { kOrdinary, kSum, kGather, kSlice };

  // Terms of a sum that wait, each with the number of micro-batches in it.
  struct Waiting {
    ValueId id = kNoValue;
    int64_t terms = 0;
  };

  const Layout& layout_of(ValueId id) const { return from_.layouts[static_cast<size_t>(id)]; }

  bool is_ours(int axis) const { return std::find(axes_.begin(), axes_.end(), axis) != axes_.end(); }

  AxisSet differs_along(const Layout& layout) const {
    AxisSet out = 0;
    for (size_t i = 0; i < axes_.size(); ++i) {
      if (layout.uses(axes_[i])) out |= 1U << i;
    }
    return out;
  }
  AxisSet differs_along(ValueId id) const { return differs_along(layout_of(id)); }

  // What the node makes, and what it reads but where it joins or cuts micro-batches.
  AxisSet differs_along(const Node& node) const {
    AxisSet out = 0;
    for (const ValueId id : node.outputs) out |= differs_along(id);
    if (steps_[static_cast<size_t>(&node - graph_.nodes().data())] == Step::kOrdinary) {
      for (const ValueId id : node.inputs) out |= differs_along(id);
    }
    return out;
  }

  // The first micro-batch that has the same coordinates along these axes.
  int64_t first_like(int64_t m, AxisSet along) const {
    int64_t out = m;
    for (size_t i = 0; i < axes_.size(); ++i) {
      if ((along >> i & 1U) == 0)
        out -= m / from_.mesh.stride(axes_[i]) % from_.mesh.axis(axes_[i]).size * from_.mesh.stride(axes_[i]);
    }
    return out;
  }

  static AxisSet set_of(const std::vector<int>& axes, const std::vector<int>& all) {
    AxisSet out = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      if (std::find(axes.begin(), axes.end(), all[i]) != axes.end()) out |= 1U << i;
    }
    return out;
  }

  std::vector<int> axes_of(const Node& node) const {
    const std::vector<int64_t>& axes = node.attrs.as<CollectiveAttrs>().axes;
    return {axes.begin(), axes.end()};
  }

  Step step_of(const Node& node) const {
    if (!def_of(node).collective || !moves_ours(node)) return Step::kOrdinary;
    if (does(node, ReshardStep::Kind::kAllReduce)) return Step::kSum;
    if (does(node, ReshardStep::Kind::kAllGather)) return Step::kGather;
    if (does(node, ReshardStep::Kind::kSlice)) return Step::kSlice;
    fail(ErrorKind::kUnsupported,
         "{} of '{}' would need parts of several micro-batches at once, as it is cut there; ask for another cut of it, "
         "or "
         "use 1 micro-batch",
         node.op->name, graph_.scope_of(node));
  }

  bool moves_ours(const Node& node) const {
    const std::vector<int64_t> axes = groups_of(node).axes;
    const auto ours =
        std::count_if(axes.begin(), axes.end(), [&](int64_t axis) { return is_ours(static_cast<int>(axis)); });
    invariant(ours == 0 || ours == static_cast<int64_t>(axes.size()), "{} is over ranks and micro-batches at once",
              node.op->name);
    return ours > 0;
  }

  // When the node can be done: 0 before any sum or gather over micro-batches, 1 after those that need no other, and so
  // on.
  void classify(NodeId id) {
    const Node& node = graph_.node(id);
    const Step step = step_of(node);
    int level = 0;
    for (const ValueId in : node.inputs) level = std::max(level, level_of_value_[static_cast<size_t>(in)]);
    const int after = level + (step == Step::kSum || step == Step::kGather ? 1 : 0);
    for (const ValueId out : node.outputs) level_of_value_[static_cast<size_t>(out)] = after;
    level_of_.push_back(step == Step::kGather ? after : level);
    steps_.push_back(step);
    repeats_[static_cast<size_t>(id)] = step == Step::kOrdinary && gathers_parameter(node) ? 1 : 0;
  }

  // A weight that is gathered from its slices for one micro-batch, or those that are interleaved, is not kept for the
  // next.
  bool gathers_parameter(const Node& node) const {
    const auto is_part = [&](ValueId out) { return differs_along(out) != 0; };
    if (node.inputs.empty() || std::any_of(node.outputs.begin(), node.outputs.end(), is_part)) return false;
    bool any = does(node, ReshardStep::Kind::kAllGather) && graph_.value(node.inputs[0]).producer < 0;
    for (const ValueId in : node.inputs) {
      const NodeId producer = graph_.value(in).producer;
      if (differs_along(in) != 0 || (producer >= 0 && repeats_[static_cast<size_t>(producer)] == 0)) return false;
      any = any || producer >= 0;
    }
    return any;
  }

  void add_input(const Input& input) {
    Layout layout = layout_of(input.value);
    if (differs_along(layout) != 0) {
      require(input.role == Role::kData, "{} '{}' lies as {}: the axis '{}' cuts batches only", to_string(input.role),
              input.name, to_string(layout, from_.mesh), kMicroBatchAxis);
      for (std::vector<int>& axes : layout.dims) {
        while (!axes.empty() && is_ours(axes.back())) axes.pop_back();
        require(std::none_of(axes.begin(), axes.end(), [&](int axis) { return is_ours(axis); }),
                "data input '{}' lies as {}: the axis '{}' must be the last of its dimension", input.name,
                to_string(layout_of(input.value), from_.mesh), kMicroBatchAxis);
      }
    }
    const Shape& whole = from_.whole[static_cast<size_t>(input.value)];
    const TensorType local{graph_.type(input.value).dtype, local_shape(whole, layout, to_.mesh)};
    const ValueId made = to_.graph.add_input(input.name, local, input.role, input.init, input.saved_as, input.piece);
    to_.layouts.push_back(layout);
    to_.whole.push_back(whole);
    if (differs_along(input.value) == 0) {
      define(input.value, 0, made);
    } else {
      of_all_[input.value] = made;
    }
  }

  // The value is this for all micro-batches that are like `m` along what it differs along.
  void define(ValueId old_id, int64_t m, ValueId id) {
    const AxisSet along = differs_along(old_id);
    for (int64_t other = 0; other < count_; ++other) {
      if (first_like(other, along) == first_like(m, along))
        copies_[static_cast<size_t>(old_id)][static_cast<size_t>(other)] = id;
    }
  }

  // The value for a micro-batch. Parts of a batch are cut out, and weights gathered, where they are first read.
  ValueId find(ValueId old_id, int64_t m) {
    ValueId& id = copies_[static_cast<size_t>(old_id)][static_cast<size_t>(m)];
    if (id != kNoValue) return id;
    if (const auto whole = of_all_.find(old_id); whole != of_all_.end()) {
      to_.graph.set_mark({.micro_batch = marked_ ? static_cast<int>(m) : -1});
      define(old_id, m, cut(whole->second, old_id, old_id, m));
      return id;
    }
    const NodeId producer = graph_.value(old_id).producer;
    invariant(producer >= 0 && repeats_[static_cast<size_t>(producer)] != 0,
              "%{} is read before it is made for micro-batch {}", old_id, m);
    add_ordinary(producer, m);
    return id;
  }

  // The part of `id`, which holds `old_in` of all, that is `old_out` for micro-batch m.
  ValueId cut(ValueId id, ValueId old_in, ValueId old_out, int64_t m) {
    const Shape& local = graph_.type(old_out).shape;
    SliceAttrs attrs;
    for (int dim = 0; dim < local.rank(); ++dim) {
      std::vector<int> added;
      for (const int axis : layout_of(old_out).dims[static_cast<size_t>(dim)]) {
        const bool had = old_in != old_out && layout_of(old_in).uses(axis);
        if (is_ours(axis) && !had) added.push_back(axis);
      }
      attrs.starts.push_back(from_.mesh.index_along(m, added) * local[dim]);
      attrs.sizes.push_back(local[dim]);
    }
    return emit(structural().slice, Attrs::of(attrs), {&id, 1}, {{old_out}}, m).front();
  }

  // Adds a node whose results are these values of the program for micro-batch m.
  std::vector<ValueId> emit(const OpBase& op, const Attrs& attrs, std::span<const ValueId> in,
                            const std::vector<ValueId>& old_out, int64_t m) {
    std::vector<TensorType> types;
    for (const ValueId out : old_out) types.push_back(graph_.type(out));
    const NodeId made = to_.graph.add_node(op, attrs, in, types);
    std::vector<ValueId> out = to_.graph.node(made).outputs;
    for (size_t i = 0; i < out.size(); ++i) record(out[i], old_out[i], m);
    return out;
  }

  void record(ValueId id, ValueId old_id, int64_t m) {
    const auto at = static_cast<size_t>(old_id);
    invariant(id == static_cast<ValueId>(to_.layouts.size()), "values are recorded out of order");
    Layout layout = from_.layouts[at];
    Shape whole = from_.whole[at];
    for (size_t dim = 0; dim < layout.dims.size(); ++dim) {
      std::erase_if(layout.dims[dim], [&](int axis) {
        if (!is_ours(axis)) return false;
        whole[static_cast<int>(dim)] /= from_.mesh.axis(axis).size;
        return true;
      });
    }
    std::erase_if(layout.partial, [&](const PartialAxis& p) { return is_ours(p.axis); });
    if (whole != from_.whole[at]) to_.part_of.emplace(id, PartOf{from_.whole[at], from_.layouts[at], m});
    to_.layouts.push_back(std::move(layout));
    to_.whole.push_back(whole);
  }

  void begin(NodeId id, int64_t m, bool of_one = false) {
    const Node& node = graph_.node(id);
    NodeId of = -1;
    if (node.gradient_of >= 0) {
      const std::vector<NodeId>& made = made_of_[static_cast<size_t>(node.gradient_of)];
      if (!made.empty()) of = made[std::min(static_cast<size_t>(m), made.size() - 1)];
    }
    to_.graph.mark_as(graph_, node, of);
    if (marked_ && of_one) to_.graph.set_micro_batch(static_cast<int>(m));
    std::vector<NodeId>& made = made_of_[static_cast<size_t>(id)];
    made.resize(static_cast<size_t>(m) + 1, static_cast<NodeId>(to_.graph.nodes().size()));
  }

  // The nodes for the micro-batches that are interleaved, from m on. Each goes on until it would read what ranks are
  // still exchanging for it, and then the next does; none overtakes the one before it, so sums get their terms in
  // order.
  void add_interleaved(const std::vector<NodeId>& nodes, int64_t m) {
    std::vector<size_t> at(static_cast<size_t>(options_.interleave), 0);
    for (size_t i = 0; at.back() < nodes.size(); i = (i + 1) % at.size()) {
      const size_t end = i == 0 ? nodes.size() : at[i - 1];
      std::set<ValueId> under_way;
      const auto is_under_way = [&](ValueId id) { return under_way.contains(id); };
      for (; at[i] < end; ++at[i]) {
        const NodeId id = nodes[at[i]];
        const Node& node = graph_.node(id);
        if (std::ranges::any_of(node.inputs, is_under_way)) break;
        add(id, m + static_cast<int64_t>(i));
        if (def_of(node).collective && steps_[static_cast<size_t>(id)] == Step::kOrdinary) {
          under_way.insert(node.outputs.begin(), node.outputs.end());
        }
      }
    }
  }

  // What is to be done of the node when it is the turn of micro-batch m.
  void add(NodeId id, int64_t m) {
    const Node& node = graph_.node(id);
    const Step step = steps_[static_cast<size_t>(id)];
    if (step == Step::kSum) return add_when_there(id, m);
    if (repeats_[static_cast<size_t>(id)] != 0) return;
    if (first_like(m, differs_along(node)) != m) return;
    if (step == Step::kOrdinary) return add_ordinary(id, m);
    const ValueId out = node.outputs[0];
    define(out, m, step == Step::kGather ? gather(id, m) : slice(id, m));
  }

  void add_ordinary(NodeId id, int64_t m) {
    const Node& node = graph_.node(id);
    std::vector<ValueId> in;
    for (const ValueId operand : node.inputs) in.push_back(find(operand, m));
    begin(id, m, repeats_[static_cast<size_t>(id)] != 0 || differs_along(node) != 0);
    const std::vector<ValueId> out = emit(*node.op, node.attrs, in, node.outputs, m);
    for (size_t i = 0; i < out.size(); ++i) {
      if (repeats_[static_cast<size_t>(id)] != 0) {
        const auto from =
            copies_[static_cast<size_t>(node.outputs[i])].begin() + m / options_.interleave * options_.interleave;
        std::fill_n(from, options_.interleave, out[i]);
      } else {
        define(node.outputs[i], m, out[i]);
      }
    }
  }

  ValueId slice(NodeId id, int64_t m) {
    const Node& node = graph_.node(id);
    const ValueId in = find(node.inputs[0], m);
    begin(id, m, true);
    return cut(in, node.inputs[0], node.outputs[0], m);
  }

  ValueId gather(NodeId id, int64_t m) {
    const Node& node = graph_.node(id);
    std::vector<ValueId> parts;
    for (const int64_t other : from_.mesh.group_of(m, axes_of(node))) parts.push_back(find(node.inputs[0], other));
    begin(id, m);
    return emit(structural().concat, Attrs::of(ConcatAttrs{node.attrs.as<CollectiveAttrs>().dim}), parts, node.outputs,
                m)
        .front();
  }

  // A term that ranks are still summing is added when they begin with the next one, or at the micro-batch's end.
  void add_when_there(NodeId id, int64_t m) {
    if (first_like(m, differs_along(graph_.node(id).inputs[0])) != m) return;
    const NodeId producer = graph_.value(graph_.node(id).inputs[0]).producer;
    if (producer < 0 || !def_of(graph_.node(producer)).collective) return add_term(id, m);
    add_sent_term();
    sent_ = {id, m};
  }

  void add_sent_term() {
    if (sent_.first >= 0) add_term(sent_.first, sent_.second);
    sent_ = {-1, 0};
  }

  // Adds the term of micro-batch m to those that came before; the last one makes the sum.
  void add_term(NodeId id, int64_t m) {
    const Node& node = graph_.node(id);
    const AxisSet summed = set_of(axes_of(node), axes_);
    const int64_t group = first_like(m, ~summed);
    const ValueId out = node.outputs[0];
    std::vector<Waiting>& waiting = sums_[{id, group}];
    waiting.push_back({find(node.inputs[0], m), 1});
    begin(id, m);
    const Reduction reduction = def_of(node).collective->call(node.attrs).reduction;
    const bool is_last = ++terms_[{id, group}] == node.attrs.as<CollectiveAttrs>().size;
    while (waiting.size() > 1 &&
           (is_last || !options_.sums_in_tree || waiting.back().terms == waiting[waiting.size() - 2].terms)) {
      const Waiting last = waiting.back();
      waiting.pop_back();
      const std::array<ValueId, 2> both{waiting.back().id, last.id};
      waiting.back() = {emit(structural().reduced(reduction), Attrs(), both, {out}, group).front(),
                        waiting.back().terms + last.terms};
    }
    if (is_last) define(out, group, waiting.back().id);
  }

  const Program& from_;
  const Graph& graph_;
  const MicroBatchOptions& options_;
  std::vector<int> axes_;
  int64_t count_;
  bool marked_;                               // nodes of one micro-batch with its number
  std::vector<std::vector<ValueId>> copies_;  // of each value, per micro-batch
  std::map<ValueId, ValueId> of_all_;         // inputs that hold all micro-batches
  std::vector<int> level_of_value_;
  std::vector<int> level_of_;  // of nodes
  std::vector<Step> steps_;
  std::vector<char> repeats_;
  std::vector<std::vector<NodeId>> made_of_;  // of each node, per micro-batch
  std::map<std::pair<NodeId, int64_t>, std::vector<Waiting>> sums_;
  std::map<std::pair<NodeId, int64_t>, int64_t> terms_;  // that came to each
  std::pair<NodeId, int64_t> sent_{-1, 0};               // the sum whose term of this micro-batch is on its way
  Program to_;
};

}  // namespace

Program in_micro_batches(Program program, const MicroBatchOptions& options) {
  const int64_t count = micro_batches(program.mesh);
  require(options.interleave >= 1 && count % options.interleave == 0,
          "{} micro-batches a step cannot be interleaved by {}; take a number that divides them", count,
          options.interleave);
  if (count == 1) return program;
  return Unroll(program, options).run();
}

}  // namespace trireme
