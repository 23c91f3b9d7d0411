// Values that the backward pass reads are not kept for it where that is asked for: what makes them runs a second time,
// just before their first reader in the backward pass, and so does what makes its operands, as far as these are not
// kept either (Chen et al., 2016). What is asked:
//   modules   of a module (Recompute::blocks, or a rule for its scope) all values but those that other modules read, so
//             that the module's operands and results are what is kept
//   ops       the results of the ops of a rule "scope/op"
//   rows      activation functions and norms, whose operands are kept anyway: cheap, for most of the memory. Where
//             possible the reader changes places with the op before it, so that the recomputed values and that op's
//             results are not in memory at the same time
//
// Before: any program. After: the same results, with the same bits, dropout included: random bits are a function of
// seed, step and element. It runs before the passes that place and fuse, so that these do so with the second ones too.
// What messages bring from another crew is kept, and so is what later micro-batches read.
#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "trireme/op/call_kinds.h"
#include "trireme/op/row_steps.h"
#include "trireme/pass/passes.h"
#include "trireme/pass/recompute_rules.h"
#include "trireme/pass/rewrite.h"

namespace trireme {
namespace {

class Recomputing {
 public:
  Recomputing(const Program& program, const PassOptions& options)
      : program_(program),
        graph_(program.graph),
        asked_for_(options),
        options_(options.recompute),
        is_output_(graph_.values().size(), 0),
        is_sent_(graph_.values().size(), 0),
        last_forward_read_(graph_.values().size(), -1),
        first_backward_read_(graph_.values().size(), size()),
        last_backward_read_(graph_.values().size(), -1),
        again_(graph_.nodes().size(), 0),
        copied_(graph_.nodes().size(), 0),
        asked_(recompute_asked(graph_, options.recompute)) {}

  Program run() {
    for (const Output& output : graph_.outputs()) is_output_[at(output.value)] = 1;
    for (NodeId id = 0; id < size(); ++id) {
      const Node& node = graph_.node(id);
      for (const ValueId operand : node.inputs) {
        note_read(operand, id);
        if (is_communication(def_of(node))) is_sent_[at(operand)] = 1;
      }
      std::optional<BroughtWeight> brought = brought_weight(graph_, node);
      if (!brought) continue;
      const auto key = keys_.emplace(id, Key{*std::move(brought), node.stage, node.micro_batch}).first->second;
      Brought& all = brought_[key];
      (is_backward(id) ? all.backward : all.forward).push_back(id);
    }
    find_crossing();
    for (NodeId id = 0; id < size(); ++id) again_[at(id)] = is_asked(id) || (options_.rows && is_worth_it(id)) ? 1 : 0;
    Rewrite rewrite(program_);
    for (NodeId id = 0; id < size(); ++id) {
      const bool swapped = may_wait(id);
      if (swapped) copy(rewrite, id + 1);
      copy(rewrite, id);
      if (swapped) ++id;
    }
    if (!made_again_) say_nothing();
    if (made_again_ && !options_.communication && !keeps_exchanged_ && program_.mesh.devices() > 1) {
      say(asked_for_, {"recompute_communication = false: ranks exchange nothing inside what is computed again, so "
                       "nothing is kept that would not be",
                       true});
    }
    return rewrite.finish();
  }

 private:
  void note_read(ValueId value, NodeId reader) {
    if (graph_.node(reader).phase == Phase::kForward) last_forward_read_[at(value)] = reader;
    if (!is_backward(reader)) return;
    first_backward_read_[at(value)] = std::min(first_backward_read_[at(value)], reader);
    last_backward_read_[at(value)] = reader;
  }

  // What two nodes have in common that bring the same weight to the same readers.
  using Key = std::tuple<BroughtWeight, int, int>;
  struct Brought {
    std::vector<NodeId> forward, backward;  // in their order
  };

