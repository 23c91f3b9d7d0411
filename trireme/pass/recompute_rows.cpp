#include "trireme/pass/recompute_rows.h"

#include <algorithm>

#include "trireme/op/row_steps.h"
#include "trireme/pass/rewrite.h"

namespace trireme {
namespace {

constexpr int64_t kFewestBytes = 64 << 10;  // of a value that is worth it

class RecomputeRows {
 public:
  explicit RecomputeRows(const Program& program)
      : program_(program), graph_(program.graph), is_output_(graph_.values().size(), 0), last_late_(graph_.values().size(), -1),
        again_(graph_.nodes().size(), 0) {}

  Program run() {
    for (const Output& output : graph_.outputs()) is_output_[at(output.value)] = 1;
    for (NodeId id = 0; id < size(); ++id) {
      if (!is_late(id)) continue;
      for (const ValueId operand : graph_.node(id).inputs) last_late_[at(operand)] = id;
    }
    for (NodeId id = 0; id < size(); ++id) again_[at(id)] = is_worth_it(id) ? 1 : 0;
    Rewrite rewrite(program_);
    for (NodeId id = 0; id < size(); ++id) {
      if (is_late(id)) make_operands_again(rewrite, id);
      rewrite.copy(id);
    }
    return rewrite.finish();
  }

 private:
  static size_t at(int32_t id) { return static_cast<size_t>(id); }
  NodeId size() const { return static_cast<NodeId>(graph_.nodes().size()); }
  bool is_late(NodeId id) const { return graph_.scope_of(graph_.node(id)).starts_with("grad/"); }

  // A cheap op of the forward pass on rows, that the backward pass reads and all of whose operands are there then.
  bool is_worth_it(NodeId id) const {
    const Node& node = graph_.node(id);
    if (is_late(id) || graph_.scope_of(node).starts_with(kUpdateScope)) return false;
    const auto large = [&](ValueId value) { return last_late_[at(value)] >= 0 && graph_.type(value).bytes() >= kFewestBytes; };
    if (std::none_of(node.outputs.begin(), node.outputs.end(), large)) return false;
    const auto is_output = [&](ValueId value) { return is_output_[at(value)] != 0; };
    if (std::any_of(node.outputs.begin(), node.outputs.end(), is_output)) return false;
    const bool there = std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId value) {
      const NodeId producer = graph_.value(value).producer;
      return producer < 0 || last_late_[at(value)] >= 0 || again_[at(producer)] != 0;
    });
    return there && is_cheap(node);
  }

  bool is_cheap(const Node& node) const {
    std::vector<TensorType> in, out;
    for (const ValueId id : node.inputs) in.push_back(graph_.type(id));
    for (const ValueId id : node.outputs) out.push_back(graph_.type(id));
    return cheap_row_op(def_of(node), {in, out, node.attrs}).has_value();
  }

  // Before the first reader in the backward pass; later ones find it made.
  void make_operands_again(Rewrite& rewrite, NodeId reader) {
    for (const ValueId operand : graph_.node(reader).inputs) {
      const NodeId producer = graph_.value(operand).producer;
      if (producer < 0 || again_[at(producer)] == 0) continue;
      again_[at(producer)] = 0;
      make_operands_again(rewrite, producer);
      rewrite.copy(producer);
    }
  }

  const Program& program_;
  const Graph& graph_;
  std::vector<char> is_output_;    // of values
  std::vector<NodeId> last_late_;  // of values: the last node of the backward pass that reads it
  std::vector<char> again_;        // of nodes: to be made a second time
};

}  // namespace

Program recompute_rows(const Program& program) { return RecomputeRows(program).run(); }

}  // namespace trireme
