#include "trireme/pass/fuse_rows.h"

#include <algorithm>
#include <map>

#include "trireme/base/error.h"
#include "trireme/base/few.h"
#include "trireme/ir/readers.h"
#include "trireme/op/call_kinds.h"
#include "trireme/op/row_steps.h"
#include "trireme/op/structural.h"
#include "trireme/pass/passes.h"
#include "trireme/pass/rewrite.h"

namespace trireme {
namespace {

constexpr size_t kMostSteps = 16;
constexpr int64_t kMostRowBytes = 64 << 10;  // of a value: a block has a row at least, and stays in the cache
constexpr int kMostProducts = 1;

// Nodes that become one, at the place of the last of them, or where that may not be, of the first, which is a product.
struct Group {
  Few<NodeId, 4> members;  // in order
  int row_dims = 0;
  int products = 0;
  bool at_first = false;

  NodeId place() const { return at_first ? members.front() : members.back(); }
};

class FuseRows {
 public:
  FuseRows(const Program& program, const PassOptions& options)
      : program_(program),
        product_bytes_(may_join_products(options) ? options.fused_product_bytes : -1),
        fused_products_(options.fused_products),
        graph_(program.graph),
        size_(graph_.nodes().size()),
        kind_of_(size_, -1),
        row_ops_(size_, nullptr),
        group_of_(size_),
        readers_(graph_),
        replaced_at_(graph_.values().size(), -1),
        is_output_(graph_.values().size(), 0),
        solid_before_(size_ + 1, 0) {
    look();
  }

  // Whether any nodes become one.
  bool look_for_groups() {
    for (NodeId id = 0; id < static_cast<NodeId>(size_); ++id) {
      if (row_op_of(id) == nullptr || row_op_of(id)->sums) continue;  // a product is the first of its group
      for (const ValueId operand : graph_.node(id).inputs) try_to_join(graph_.value(operand).producer, id);
    }
    return std::ranges::any_of(groups_, [](const Group& group) { return group.members.size() > 1; });
  }

  Program run() {
    Rewrite rewrite(program_);
    for (NodeId id = 0; id < static_cast<NodeId>(size_); ++id) {
      const Group* group = group_at(id);
      if (group == nullptr || group->members.size() == 1)
        rewrite.copy(id);
      else if (group->place() == id)
        emit(rewrite, *group);
    }
    return rewrite.finish();
  }

 private:
  static size_t at(int32_t id) { return static_cast<size_t>(id); }
  // How the node works on rows; null: it does not, or joining it with others would save no time.
  const RowOp* row_op_of(NodeId id) const { return row_ops_[at(id)]; }
  Group* group_at(NodeId id) { return row_op_of(id) != nullptr ? &groups_[group_of_[at(id)]] : nullptr; }

  void look() {
    for (const Output& output : graph_.outputs()) is_output_[at(output.value)] = 1;
    for (NodeId id = 0; id < static_cast<NodeId>(size_); ++id) {
      const Node& node = graph_.node(id);
      solid_before_[at(id) + 1] = solid_before_[at(id)] + (def_of(node).traits.zero_cost_view ? 0 : 1);
      row_ops_[at(id)] = fusable(node);
      if (row_op_of(id) == nullptr) continue;
      group_of_[at(id)] = groups_.size();
      groups_.push_back({{id}, row_op_of(id)->row_dims, row_op_of(id)->sums ? 1 : 0});
    }
    for (const Output& output : graph_.outputs()) {
      if (output.updates != kNoValue) replaced_at_[at(output.updates)] = graph_.value(output.value).producer;
    }
  }

  const RowOp* fusable(const Node& node) {
    if (node.phase == Phase::kUpdate) return nullptr;
    const int kind = kinds_.of(graph_, node);
    kind_of_[static_cast<size_t>(&node - graph_.nodes().data())] = kind;
    const std::optional<RowOp>& op = of_kind_.get(kind, [&] {
      const TypeArgs types = kinds_[kind].types();
      const std::optional<RowOp> cheap = cheap_row_op(*kinds_[kind].op, types);
      return cheap ? cheap : large_product(*kinds_[kind].op, types);
    });
    return op && (!op->sums || has_whole_rows(node, *op)) ? &*op : nullptr;
  }

