// What is kept for the backward pass lies in slices on ranks that would each keep all of it, where that is asked for.
//
// Before: a value that the forward pass makes and the backward pass reads is kept by every rank as it was made, also
// where several ranks have the same. After: each rank keeps its slice, and ranks gather them before the first reader in
// the backward pass. The value itself lives as long as the forward pass reads it. The bits are the same: nothing is
// computed with slices.
#include <algorithm>
#include <map>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/op/structural.h"
#include "trireme/pass/passes.h"
#include "trireme/pass/recompute_rules.h"
#include "trireme/pass/rewrite.h"
#include "trireme/pass/slice_cut.h"

namespace trireme {
namespace {

class SlicingKept {
 public:
  SlicingKept(const Program& program, const PassOptions& options)
      : program_(program),
        graph_(program.graph),
        options_(options.recompute),
        asked_for_(options),
        asked_(recompute_asked(graph_, options.recompute)) {}

  // Nothing where nothing is sliced.
  std::optional<Program> run() {
    require(!program_.by_hand,
            "what is kept in slices (recompute_slice_activation, parallel.keep, Module::recompute) is for what the "
            "compiler cuts: in a model that is cut by hand nothing says which ranks have the same");
    find_late();
    AskedSlices slices(program_);
    for (ValueId id = 0; id < static_cast<ValueId>(graph_.values().size()); ++id) {
      if (!is_asked(id)) continue;
      if (auto cut = slices.cut(id)) cuts_.emplace(id, Cut{std::move(*cut)});
    }
    say(asked_for_,
        slices.remark("what is kept in slices (recompute_slice_activation, keep)",
                      "nothing that the backward pass reads and that is large enough is the same on several ranks"));
    if (cuts_.empty()) return std::nullopt;
    Rewrite rewrite(program_);
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      const Node& node = graph_.node(id);
      for (const ValueId operand : node.inputs) restore(rewrite, id, operand);
      rewrite.copy(id);
      for (const ValueId made : node.outputs) stow(rewrite, id, made);
    }
    return rewrite.finish();
  }

 private:
  struct Cut : SliceCut {
    ValueId slice = kNoValue;
  };

  static size_t at(int32_t id) { return static_cast<size_t>(id); }

  void find_late() {
    late_.assign(graph_.values().size(), 0);
    is_output_.assign(graph_.values().size(), 0);
    for (const Output& output : graph_.outputs()) is_output_[at(output.value)] = 1;
    for (const Node& node : graph_.nodes()) {
      for (const ValueId operand : node.inputs) {
        if (is_for_backward(node)) late_[at(operand)] = 1;
      }
    }
  }

  bool is_asked(ValueId id) const {
    const Value& value = graph_.value(id);
    if (value.producer < 0 || late_[at(id)] == 0 || is_output_[at(id)] != 0) return false;
    const Node& producer = graph_.node(value.producer);
    const bool is_forward = producer.phase == Phase::kForward && !producer.again;
    return is_forward && asked_[at(value.producer)].slice && value.type->bytes() >= options_.fewest_bytes;
  }

  void stow(Rewrite& rewrite, NodeId producer, ValueId made) {
    const auto cut = cuts_.find(made);
    if (cut == cuts_.end()) return;
    cut->second.slice = rewrite.new_value(cut->second.type, cut->second.layout, program_.whole[at(made)]);
    rewrite.insert(structural().step(ReshardStep::Kind::kSlice), cut->second.attrs, producer, {&made, 1},
                   {&cut->second.slice, 1});
  }

  // Before the first reader in the backward pass; later ones find it whole.
  void restore(Rewrite& rewrite, NodeId reader, ValueId operand) {
    const auto cut = cuts_.find(operand);
    if (cut == cuts_.end() || !is_for_backward(graph_.node(reader))) return;
    const NodeId producer = graph_.value(operand).producer;
    rewrite.insert(structural().step(ReshardStep::Kind::kAllGather), cut->second.attrs, producer,
                   {&cut->second.slice, 1}, {&operand, 1});
    cuts_.erase(cut);
  }

  const Program& program_;
  const Graph& graph_;
  const Recompute& options_;
  const PassOptions& asked_for_;
  std::vector<RecomputeAsked> asked_;   // of nodes
  std::vector<char> late_, is_output_;  // of values
  std::map<ValueId, Cut> cuts_;         // that are not whole again yet
};

}  // namespace

namespace pass {
extern const Pass slice_kept{
    .name = "slice_kept",
    .doc = "what is kept for the backward pass lies in slices on ranks that have the same, if asked for",
    .asked_for = [](const PassOptions& o) { return o.recompute.slices(); },
    .run =
        [](Program program, const PassOptions& o) {
          std::optional<Program> sliced = SlicingKept(program, o).run();
          return sliced ? std::move(*sliced) : std::move(program);
        },
};
}  // namespace pass

}  // namespace trireme
