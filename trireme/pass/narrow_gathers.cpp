#include "trireme/pass/narrow_gathers.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "trireme/op/structural.h"
#include "trireme/pass/rewrite.h"

namespace trireme {
namespace {

// From a parameter as it is stored to the cast that alone reads it as it is used.
struct Chain {
  std::vector<NodeId> steps;  // in their order
  NodeId cast = -1;
};

// Who shares what has been gathered: the forward pass of a stage, or the backward pass of it.
struct Reader {
  bool backward = false;
  int stage = -1;
  auto operator<=>(const Reader&) const = default;
};

class NarrowingGathers {
 public:
  explicit NarrowingGathers(const Program& program)
      : program_(program), graph_(program.graph), readers_(graph_.values().size(), 0) {
    for (const Node& node : graph_.nodes()) {
      for (const ValueId id : node.inputs) ++readers_[at(id)];
    }
    for (const Output& output : graph_.outputs()) ++readers_[at(output.value)];
  }

  // Whether there are any.
  bool find_chains() {
    for (NodeId id = 0; id < size(); ++id) find_chain(id);
    return !chains_.empty();
  }

  Program run() {
    Rewrite rewrite(program_);
    for (NodeId id = 0; id < size(); ++id) {
      if (left_out_.contains(id)) continue;
      for (const ValueId operand : graph_.node(id).inputs) {
        if (const auto chain = chains_.find(operand); chain != chains_.end()) bring(rewrite, chain->second, id);
      }
      rewrite.copy(id);
    }
    return rewrite.finish();
  }

 private:
  static size_t at(int32_t id) { return static_cast<size_t>(id); }
  NodeId size() const { return static_cast<NodeId>(graph_.nodes().size()); }
  const Node& node(NodeId id) const { return graph_.node(id); }

  // Notes the chain that ends in this node, if it is a cast of a weight that is exchanged for it alone.
  void find_chain(NodeId id) {
    const Node& cast = node(id);
    if (!is_cast(cast) || cast.phase != Phase::kForward) return;
    const ValueId wide = cast.inputs[0], narrow = cast.outputs[0];
    if (size_of(graph_.type(narrow).dtype) >= size_of(graph_.type(wide).dtype)) return;
    if (readers_[at(wide)] != 1 || is_output(narrow)) return;
    Chain chain{.cast = id};
    bool exchanges = false;
    ValueId from = wide;
    while (graph_.value(from).producer >= 0) {
      const NodeId step = graph_.value(from).producer;
      if (!brings_pieces(node(step))) return;
      exchanges = exchanges || is_communication(def_of(node(step)));
      chain.steps.insert(chain.steps.begin(), step);
      from = node(step).inputs[0];
    }
    if (!exchanges || graph_.inputs()[at(graph_.value(from).index)].role != Role::kParameter) return;
    leave_out(chain);
    chains_.emplace(narrow, std::move(chain));
  }

  bool is_output(ValueId id) const {
    return std::ranges::any_of(graph_.outputs(), [&](const Output& output) { return output.value == id; });
  }

  // The cast, and the steps before it up to the first whose result something else reads, too.
  void leave_out(const Chain& chain) {
    left_out_.insert(chain.cast);
    for (size_t i = chain.steps.size(); i-- > 0 && readers_[at(node(chain.steps[i]).outputs[0])] == 1;)
      left_out_.insert(chain.steps[i]);
  }

  // Makes what the chain makes, for a reader that finds nothing made for one like it.
  void bring(Rewrite& rewrite, const Chain& chain, NodeId reader) {
    const ValueId narrow = node(chain.cast).outputs[0];
    const Reader who{node(reader).phase == Phase::kBackward, node(reader).stage};
    ValueId& made = made_.try_emplace({chain.cast, who}, kNoValue).first->second;
    if (made == kNoValue) {
      made = slice_of(rewrite, chain);
      for (const NodeId step : chain.steps) {
        const std::array<ValueId, 1> in{made};
        const std::array<ValueId, 1> out{narrow_like(rewrite, chain, node(step).outputs[0])};
        rewrite.insert(*node(step).op, node(step).attrs, reader, in, out);
        made = out[0];
      }
    }
    rewrite.same(narrow, made);
  }

  // The cast of the slice, made once.
  ValueId slice_of(Rewrite& rewrite, const Chain& chain) {
    ValueId& slice = slices_.try_emplace(chain.cast, kNoValue).first->second;
    if (slice == kNoValue) {
      const std::array<ValueId, 1> in{node(chain.steps.front()).inputs[0]};
      slice = narrow_like(rewrite, chain, in[0]);
      rewrite.copy(chain.cast, in, std::array<ValueId, 1>{slice});
    }
    return slice;
  }

  // A value that lies as this one, in the type of the chain's cast.
  ValueId narrow_like(Rewrite& rewrite, const Chain& chain, ValueId wide) const {
    const DType narrow = graph_.type(node(chain.cast).outputs[0]).dtype;
    return rewrite.new_value({narrow, graph_.type(wide).shape}, program_.layouts[at(wide)], program_.whole[at(wide)]);
  }

  const Program& program_;
  const Graph& graph_;
  std::vector<int> readers_;                           // how many, of values
  std::map<ValueId, Chain> chains_;                    // by what the cast makes
  std::set<NodeId> left_out_;                          // of the old program
  std::map<NodeId, ValueId> slices_;                   // by cast
  std::map<std::pair<NodeId, Reader>, ValueId> made_;  // by cast and reader
};

}  // namespace

Program narrow_gathers(Program program) {
  NarrowingGathers narrowing(program);
  return narrowing.find_chains() ? narrowing.run() : std::move(program);
}

}  // namespace trireme
