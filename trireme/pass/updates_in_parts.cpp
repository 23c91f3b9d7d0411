// Updates of large tensors whose homes are elsewhere, in parts: of the parameter and the optimizer's state that lie
// there only the rows of one part are on the device at a time, which come from home and go back. An update on the host
// begins when the first rows of the gradient are there, and writes each row over that which it replaces.
//
// Before: an update reads all of a parameter, its gradient and its state, which is the most that a step has on the
// device where these are large. After: it is an update for each few rows. A part is a look at its rows where the whole
// lies, and what replaces the whole is joined from parts that are made where they belong, so nothing is copied for it.
// Rows of an update depend on the same rows alone, so no bit changes. What others read after the update, or what it
// makes for others than the next step, stays whole.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/op/build.h"
#include "trireme/op/overwrites.h"
#include "trireme/op/row_steps.h"
#include "trireme/op/structural.h"
#include "trireme/pass/host_inputs.h"
#include "trireme/pass/passes.h"
#include "trireme/pass/rewrite.h"

namespace trireme {
namespace {

// Parts begin at a multiple of so many bytes in their whole: a file's sectors are of one part alone, and so are lines
// of the cache.
constexpr int64_t kOnDisk = 4096, kInMemory = 64;

struct InParts {
  NodeId update = -1;
  std::vector<char> by_row;    // operands
  std::vector<int64_t> sizes;  // rows of each part
};

class UpdatesInParts {
 public:
  UpdatesInParts(const Program& program, const PassOptions& options)
      : graph_(program.graph),
        most_bytes_(options.tier_ways.update_part.bytes()),
        rewrite_(program),
        readers_(graph_.values().size()),
        replaces_(graph_.values().size(), kNoValue),
        on_host_(nodes_for_host(graph_, options.on_host)) {
    const std::vector<Tier> homes = homes_of_inputs(graph_, options.homes, on_host_);
    for (size_t i = 0; i < homes.size(); ++i) {
      if (homes[i] != Tier::kDevice) elsewhere_.emplace(graph_.inputs()[i].value, homes[i]);
    }
    if (elsewhere_.empty()) return;
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      for (const ValueId operand : graph_.node(id).inputs) readers_[at(operand)].push_back(id);
    }
    for (const Output& output : graph_.outputs()) {
      ValueId& replaced = replaces_[at(output.value)];
      replaced = replaced == kNoValue && readers_[at(output.value)].empty() ? output.updates : kNoValue;
    }
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      if (std::optional<InParts> update = in_parts(id)) updates_.push_back(std::move(*update));
    }
  }

  bool any() const { return !updates_.empty(); }

