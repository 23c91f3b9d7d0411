#include "trireme/train/plan/parts/tied_weights.h"

#include <algorithm>
#include <map>

#include "trireme/op/message.h"
#include "trireme/op/op_def.h"
#include "trireme/op/structural.h"

namespace trireme {
namespace {

// Back from updates to sums that other crews send.
class SumsOfOthers {
 public:
  SumsOfOthers(const Graph& graph, const std::vector<int64_t>& prices) : graph_(graph), prices_(prices) {
    for (const Update& update : graph.updates()) has_part_of_others(update.gradient);
  }
  const TiedGradients& found() const { return found_; }

 private:
  bool has_part_of_others(ValueId value) {
    const NodeId id = graph_.value(value).producer;
    if (id < 0) return false;
    if (const auto known = known_.find(id); known != known_.end()) return known->second;
    const Node& node = graph_.node(id);
    bool out = is_message(def_of(node));
    if (out) {
      found_.came_bytes += graph_.type(value).bytes();
    } else if (node.micro_batch < 0) {
      for (const ValueId input : node.inputs) {  // of gradients, not of what scales them
        if (graph_.type(input).shape.elements() >= graph_.type(value).shape.elements())
          out = has_part_of_others(input) || out;
      }
      if (out && does(node, ReshardStep::Kind::kReduceScatter)) found_.scatters_ps += prices_[static_cast<size_t>(id)];
    }
    known_[id] = out;
    return out;
  }

  const Graph& graph_;
  const std::vector<int64_t>& prices_;
  std::map<NodeId, bool> known_;
  TiedGradients found_;
};

}  // namespace

TiedGradients tied_gradients(const Graph& graph, const std::vector<int64_t>& prices) {
  return SumsOfOthers(graph, prices).found();
}

TiedGathers tied_gathers(const Graph& graph, const std::vector<int64_t>& prices, int micro_batch) {
  std::map<ValueId, int> steps;  // of what came for the step, and is made of it: collectives up to it
  TiedGathers out;
  bool has_several = false;
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    const Node& node = graph.node(id);
    if (is_message(def_of(node)) && node.inputs.empty() && node.micro_batch < 0 && node.phase == Phase::kForward) {
      for (const ValueId made : node.outputs) steps.emplace(made, 0);
      continue;
    }
    const bool gathers = does(node, ReshardStep::Kind::kAllGather);
    const bool is_of_these =
        !node.inputs.empty() && std::ranges::all_of(node.inputs, [&](ValueId from) { return steps.contains(from); });
    if (!is_of_these || (!gathers && !is_cast(node))) continue;
    int before = 0;
    for (const ValueId from : node.inputs) before = std::max(before, steps.at(from));
    for (const ValueId made : node.outputs) steps.emplace(made, before + (gathers ? 1 : 0));
    has_several = has_several || (gathers && before > 0);
    if (!gathers || node.micro_batch != micro_batch) continue;
    (node.phase == Phase::kForward ? out.forward_ps : out.backward_ps) += prices[static_cast<size_t>(id)];
  }
  if (has_several) out.backward_ps = 0;
  return out;
}

}  // namespace trireme
