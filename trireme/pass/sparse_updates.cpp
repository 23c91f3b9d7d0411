// Updates of tables of which a step reads few rows, by these rows alone.
//
// Before: the gradient of a table that is looked up is as large as the table, and its update reads and writes all of
// it. After: where rows without a gradient stay as they are by the update's own formula (OpDef::keeps_where_zero), the
// gradient is a list of the rows that the batch has looked up (op/structural.h), ranks exchange lists, and the update
// is of these rows, which are taken out of the table and put back over it. Sums are taken in the same order, so no bit
// changes. It is so where the lists, all ranks' together, take less memory than the gradient.
//
// The pass runs before those that join and move the sums of gradients over ranks, and before ops are put on the host,
// where the update of a table with its home there then works on a few rows of it, and only these come and go. A
// gradient that others read stays whole, and so do those of which ranks keep slices. One with other terms, as that of a
// table which is a product's weight, too, is whole as well, but to the other terms a list is added.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "trireme/base/error.h"
#include "trireme/ir/readers.h"
#include "trireme/op/structural.h"
#include "trireme/pass/host_inputs.h"
#include "trireme/pass/passes.h"
#include "trireme/pass/rewrite.h"

namespace trireme {
namespace {

// How a value becomes a list.
enum class Listing { kAsRows, kSum, kCast, kAllRanks };

struct ListPlan {
  Listing how = Listing::kAsRows;
  NodeId node = -1;
  int64_t places = 0;   // of the list
  int64_t most = 0;     // of all lists that are merged into it, at any time
  std::string numbers;  // lists of equal ones have the same numbers
  Axes axes;            // over which ranks have lists of their own
};

// An update, or a sum with a list.
struct ByRows {
  NodeId node = -1;
  std::vector<char> replaced, listed;  // operands
  std::set<ValueId> lists;             // values that become lists
};

class SparseUpdates {
 public:
  SparseUpdates(const Program& program, const PassOptions& options)
      : program_(program),
        graph_(program.graph),
        options_(options),
        readers_(program.graph),
        asked_(graph_.values().size(), 0) {
    for (const Output& output : graph_.outputs()) {
      is_output_.insert(output.value);
      if (output.updates != kNoValue) replaces_.emplace(output.value, output.updates);
    }
    for (NodeId id = 0; id < node_count(); ++id) {
      if (std::optional<ByRows> found = rows_update(id)) updates_.emplace(id, std::move(*found));
    }
    std::set<ValueId> known;
    for (const auto& [id, update] : updates_) known.insert(update.lists.begin(), update.lists.end());
    for (NodeId id = node_count(); id-- > 0;) {
      if (std::optional<ByRows> found = sum_with_list(id); found && !known.contains(graph_.node(id).outputs[0]))
        sums_.emplace(id, std::move(*found));
    }
    if (!options.on_host.rules.empty()) say_what_stays_whole();
  }

  bool any() const { return !updates_.empty() || !sums_.empty(); }

  Program run() {
    rewrite_.emplace(program_);
    std::set<ValueId> lists;
    for (const auto* const all : {&updates_, &sums_}) {
      for (const auto& [id, each] : *all) lists.insert(each.lists.begin(), each.lists.end());
    }
    for (NodeId id = 0; id < node_count(); ++id) {
      const Node& node = graph_.node(id);
      if (const auto update = updates_.find(id); update != updates_.end()) {
        update_rows(update->second);
      } else if (const auto sum = sums_.find(id); sum != sums_.end()) {
        add_rows(sum->second);
      } else if (node.outputs.size() == 1 && lists.contains(node.outputs[0])) {
        make_list(plans_.at(node.outputs[0]), node.outputs[0]);
      } else if (def_of(node).of_rows && lists.contains(node.inputs[0])) {
        const List& list = made_.at(node.inputs[0]);
        rewrite_->add(*def_of(node).of_rows->op, def_of(node).of_rows->attrs(types_of(node)), std::span(&id, 1),
                      {{list.numbers, list.rows}}, node.outputs);
      } else {
        Few<ValueId, 4> in = node.inputs;
        for (ValueId& operand : in) operand = lists.contains(operand) ? made_.at(operand).rows : operand;
        rewrite_->copy(id, in, node.outputs);
      }
    }
    return rewrite_->finish();
  }