  // Rules that say where single ops run, or where what they make is kept, are for products by themselves.
  static bool may_join_products(const PassOptions& options) {
    return options.on_host.rules.empty() && options.homes.empty() && !options.recompute.keeps_elsewhere();
  }

  // A product whose result does not stay in the cache.
  std::optional<RowOp> large_product(const OpDef& op, const TypeArgs& types) const {
    if (product_bytes_ < 0 || op.collective || types.in.size() != 2 || types.out.size() != 1) return std::nullopt;
    const DType dtype = types.out[0].dtype;
    const bool is_large = types.out[0].bytes() >= product_bytes_ && types.out[0].elements() > 0;
    if (!is_large || std::ranges::find(fused_products_, dtype) == fused_products_.end()) return std::nullopt;
    if (types.in[0].dtype != dtype || types.in[1].dtype != dtype) return std::nullopt;
    return product_on_rows(op, types);
  }

  // Whether the sums are whole here: those of pieces are taken by kernels that know where the pieces lie.
  bool has_whole_rows(const Node& node, const RowOp& op) const {
    const Shape& here = graph_.type(node.inputs[0]).shape;
    const std::shared_ptr<const PartOf>& part = program_.part_of(node.inputs[0]);
    const Shape& whole = part ? part->whole : *program_.whole[at(node.inputs[0])];
    for (int dim = op.row_dims; dim < here.rank(); ++dim) {
      if (here[dim] != whole[dim]) return false;
    }
    return true;
  }

  void try_to_join(NodeId first, NodeId last) {
    if (first < 0 || row_op_of(first) == nullptr || group_of_[at(first)] == group_of_[at(last)]) return;
    Group& before = *group_at(first);
    Group& after = *group_at(last);
    if (graph_.node(first).phase != graph_.node(last).phase) return;  // a group is of one
    if (before.members.size() + after.members.size() > kMostSteps) return;
    if (before.products + after.products > kMostProducts) return;
    Group joined{{}, std::min(before.row_dims, after.row_dims), before.products + after.products};
    joined.members.reserve(before.members.size() + after.members.size());
    std::merge(before.members.begin(), before.members.end(), after.members.begin(), after.members.end(),
               std::back_inserter(joined.members));
    if (!rows_agree(joined)) return;
    const bool waits = !before.at_first && !after.at_first && can_wait(before, joined) && keeps_memory(before, joined);
    joined.at_first = !waits;
    if (!waits && !can_come_early(after, joined)) return;
    for (const NodeId id : joined.members) group_of_[at(id)] = group_of_[at(last)];
    after = std::move(joined);
  }

  // All members have the same rows, none so long that blocks leave the cache, and read what others of them make by
  // rows.
  bool rows_agree(const Group& group) {
    const Shape& first = graph_.type(graph_.node(group.members[0]).outputs[0]).shape;
    const int64_t rows = count_rows(first, group.row_dims);
    by_row_.clear();
    const auto known = [&](ValueId value) { return std::ranges::find(by_row_, value, &ByRow::value); };
    for (const NodeId id : group.members) {
      const Node& node = graph_.node(id);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const bool own = row_op_of(id)->by_row[i] != 0;
        const auto found = known(node.inputs[i]);
        if (found == by_row_.end()) {
          by_row_.push_back({node.inputs[i], own});
        } else if (found->is_by_row != own) {
          return false;
        }
      }
      for (const ValueId out : node.outputs) {
        if (known(out) == by_row_.end()) by_row_.push_back({out, true});
      }
    }
    return std::ranges::all_of(by_row_, [&](const ByRow& each) {
      const TensorType& type = graph_.type(each.value);
      if (!each.is_by_row) return true;
      return std::equal(first.begin(), first.begin() + group.row_dims, type.shape.begin()) &&
             type.bytes() <= rows * kMostRowBytes;
    });
  }