  // Where something was asked for.
  void say_nothing() const {
    using Rule = Recompute::Rule;
    const bool by_rule =
        std::ranges::any_of(options_.rules, [](const Rule& rule) { return rule.keep == Rule::Keep::kAgain; });
    if (!by_rule && !options_.rows && options_.blocks == 0) return;
    say(asked_for_, {fmt::format("recompute: nothing is computed again; {}", why_nothing()), true});
  }

  std::string_view why_nothing() const {
    if (options_.rows)
      return "no activation function or norm makes 64 KiB or more on a rank that the backward pass reads";
    if (options_.blocks != 0) return "no module with a number (h.0) makes what the backward pass reads";
    return "the backward pass reads nothing of what parallel.keep and the model's code name but what other modules "
           "read too";
  }

  static size_t at(int32_t id) { return static_cast<size_t>(id); }
  NodeId size() const { return static_cast<NodeId>(graph_.nodes().size()); }
  bool is_backward(NodeId id) const { return graph_.node(id).phase == Phase::kBackward; }

  // Values that other modules read.
  void find_crossing() {
    crosses_.assign(graph_.values().size(), 0);
    for (NodeId id = 0; id < size(); ++id) {
      for (const ValueId operand : graph_.node(id).inputs) {
        const NodeId producer = graph_.value(operand).producer;
        if (producer < 0 || is_backward(id)) continue;
        if (asked_[at(id)].module != asked_[at(producer)].module || def_of(graph_.node(id)).traits.message)
          crosses_[at(operand)] = 1;
      }
    }
  }

  bool is_asked(NodeId id) {
    const Node& node = graph_.node(id);
    const RecomputeAsked& asked = asked_[at(id)];
    if (node.phase != Phase::kForward || asked.kept || def_of(node).traits.message) return false;
    if (stays_for_others(node)) return false;
    const bool of_weight = keys_.contains(id);
    if (of_weight && !asked.optimizer_communication) return false;
    const auto is_output = [&](ValueId value) { return is_output_[at(value)] != 0; };
    if (std::ranges::any_of(node.outputs, is_output)) return false;
    const auto crosses = [&](ValueId value) { return crosses_[at(value)] != 0; };
    const bool is_inside = !asked.module.empty() && std::ranges::none_of(node.outputs, crosses);
    if (!asked.by_op && !is_inside) return false;
    const bool is_kept = !of_weight && is_communication(def_of(node)) && !asked.communication;
    keeps_exchanged_ = keeps_exchanged_ || is_kept;
    return !is_kept;
  }

  // What is made once for several micro-batches, such as a weight in another type, is there in the backward pass anyway
  // where the forward pass of a later one reads it.
  bool stays_for_others(const Node& node) const {
    if (options_.keeps_shared && node.micro_batch < 0 && program_.micro_batches > 1) return true;
    return std::ranges::any_of(
        node.outputs, [&](ValueId value) { return last_forward_read_[at(value)] > first_backward_read_[at(value)]; });
  }

  // A cheap op of the forward pass on rows, that the backward pass reads and all of whose operands are there then.
  bool is_worth_it(NodeId id) {
    const Node& node = graph_.node(id);
    if (node.phase != Phase::kForward || asked_[at(id)].kept || stays_for_others(node)) return false;
    const auto large = [&](ValueId value) {
      return last_backward_read_[at(value)] >= 0 && graph_.type(value).bytes() >= options_.fewest_bytes;
    };
    if (std::none_of(node.outputs.begin(), node.outputs.end(), large)) return false;
    const auto is_output = [&](ValueId value) { return is_output_[at(value)] != 0; };
    if (std::any_of(node.outputs.begin(), node.outputs.end(), is_output)) return false;
    const bool there = std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId value) {
      const NodeId producer = graph_.value(value).producer;
      return producer < 0 || last_backward_read_[at(value)] >= 0 || again_[at(producer)] != 0;
    });
    return there && is_cheap(node);
  }

  bool is_cheap(const Node& node) {
    const int kind = kinds_.of(graph_, node);
    return is_cheap_.get(kind, [&] { return cheap_row_op(*kinds_[kind].op, kinds_[kind].types()).has_value(); });
  }

