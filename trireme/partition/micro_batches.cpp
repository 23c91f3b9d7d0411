#include "trireme/partition/micro_batches.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/op/op_attrs.h"
#include "trireme/op/sharding_rule.h"
#include "trireme/op/structural.h"
#include "trireme/partition/fewer_micro_batches.h"
#include "trireme/partition/micro_batch_steps.h"

namespace trireme {
namespace {

class Unroll {
 public:
  Unroll(const Program& from, const MicroBatchOptions& options)
      : from_(from),
        graph_(from.graph),
        options_(options),
        count_(options.first > 0 ? options.first : micro_batches(from.mesh)),
        steps_(from, count_),
        parts_(graph_.values().size()),
        copies_(graph_.values().size() * static_cast<size_t>(count_), kNoValue) {
    to_.graph = Graph(graph_.name());
    to_.graph.take_scopes(graph_);
    to_.graph.expect_nodes(graph_.nodes().size() * static_cast<size_t>(count_));  // most are there so many times
    to_.layouts.reserve(graph_.values().size() * static_cast<size_t>(count_));
    to_.whole.reserve(to_.layouts.capacity());
    to_.mesh = without_micro_batches(from.mesh);
    to_.micro_batches = count_;
    to_.seq_chunks = seq_chunks(from.mesh);
    to_.by_hand = from.by_hand;
    marked_ =
        options.interleave > 1 || std::ranges::any_of(graph_.nodes(), [](const Node& node) { return node.stage >= 0; });
  }

  Program run() {
    for (const Input& input : graph_.inputs()) add_input(input);
    made_of_.resize(graph_.nodes().size());
    for (const std::vector<NodeId>& level : steps_.levels()) {
      if (steps_.has_chunks()) {
        for (int64_t m = 0; m < count_; ++m) {
          if (steps_.chunk_of(m) == 0) add_chunks(level, m);
        }
        continue;
      }
      for (int64_t m = 0; m < count_; m += options_.interleave) {
        add_interleaved(level, m);
        add_sent_term();
      }
    }
    for (const Output& output : graph_.outputs()) {
      to_.graph.add_output(output.name, find(output.value, 0),
                           output.updates == kNoValue ? kNoValue : find(output.updates, 0));
    }
    carry_training();
    return std::move(to_);
  }

 private:
  using Step = MicroBatchSteps::Kind;

  // Terms of a sum that wait, each with the number of micro-batches in it.
  struct Waiting {
    ValueId id = kNoValue;
    int64_t terms = 0;
  };

  const Layout& layout_of(ValueId id) const { return from_.layouts[static_cast<size_t>(id)]; }
  // What a value became, by micro-batch.
  std::span<ValueId> copies_of(ValueId id) { return {copies_.begin() + id * count_, static_cast<size_t>(count_)}; }

  // Gradients of all micro-batches, and updates.
  void carry_training() {
    std::vector<GradientOf> gradients;
    for (size_t m = static_cast<size_t>(count_); m-- > 0;) {
      for (const auto& [gradient, of] : graph_.gradients()) {
        const GradientOf each{copies_of(gradient)[m], copies_of(of)[m]};
        if (each.gradient != kNoValue && each.of != kNoValue) gradients.push_back(each);
      }
    }
    to_.graph.add_gradients(std::move(gradients));
    std::vector<ValueId> became;
    for (ValueId id = 0; id < static_cast<ValueId>(graph_.values().size()); ++id) became.push_back(copies_of(id)[0]);
    to_.graph.carry_updates(graph_, became);
  }

  void add_input(const Input& input) {
    Layout layout = layout_of(input.value);
    if (steps_.differs_along(layout) != 0) {
      require(input.role == Role::kData, "{} '{}' lies as {}: the axis '{}' cuts batches only", to_string(input.role),
              input.name, to_string(layout, from_.mesh), kMicroBatchAxis);
      for (Axes& axes : layout.dims) {
        while (!axes.empty() && steps_.is_ours(axes.back())) axes.pop_back();
        require(std::none_of(axes.begin(), axes.end(), [&](int axis) { return steps_.is_ours(axis); }),
                "data input '{}' lies as {}: the axis '{}' must be the last of its dimension", input.name,
                to_string(layout_of(input.value), from_.mesh), kMicroBatchAxis);
      }
    }
    const Shared<Shape>& whole = from_.whole[static_cast<size_t>(input.value)];
    const TensorType local{graph_.type(input.value).dtype, local_shape(whole, layout, to_.mesh)};
    const ValueId made = to_.graph.add_input(input.name, local, input.role, input.init, input.saved_as, input.piece);
    to_.layouts.push_back(layout);
    to_.whole.push_back(whole);
    if (steps_.differs_along(input.value) == 0) return define(input.value, 0, made);
    of_all_[input.value] = made;
  }