  Program run() {
    for (const InParts& update : updates_) look_at_inputs(update);
    auto next = updates_.begin();
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      if (next == updates_.end() || next->update != id)
        rewrite_.copy(id);
      else
        put_in_parts(*next++);
    }
    for (const auto& [update, parts, whole] : made_)
      rewrite_.insert(structural().join, Attrs(), update, parts, std::span(&whole, 1));
    return rewrite_.finish();
  }

 private:
  struct Made {
    NodeId update = -1;
    std::vector<ValueId> parts;
    ValueId whole = kNoValue;
  };
  static size_t at(int32_t id) { return static_cast<size_t>(id); }
  const TensorType& type(ValueId id) const { return graph_.type(id); }

  std::vector<TensorType> types_of(std::span<const ValueId> values) const {
    std::vector<TensorType> out;
    for (const ValueId value : values) out.push_back(type(value));
    return out;
  }

  static TensorType with_rows(TensorType whole, int64_t rows) {
    whole.shape[0] = rows;
    return whole;
  }

  bool is_input(ValueId id) const { return graph_.value(id).producer < 0; }

  std::optional<InParts> in_parts(NodeId id) const {
    const Node& node = graph_.node(id);
    if (node.phase != Phase::kUpdate || node.outputs.empty() || def_of(node).collective) return {};
    bool is_elsewhere = false, is_on_disk = false;
    for (const ValueId made : node.outputs) {
      const ValueId replaced = replaces_[at(made)];
      if (replaced == kNoValue || type(made) != type(node.outputs[0])) return {};
      if (std::ranges::count(node.inputs, replaced) != 1 || is_read_later(replaced, id)) return {};
      const auto home = elsewhere_.find(replaced);
      is_elsewhere = is_elsewhere || home != elsewhere_.end();
      is_on_disk = is_on_disk || (home != elsewhere_.end() && home->second == Tier::kDisk);
    }
    if (!is_elsewhere) return {};
    InParts out{.update = id, .by_row = {}, .sizes = sizes_of(type(node.outputs[0]), is_on_disk ? kOnDisk : kInMemory)};
    if (out.sizes.size() < 2) return {};
    const std::optional<RowOp> rows = works_on_rows(node, out.sizes[0]);
    if (!rows || (on_host_[at(id)] != 0 && !writes_in_place(node))) return {};
    out.by_row = rows->by_row;
    return out;
  }

  // Such that parts are at most so large, where they can be, and begin where they may.
  std::vector<int64_t> sizes_of(const TensorType& whole, int64_t begin_bytes) const {
    if (most_bytes_ == 0 || whole.bytes() <= most_bytes_ || whole.shape.rank() == 0) return {};
    const int64_t row_bytes = whole.bytes() / whole.shape[0];
    const int64_t together = begin_bytes / std::gcd(begin_bytes, row_bytes);
    const int64_t rows = std::max<int64_t>(1, most_bytes_ / row_bytes / together) * together;
    std::vector<int64_t> out;
    for (int64_t left = whole.shape[0]; left > 0; left -= rows) out.push_back(std::min(rows, left));
    return out;
  }

  // Which operands have rows, where each row of the results depends on the same row of these alone.
  std::optional<RowOp> works_on_rows(const Node& node, int64_t rows) const {
    const OpDef& op = def_of(node);
    std::vector<TensorType> in = types_of(node.inputs), out = types_of(node.outputs);
    try {
      std::optional<RowOp> found = along_rows(op, {in, out, node.attrs});
      if (!found || found->sums) return {};
      for (size_t i = 0; i < in.size(); ++i) {
        if (found->by_row[i] == 0) continue;
        if (in[i].shape != out[0].shape) return {};
        in[i] = with_rows(in[i], rows);
      }
      for (TensorType& made : out) made = with_rows(made, rows);
      const auto replaced_by_row = [&](ValueId made) {
        return found->by_row[static_cast<size_t>(std::ranges::find(node.inputs, replaces_[at(made)]) -
                                                 node.inputs.begin())] != 0;
      };
      const bool fits = std::ranges::all_of(node.outputs, replaced_by_row) && result_types(op, in, node.attrs) == out;
      return fits ? found : std::nullopt;
    } catch (const Error&) {
      return {};  // the attributes are of another shape
    }
  }

  // Each result over what it replaces, which no other result is written over.
  bool writes_in_place(const Node& node) const {
    const std::vector<TensorType> in = types_of(node.inputs), out = types_of(node.outputs);
    const std::vector<std::pair<int, int>> may = overwrites_of(def_of(node), {in, out, node.attrs});
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      const auto replaced = std::ranges::find(node.inputs, replaces_[at(node.outputs[k])]) - node.inputs.begin();
      if (std::ranges::count(may, std::pair(static_cast<int>(k), static_cast<int>(replaced))) == 0) return false;
    }
    return true;
  }

  // By another op than the update, which would find it replaced: after it, or in the background.
  bool is_read_later(ValueId id, NodeId update) const {
    return std::ranges::any_of(readers_[at(id)], [&](NodeId reader) {
      if (reader == update) return false;
      if (reader > update) return true;
      const Node& node = graph_.node(reader);
      const bool goes_on = is_communication(def_of(node)) || def_of(node).traits.message ||
                           def_of(node).traits.zero_cost_view || on_host_[at(reader)] != 0;
      if (!goes_on) return false;
      return node.outputs.empty() || std::ranges::any_of(node.outputs, [&](ValueId made) {
               return readers_[at(made)].empty() || is_read_later(made, update) || is_output(made);
             });
    });
  }

  bool is_output(ValueId id) const {
    return std::ranges::any_of(graph_.outputs(), [&](const Output& output) { return output.value == id; });
  }

  // A part of a value, cut as its update is.
  ValueId look(ValueId whole, NodeId update, int64_t first, int64_t rows) {
    const ValueId out = new_part(whole, rows);
    rewrite_.insert(structural().part, Attrs::of(PartAttrs{first, rows}), update, std::span(&whole, 1),
                    std::span(&out, 1));
    return out;
  }

  ValueId new_part(ValueId whole, int64_t rows) { return rewrite_.new_value(with_rows(type(whole), rows)); }

  // What is there from the start is looked at before all ops, so that it may come early.
  void look_at_inputs(const InParts& update) {
    const Node& node = graph_.node(update.update);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (update.by_row[i] != 0 && is_input(node.inputs[i])) look_at_all(node.inputs[i], update);
    }
  }

  void look_at_all(ValueId whole, const InParts& update) {
    std::vector<ValueId>& parts = parts_[whole];
    if (!parts.empty()) return;
    int64_t first = 0;
    for (const int64_t rows : update.sizes) {
      parts.push_back(look(whole, update.update, first, rows));
      first += rows;
    }
  }

  void put_in_parts(const InParts& update) {
    const Node& node = graph_.node(update.update);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (update.by_row[i] != 0) look_at_all(node.inputs[i], update);
    }
    const size_t first_made = made_.size();
    for (const ValueId made : node.outputs) made_.push_back({update.update, {}, made});
    for (size_t part = 0; part < update.sizes.size(); ++part) {
      std::vector<ValueId> in, out;
      for (size_t i = 0; i < node.inputs.size(); ++i)
        in.push_back(update.by_row[i] != 0 ? parts_.at(node.inputs[i])[part] : node.inputs[i]);
      for (size_t k = 0; k < node.outputs.size(); ++k) {
        out.push_back(new_part(node.outputs[k], update.sizes[part]));
        made_[first_made + k].parts.push_back(out.back());
      }
      rewrite_.add(*node.op, node.attrs, std::span(&update.update, 1), in, out);
    }
  }

  const Graph& graph_;
  int64_t most_bytes_;
  Rewrite rewrite_;
  std::vector<std::vector<NodeId>> readers_;  // of values
  std::vector<ValueId> replaces_;             // per value: the one input that it is after the step, if nothing reads it
  std::vector<char> on_host_;                 // by node, whether it will run there
  std::map<ValueId, Tier> elsewhere_;         // inputs with another home than the device
  std::vector<InParts> updates_;
  std::map<ValueId, std::vector<ValueId>> parts_;  // of values of the old program
  std::vector<Made> made_;
};

}  // namespace

namespace pass {
extern const Pass updates_in_parts{
    .name = "updates_in_parts",
    .doc = "large tensors with other homes than the device are updated a few rows at a time",
    .asked_for = [](const PassOptions& o) { return !o.homes.empty() || o.on_host.is_asked_for(); },
    .by_homes = true,
    .run =
        [](Program program, const PassOptions& o) {
          UpdatesInParts updates(program, o);
          return updates.any() ? updates.run() : std::move(program);
        },
};
}  // namespace pass

}  // namespace trireme
