// Slices of what ranks exchanged wait as long as its other readers do.
//
// Before: a rank cuts its slice off a whole gradient as soon as ranks have summed it (ZeRO 1 beside clipping: the norm
// reads the whole, the update a slice), so that it waits for the sum, which nothing hides then, and sums that would go
// together go alone. After: it cuts it off when somebody else reads the whole, which lives as long either way, or when
// the slice is read. Sums are fused after it, as their first readers bound what goes together. A value that another
// stage of a pipeline sends is asked for a unit before it is read; without this a slice that is kept of it
// (slice_kept.cpp) would wait for it there.
#include <map>
#include <optional>
#include <vector>

#include "trireme/op/structural.h"
#include "trireme/pass/passes.h"
#include "trireme/pass/rewrite.h"

namespace trireme {
namespace {

// Cuts a rank's piece off, or sizes it, and moves nothing between ranks.
bool cuts_off(const Node& node) {
  return node.inputs.size() == 1 &&
         (does(node, ReshardStep::Kind::kSlice) || node.op == &structural().slice || node.op == &structural().pad);
}

bool is_exchanged(const Node& node) {
  return is_communication(def_of(node)) || node.op == &structural().recv;
}

class LateSlices {
 public:
  explicit LateSlices(const Program& program)
      : program_(program), graph_(program.graph), whole_(graph_.values().size(), kNoValue) {
    const auto end = static_cast<NodeId>(graph_.nodes().size());
    std::vector<NodeId> last_reader(graph_.values().size(), -1);  // that cuts nothing off
    for (NodeId id = 0; id < end; ++id) {
      const Node& node = graph_.node(id);
      if (cuts_off(node)) continue;
      for (const ValueId operand : node.inputs) {
        if (is_soon(node, operand)) last_reader[at(operand)] = id;
      }
    }
    for (NodeId id = 0; id < end; ++id) {
      const Node& node = graph_.node(id);
      if (!cuts_off(node)) continue;
      const ValueId from = node.inputs[0];
      const NodeId made_by = graph_.value(from).producer;
      if (made_by < 0) continue;
      ValueId whole = whole_[at(from)];
      if (is_exchanged(graph_.node(made_by))) whole = from;
      if (whole == kNoValue || last_reader[at(whole)] < id || node.phase != graph_.node(made_by).phase) continue;
      whole_[at(node.outputs[0])] = whole;
      any_ = true;
    }
  }

  bool any() const { return any_; }

  Program run() {
    rewrite_.emplace(program_);
    const auto end = static_cast<NodeId>(graph_.nodes().size());
    for (NodeId id = 0; id < end; ++id) {
      const Node& node = graph_.node(id);
      if (node.phase == Phase::kUpdate) put_all();
      if (const ValueId whole = may_wait(node) ? whole_[at(node.outputs[0])] : kNoValue; whole != kNoValue) {
        waiting_[whole].push_back(id);
      } else {
        for (const ValueId operand : node.inputs) {
          put(operand);
          if (whole_[at(operand)] != kNoValue) put(whole_[at(operand)]);
        }
        rewrite_->copy(id);
      }
    }
    put_all();
    return rewrite_->finish();
  }

 private:
  static size_t at(int32_t id) { return static_cast<size_t>(id); }
  bool may_wait(const Node& node) const { return cuts_off(node) && whole_[at(node.outputs[0])] != kNoValue; }

  // A slice may wait for this reader: of the phase that makes the value, or of the updates. What the backward pass
  // reads of the forward pass would keep the whole until then.
  bool is_soon(const Node& reader, ValueId operand) const {
    const NodeId made_by = graph_.value(operand).producer;
    return made_by >= 0 && (reader.phase == graph_.node(made_by).phase || reader.phase == Phase::kUpdate);
  }

  // What waits for another reader of this value.
  void put(ValueId whole) {
    const auto found = waiting_.find(whole);
    if (found == waiting_.end()) return;
    for (const NodeId id : found->second) rewrite_->copy(id);
    waiting_.erase(found);
  }

  void put_all() {
    while (!waiting_.empty()) put(waiting_.begin()->first);
  }

  const Program& program_;
  const Graph& graph_;
  std::optional<Rewrite> rewrite_;
  std::vector<ValueId> whole_;  // of what is cut off something exchanged: that, where others read it too
  std::map<ValueId, std::vector<NodeId>> waiting_;
  bool any_ = false;
};

}  // namespace

namespace pass {
extern const Pass late_slices{
    .name = "late_slices",
    .doc = "slices of what ranks exchanged wait as long as its other readers do",
    .run =
        [](Program program, const PassOptions&) {
          LateSlices slices(program);
          return slices.any() ? slices.run() : std::move(program);
        },
};
}  // namespace pass

}  // namespace trireme
