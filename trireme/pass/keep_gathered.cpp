// Keeps weights that the forward pass gathered from their slices, where that is asked for.
//
// Before: a weight is gathered for the forward pass and again for the backward pass, and for each micro-batch, so that
// it is whole for as short as it can be (ZeRO 3). After: it is gathered once in the step, before its first reader, and
// stays whole until the last: fewer bytes are sent, and more are held.
#include <map>
#include <optional>

#include "trireme/pass/passes.h"
#include "trireme/pass/recompute_rules.h"
#include "trireme/pass/rewrite.h"

namespace trireme {
namespace {

Program gathered_once(Program program, const PassOptions& options) {
  const Graph& graph = program.graph;
  const std::vector<RecomputeAsked> asked = recompute_asked(graph, options.recompute);
  std::map<BroughtWeight, ValueId> first;  // the result that is kept
  std::map<NodeId, ValueId> same;
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    const Node& node = graph.node(id);
    const std::optional<BroughtWeight> brought = brought_weight(graph, node);
    if (!brought) continue;
    if (const auto kept = first.find(*brought); kept != first.end()) {
      same.emplace(id, kept->second);
    } else if (!asked[static_cast<size_t>(id)].optimizer_communication) {
      first.emplace(*brought, node.outputs[0]);
    }
  }
  // Where copies of a micro-batch take turns, an update may gather before the backward pass of a later copy.
  std::erase_if(same, [&](const auto& each) {
    return graph.node(graph.value(each.second).producer).phase > graph.node(each.first).phase;
  });
  if (same.empty()) {
    say(options, {"optimizer_comm_recompute = false: no weight is gathered from slices more than once in a step, so "
                  "nothing is kept that would not be",
                  true});
    return program;
  }
  Rewrite rewrite(program);
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    if (const auto kept = same.find(id); kept != same.end()) {
      rewrite.same(graph.node(id).outputs[0], kept->second);
    } else {
      rewrite.copy(id);
    }
  }
  return rewrite.finish();
}

}  // namespace

namespace pass {
extern const Pass keep_gathered{
    .name = "keep_gathered",
    .doc = "weights that were gathered from their slices are kept for the step, if asked for",
    .asked_for = [](const PassOptions& o) { return o.recompute.keeps_gathered(); },
    .run = [](Program program, const PassOptions& o) { return gathered_once(std::move(program), o); },
};
}  // namespace pass

}  // namespace trireme
