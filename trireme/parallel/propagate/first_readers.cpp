#include "trireme/parallel/propagate/first_readers.h"

#include "trireme/base/error.h"

namespace trireme {
namespace {

// An input, or a cast of one, which is then cut alike.
void settle(Propagated& known, ValueId id, const Layout& layout, const std::string& why) {
  const Value& value = known.graph.value(id);
  if (value.producer < 0) {
    const Input& input = known.graph.inputs()[static_cast<size_t>(value.index)];
    if (!fits(layout, known.graph.type(id).shape, known.mesh(), parts_of(input))) return;  // whole: its reader cuts it
    known.layouts[static_cast<size_t>(id)] = layout;
    known.strategy.why_inputs[static_cast<size_t>(value.index)] = why;
    return;
  }
  known.layouts[static_cast<size_t>(id)] = layout;
  const auto cast = static_cast<size_t>(value.producer);
  for (size_t dim = 0; dim < layout.dims.size(); ++dim) {
    for (const int factor : known.rules[cast]->in[0][dim]) {
      known.strategy.nodes[cast].axes[static_cast<size_t>(factor)] = layout.dims[dim];
    }
  }
  known.strategy.why_nodes[cast] = why;
  const ValueId x = known.graph.node(value.producer).inputs[0];
  if (!known.layout(x)) settle(known, x, layout, why);
}

}  // namespace

void settle_inputs(Propagated& known, const Node& node) {
  const std::vector<Layout> operands = operand_layouts(*known.rules.back(), known.strategy.nodes.back());
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (known.layout(node.inputs[i])) continue;
    Layout layout = operands[i];
    layout.partial.clear();
    for (Axes& axes : layout.dims) {  // only batches come in micro-batches
      erase_if(axes, [&](int axis) { return is_micro_batch_axis(known.mesh(), axis); });
    }
    const bool says_why = known.asks.says_why;
    settle(known, node.inputs[i], layout,
           says_why ? fmt::format("as its first reader has it, {}", known.name_of(node)) : std::string());
  }
}

}  // namespace trireme
