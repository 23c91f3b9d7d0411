#include "trireme/pass/slice_crossings.h"

#include <algorithm>
#include <map>

#include "trireme/cost/crew_links.h"
#include "trireme/op/op_def.h"
#include "trireme/op/structural.h"
#include "trireme/pass/rewrite.h"
#include "trireme/pass/slice_cut.h"

namespace trireme {
namespace {

class SlicingCrossings {
 public:
  SlicingCrossings(const Program& program, std::span<const int> crew_of_stage, const std::optional<Rates>& rates)
      : program_(program), graph_(program.graph), crew_of_stage_(crew_of_stage), rates_(rates), asked_(program) {}

  const AskedSlices& asked() const { return asked_; }

  // Nothing where nothing is sliced.
  std::optional<Program> run() {
    find_crossings();
    if (crossings_.empty()) return std::nullopt;
    Rewrite rewrite(program_);
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      const Node& node = graph_.node(id);
      std::vector<ValueId> in;
      for (const ValueId operand : node.inputs) in.push_back(as_read(rewrite, id, operand));
      rewrite.copy(id, in, node.outputs);
      for (const ValueId made : node.outputs) slice(rewrite, id, made);
    }
    for (const Update& update : graph_.updates()) update_by_gathered(rewrite, update);
    return rewrite.finish();
  }

 private:
  struct Crossing {
    SliceCut cut;
    ValueId slice = kNoValue;
    std::map<int, ValueId> whole = {};    // on the crews that read it
    std::map<int, NodeId> earliest = {};  // of its readers there, one of the earliest phase
  };

  int crew_of(const Node& node) const { return node.stage < 0 ? -1 : crew_of_stage_[static_cast<size_t>(node.stage)]; }
  int crew_of(ValueId id) const {
    const NodeId producer = graph_.value(id).producer;
    return producer < 0 ? -1 : crew_of(graph_.node(producer));
  }

  void find_crossings() {
    std::map<ValueId, std::map<int, NodeId>> readers;
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      const Node& node = graph_.node(id);
      for (const ValueId operand : node.inputs) {
        const int from = crew_of(operand), to = crew_of(node);
        if (from < 0 || to < 0 || from == to) continue;
        NodeId& earliest = readers[operand].try_emplace(to, id).first->second;
        if (node.phase < graph_.node(earliest).phase) earliest = id;
      }
    }
    for (const auto& [id, crews] : readers) {
      std::optional<SliceCut> cut = asked_.cut(id);
      if (!cut) continue;
      Crossing crossing{.cut = std::move(*cut)};
      for (const auto& [crew, reader] : crews) {
        if (pays(id, crossing.cut, crew)) crossing.whole.emplace(crew, kNoValue);
      }
      crossing.earliest = crews;
      if (!crossing.whole.empty()) crossings_.emplace(id, std::move(crossing));
    }
  }

  // The message alone, or that of the slice, what makes it, and the gather after it.
  bool pays(ValueId id, const SliceCut& cut, int crew) const {
    if (!rates_) return true;
    const Machine machine = rates_->machine ? *rates_->machine : Machine::this_host();
    const LinkCost link = link_between_crews(crew - crew_of(id), program_.mesh.devices(), *rates_);
    const auto message_s = [&](const TensorType& type) {
      return seconds({.rounds = 1, .bytes = static_cast<double>(type.bytes())}, link, rates_->links);
    };
    const TensorType& whole = graph_.type(id);
    const OpDef& gather = structural().step(ReshardStep::Kind::kAllGather);
    const TypeArgs types{{&cut.type, 1}, {&whole, 1}, cut.attrs};
    const double copies_s = 2 * static_cast<double>(cut.type.bytes()) / machine.memory_bytes_per_s;
    const double slices_s = message_s(cut.type) + collective_seconds(gather, types, program_.mesh, rates_->links) +
                            packing_seconds(gather, types, machine) + copies_s;
    return slices_s < message_s(whole);
  }

  void slice(Rewrite& rewrite, NodeId producer, ValueId made) {
    const auto found = crossings_.find(made);
    if (found == crossings_.end()) return;
    Crossing& crossing = found->second;
    crossing.slice =
        rewrite.new_value(crossing.cut.type, crossing.cut.layout, program_.whole[static_cast<size_t>(made)]);
    rewrite.insert(structural().step(ReshardStep::Kind::kSlice), crossing.cut.attrs, producer, {&made, 1},
                   {&crossing.slice, 1});
  }

  // The operand itself, or what the reader's crew has gathered, before its first reader. That one may be of the
  // backward pass of a micro-batch, and another of the forward pass of the next. What all micro-batches read is
  // gathered for all, whichever comes first.
  ValueId as_read(Rewrite& rewrite, NodeId reader, ValueId operand) {
    const auto found = crossings_.find(operand);
    if (found == crossings_.end()) return operand;
    Crossing& crossing = found->second;
    const auto here = crossing.whole.find(crew_of(graph_.node(reader)));
    if (here == crossing.whole.end()) return operand;
    if (here->second == kNoValue) {
      here->second = rewrite.new_value_like(operand);
      rewrite.insert(structural().step(ReshardStep::Kind::kAllGather), crossing.cut.attrs,
                     crossing.earliest.at(here->first), {&crossing.slice, 1}, {&here->second, 1},
                     graph_.node(graph_.value(operand).producer).micro_batch);
    }
    return here->second;
  }

  // A gradient that another crew makes than the one that updates is there as that one has gathered it.
  void update_by_gathered(Rewrite& rewrite, const Update& update) {
    const auto found = crossings_.find(update.gradient);
    if (found == crossings_.end()) return;
    const auto updated = std::ranges::find(graph_.outputs(), update.parameter, &Output::updates);
    if (updated == graph_.outputs().end()) return;
    const auto here = found->second.whole.find(crew_of(updated->value));
    if (here != found->second.whole.end() && here->second != kNoValue) rewrite.same(update.gradient, here->second);
  }

  const Program& program_;
  const Graph& graph_;
  std::span<const int> crew_of_stage_;
  const std::optional<Rates>& rates_;
  std::map<ValueId, Crossing> crossings_;
  AskedSlices asked_;
};

}  // namespace

Program slice_crossings(Program program, std::span<const int> crew_of_stage, const std::optional<Rates>& rates,
                        std::vector<PassRemark>* remarks) {
  SlicingCrossings slicing(program, crew_of_stage, rates);
  std::optional<Program> sliced = slicing.run();
  PassRemark remark = slicing.asked().remark(
      "parallel.slice_crossings", "nothing but single numbers goes to another stage from ranks that have the same");
  if (remarks != nullptr && !remark.text.empty()) remarks->push_back(std::move(remark));
  return sliced ? std::move(*sliced) : std::move(program);
}

}  // namespace trireme