  void copy(Rewrite& rewrite, NodeId id) {
    if (copied_[at(id)] != 0) return;
    if (is_backward(id)) make_operands_again(rewrite, id);
    copied_[at(id)] = 1;
    rewrite.copy(id);
  }

  // Whether the next node, for which something is recomputed, goes first: then that is not in memory beside this one's
  // results, which nobody needs yet. (Of a layer these are the gradients of its input and of its weight.) Ranks that
  // exchange the results do need them.
  bool may_wait(NodeId id) const {
    if (!is_backward(id) || id + 1 == size() || !is_backward(id + 1)) return false;
    const Node& node = graph_.node(id);
    if (is_communication(def_of(node))) return false;
    const auto is_made_again = [&](ValueId value) {
      const NodeId producer = graph_.value(value).producer;
      return producer >= 0 && again_[at(producer)] != 0;
    };
    const auto& next = graph_.node(id + 1).inputs;
    if (std::none_of(next.begin(), next.end(), is_made_again)) return false;
    if (std::any_of(node.inputs.begin(), node.inputs.end(), is_made_again)) return false;
    return std::none_of(node.outputs.begin(), node.outputs.end(), [&](ValueId value) {
      return is_sent_[at(value)] != 0 || std::find(next.begin(), next.end(), value) != next.end();
    });
  }

  // Before the first reader in the backward pass; later ones find it made.
  void make_operands_again(Rewrite& rewrite, NodeId reader) {
    for (const ValueId operand : graph_.node(reader).inputs) {
      const NodeId producer = graph_.value(operand).producer;
      if (producer < 0 || again_[at(producer)] == 0) continue;
      again_[at(producer)] = 0;
      made_again_ = true;
      make_operands_again(rewrite, producer);
      rewrite.copy(producer);
      if (const NodeId own = own_brought(producer); own >= 0 && copied_[at(own)] == 0) {
        copied_[at(own)] = 1;
        rewrite.same(graph_.node(own).outputs[0], operand);
      }
    }
  }

  // The node by which the backward pass brings for itself what this one brought for the forward pass, each for as many
  // micro-batches as the other. What is brought again serves for it, too. Chunks go back in another order.
  NodeId own_brought(NodeId id) const {
    const auto key = keys_.find(id);
    if (key == keys_.end() || program_.seq_chunks > 1) return -1;
    const Brought& all = brought_.at(key->second);
    const auto place = std::ranges::find(all.forward, id) - all.forward.begin();
    return all.forward.size() == all.backward.size() ? all.backward[static_cast<size_t>(place)] : -1;
  }

  const Program& program_;
  const Graph& graph_;
  const PassOptions& asked_for_;
  const Recompute& options_;
  bool made_again_ = false;                // something
  bool keeps_exchanged_ = false;           // what ranks exchange, where it is asked not to be made again
  std::vector<char> is_output_;            // of values
  std::vector<char> is_sent_;              // of values: to other ranks
  std::vector<NodeId> last_forward_read_;  // of values: the last node of the forward pass that reads it
  std::vector<NodeId> first_backward_read_, last_backward_read_;  // of the backward pass
  std::vector<char> again_;                                       // of nodes: to be made a second time
  std::vector<char> copied_;                                      // of nodes
  std::map<NodeId, Key> keys_;                                    // of nodes that bring weights
  std::map<Key, Brought> brought_;
  std::vector<RecomputeAsked> asked_;  // of nodes
  std::vector<char> crosses_;          // of values: another module reads it in the forward pass
  CallKinds kinds_;
  OfKind<bool> is_cheap_;
};

}  // namespace

namespace pass {
extern const Pass recompute{
    .name = "recompute",
    .doc = "what is not to be kept for the backward pass is computed again, if asked for",
    .asked_for = [](const PassOptions& o) { return o.recompute.is_asked_for(); },
    .run = [](Program program, const PassOptions& o) { return Recomputing(program, o).run(); },
};
}  // namespace pass

}  // namespace trireme