 private:
  struct List {
    ValueId numbers = kNoValue, rows = kNoValue;
  };
  static size_t at(int32_t id) { return static_cast<size_t>(id); }
  NodeId node_count() const { return static_cast<NodeId>(graph_.nodes().size()); }
  const TensorType& type(ValueId id) const { return graph_.type(id); }
  const Layout& layout(ValueId id) const { return program_.layouts[at(id)]; }

  // Of the whole table, which a rank may have a piece of.
  int64_t all_rows(ValueId id) const { return (*program_.whole[at(id)])[0]; }

  TypeArgs types_of(const Node& node) {
    in_types_.clear();
    out_types_.clear();
    for (const ValueId id : node.inputs) in_types_.push_back(type(id));
    for (const ValueId id : node.outputs) out_types_.push_back(type(id));
    return {in_types_, out_types_, node.attrs};
  }

  // -- what can be so -----------------------------------------------------------------------------

  std::optional<ByRows> rows_update(NodeId id) {
    const Node& node = graph_.node(id);
    if (node.phase != Phase::kUpdate || def_of(node).keeps_where_zero == nullptr) return {};
    const std::vector<int> zeros = def_of(node).keeps_where_zero(node.attrs);
    ByRows out{.node = id, .replaced = {}, .listed = {}, .lists = {}};
    if (zeros.empty() || !find_replaced(node, out) || !find_lists(node, out)) return {};
    const bool all_known = std::ranges::all_of(zeros, [&](int i) { return out.listed[static_cast<size_t>(i)] != 0; });
    if (!all_known || !lie_together(id, out) || !is_smaller(node, out)) return {};
    return out;
  }

  // Each result replaces an operand, and nobody else reads it.
  bool find_replaced(const Node& node, ByRows& out) const {
    out.replaced.assign(node.inputs.size(), 0);
    for (const ValueId made : node.outputs) {
      const auto replaced = replaces_.find(made);
      if (replaced == replaces_.end() || !readers_.of(made).empty()) return false;
      if (std::ranges::count(node.inputs, replaced->second) != 1 || type(made).shape.rank() == 0) return false;
      out.replaced[static_cast<size_t>(std::ranges::find(node.inputs, replaced->second) - node.inputs.begin())] = 1;
    }
    return !node.outputs.empty();
  }

  bool find_lists(const Node& node, ByRows& out) {
    const int64_t rows = type(node.outputs[0]).shape[0];
    std::string numbers;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId operand = node.inputs[i];
      const bool has_rows = type(operand).shape.rank() > 0;
      out.listed.push_back(has_rows && out.replaced[i] == 0 ? 1 : 0);
      if (has_rows && type(operand).shape[0] != rows) return false;
      if (out.listed[i] == 0) continue;
      const ListPlan* const list = list_of(operand);
      if (list == nullptr || !list->axes.empty() || (!numbers.empty() && list->numbers != numbers)) return false;
      numbers = list->numbers;
      add_lists(operand, out.lists);
    }
    return std::ranges::all_of(out.lists, [&](ValueId list) { return is_read_as_list(list, out); });
  }

  // A sum of a list and a whole tensor of which ranks have terms alike.
  std::optional<ByRows> sum_with_list(NodeId id) {
    const Node& node = graph_.node(id);
    if (node.op != &structural().add) return {};
    const ListPlan* const of[2] = {list_of(node.inputs[0]), list_of(node.inputs[1])};
    if ((of[0] == nullptr) == (of[1] == nullptr)) return {};
    const size_t at_list = of[0] != nullptr ? 0 : 1;
    const ValueId listed = node.inputs[at_list], whole = node.inputs[1 - at_list];
    if (type(listed) != type(whole) || type(whole) != type(node.outputs[0])) return {};
    if (!program_.by_hand && layout(whole).partial_axes() != of[at_list]->axes) return {};
    ByRows out{.node = id, .replaced = {0, 0}, .listed = {0, 0}, .lists = {}};
    out.listed[at_list] = 1;
    add_lists(listed, out.lists);
    const auto read_as_list = [&](ValueId list) { return is_read_as_list(list, out); };
    if (!std::ranges::all_of(out.lists, read_as_list) || !is_smaller(node, out)) return {};
    return out;
  }

  void add_lists(ValueId id, std::set<ValueId>& out) const {
    out.insert(id);
    const ListPlan& plan = plans_.at(id);
    if (plan.how == Listing::kAsRows) return;
    for (const ValueId operand : graph_.node(plan.node).inputs) add_lists(operand, out);
  }

