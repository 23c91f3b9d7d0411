#include "trireme/partition/why.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/parallel/asked/op_names.h"
#include "trireme/parallel/parallel.h"
#include "trireme/partition/value_planners.h"

namespace trireme {
namespace {

class Why {
 public:
  Why(const Graph& graph, const Strategy& strategy, const PartitionOptions& options)
      : graph_(graph),
        strategy_(strategy),
        planners_(strategy.mesh, options.costs, options.summed_once),
        layouts_(value_layouts(graph, strategy)),
        occurrences_(occurrences_of(graph)) {
    for (const Node& node : graph.nodes()) {
      const std::vector<Layout> wanted =
          operand_layouts(*rule_of(graph, node), strategy.nodes[static_cast<size_t>(&node - graph.nodes().data())]);
      wanted_.push_back(wanted);
    }
  }

  std::string about(std::string_view pattern) {
    std::vector<std::string> names;
    std::string out;
    const OpPattern op = pattern;
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      const Input& input = graph_.inputs()[i];
      names.push_back(input.name);
      if (!matches(pattern, input.name)) continue;
      out += fmt::format("{} '{}': {}\n  why: {}\n", to_string(input.role), input.name, placed(input.value),
                         strategy_.why_inputs[i]);
      out += readers(input.value);
    }
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const Node& node = graph_.nodes()[i];
      const std::string scope(graph_.scope_of(node));
      names.push_back(op.op.empty() ? scope
                                    : fmt::format("{}/{}", scope, occurrence_text(node.op->name, occurrences_[i])));
      const bool is_named = op.scope.names(scope) && is_op(op, node, occurrences_[i]);
      if (!is_named && !matches(pattern, scope)) continue;
      out +=
          fmt::format("{}\n  why: {}\n", op_text(graph_, occurrences_, static_cast<NodeId>(i)), strategy_.why_nodes[i]);
      for (const ValueId id : node.outputs) out += fmt::format("  makes %{}: {}\n", id, placed(id)) + readers(id);
    }
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      const Output& output = graph_.outputs()[i];
      if (output.updates != kNoValue || !matches(pattern, output.name)) continue;
      out += fmt::format("output '{}': {}, handed out {}\n", output.name, placed(output.value),
                         to_string(strategy_.outputs[i], strategy_.mesh));
    }
    if (out.empty()) {
      if (!op.op.empty()) std::erase_if(names, [](const std::string& name) { return name.find('/') == name.npos; });
      std::ranges::sort(names);
      names.erase(std::ranges::unique(names).begin(), names.end());
      fail(ErrorKind::kNotFound, "explain: nothing is named '{}'.{}", pattern, suggestion(pattern, names));
    }
    return out;
  }

 private:
  std::string placed(ValueId id) const {
    const TensorType& type = graph_.type(id);
    const Layout& layout = layouts_[static_cast<size_t>(id)];
    return fmt::format("{} {}, {} on each rank", to_string(type), to_string(layout, strategy_.mesh),
                       to_string(TensorType{type.dtype, local_shape(type.shape, layout, strategy_.mesh)}));
  }

  // One line for each layout that it is read in.
  std::string readers(ValueId id) {
    struct Reading {
      Layout layout;
      std::vector<std::string> who;
    };
    std::vector<Reading> readings;
    for (size_t n = 0; n < graph_.nodes().size(); ++n) {
      const Node& node = graph_.nodes()[n];
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] != id) continue;
        const Layout& layout = wanted_[n][i];
        auto known =
            std::find_if(readings.begin(), readings.end(), [&](const Reading& r) { return r.layout == layout; });
        if (known == readings.end()) known = readings.insert(readings.end(), {layout, {}});
        known->who.push_back(op_text(graph_, occurrences_, static_cast<NodeId>(n)));
      }
    }
    std::string out;
    for (const Reading& reading : readings) {
      const Reshard& reshard =
          planners_.of(id).plan(layouts_[static_cast<size_t>(id)], reading.layout, graph_.type(id));
      out += fmt::format("  read as {} by {}{}: {}\n", to_string(reading.layout, strategy_.mesh), reading.who.front(),
                         reading.who.size() > 1 ? fmt::format(" and {} more", reading.who.size() - 1) : "",
                         reshard.steps.empty()
                             ? "nothing to do"
                             : fmt::format("{}, {} bytes sent by each rank", to_string(reshard.steps, strategy_.mesh),
                                           reshard.bytes_sent));
    }
    return out;
  }

  const Graph& graph_;
  const Strategy& strategy_;
  ValuePlanners planners_;
  std::vector<Layout> layouts_;              // of values
  std::vector<int> occurrences_;             // of nodes
  std::vector<std::vector<Layout>> wanted_;  // of the operands of nodes
};

}  // namespace

std::string why(const Graph& graph, const Strategy& strategy, std::string_view pattern,
                const PartitionOptions& options) {
  return Why(graph, strategy, options).about(pattern);
}

}  // namespace trireme