  // Whether the members of `before` may run at the end of `joined`: nobody needs them earlier, and nothing replaces by
  // then what they read.
  bool can_wait(const Group& before, const Group& joined) const {
    const NodeId end = joined.members.back();
    for (const NodeId id : before.members) {
      for (const ValueId out : graph_.node(id).outputs) {
        for (const NodeId reader : readers_.of(out)) {
          if (reader < end && !std::binary_search(joined.members.begin(), joined.members.end(), reader)) return false;
        }
      }
      for (const ValueId operand : graph_.node(id).inputs) {
        if (const NodeId by = replaced_at_[at(operand)]; by > id && by < end) return false;
      }
    }
    return true;
  }

  // Whether waiting keeps no more bytes alive than the results would have been: operands that nobody else reads later.
  bool keeps_memory(const Group& before, const Group& joined) const {
    const NodeId begin = before.members.back();
    const NodeId end = joined.members.back();
    int between = solid_before_[at(end)] - solid_before_[at(begin) + 1];
    for (const NodeId id : joined.members) between -= id > begin && id < end ? 1 : 0;
    if (between == 0) return true;
    int64_t kept = 0;
    int64_t stored = 0;
    std::vector<ValueId> seen;
    for (const NodeId id : before.members) {
      for (const ValueId operand : graph_.node(id).inputs) {
        const bool counted = std::find(seen.begin(), seen.end(), operand) != seen.end();
        if (counted || is_inner(operand, before) || graph_.value(operand).producer < 0 || is_output_[at(operand)] != 0)
          continue;
        seen.push_back(operand);
        if (readers_.of(operand).back() < end) kept += graph_.type(operand).bytes();
      }
      for (const ValueId out : graph_.node(id).outputs) {
        const bool read = !readers_.of(out).empty() && readers_.of(out).back() >= end;
        if (read || is_output_[at(out)] != 0) stored += graph_.type(out).bytes();
      }
    }
    return kept <= stored;
  }

  // Whether the members of `after` may run where the first of `joined` does, a product: what they read is made by then,
  // and what they make takes no more memory than its result, which nobody else reads.
  bool can_come_early(const Group& after, const Group& joined) const {
    const NodeId first = joined.members.front();
    const ValueId product = graph_.node(first).outputs[0];
    if (!row_op_of(first)->sums || read_outside(product, joined)) return false;
    int64_t made = 0;
    for (const NodeId id : joined.members) {
      for (const ValueId operand : graph_.node(id).inputs) {
        if (graph_.value(operand).producer > first && !is_inner(operand, joined)) return false;
      }
      for (const ValueId out : graph_.node(id).outputs)
        made += read_outside(out, joined) ? graph_.type(out).bytes() : 0;
    }
    return !after.at_first && made <= graph_.type(product).bytes();
  }

  bool is_inner(ValueId value, const Group& group) const {
    const NodeId producer = graph_.value(value).producer;
    return producer >= 0 && std::binary_search(group.members.begin(), group.members.end(), producer);
  }

  bool read_outside(ValueId value, const Group& group) const {
    const std::span<const NodeId> readers = readers_.of(value);
    return is_output_[at(value)] != 0 || std::any_of(readers.begin(), readers.end(), [&](NodeId reader) {
             return !std::binary_search(group.members.begin(), group.members.end(), reader);
           });
  }

  void emit(Rewrite& rewrite, const Group& group) {
    number_values(group);
    if (out_.empty()) return;  // nobody reads any of it
    rewrite.add(structural().fused_rows, attrs_of(group), group.members, in_, out_);
  }

