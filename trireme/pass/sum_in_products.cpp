// Products add to a sum in its place.
//
// Before: each micro-batch's gradient of a weight is a product, and an op of its own adds it to those before: it reads
// two tensors as large as the weight and writes a third. After: the product does so as it writes its result
// (OpDef::onto), and nothing holds the term. What a sum begins with is a product as before. A term may be a sum itself,
// of a tied weight's two readers or of a loss in pieces: then its first product adds to the sum before.
//
// The product stands where it stood, so the sum must be there by then, and nobody else may read it later. A product
// that sums in blocks of its terms adds the first of them to the sum, so last bits may differ: where they may not, sums
// stay by themselves (train/step/compile). They also do where gradients leave the device between micro-batches, where
// what is kept for the backward pass leaves it (its moves go by the ops that are between them), and where rules name
// the ops that run on the host.
//
// It runs after sparse_updates, which looks for sums of lists, and before fuse_rows, which makes sums one with what
// reads them.
#include <algorithm>
#include <set>
#include <vector>

#include "trireme/ir/readers.h"
#include "trireme/op/op_def.h"
#include "trireme/op/structural.h"
#include "trireme/pass/passes.h"
#include "trireme/pass/rewrite.h"

namespace trireme {
namespace {

class SumInProducts {
 public:
  explicit SumInProducts(const Program& program)
      : program_(program),
        graph_(program.graph),
        readers_(graph_),
        is_output_(graph_.values().size(), 0),
        start_of_(graph_.nodes().size(), kNoValue),
        makes_(graph_.nodes().size(), -1),
        made_by_(graph_.nodes().size(), -1) {
    for (const Output& output : graph_.outputs()) is_output_[at(output.value)] = 1;
    for (const Node& node : graph_.nodes()) {
      if (def_of(node).onto != nullptr) adders_.insert(def_of(node).onto);
    }
    for (NodeId id = 0; id < size(); ++id) look_at(id);
  }

  bool any() const {
    return std::ranges::any_of(made_by_, [](NodeId node) { return node >= 0; });
  }

  Program run() const {
    Rewrite rewrite(program_);
    for (NodeId id = 0; id < size(); ++id) {
      if (made_by_[at(id)] < 0) emit(rewrite, id);
    }
    return rewrite.finish();
  }

 private:
  static size_t at(int32_t id) { return static_cast<size_t>(id); }
  NodeId size() const { return static_cast<NodeId>(graph_.nodes().size()); }
  ValueId result(NodeId id) const { return graph_.node(id).outputs[0]; }

  void look_at(NodeId sum) {
    const Node& node = graph_.node(sum);
    if (node.op != &structural().add || node.on_host) return;
    for (const size_t i : {size_t{1}, size_t{0}}) {
      const ValueId term = node.inputs[i], start = node.inputs[1 - i];
      const NodeId product = first_of(term, {sum, start, graph_.value(start).producer});
      if (product < 0) continue;
      const NodeId last = graph_.value(term).producer;
      start_of_[at(product)] = start;
      makes_[at(last)] = sum;
      made_by_[at(sum)] = made_by_[at(last)] >= 0 ? made_by_[at(last)] : last;
      return;
    }
  }

  struct Wanted {
    NodeId sum;
    ValueId start;
    NodeId maker;  // of the start
  };

  // The product that may add to the sum's start: it makes the term, or what others add to until that is the term. -1:
  // there is none.
  NodeId first_of(ValueId term, const Wanted& wanted) const {
    const NodeId id = graph_.value(term).producer;
    if (wanted.maker < 0 || id <= wanted.maker) return -1;  // it has to be there before the product
    if (is_output_[at(term)] != 0 || readers_.of(term).size() != 1) return -1;
    const Node &node = graph_.node(id), &sum = graph_.node(wanted.sum);
    if (node.on_host || node.phase != sum.phase || graph_.type(term) != graph_.type(sum.outputs[0])) return -1;
    if (node.op == &structural().add) {
      const NodeId first = first_of(node.inputs[0], wanted);
      return first >= 0 ? first : first_of(node.inputs[1], wanted);
    }
    if (node.op == &structural().add_rows) return first_of(node.inputs[0], wanted);
    if (adders_.contains(&def_of(node))) return first_of(node.inputs.back(), wanted);
    const bool is_free = def_of(node).onto != nullptr && start_of_[at(id)] == kNoValue;
    return is_free && is_left_to(id, wanted) ? id : -1;
  }

  // Whether the start is like what the product makes, and nothing else reads it later.
  bool is_left_to(NodeId product, const Wanted& wanted) const {
    const auto is_later = [&](NodeId reader) { return reader > product && reader != wanted.sum; };
    return graph_.type(wanted.start) == graph_.type(result(product)) && is_output_[at(wanted.start)] == 0 &&
           std::ranges::none_of(readers_.of(wanted.start), is_later);
  }

  void emit(Rewrite& rewrite, NodeId id) const {
    const Node& node = graph_.node(id);
    const ValueId start = start_of_[at(id)];
    if (start == kNoValue && makes_[at(id)] < 0) return rewrite.copy(id);
    std::vector<ValueId> in(node.inputs.begin(), node.inputs.end());
    if (start != kNoValue) in.push_back(start);
    std::vector<NodeId> instead_of;
    NodeId made = id;  // the last of the sums that the node makes, one the term of the next
    while (makes_[at(made)] >= 0) {
      made = makes_[at(made)];
      instead_of.push_back(made);
    }
    instead_of.push_back(id);
    rewrite.add(start != kNoValue ? *def_of(node).onto : *node.op, node.attrs, instead_of, in,
                graph_.node(made).outputs);
    // What the graph records of a term is now said of the sum.
    for (const NodeId term : instead_of) {
      if (term != made) rewrite.same(result(term), result(made));
    }
  }

  const Program& program_;
  const Graph& graph_;
  Readers readers_;
  std::vector<char> is_output_;
  std::set<const OpDef*> adders_;  // ops that products become where they add to something
  std::vector<ValueId> start_of_;  // of products that add to something: that
  std::vector<NodeId> makes_;      // of nodes whose result becomes a sum's: the sum
  std::vector<NodeId> made_by_;    // of sums that become a node's result: the node; -1: of others
};

}  // namespace

namespace pass {
extern const Pass sum_in_products{
    .name = "sum_in_products",
    .doc = "products add to the sums that their results go into",
    .asked_for =
        [](const PassOptions& o) {
          const auto leave = [](const HomeRule& rule) {
            return rule.of == Held::kGradient && rule.home != Tier::kDevice;
          };
          return o.on_host.rules.empty() && !o.recompute.keeps_elsewhere() && std::ranges::none_of(o.homes, leave);
        },
    .run =
        [](Program program, const PassOptions&) {
          const SumInProducts sums(program);
          return sums.any() ? sums.run() : std::move(program);
        },
};
}  // namespace pass

}  // namespace trireme