  // The value is this for all micro-batches that are like `m` along what it differs along.
  void define(ValueId old_id, int64_t m, ValueId id) {
    for (const int64_t other : steps_.all_like(m, steps_.differs_along(old_id)))
      copies_of(old_id)[static_cast<size_t>(other)] = id;
  }

  // The value for a micro-batch. Parts of a batch are cut out, and weights gathered, where they are first read.
  ValueId find(ValueId old_id, int64_t m) {
    ValueId& id = copies_of(old_id)[static_cast<size_t>(m)];
    if (id != kNoValue) return id;
    if (const auto whole = of_all_.find(old_id); whole != of_all_.end()) {
      to_.graph.set_mark({.micro_batch = marked_ ? static_cast<int>(m) : -1});
      define(old_id, m, cut(whole->second, old_id, old_id, m));
      return id;
    }
    const NodeId producer = graph_.value(old_id).producer;
    require(!steps_.has_chunks() || (producer >= 0 && steps_.repeats(producer)),
            "what {} of '{}' makes is needed for one chunk of positions before all chunks have made it; take another "
            "schedule than seq-1f1b, like 1f1b (experts, and positions that ranks share by cp, need all positions)",
            producer < 0 ? "an input" : graph_.node(producer).op->name,
            producer < 0 ? "the step" : graph_.scope_of(graph_.node(producer)));
    invariant(producer >= 0 && steps_.repeats(producer), "%{} is read before it is made for micro-batch {}", old_id, m);
    add_ordinary(producer, m);
    return id;
  }

  // The part of `id`, which holds `old_in` of all, that is `old_out` for micro-batch m.
  ValueId cut(ValueId id, ValueId old_in, ValueId old_out, int64_t m) {
    const Shape& local = graph_.type(old_out).shape;
    SliceAttrs attrs;
    for (int dim = 0; dim < local.rank(); ++dim) {
      Axes added;
      for (const int axis : layout_of(old_out).dims[static_cast<size_t>(dim)]) {
        const bool had = old_in != old_out && layout_of(old_in).uses(axis);
        if (steps_.is_ours(axis) && !had) added.push_back(axis);
      }
      attrs.starts.push_back(from_.mesh.index_along(m, added) * local[dim]);
      attrs.sizes.push_back(local[dim]);
    }
    return emit(structural().slice, Attrs::of(attrs), {&id, 1}, {&old_out, 1}, m).front();
  }

  // Adds a node whose results are these values of the program for micro-batch m.
  Few<ValueId, 4> emit(const OpBase& op, const Attrs& attrs, std::span<const ValueId> in,
                       std::span<const ValueId> old_out, int64_t m) {
    types_.clear();
    for (const ValueId out : old_out) types_.push_back(graph_.shared_type(out));
    const NodeId made = to_.graph.add_node(op, attrs, in, types_);
    Few<ValueId, 4> out = to_.graph.node(made).outputs;
    for (size_t i = 0; i < out.size(); ++i) record(out[i], old_out[i], m);
    return out;
  }

  void record(ValueId id, ValueId old_id, int64_t m) {
    if (record_part(id, old_id).is_smaller) note_part(id, old_id, m);
  }

  // Values that lie alike share what says so.
  void note_part(ValueId id, ValueId old_id, int64_t m) {
    const auto at = static_cast<size_t>(old_id);
    const auto is_alike = [&](const PartsAlike& each) {
      return each.layout == from_.layouts[at] && each.whole == from_.whole[at];
    };
    size_t& alike = parts_[at]->alike;
    if (alike == kUnknown) {
      alike = static_cast<size_t>(std::ranges::find_if(alike_, is_alike) - alike_.begin());
      if (alike == alike_.size())
        alike_.push_back({from_.layouts[at], from_.whole[at], std::vector<SharedPart>(static_cast<size_t>(count_))});
    }
    SharedPart& part = alike_[alike].parts[static_cast<size_t>(m)];
    const OtherCount count{micro_batches(from_.mesh), count_, to_.seq_chunks};
    if (part == nullptr)
      part = std::make_shared<PartOf>(among({from_.whole[at], from_.layouts[at], m}, to_.mesh, count));
    to_.set_part_of(id, part);
  }