  // By the update, by what makes another list of it, or by what makes the same of a list.
  bool is_read_as_list(ValueId id, const ByRows& update) const {
    if (is_output_.contains(id)) return false;
    return std::ranges::all_of(readers_.of(id), [&](NodeId reader) {
      const Node& node = graph_.node(reader);
      if (reader == update.node) return true;
      if (node.outputs.size() == 1 && update.lists.contains(node.outputs[0])) return true;
      return takes_list(node) && has_all_rows(id);
    });
  }

  // What sums exactly does not miss zeros.
  static bool takes_list(const Node& node) { return def_of(node).traits.sums_exactly || def_of(node).of_rows; }

  // Of a table whose rows are cut a list has those of all pieces.
  bool has_all_rows(ValueId id) const { return program_.by_hand || layout(id).dims[0].empty(); }

  const ListPlan* list_of(ValueId id) {
    if (asked_[at(id)] == 0) {
      asked_[at(id)] = 1;
      if (std::optional<ListPlan> found = find_list(id)) plans_.emplace(id, std::move(*found));
    }
    const auto known = plans_.find(id);
    return known == plans_.end() ? nullptr : &known->second;
  }

  std::optional<ListPlan> find_list(ValueId id) {
    const NodeId producer = graph_.value(id).producer;
    if (producer < 0) return {};
    const Node& node = graph_.node(producer);
    if (node.outputs.size() != 1) return {};
    if (def_of(node).as_rows) return of_lookup(producer);
    if (node.op == &structural().add) return of_sum(producer);
    if (is_cast(node)) return of_cast(producer);
    return does(node, ReshardStep::Kind::kAllReduce) ? of_all_ranks(producer) : std::nullopt;
  }

  std::optional<ListPlan> of_lookup(NodeId id) {
    const Node& node = graph_.node(id);
    const int64_t most = def_of(node).as_rows->most(types_of(node));
    std::string numbers = fmt::format("%{}", node.inputs[0]);
    return ListPlan{Listing::kAsRows, id, most, most, std::move(numbers), layout(node.outputs[0]).partial_axes()};
  }

  std::optional<ListPlan> of_sum(NodeId id) {
    const Node& node = graph_.node(id);
    const ListPlan* const a = list_of(node.inputs[0]);
    const ListPlan* const b = list_of(node.inputs[1]);
    const bool are_alike = a != nullptr && b != nullptr && a->axes == b->axes &&
                           type(node.inputs[0]) == type(node.inputs[1]) &&
                           type(node.inputs[0]) == type(node.outputs[0]);
    if (!are_alike) return {};
    const int64_t both = a->places + b->places;
    return ListPlan{Listing::kSum,
                    id,
                    std::min(both, all_rows(node.outputs[0])),
                    std::max({both, a->most, b->most}),
                    fmt::format("({}+{})", a->numbers, b->numbers),
                    a->axes};
  }

  std::optional<ListPlan> of_cast(NodeId id) {
    const ListPlan* const of = list_of(graph_.node(id).inputs[0]);
    if (of == nullptr) return {};
    ListPlan out = *of;
    out.how = Listing::kCast;
    out.node = id;
    return out;
  }

  // The sum over all ranks that have terms of it, in one step.
  std::optional<ListPlan> of_all_ranks(NodeId id) {
    const Node& node = graph_.node(id);
    const GroupCall call = def_of(node).collective->call(node.attrs);
    if (node.inputs.size() != 1 || call.reduction != Reduction::kSum) return {};
    const ListPlan* const of = list_of(node.inputs[0]);
    const auto& attrs = node.attrs.as<CollectiveAttrs>();
    if (of == nullptr || (!program_.by_hand && std::vector<int64_t>(of->axes.begin(), of->axes.end()) != attrs.axes))
      return {};
    const int64_t all = of->places * attrs.size;
    return ListPlan{Listing::kAllRanks,
                    id,
                    std::min(all, all_rows(node.outputs[0])),
                    std::max(all, of->most),
                    fmt::format("all({})", of->numbers),
                    {}};
  }

  bool is_on_host(NodeId id) {
    if (!on_host_) on_host_ = nodes_for_host(graph_, options_.on_host);
    return (*on_host_)[at(id)] != 0;
  }

