#include "trireme/parallel/strategy_reuse.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/parallel/propagate/propagate.h"

namespace trireme {
namespace {

bool updates_something(const Graph& graph) {
  return std::ranges::any_of(graph.outputs(), [](const Output& output) { return output.updates != kNoValue; });
}

const StrategyTensor* line_of(const std::vector<StrategyTensor>& lines, std::string_view name) {
  const auto found = std::ranges::find(lines, name, &StrategyTensor::name);
  return found == lines.end() ? nullptr : &*found;
}

// Whether an input of the file is state of a parameter that the graph has: another optimizer has other state.
bool is_state(const Graph& graph, const StrategyTensor& line) {
  return std::ranges::any_of(graph.inputs(), [&](const Input& input) {
    return input.role == Role::kParameter && input.name == line.state_of;
  });
}

// Of state that the file does not know: other state of the same parameter, which another optimizer had.
const StrategyTensor* line_of_other_state(const StrategyLines& lines, const Graph& graph, const Input& state) {
  const auto update = std::ranges::find_if(graph.updates(), [&](const Update& each) {
    return std::ranges::find(each.states, state.value) != each.states.end();
  });
  if (update == graph.updates().end()) return nullptr;
  const std::string& parameter = graph.inputs()[static_cast<size_t>(graph.value(update->parameter).index)].name;
  const auto found = std::ranges::find_if(lines.inputs, [&](const StrategyTensor& line) {
    return line.state_of == parameter && line.type == graph.type(state.value);
  });
  return found == lines.inputs.end() ? nullptr : &*found;
}

// In words, of a graph that is not of the file's model.
std::vector<std::string> differences(const StrategyLines& lines, const Graph& graph) {
  std::vector<std::string> out;
  for (const Input& input : graph.inputs()) {
    if (input.role != Role::kData && input.role != Role::kParameter) continue;
    const TensorType& type = graph.type(input.value);
    const StrategyTensor* line = line_of(lines.inputs, input.name);
    if (line == nullptr) {
      out.push_back(fmt::format("the file has no '{}' {}", input.name, to_string(type)));
    } else if (line->type != type) {
      out.push_back(
          fmt::format("'{}' is {} here and {} in the file", input.name, to_string(type), to_string(line->type)));
    }
  }
  for (const StrategyTensor& line : lines.inputs) {
    const bool known = std::ranges::any_of(graph.inputs(), [&](const Input& input) { return input.name == line.name; });
    if (!known && !is_state(graph, line))
      out.push_back(
          fmt::format("the file has '{}' {}, which this model does not have", line.name, to_string(line.type)));
  }
  const auto ids = nodes_by_key(graph);
  for (const StrategyNode& line : lines.nodes) {
    if (out.size() < 4 && !ids.contains(line.key))
      out.push_back(fmt::format("the file cuts '{}', which this model does not have", line.key));
  }
  if (out.empty()) out.push_back("the model has other ops, or the same in another order");
  return out;
}

[[noreturn]] void refuse_other_model(const StrategyLines& lines, const Graph& graph) {
  const std::vector<std::string> all = differences(lines, graph);
  constexpr size_t kShown = 3;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, all.size()); ++i) text += (i > 0 ? "; " : "") + all[i];
  if (all.size() > kShown) text += fmt::format("; and {} more", all.size() - kShown);
  fail(ErrorKind::kInvalidArgument,
       "the strategy is for another model than '{}': {}; save one of this job with parallel.save_strategy",
       graph.name(), text);
}

// The layouts of inputs by their names. A batch of another size than the step's is cut alike where it can be.
void ask_inputs(const StrategyLines& lines, const Graph& graph, const SemiAutoOptions& options, Asks& asks) {
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const Input& input = graph.inputs()[i];
    const TensorType& type = graph.type(input.value);
    if (options.stored != nullptr && input.role != Role::kData) {  // of a batch the file knows the micro-batches too
      if (const auto stored = options.stored->find(input.name); stored != options.stored->end()) {
        asks.inputs[i] = stored->second;
        continue;
      }
    }
    if (input.role == Role::kSchedule) asks.inputs[i] = Layout::replicated(type.shape.rank());
    const StrategyTensor* line = line_of(lines.inputs, input.name);
    if (line == nullptr && input.role == Role::kState) line = line_of_other_state(lines, graph, input);
    if (line == nullptr) continue;
    if (input.role != Role::kData) {
      asks.inputs[i] = layout_for(*line, type, lines.mesh, parts_of(input));
      continue;
    }
    if (fits(line->layout, type.shape, lines.mesh, parts_of(input))) asks.inputs[i] = line->layout;
  }
}

bool reads_parameter(const Graph& graph, const Node& node) {
  return std::ranges::any_of(node.inputs, [&](ValueId id) {
    const Value& value = graph.value(id);
    return value.producer < 0 && graph.inputs()[static_cast<size_t>(value.index)].role == Role::kParameter;
  });
}

