#include "trireme/partition/partition.h"

#include <algorithm>
#include <map>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/layout/deliveries.h"
#include "trireme/partition/delivery_reader.h"
#include "trireme/partition/node_pieces.h"
#include "trireme/partition/value_planners.h"

namespace trireme {
namespace {

class Partitioner {
 public:
  Partitioner(const Graph& graph, const Strategy& strategy, const PartitionOptions& options)
      : graph_(graph),
        strategy_(strategy),
        options_(options),
        planners_(strategy.mesh, options.costs, options.summed_once, options.reshards),
        wants_(graph.values().size()),
        pieces_of_value_(graph.values().size()) {
    program_.graph = Graph(graph.name());
    program_.mesh = strategy.mesh;
    if (!strategy.stages.empty()) stages_ = stages_of(graph, strategy.stages);
  }

  Program run() {
    collect_wants();
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      const Input& input = graph_.inputs()[i];
      const Layout& layout = strategy_.inputs[i];
      const TensorType local = local_type(input.value, layout);
      const ValueId made =
          program_.graph.add_input(input.name, local, input.role, input.init, input.saved_as, input.piece);
      record(program_, made, layout, graph_.type(input.value).shape);
      put(input.value, made, layout);
    }
    for (size_t i = 0; i < graph_.nodes().size(); ++i) add_node(graph_.nodes()[i], strategy_.nodes[i]);
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      const Output& output = graph_.outputs()[i];
      const auto mean = strategy_.means.find(i);
      program_.graph.set_stage(stage_of(graph_.value(output.value).producer));
      const ValueId value = mean == strategy_.means.end() ? find(output.value, strategy_.outputs[i], Phase::kUpdate)
                                                          : add_mean(program_, as_made(output.value), mean->second,
                                                                     strategy_.outputs[i], planners_.of(output.value));
      program_.graph.add_output(output.name, value, output.updates == kNoValue ? kNoValue : as_made(output.updates));
    }
    std::vector<ValueId> became;
    for (size_t id = 0; id < graph_.values().size(); ++id) became.push_back(as_made(static_cast<ValueId>(id)));
    program_.graph.carry_gradients(graph_, became);
    for (const auto& [value, read] : read_by_update_) became[static_cast<size_t>(value)] = read;
    program_.graph.carry_updates(graph_, became);
    return std::move(program_);
  }

 private:
  // A value of the graph, and the values of the program that it is in the layouts it is read in.
  struct ValuePieces {
    std::optional<Deliveries> deliveries;
    std::vector<ValueId> pieces;  // the value itself, and what each delivery made
  };
  int stage_of(NodeId node) const { return node < 0 || stages_.empty() ? -1 : stages_[static_cast<size_t>(node)]; }

  ValuePieces& pieces_of(ValueId whole_id) { return pieces_of_value_[static_cast<size_t>(whole_id)]; }
  ValueId as_made(ValueId whole_id) const { return pieces_of_value_[static_cast<size_t>(whole_id)].pieces.front(); }

  int add(const DeliveryReader& reader) {
    const auto at = std::find(readers_.begin(), readers_.end(), reader) - readers_.begin();
    if (static_cast<size_t>(at) == readers_.size()) readers_.push_back(reader);
    return static_cast<int>(at);
  }

