// Ops on a few bytes of what ranks exchanged wait until the rest of the step needs them.
//
// Before: a rank adds up one scalar after the other, each of them a sum over ranks (the norm by which gradients are
// clipped, where ranks keep slices of them), and each sum is read before the next can begin: as many all-reduces of
// four bytes as there are parameters. After: the ops that read the sums stand where the first op on more bytes needs
// what they make, so that no sum has been read when the next begins, and fuse_collectives, which comes later, takes
// them in one. What is exchanged of what was exchanged (a sum over the ranks of one axis, and then of another) waits
// with the rest, those exchanged equally often side by side.
//
// Ops that are done once a step wait, and sums that are seen in another shape; not what is done for each micro-batch,
// nor sums over them. Ops that read parameters or state stay, too: an update may overwrite these before they are
// reached.
//
// Updates whose last ops need such a sum of what their first ops make (the ratio of norms by which LAMB scales a step,
// where ranks have slices of a parameter) are done in a few groups: first what needs no sum of all in the group, then
// their sums, which are taken in one, then the rest. What has been made by then waits in the place of the gradients, an
// eighth of all such bytes at a time, and while one group's sums are on their way the next group is begun.
#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "trireme/ir/readers.h"
#include "trireme/op/op_def.h"
#include "trireme/op/structural.h"
#include "trireme/pass/passes.h"
#include "trireme/pass/rewrite.h"

namespace trireme {
namespace {

constexpr int64_t kFewBytes = 4096;  // less than what a collective takes to start, over any link

class LateSmallOps {
 public:
  explicit LateSmallOps(const Graph& graph) : graph_(graph), depth_(graph.nodes().size(), -1) {
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) depth_[at(id)] = depth_of(id);
  }

  // The nodes in the order in which they are done.
  std::vector<NodeId> order() const {
    const auto end = static_cast<NodeId>(graph_.nodes().size());
    constexpr int kAfter = std::numeric_limits<int>::max();
    const Readers readers(graph_);
    std::vector<NodeId> before(graph_.nodes().size(), end);  // the node that needs what it makes
    std::vector<Place> out;
    out.reserve(graph_.nodes().size());
    for (NodeId id = end; id-- > 0;) {
      const Node& node = graph_.node(id);
      if (!waits(id)) {
        before[at(id)] = id;
        out.push_back({id, kAfter, true, id});
        continue;
      }
      for (const ValueId made : node.outputs) {
        for (const NodeId reader : readers.of(made)) before[at(id)] = std::min(before[at(id)], before[at(reader)]);
      }
      out.push_back({before[at(id)], depth_[at(id)], !is_communication(def_of(node)), id});
    }
    std::ranges::sort(out);
    std::vector<NodeId> ids;
    ids.reserve(out.size());
    for (const Place& each : out) ids.push_back(each.id);
    return ids;
  }

 private:
  // What nodes are ordered by: the one that they stand before, and of several there how often they come after an
  // exchange.
  struct Place {
    NodeId before;
    int depth;
    bool is_local;
    NodeId id;
    friend auto operator<=>(const Place&, const Place&) = default;
  };

  static size_t at(int32_t id) { return static_cast<size_t>(id); }

  bool waits(NodeId id) const { return depth_[at(id)] >= 0; }

  bool is_small(const Node& node) const {
    const auto few = [&](ValueId id) { return graph_.type(id).bytes() <= kFewBytes; };
    return std::ranges::all_of(node.inputs, few) && std::ranges::all_of(node.outputs, few);
  }

  bool may_be_overwritten(ValueId id) const {
    const Value& value = graph_.value(id);
    if (value.producer >= 0) return false;
    const Role role = graph_.inputs()[at(value.index)].role;
    return role == Role::kParameter || role == Role::kState;
  }

  // How many collectives that wait it comes after, itself among them; -1: it does not wait.
  int depth_of(NodeId id) const {
    const Node& node = graph_.node(id);
    const Traits& traits = def_of(node).traits;
    const bool may_wait = node.phase == Phase::kUpdate || (traits.zero_cost_view && node.micro_batch < 0);
    if (!may_wait || traits.message || !is_small(node)) return -1;
    int depth = -1;
    for (const ValueId operand : node.inputs) {
      if (may_be_overwritten(operand)) return -1;
      const NodeId producer = graph_.value(operand).producer;
      if (producer < 0) continue;
      const bool is_exchanged = is_communication(def_of(graph_.node(producer)));
      if (is_exchanged || waits(producer)) depth = std::max({depth, 0, depth_[at(producer)]});
    }
    return depth >= 0 && is_communication(def_of(node)) ? depth + 1 : depth;
  }

