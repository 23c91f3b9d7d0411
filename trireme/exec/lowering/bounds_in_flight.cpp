#include "trireme/exec/lowering/bounds_in_flight.h"

#include <algorithm>

#include "trireme/op/move.h"

namespace trireme {
namespace {

constexpr int64_t kLeastOnHost = 64 << 20, kLeastUnread = 64 << 20;

void add_wait(Action& action, int wait) {
  if (std::find(action.waits.begin(), action.waits.end(), wait) == action.waits.end()) action.waits.push_back(wait);
}

bool parts_what_it_reads(const Action& action) {
  return action.op->collective->work == GroupWork::kReduceScatter;
}

}  // namespace

BoundsInFlight::BoundsInFlight(const Graph& graph)
    : graph_(graph),
      is_waited_for_(graph.nodes().size(), 0),
      is_read_(graph.values().size(), 0),
      bytes_(graph.nodes().size(), 0) {
  const auto first = std::ranges::find_if(graph.nodes(), &Node::on_host);
  first_on_host_ = static_cast<NodeId>(first - graph.nodes().begin());
  int64_t all = 0;
  for (const Node& node : graph.nodes()) {
    all += node.on_host ? bytes_that_came(node) : 0;
    if (node.phase == Phase::kUpdate) continue;
    for (const ValueId id : node.inputs) is_read_[static_cast<size_t>(id)] = 1;
  }
  most_on_host_ = std::max(kLeastOnHost, all / 4);
}

int64_t BoundsInFlight::bytes_that_came(const Node& node) const {
  int64_t out = 0;
  for (const ValueId id : node.inputs) {
    const NodeId producer = graph_.value(id).producer;
    if (producer > first_on_host_ && is_move(def_of(graph_.node(producer)))) out += graph_.type(id).bytes();
  }
  return out;
}

void BoundsInFlight::forget_waited_for(std::vector<int>& under_way) {
  std::erase_if(under_way, [&](int action) { return is_waited_for_[static_cast<size_t>(action)] != 0; });
}

int64_t BoundsInFlight::bytes_of(const std::vector<int>& under_way) const {
  int64_t out = 0;
  for (const int action : under_way) out += bytes_[static_cast<size_t>(action)];
  return out;
}

void BoundsInFlight::bound(int number, Action& action, const Node& node, int64_t scratch_bytes) {
  if (action.lane == Lane::kComm) bound_two(number, action, scattering_, parts_what_it_reads(action));
  if (action.lane == Lane::kComm) bound_unread(number, action, node, scratch_bytes);
  if (action.lane == Lane::kOut) bound_two(number, action, leaving_, true);
  if (action.lane == Lane::kStore) bound_two(number, action, stored_, true);
  if (action.lane == Lane::kHost) bound_on_host(number, action, node);
  for (const int wait : action.waits) is_waited_for_[static_cast<size_t>(wait)] = 1;
}

void BoundsInFlight::bound_two(int number, Action& action, std::vector<int>& under_way, bool is_one) {
  forget_waited_for(under_way);
  if (under_way.size() >= 2) {
    add_wait(action, under_way.front());
    under_way.erase(under_way.begin());
  }
  if (is_one) under_way.push_back(number);
}

void BoundsInFlight::bound_unread(int number, Action& action, const Node& node, int64_t scratch_bytes) {
  const auto is_read = [&](ValueId id) { return is_read_[static_cast<size_t>(id)] != 0; };
  if (scratch_bytes == 0 || std::ranges::any_of(node.outputs, is_read)) return;
  forget_waited_for(unread_);
  bytes_[static_cast<size_t>(number)] = scratch_bytes;
  while (unread_.size() >= 2 && bytes_of(unread_) + scratch_bytes > kLeastUnread) {
    add_wait(action, unread_.front());
    unread_.erase(unread_.begin());
  }
  unread_.push_back(number);
}

void BoundsInFlight::bound_on_host(int number, Action& action, const Node& node) {
  forget_waited_for(on_host_);
  bytes_[static_cast<size_t>(number)] = bytes_that_came(node);
  while (!on_host_.empty() && bytes_of(on_host_) + bytes_[static_cast<size_t>(number)] > most_on_host_) {
    add_wait(action, on_host_.front());
    on_host_.erase(on_host_.begin());
  }
  on_host_.push_back(number);
}

}  // namespace trireme