  // Which layouts each value is read in. Values that nodes make are resharded right after; inputs where they are read.
  void collect_wants() {
    const auto want = [&](ValueId id, const Layout& layout) {
      std::vector<Layout>& wants = wants_[static_cast<size_t>(id)];
      if (std::find(wants.begin(), wants.end(), layout) == wants.end()) wants.push_back(layout);
    };
    rules_.reserve(graph_.nodes().size());
    read_in_.reserve(graph_.nodes().size());
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const Node& node = graph_.nodes()[i];
      rules_.push_back(rule_of(graph_, node));
      const std::string illegal = why_illegal(*rules_.back(), strategy_.nodes[i], strategy_.mesh);
      require(illegal.empty(), "strategy of {} at '{}': {}", node.op->name, graph_.scope_of(node), illegal);
      const std::vector<Layout>& layouts = read_in_.emplace_back(operand_layouts(*rules_.back(), strategy_.nodes[i]));
      for (size_t k = 0; k < node.inputs.size(); ++k) want(node.inputs[k], layouts[k]);
    }
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      if (!strategy_.means.contains(i)) want(graph_.outputs()[i].value, strategy_.outputs[i]);
    }
  }

  void add_node(const Node& node, const FactorCuts& cuts) {
    const auto number = static_cast<size_t>(&node - graph_.nodes().data());
    const ShardingRule& rule = *rules_[number];
    const std::vector<Layout>& in = read_in_[number];
    const std::vector<Layout> out = result_layouts(rule, cuts);
    program_.graph.mark_as(graph_, node, node.gradient_of < 0 ? -1 : made_of_[static_cast<size_t>(node.gradient_of)]);
    program_.graph.set_stage(stage_of(static_cast<NodeId>(number)));
    std::vector<ValueId> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      inputs.push_back(find(node.inputs[i], in[i], node.phase));
      if (node.phase == Phase::kUpdate && graph_.value(node.inputs[i]).producer >= 0)
        read_by_update_[node.inputs[i]] = inputs.back();
    }
    std::vector<TensorType> whole;
    for (const ValueId id : node.outputs) whole.push_back(graph_.type(id));
    const NodePieces pieces =
        add_node_pieces(program_, {node, rule, cuts}, std::move(inputs), whole,
                        [this](ValueId id, const WindowAttrs& attrs) { return take_windows(id, attrs); });
    made_of_.push_back(pieces.first);
    for (size_t i = 0; i < node.outputs.size(); ++i) place(node.outputs[i], pieces.results[i], out[i]);
  }

  // The windows of a value, taken once for all that read them.
  ValueId take_windows(ValueId id, const WindowAttrs& attrs) {
    ValueId& known = windows_.try_emplace({id, Attrs::of(attrs).text()}, kNoValue).first->second;
    const bool is_there = known != kNoValue && phase_of(known) <= program_.graph.mark().phase;
    if (!is_there) known = add_take_windows(program_, id, attrs);
    return known;
  }

  Phase phase_of(ValueId id) const { return program_.graph.node(program_.graph.value(id).producer).phase; }

  void put(ValueId whole_id, ValueId id, const Layout& layout) {
    ValuePieces& value = pieces_of(whole_id);
    value.deliveries.emplace(layout, graph_.type(whole_id), planners_.of(whole_id));
    value.pieces = {id};
  }

  // Notes where a value that a node makes is, and makes every other layout it is read in.
  void place(ValueId whole_id, ValueId id, const Layout& layout) {
    put(whole_id, id, layout);
    for (const Layout& want : wants_[static_cast<size_t>(whole_id)]) pieces_of(whole_id).deliveries->deliver(want);
    emit_new(whole_id);
  }

  // Emits what was added to the value's deliveries.
  void emit_new(ValueId whole_id) {
    ValuePieces& value = pieces_of(whole_id);
    const auto other = options_.sum_types.find(whole_id);
    const DType sums = other == options_.sum_types.end() ? graph_.type(whole_id).dtype : other->second;
    const std::vector<Delivery>& all = value.deliveries->all();
    for (size_t i = value.pieces.size() - 1; i < all.size(); ++i) {
      const ValueId from = value.pieces[static_cast<size_t>(all[i].from)];
      value.pieces.push_back(add_delivery(program_, all[i], from, sums));
    }
  }

  // The value in this layout. An input of the graph in another layout is made once for the forward and once for the
  // backward pass of a stage, each time where it is first read: a weight gathered from its slices is not kept in
  // between. What a node makes was brought to all layouts right after.
  ValueId find(ValueId whole_id, const Layout& layout, Phase phase) {
    ValuePieces& value = pieces_of(whole_id);
    const bool is_input = graph_.value(whole_id).producer < 0;
    const DeliveryReader reader{phase, program_.graph.mark().stage};
    const auto serves = [&](int other) { return readers_[static_cast<size_t>(other)].serves(reader); };
    const auto piece = static_cast<size_t>(is_input ? value.deliveries->deliver(layout, add(reader), serves)
                                                    : value.deliveries->deliver(layout, add(reader)));
    if (!is_input && piece >= value.pieces.size())
      fail(ErrorKind::kInternal, "%{} is not placed as {}", whole_id, to_string(layout, strategy_.mesh));
    emit_new(whole_id);
    return value.pieces[piece];
  }

  TensorType local_type(ValueId whole_id, const Layout& layout) const {
    const TensorType& whole = graph_.type(whole_id);
    return {whole.dtype, local_shape(whole.shape, layout, strategy_.mesh)};
  }

  const Graph& graph_;
  const Strategy& strategy_;
  const PartitionOptions& options_;
  ValuePlanners planners_;
  std::vector<int> stages_;  // of the graph's nodes; empty: there is no pipeline
  std::vector<std::vector<Layout>> wants_;
  std::vector<ValuePieces> pieces_of_value_;  // of the graph's values
  std::vector<DeliveryReader> readers_;       // by the numbers that deliveries know them by
  std::vector<RuleOf> rules_;                 // of nodes
  std::vector<std::vector<Layout>> read_in_;  // of nodes: the layouts of their operands
  std::vector<NodeId> made_of_;               // per node of the graph
  std::map<std::pair<ValueId, std::string>, ValueId> windows_;
  std::map<ValueId, ValueId> read_by_update_;  // values of the graph, as the update phase reads them last
  Program program_;
};

}  // namespace

Program partition(const Graph& graph, const Strategy& strategy, const PartitionOptions& options) {
  return Partitioner(graph, strategy, options).run();
}

}  // namespace trireme