  // Of tables that ops on the host alone look up.
  void say_what_stays_whole() {
    for (const Update& update : graph_.updates()) {
      if (list_of(update.gradient) == nullptr) continue;
      for (const NodeId reader : readers_.of(update.gradient)) {
        const Node& node = graph_.node(reader);
        const bool is_update = std::ranges::count(node.inputs, update.parameter) > 0;
        if (!is_update || !is_on_host(reader) || updates_.contains(reader)) continue;
        const std::string why = why_whole(node, update.gradient);
        const Input& table = graph_.inputs()[at(graph_.value(update.parameter).index)];
        if (!why.empty())
          say(options_, {fmt::format("parallel.on: '{}' is updated on the host by a gradient of all its rows, not of "
                                     "those that are looked up: {}",
                                     table.name, why)});
      }
    }
  }

  std::string why_whole(const Node& update, ValueId gradient) const {
    const auto keeps = def_of(update).keeps_where_zero;
    if (keeps == nullptr || keeps(update.attrs).empty())
      return "the optimizer changes the others, too, by a decay or a mean (`trireme help config`: train.optimizer has "
             "some that do not)";
    for (const NodeId reader : readers_.of(gradient)) {
      const Node& node = graph_.node(reader);
      if (&node == &update || (takes_list(node) && has_all_rows(gradient))) continue;
      return fmt::format("{} reads it, too, {}", node.op->name,
                         takes_list(node) ? "of which each rank has rows of its own" : "which takes no list of rows");
    }
    return "";
  }

  // What it replaces lies where it runs: rows alone come from nowhere else.
  bool lie_together(NodeId id, const ByRows& update) {
    const Tier here = is_on_host(id) ? Tier::kHost : Tier::kDevice;
    if (homes_.empty()) homes_ = homes_of_inputs(graph_, options_.homes, *on_host_);
    const Node& node = graph_.node(id);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (update.replaced[i] != 0 && homes_[at(graph_.value(node.inputs[i]).index)] != here) return false;
    }
    return true;
  }

