// Gathers weights that are stored in slices one reader ahead.
//
// Before: a weight that is stored cut and read whole is gathered right before the op that reads it, which waits for the
// bytes. After: its gather begins before the first reader of the weight before it, and runs under that op (the prefetch
// of ZeRO-3 and FSDP). What is gathered in one operation (fuse_collectives.cpp) moves as one. Where a weight comes in
// several steps, each of which waits for the one before, as over links of several levels, a step begins one reader
// ahead of the next. At most one weight more is whole at a time. A gather that would begin while the same weight is
// still whole for a reader before is left out: what is there serves both.
#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "trireme/op/structural.h"
#include "trireme/pass/passes.h"
#include "trireme/pass/rewrite.h"

namespace trireme {
namespace {

class GatheringEarly {
 public:
  explicit GatheringEarly(const Graph& graph) : graph_(graph), steps_(graph.nodes().size()) {
    find_steps();
    find_needs();
  }

  // By the node before which they go: those that move.
  std::map<NodeId, std::vector<NodeId>> moves() const {
    std::map<NodeId, std::vector<NodeId>> out;
    for (NodeId id = 0; id < size(); ++id) {
      if (!is_needed(id) || step(id).ahead == 0) continue;
      const auto need = std::ranges::lower_bound(needs_, step(id).need) - needs_.begin();
      const NodeId before = needs_[static_cast<size_t>(std::max<std::ptrdiff_t>(need - step(id).ahead, 0))];
      if (before < id) out[before].push_back(id);
    }
    return out;
  }

 private:
  static constexpr NodeId kNone = std::numeric_limits<NodeId>::max();

  // Of a node that brings a weight to where it is read.
  struct Step {
    bool is_one = false;
    NodeId need = kNone;  // the first reader of the weight
    int ahead = 0;        // exchanges that bring it, from this one on
  };

  NodeId size() const { return static_cast<NodeId>(graph_.nodes().size()); }
  const Step& step(NodeId id) const { return steps_[static_cast<size_t>(id)]; }
  bool is_needed(NodeId id) const { return step(id).is_one && step(id).need != kNone; }

  // Casts of a rank's own slice count as well: they go where what reads them goes.
  void find_steps() {
    using Kind = ReshardStep::Kind;
    for (NodeId id = 0; id < size(); ++id) {
      const Node& node = graph_.node(id);
      const auto is_ready = [&](ValueId operand) {
        const NodeId producer = graph_.value(operand).producer;
        return producer < 0 || step(producer).is_one;
      };
      const bool brings = does(node, Kind::kAllGather) || does(node, Kind::kAllToAll) || does(node, Kind::kSlice);
      const bool casts = is_cast(node) && is_as_stored(graph_, node.outputs[0]);
      steps_[static_cast<size_t>(id)].is_one = (brings || casts) && std::ranges::all_of(node.inputs, is_ready);
    }
  }

  void find_needs() {
    for (NodeId id = size(); id-- > 0;) {
      const Node& node = graph_.node(id);
      Step& reader = steps_[static_cast<size_t>(id)];
      const bool exchanges = reader.is_one && !is_cast(node) && !does(node, ReshardStep::Kind::kSlice);
      if (exchanges) ++reader.ahead;
      if (exchanges && reader.need != kNone) needs_.push_back(reader.need);
      for (const ValueId operand : node.inputs) {
        const NodeId producer = graph_.value(operand).producer;
        if (producer < 0 || !step(producer).is_one) continue;
        Step& made = steps_[static_cast<size_t>(producer)];
        made.need = std::min(made.need, reader.is_one ? reader.need : id);
        if (reader.is_one) made.ahead = std::max(made.ahead, reader.ahead);
      }
    }
    std::ranges::sort(needs_);
    needs_.erase(std::ranges::unique(needs_).begin(), needs_.end());
  }

  const Graph& graph_;
  std::vector<Step> steps_;  // of nodes
  std::vector<NodeId> needs_;
};

// The gathers whose weights are there whole already, when they would begin, by the gathers that brought them: those of
// the backward pass of what the forward pass reads last.
std::map<NodeId, NodeId> made_already(const Graph& graph, const std::map<NodeId, std::vector<NodeId>>& before) {
  std::map<ValueId, NodeId> last;  // reader
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    for (const ValueId operand : graph.node(id).inputs) last[operand] = id;
  }
  std::map<std::pair<ValueId, std::string>, NodeId> known;  // by weight and how it is gathered: the last that stays
  std::map<NodeId, NodeId> begins, out;
  for (const auto& [reader, steps] : before) {
    for (const NodeId step : steps) begins.emplace(step, reader);
  }
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    const Node& node = graph.node(id);
    if (!does(node, ReshardStep::Kind::kAllGather) || node.inputs.size() != 1) continue;
    const auto begin = begins.find(id);
    const auto [there, is_first] = known.try_emplace({node.inputs[0], node.attrs.text()}, id);
    if (is_first) continue;
    const Node& first = graph.node(there->second);
    const bool is_alive =
        begin != begins.end() && there->second < begin->second && last[first.outputs[0]] >= begin->second;
    if (!is_alive || first.phase > node.phase || first.stage != node.stage) {
      there->second = id;
      continue;
    }
    out.emplace(id, there->second);
    last[first.outputs[0]] = std::max(last[first.outputs[0]], last[node.outputs[0]]);
  }
  return out;
}

Program gather_early(Program program) {
  const std::map<NodeId, std::vector<NodeId>> before = GatheringEarly(program.graph).moves();
  if (before.empty()) return program;
  const std::map<NodeId, NodeId> made = made_already(program.graph, before);
  std::set<NodeId> moved;
  for (const auto& [reader, steps] : before) moved.insert(steps.begin(), steps.end());
  Rewrite rewrite(program);
  for (NodeId id = 0; id < static_cast<NodeId>(program.graph.nodes().size()); ++id) {
    if (const auto here = before.find(id); here != before.end()) {
      for (const NodeId step : here->second) {
        if (const auto again = made.find(step); again != made.end()) {
          rewrite.same(program.graph.node(step).outputs[0], program.graph.node(again->second).outputs[0]);
        } else {
          rewrite.copy(step);
        }
      }
    }
    if (!moved.contains(id)) rewrite.copy(id);
  }
  return rewrite.finish();
}

}  // namespace

namespace pass {
extern const Pass early_gathers{
    .name = "early_gathers",
    .doc = "weights that lie in slices are gathered one reader ahead",
    .run = [](Program program, const PassOptions&) { return gather_early(std::move(program)); },
};
}  // namespace pass

}  // namespace trireme