// The cuts of nodes by their keys. What the step has too and has no line cuts nothing; of another graph, that is what
// reads parameters.
void ask_nodes(const StrategyLines& lines, const Graph& graph, bool is_step, Asks& asks) {
  const std::vector<std::string> keys = node_keys(graph);
  const std::vector<char> of_model = nodes_of_model(graph);
  std::map<std::string_view, const StrategyNode*> by_key;
  for (const StrategyNode& line : lines.nodes) by_key.emplace(line.key, &line);
  for (size_t i = 0; i < keys.size(); ++i) {
    const Node& node = graph.nodes()[i];
    const auto found = by_key.find(keys[i]);
    if (found == by_key.end()) {
      if (is_step ? of_model[i] != 0 : reads_parameter(graph, node))
        asks.nodes[static_cast<NodeId>(i)].axes.resize(rule_of(graph, node)->factors.size());
      continue;
    }
    try {
      asks.nodes[static_cast<NodeId>(i)] = cuts_for(*found->second, graph, node, lines.mesh);
    } catch (const Error&) {
      if (is_step) throw;  // else of another size, as a batch of its own makes it: it follows its operands
      asks.nodes.erase(static_cast<NodeId>(i));
    }
  }
}

// ZeRO for state of which the file, written under an optimizer without any, says nothing. Of the parameters it has said
// where they lie.
void ask_new_state(const StrategyLines& lines, const Graph& graph, Parallel parallel, Asks& asks, SumOrder& sums) {
  OptimizerParallel& optimizer = parallel.optimizer;
  const auto index = [&](ValueId id) { return static_cast<size_t>(graph.value(id).index); };
  bool any = false;
  for (const Update& update : graph.updates()) {
    const bool is_new =
        std::ranges::any_of(update.states, [&](ValueId state) { return !asks.inputs[index(state)].has_value(); });
    if (!is_new) optimizer.except.push_back(graph.inputs()[index(update.parameter)].name);
    if (is_new) sums.once.erase(index(update.parameter));
    any = any || is_new;
  }
  if (!any || optimizer.level == 0) return;
  optimizer.level = std::min<int64_t>(optimizer.level, 2);
  sums.once.merge(sum_order(graph, parallel, lines.mesh).once);
  ask_optimizer_parallel(graph, propagate(graph, lines.mesh, asks), optimizer, asks);
}

}  // namespace

bool lays_out_state(const StrategyFile& file) {
  const StrategyLines& lines = file.lines();
  return lines.graph.empty() ||  // of any graph, it says where each input lies
         std::ranges::any_of(lines.inputs, [](const StrategyTensor& input) { return !input.state_of.empty(); });
}

void check_states(const StrategyFile& file, const Graph& graph) {
  const StrategyLines& lines = file.lines();
  if (lines.graph.empty() || !updates_something(graph)) return;
  const auto is_state_of_parameter = [&](ValueId input) {
    return std::ranges::any_of(graph.updates(), [&](const Update& update) {
      return std::ranges::find(update.states, input) != update.states.end();
    });
  };
  for (const StrategyTensor& line : lines.inputs) {
    if (!line.state_of.empty()) continue;
    const auto input = std::ranges::find(graph.inputs(), line.name, &Input::name);
    const bool is_state =
        input == graph.inputs().end() ? line.type.shape.rank() > 0 : is_state_of_parameter(input->value);
    if (is_state)
      wrong_strategy(line.line, fmt::format("\"{}\" is state of an optimizer, and its line does not say of which "
                                            "parameter (state_of=): an older version saved the file; save it again "
                                            "with parallel.save_strategy",
                                            line.name));
  }
}

bool is_written_for(const StrategyFile& file, const Graph& graph) {
  const StrategyLines& lines = file.lines();
  if (!lines.graph.empty()) return lines.graph == hash_of_graph(graph);
  if (updates_something(graph)) return true;  // or it is wrong
  return std::ranges::equal(lines.inputs, graph.inputs(), {}, &StrategyTensor::name, &Input::name) &&
         std::ranges::equal(lines.outputs, graph.outputs(), {}, &StrategyTensor::name, &Output::name);
}

Strategy reuse_strategy(const StrategyFile& file, const Graph& graph, const Parallel& parallel,
                        const SemiAutoOptions& options) {
  const StrategyLines& lines = file.lines();
  const bool is_step = updates_something(graph);
  if (is_step && lines.model != hash_of_model(graph)) refuse_other_model(lines, graph);
  check_states(file, graph);
  Asks asks;
  asks.inputs.resize(graph.inputs().size());
  asks.sums_flow = options.numerics == Numerics::kFast;
  asks.across_stages = nodes_across_stages(graph, options.stages.empty() ? lines.stages : options.stages);
  ask_inputs(lines, graph, options, asks);
  ask_nodes(lines, graph, is_step, asks);
  SumOrder sums = sum_order_for(file, graph);
  if (is_step && options.stored == nullptr) ask_new_state(lines, graph, parallel, asks, sums);
  Strategy out = propagate(graph, lines.mesh, std::move(asks));
  out.sums = std::move(sums);
  out.stages = lines.stages;
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const StrategyTensor* line = line_of(lines.outputs, graph.outputs()[i].name);
    const TensorType& type = graph.type(graph.outputs()[i].value);
    if (line == nullptr || line->type != type) continue;
    out.outputs[i] = layout_for(*line, type, lines.mesh, Parts::kUneven);
    if (!line->mean.empty()) out.means[i] = line->mean;
  }
  return out;
}

}  // namespace trireme
