#include "trireme/parallel/propagate/propagated.h"

#include "trireme/parallel/asked/op_names.h"

namespace trireme {

Propagated::Propagated(const Graph& whole, const Mesh& mesh, const Asks& given)
    : graph(whole),
      asks(given),
      layouts(whole.values().size()),
      strategy{.mesh = mesh, .why_inputs = std::vector<std::string>(whole.inputs().size(), "nothing reads it cut")},
      own(whole, strategy.mesh, asks.unsummed),
      occurrences(occurrences_of(whole)) {
  rules.reserve(whole.nodes().size());
}

Layout Propagated::layout_or_whole(ValueId id) const {
  return layout(id) ? *layout(id) : Layout::replicated(graph.type(id).shape.rank());
}

std::string Propagated::name_of(const Node& node) const {
  return op_text(graph, occurrences, static_cast<NodeId>(&node - graph.nodes().data()));
}

}  // namespace trireme