  const Graph& graph_;
  std::vector<int> depth_;
};

constexpr int64_t kGroups = 8;

class UpdatesInGroups {
 public:
  explicit UpdatesInGroups(const Graph& graph)
      : graph_(graph), depth_(depths()), waits_(graph.nodes().size(), 0), until_(graph.nodes().size(), -1) {
    find_waiting();
  }

  // The nodes in the order in which they are done.
  std::vector<NodeId> order() {
    const int64_t all = std::accumulate(waits_.begin(), waits_.end(), int64_t{0});
    int64_t waiting = 0;
    NodeId until = -1;  // the last that reads what waits
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      if (!is_update(id)) {
        order_.push_back(id);
        continue;
      }
      if (id > until && depth_[at(id)] == 0 && waiting * kGroups >= all) {
        end_group();
        waiting = 0;
      }
      waiting += waits_[at(id)];
      until = std::max(until, until_[at(id)]);
      group_.push_back(id);
    }
    end_group();
    return std::move(order_);
  }

 private:
  static size_t at(int32_t id) { return static_cast<size_t>(id); }

  bool is_update(NodeId id) const { return depth_[at(id)] >= 0; }
  bool is_small(ValueId id) const { return graph_.type(id).bytes() <= kFewBytes; }
  bool is_small_sum(const Node& node) const {
    return does(node, ReshardStep::Kind::kAllReduce) &&
           std::ranges::all_of(node.inputs, [&](ValueId id) { return is_small(id); });
  }

  // Of the ops that read parameters or their state, and of all that read what they make, how many sums of a few bytes
  // one comes after, itself among them; -1: of others.
  std::vector<int> depths() const {
    std::vector<char> is_replaced(graph_.values().size(), 0);
    for (const Update& update : graph_.updates()) {
      is_replaced[at(update.parameter)] = 1;
      for (const ValueId state : update.states) is_replaced[at(state)] = 1;
    }
    std::vector<int> out;
    for (const Node& node : graph_.nodes()) {
      int depth = -1;
      for (const ValueId operand : node.inputs) {
        const NodeId producer = graph_.value(operand).producer;
        if (node.phase == Phase::kUpdate && is_replaced[at(operand)] != 0) depth = std::max(depth, 0);
        if (producer >= 0) depth = std::max(depth, out[at(producer)]);
      }
      out.push_back(depth >= 0 && is_small_sum(node) ? depth + 1 : depth);
    }
    return out;
  }

  // What ops make for others that come after more sums.
  void find_waiting() {
    std::vector<char> is_counted(graph_.values().size(), 0);
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      for (const ValueId operand : graph_.node(id).inputs) {
        const NodeId producer = graph_.value(operand).producer;
        const bool waits = producer >= 0 && is_update(producer) && depth_[at(id)] > depth_[at(producer)];
        if (!waits || is_small(operand)) continue;
        until_[at(producer)] = id;
        if (std::exchange(is_counted[at(operand)], 1) == 0) waits_[at(producer)] += graph_.type(operand).bytes();
      }
    }
  }

  void end_group() {
    const auto place = [&](NodeId id) { return std::tuple(depth_[at(id)], !is_small_sum(graph_.node(id)), id); };
    std::ranges::sort(group_, {}, place);
    order_.insert(order_.end(), group_.begin(), group_.end());
    group_.clear();
  }

  const Graph& graph_;
  std::vector<int> depth_;
  std::vector<int64_t> waits_;  // by op, the bytes that it makes for them
  std::vector<NodeId> until_;   // by op, the last of them; -1: none
  std::vector<NodeId> order_, group_;
};

Program in_order(Program program, const std::vector<NodeId>& order) {
  if (std::ranges::is_sorted(order)) return program;
  Rewrite rewrite(program);
  for (const NodeId id : order) rewrite.copy(id);
  return rewrite.finish();
}

Program reordered(Program program) {
  std::vector<NodeId> order = LateSmallOps(program.graph).order();
  program = in_order(std::move(program), order);
  order = UpdatesInGroups(program.graph).order();
  return in_order(std::move(program), order);
}

}  // namespace

namespace pass {
extern const Pass late_small_ops{
    .name = "late_small_ops",
    .doc = "ops on a few bytes of what ranks exchanged wait until the rest of the step needs them",
    .run = [](Program program, const PassOptions&) { return reordered(std::move(program)); },
};
}  // namespace pass

}  // namespace trireme