  // The operands of all members from 0 on, then what they make.
  void number_values(const Group& group) {
    numbers_.clear();
    in_.clear();
    out_.clear();
    results_.clear();
    const auto is_known = [&](ValueId id) { return std::ranges::find(in_, id) != in_.end(); };
    for (const NodeId id : group.members) {
      for (const ValueId operand : graph_.node(id).inputs) {
        if (!is_inner(operand, group) && !is_known(operand)) in_.push_back(operand);
      }
    }
    numbers_ = in_;
    for (const NodeId id : group.members) {
      for (const ValueId value : graph_.node(id).outputs) {
        if (read_outside(value, group)) {
          results_.push_back(static_cast<int>(numbers_.size()));
          out_.push_back(value);
        }
        numbers_.push_back(value);
      }
    }
  }

  int number_of(ValueId id) const { return static_cast<int>(std::ranges::find(numbers_, id) - numbers_.begin()); }

  // Written once for all groups of equal steps.
  const Attrs& attrs_of(const Group& group) {
    std::vector<int> key{group.row_dims, static_cast<int>(in_.size()), static_cast<int>(group.members.size())};
    for (const NodeId id : group.members) {
      key.push_back(kind_of_[at(id)]);
      for (const ValueId operand : graph_.node(id).inputs) key.push_back(number_of(operand));
    }
    key.insert(key.end(), results_.begin(), results_.end());
    const auto [found, is_new] = attrs_.try_emplace(std::move(key));
    if (is_new) found->second = Attrs::of(to_attrs(steps_of(group)));
    return found->second;
  }

  RowSteps steps_of(const Group& group) const {
    RowSteps out{.row_dims = group.row_dims, .operands = static_cast<int>(in_.size())};
    for (const NodeId id : group.members) {
      const Node& node = graph_.node(id);
      RowStep& step = out.steps.emplace_back(RowStep{&def_of(node), node.attrs, {}, {}});
      for (const ValueId operand : node.inputs) step.in.push_back(number_of(operand));
      for (const ValueId value : node.outputs) step.out.push_back(number_of(value));
    }
    out.results = results_;
    return out;
  }

  // Whether those that are joined read the value by rows, or make it.
  struct ByRow {
    ValueId value = kNoValue;
    bool is_by_row = false;
  };

  const Program& program_;
  int64_t product_bytes_;  // as PassOptions::fused_product_bytes; -1: no product is joined
  const std::vector<DType>& fused_products_;
  const Graph& graph_;
  size_t size_;
  std::vector<ByRow> by_row_;  // of the group that is looked at
  CallKinds kinds_;
  std::vector<int> kind_of_;  // of nodes that may be joined
  OfKind<std::optional<RowOp>> of_kind_;
  std::map<std::vector<int>, Attrs> attrs_;  // of fused ops, by their steps
  std::vector<const RowOp*> row_ops_;        // of nodes
  std::vector<size_t> group_of_;             // of nodes that have one
  std::vector<Group> groups_;
  Readers readers_;
  std::vector<NodeId> replaced_at_;  // of inputs: the node that makes their next value
  std::vector<char> is_output_;
  std::vector<int> solid_before_;  // nodes that take time, before each
  // Of the group that becomes one: operands, results, all values by their numbers, and the numbers of results.
  std::vector<ValueId> in_, out_, numbers_;
  std::vector<int> results_;
};

}  // namespace

std::string fused_text(const Program& program) {
  std::string out;
  for (const Node& node : program.graph.nodes()) {
    if (node.op != &structural().fused_rows) continue;
    const RowSteps steps = parse_row_steps(node.attrs.as<FusedRowsAttrs>());
    std::string names;
    for (const RowStep& step : steps.steps) names += fmt::format("{}{}", names.empty() ? "" : ", ", step.op->name);
    out += fmt::format("fused {} ops at '{}': {}\n", steps.steps.size(), program.graph.scope_of(node), names);
  }
  return out;
}

namespace pass {
extern const Pass fuse_rows{
    .name = "fuse_rows",
    .doc = "ops that work on rows of the same tensors become one, block by block",
    .run =
        [](Program program, const PassOptions& options) {
          FuseRows fusing(program, options);
          return fusing.look_for_groups() ? fusing.run() : std::move(program);
        },
};
}  // namespace pass

}  // namespace trireme