  static constexpr size_t kUnknown = static_cast<size_t>(-1);
  // How a micro-batch's part of a value lies.
  struct Part {
    Shared<Layout> layout;
    Shared<Shape> whole;
    bool is_smaller = false;  // than the value for the whole batch
    size_t alike = kUnknown;  // of alike_
  };
  // Of values for the whole batch that lie so, by micro-batch.
  using SharedPart = std::shared_ptr<const PartOf>;
  struct PartsAlike {
    Shared<Layout> layout;
    Shared<Shape> whole;
    std::vector<SharedPart> parts;
  };

  const Part& record_part(ValueId id, ValueId old_id) {
    invariant(id == static_cast<ValueId>(to_.layouts.size()), "values are recorded out of order");
    std::optional<Part>& part = parts_[static_cast<size_t>(old_id)];
    if (!part) part = part_of(old_id);
    to_.layouts.push_back(part->layout);
    to_.whole.push_back(part->whole);
    return *part;
  }

  Part part_of(ValueId old_id) const {
    const auto at = static_cast<size_t>(old_id);
    Layout layout = from_.layouts[at];
    Shape whole = from_.whole[at];
    for (size_t dim = 0; dim < layout.dims.size(); ++dim) {
      erase_if(layout.dims[dim], [&](int axis) {
        if (!steps_.is_ours(axis)) return false;
        whole[static_cast<int>(dim)] /= from_.mesh.axis(axis).size;
        return true;
      });
    }
    erase_if(layout.partial, [&](const PartialAxis& p) { return steps_.is_ours(p.axis); });
    return {std::move(layout), whole, whole != *from_.whole[at]};
  }

  void begin(NodeId id, int64_t m, bool of_one = false) {
    const Node& node = graph_.node(id);
    NodeId of = -1;
    if (node.gradient_of >= 0) {
      const auto& made = made_of_[static_cast<size_t>(node.gradient_of)];
      if (!made.empty()) of = made[std::min(static_cast<size_t>(m), made.size() - 1)];
    }
    to_.graph.mark_as(graph_, node, of);
    if (marked_ && of_one) to_.graph.set_micro_batch(static_cast<int>(m));
    note_made(id, m);
  }

  // The node that is added next is this one for micro-batch m.
  void note_made(NodeId id, int64_t m) {
    const auto next = static_cast<NodeId>(to_.graph.nodes().size());
    auto& made = made_of_[static_cast<size_t>(id)];
    while (made.size() <= static_cast<size_t>(m)) made.push_back(next);
    made[static_cast<size_t>(m)] = next;
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
        if (def_of(node).collective && steps_.kind_of(id) == Step::kOrdinary) {
          under_way.insert(node.outputs.begin(), node.outputs.end());
        }
      }
    }
  }

  // The chunks of the micro-batch whose first is m.
  void add_chunks(const std::vector<NodeId>& nodes, int64_t m) {
    const std::vector<int64_t> chunks = steps_.chunks_with(m);
    for (const Phase phase : {Phase::kForward, Phase::kBackward, Phase::kUpdate}) {
      for (size_t i = 0; i < chunks.size(); ++i) {
        const int64_t chunk = chunks[phase == Phase::kBackward ? chunks.size() - 1 - i : i];
        for (const NodeId id : nodes) {
          if (graph_.node(id).phase == phase) add(id, chunk);
        }
        add_sent_term();
      }
    }
  }

  // What is to be done of the node when it is the turn of micro-batch m.
  void add(NodeId id, int64_t m) {
    const Node& node = graph_.node(id);
    const Step step = steps_.kind_of(id);
    if (step == Step::kSum) return add_when_there(id, m);
    if (steps_.repeats(id)) return;
    if (steps_.turn_of(id, m, steps_.differs_along(node)) != m) return;
    if (step == Step::kOrdinary && steps_.goes_by_chunks(node)) return add_chunk(id, m);
    if (step == Step::kOrdinary) return add_ordinary(id, m);
    const ValueId out = node.outputs[0];
    define(out, m, step == Step::kGather ? gather(id, m) : slice(id, m));
  }

  void add_ordinary(NodeId id, int64_t m) {
    const Node& node = graph_.node(id);
    Few<ValueId, 8> in;
    for (const ValueId operand : node.inputs) in.push_back(find(operand, m));
    begin(id, m, steps_.is_of_one(id));
    const Few<ValueId, 4> out = emit(*node.op, node.attrs, in, node.outputs, m);
    for (size_t i = 0; i < out.size(); ++i) {
      if (steps_.repeats(id)) {
        const auto from = copies_of(node.outputs[i]).begin() + m / options_.interleave * options_.interleave;
        std::fill_n(from, options_.interleave, out[i]);
      } else {
        define(node.outputs[i], m, out[i]);
      }
    }
  }