  // All lists, with the rows that are taken out, than the gradients.
  bool is_smaller(const Node& node, const ByRows& update) const {
    int64_t sparse = 0, dense = 0;
    int64_t places = 0;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (update.listed[i] == 0) continue;
      const ListPlan& list = plans_.at(node.inputs[i]);
      const int64_t row_bytes = type(node.inputs[i]).bytes() / type(node.inputs[i]).shape[0];
      const int64_t merged = list.most > list.places ? list.most : 0;
      sparse += (list.places + merged) * (row_bytes + size_of(DType::kI64));
      dense += type(node.inputs[i]).bytes();
      places = list.places;
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (update.replaced[i] != 0) sparse += places * (type(node.inputs[i]).bytes() / type(node.inputs[i]).shape[0]);
    }
    return sparse < dense;
  }

  // -- how it becomes so --------------------------------------------------------------------------

  // A value with so many rows, of which ranks along these axes have their own.
  ValueId new_rows(ValueId like, DType dtype, int64_t places, const Axes& axes, bool with_width) {
    TensorType local{dtype, {places}};
    Layout lies = Layout::replicated(1);
    Shape whole{places};
    if (!program_.by_hand) {
      lies.dims[0] = axes;
      whole[0] = places * program_.mesh.size_of(axes);
    }
    for (int dim = 1; with_width && dim < type(like).shape.rank(); ++dim) {
      local.shape.push_back(type(like).shape[dim]);
      lies.dims.push_back(layout(like).dims[static_cast<size_t>(dim)]);
      whole.push_back((*program_.whole[at(like)])[dim]);
    }
    return rewrite_->new_value(local, std::move(lies), std::move(whole));
  }

  List new_list(ValueId like, int64_t places, const Axes& axes) {
    return {new_rows(like, DType::kI64, places, axes, false), new_rows(like, type(like).dtype, places, axes, true)};
  }

  void make_list(const ListPlan& plan, ValueId value) {
    const Node& node = graph_.node(plan.node);
    List made = new_list(value, plan.places, plan.axes);
    const auto add = [&](const OpBase& op, const Attrs& attrs, std::vector<ValueId> in, std::vector<ValueId> out) {
      rewrite_->add(op, attrs, std::span(&plan.node, 1), in, out);
    };
    switch (plan.how) {
      case Listing::kAsRows: {
        const AsRowList& rows = *def_of(node).as_rows;
        add(*rows.op, rows.attrs(node.attrs, plan.places), {node.inputs.begin(), node.inputs.end()},
            {made.numbers, made.rows});
        break;
      }
      case Listing::kSum: {
        const List &a = made_.at(node.inputs[0]), &b = made_.at(node.inputs[1]);
        add(structural().merge_rows, Attrs::of(MergeRowsAttrs{1, plan.places}), {a.numbers, a.rows, b.numbers, b.rows},
            {made.numbers, made.rows});
        break;
      }
      case Listing::kCast:
        made.numbers = made_.at(node.inputs[0]).numbers;
        add(*node.op, node.attrs, {made_.at(node.inputs[0]).rows}, {made.rows});
        break;
      case Listing::kAllRanks: {
        const List own = made_.at(node.inputs[0]);
        CollectiveAttrs attrs = node.attrs.as<CollectiveAttrs>();
        attrs.dim = 0;
        const List all = new_list(value, plans_.at(node.inputs[0]).places * attrs.size, {});
        const OpDef& gather = structural().step(ReshardStep::Kind::kAllGather);
        rewrite_->insert(gather, Attrs::of(attrs), plan.node, {{own.numbers}}, {{all.numbers}});
        rewrite_->insert(gather, Attrs::of(attrs), plan.node, {{own.rows}}, {{all.rows}});
        add(structural().merge_rows, Attrs::of(MergeRowsAttrs{attrs.size, plan.places}), {all.numbers, all.rows},
            {made.numbers, made.rows});
        break;
      }
    }
    made_[value] = made;
    rewrite_->same(value, made.rows);
  }

  void update_rows(const ByRows& update) {
    const Node& node = graph_.node(update.node);
    ValueId numbers = kNoValue;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (update.listed[i] != 0 && numbers == kNoValue) numbers = made_.at(node.inputs[i]).numbers;
    }
    const int64_t places = rows_of(update);
    std::vector<ValueId> in, out;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId operand = node.inputs[i];
      if (update.replaced[i] != 0) {
        in.push_back(new_rows(operand, type(operand).dtype, places, {}, true));
        rewrite_->insert(structural().take_rows, Attrs(), update.node, {{operand, numbers}}, {{in.back()}});
      } else {
        in.push_back(update.listed[i] != 0 ? made_.at(operand).rows : operand);
      }
    }
    for (const ValueId made : node.outputs) out.push_back(new_rows(made, type(made).dtype, places, {}, true));
    rewrite_->add(*node.op, node.attrs, std::span(&update.node, 1), in, out);
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      const ValueId made = node.outputs[k];
      rewrite_->insert(structural().put_rows, Attrs(), update.node, {{replaces_.at(made), numbers, out[k]}}, {{made}});
    }
  }

  void add_rows(const ByRows& sum) {
    const Node& node = graph_.node(sum.node);
    const size_t at_list = sum.listed[0] != 0 ? 0 : 1;
    const List& list = made_.at(node.inputs[at_list]);
    rewrite_->add(structural().add_rows, Attrs(), std::span(&sum.node, 1),
                  {{node.inputs[1 - at_list], list.numbers, list.rows}}, node.outputs);
  }

  int64_t rows_of(const ByRows& update) const {
    const Node& node = graph_.node(update.node);
    const auto listed = std::ranges::find(update.listed, 1) - update.listed.begin();
    return plans_.at(node.inputs[static_cast<size_t>(listed)]).places;
  }

  const Program& program_;
  const Graph& graph_;
  const PassOptions& options_;
  std::optional<Rewrite> rewrite_;  // where there is something to do
  Readers readers_;
  std::vector<char> asked_;  // by value, whether it can be a list; those that can are in plans_
  std::set<ValueId> is_output_;
  std::map<ValueId, ValueId> replaces_;  // by output, the input
  std::unordered_map<ValueId, ListPlan> plans_;
  std::map<NodeId, ByRows> updates_, sums_;
  std::map<ValueId, List> made_;
  std::optional<std::vector<char>> on_host_;  // by node
  std::vector<Tier> homes_;                   // of inputs
  std::vector<TensorType> in_types_, out_types_;
};

}  // namespace

namespace pass {
extern const Pass sparse_updates{
    .name = "sparse_updates",
    .doc = "tables of which a step reads few rows are updated by these alone",
    .run =
        [](Program program, const PassOptions& o) {
          const auto begins_list = [](const Node& node) { return def_of(node).as_rows.has_value(); };
          if (std::ranges::none_of(program.graph.nodes(), begins_list)) return program;
          SparseUpdates updates(program, o);
          return updates.any() ? updates.run() : std::move(program);
        },
};
}  // namespace pass

}  // namespace trireme