  // -- chunks of positions ------------------------------------------------------------------------

  ShardingRule rule_of(const Node& node) const {
    std::vector<TensorType> in, out;
    for (const ValueId id : node.inputs) in.push_back(graph_.type(id));
    for (const ValueId id : node.outputs) out.push_back(graph_.type(id));
    return def_of(node).shard.get()({in, out, node.attrs});
  }

  static int dim_of(const DimFactors& tensor, int factor) {
    for (size_t dim = 0; dim < tensor.size(); ++dim) {
      if (std::ranges::find(tensor[dim], factor) != tensor[dim].end()) return static_cast<int>(dim);
    }
    return -1;
  }

  // A node whose result is a part of the old value: so many chunks from the first on.
  ValueId emit_chunks(const OpBase& op, const Attrs& attrs, std::span<const ValueId> in, ValueId old_out, int dim,
                      int64_t chunks) {
    TensorType type = graph_.type(old_out);
    type.shape[dim] *= chunks;
    const ValueId out = to_.graph.node(to_.graph.add_node(op, attrs, in, {&type, 1})).outputs[0];
    record_chunks(out, old_out, dim, chunks);
    return out;
  }

  void record_chunks(ValueId id, ValueId old_id, int dim, int64_t chunks) {
    record_part(id, old_id);
    Shape whole = to_.whole.back();
    whole[dim] *= chunks;
    to_.whole.back() = whole;
  }

  // Chunks [from, from + chunks) of a value that holds more of them.
  ValueId take_chunks(ValueId id, ValueId old_id, int dim, int64_t from, int64_t chunks) {
    const Shape& chunk = graph_.type(old_id).shape;
    SliceAttrs attrs;
    for (int i = 0; i < chunk.rank(); ++i) {
      attrs.starts.push_back(i == dim ? from * chunk[i] : 0);
      attrs.sizes.push_back(i == dim ? chunks * chunk[i] : chunk[i]);
    }
    return emit_chunks(structural().slice, Attrs::of(attrs), {&id, 1}, old_id, dim, chunks);
  }

  // Of a node in a ring over chunks: operands along the second factor are those of all chunks up to its own. Results
  // along it are terms of all these chunks' sums, to which later chunks have added theirs before: a chunk's own is
  // whole.
  void add_chunk(NodeId id, int64_t m) {
    const Node& node = graph_.node(id);
    const ShardingRule rule = rule_of(node);
    invariant(rule.ring && rule.ring_is_causal, "{} is cut in chunks and not causal", node.op->name);
    const int second = rule.ring->second;
    const int64_t chunks = steps_.chunk_of(m) + 1;
    const std::vector<int64_t> all = steps_.chunks_with(m);
    std::vector<std::vector<ValueId>> parts(node.inputs.size());
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const bool is_shared = dim_of(rule.in[i], second) >= 0;
      for (int64_t c = is_shared ? 0 : chunks - 1; c < chunks; ++c)
        parts[i].push_back(find(node.inputs[i], all[static_cast<size_t>(c)]));
    }
    begin(id, m, true);
    std::vector<ValueId> in;
    for (size_t i = 0; i < parts.size(); ++i) {
      const int dim = dim_of(rule.in[i], second);
      in.push_back(parts[i].size() == 1 ? parts[i][0]
                                        : emit_chunks(structural().concat, Attrs::of(ConcatAttrs{dim}), parts[i],
                                                      node.inputs[i], dim, chunks));
    }
    std::vector<TensorType> types;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      types.push_back(graph_.type(node.outputs[i]));
      if (const int dim = dim_of(rule.out[i], second); dim >= 0) types.back().shape[dim] *= chunks;
    }
    note_made(id, m);
    const std::vector<ValueId> out = to_.graph.node(to_.graph.add_node(*node.op, node.attrs, in, types)).outputs;
    for (size_t i = 0; i < out.size(); ++i) {
      const int dim = dim_of(rule.out[i], second);
      if (dim < 0 || chunks == 1) {
        record(out[i], node.outputs[i], m);
      } else {
        record_chunks(out[i], node.outputs[i], dim, chunks);
      }
    }
    for (size_t i = 0; i < out.size(); ++i) {
      const int dim = dim_of(rule.out[i], second);
      define(node.outputs[i], m, dim < 0 ? out[i] : own_chunk(node.outputs[i], out[i], m, dim));
    }
  }

  // The sum of the chunk's own part: what later chunks have given, and this one's term.
  ValueId own_chunk(ValueId old_id, ValueId term, int64_t m, int dim) {
    const int64_t chunks = steps_.chunk_of(m) + 1;
    const auto [carried, is_first] = carried_.try_emplace({old_id, steps_.chunks_with(m)[0]}, term);
    if (!is_first) {
      const std::array<ValueId, 2> both{take_chunks(carried->second, old_id, dim, 0, chunks), term};
      carried->second = emit_chunks(structural().reduced(Reduction::kSum), Attrs(), both, old_id, dim, chunks);
    }
    const ValueId own = chunks == 1 ? carried->second : take_chunks(carried->second, old_id, dim, chunks - 1, 1);
    note_part(own, old_id, m);  // what turns it back goes by its place
    return own;
  }

  ValueId slice(NodeId id, int64_t m) {
    const Node& node = graph_.node(id);
    const ValueId in = find(node.inputs[0], m);
    begin(id, m, steps_.is_of_one(id));
    return cut(in, node.inputs[0], node.outputs[0], m);
  }

  ValueId gather(NodeId id, int64_t m) {
    const Node& node = graph_.node(id);
    std::vector<ValueId> parts;
    for (const int64_t other : from_.mesh.group_of(m, steps_.axes_of(node)))
      parts.push_back(find(node.inputs[0], other));
    begin(id, m);
    return emit(structural().concat, Attrs::of(ConcatAttrs{node.attrs.as<CollectiveAttrs>().dim}), parts, node.outputs,
                m)
        .front();
  }

  // A term that ranks are still summing is added when they begin with the next one, or at the micro-batch's end.
  void add_when_there(NodeId id, int64_t m) {
    if (steps_.turn_of(id, m, steps_.differs_along(graph_.node(id).inputs[0])) != m) return;
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
    const int64_t group = steps_.first_like(m, ~steps_.summed_over(id));
    const ValueId out = node.outputs[0];
    std::vector<Waiting>& waiting = sums_[{id, group}];
    int64_t terms = 1;
    for (const Waiting& each : waiting) terms += each.terms;
    waiting.push_back({find(node.inputs[0], m), 1});
    begin(id, m);
    const Reduction reduction = def_of(node).collective->call(node.attrs).reduction;
    const bool is_last = terms == static_cast<int64_t>(steps_.all_like(group, ~steps_.summed_over(id)).size());
    while (waiting.size() > 1 &&
           (is_last || !options_.sums_in_tree || waiting.back().terms == waiting[waiting.size() - 2].terms)) {
      const Waiting last = waiting.back();
      waiting.pop_back();
      const std::array<ValueId, 2> both{waiting.back().id, last.id};
      waiting.back() = {emit(structural().reduced(reduction), Attrs(), both, {&out, 1}, group).front(),
                        waiting.back().terms + last.terms};
    }
    if (is_last) define(out, group, waiting.back().id);
  }

  const Program& from_;
  const Graph& graph_;
  const MicroBatchOptions& options_;
  int64_t count_;
  MicroBatchSteps steps_;
  std::vector<std::optional<Part>> parts_;  // of the values that were asked for
  std::vector<PartsAlike> alike_;
  std::map<std::pair<ValueId, int64_t>, ValueId> carried_;  // by value and first chunk: sums for it and those before
  bool marked_;                                             // nodes of one micro-batch with its number
  std::vector<ValueId> copies_;                             // of each value, per micro-batch
  std::map<ValueId, ValueId> of_all_;                       // inputs that hold all micro-batches
  std::vector<Few<NodeId, 4>> made_of_;                     // of each node, per micro-batch
  std::map<std::pair<NodeId, int64_t>, std::vector<Waiting>> sums_;
  std::pair<NodeId, int64_t> sent_{-1, 0};  // the sum whose term of this micro-batch is on its way
  Program to_;
  std::vector<Shared<TensorType>> types_;  // of the results of the node that is added
};

}  // namespace

Program in_micro_batches(const Program& program, const MicroBatchOptions& options) {
  const int64_t all = micro_batches(program.mesh), count = options.first > 0 ? options.first : all;
  require(options.interleave >= 1 && count % options.interleave == 0,
          "{} a step cannot be interleaved by {}; take a number that divides them", counted(count, "micro-batch"),
          options.interleave);
  return all == 1 ? program : Unroll(program, options).run();
}

}  // namespace trireme
