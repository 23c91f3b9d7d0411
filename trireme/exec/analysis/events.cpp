#include "trireme/exec/analysis/events.h"

#include <algorithm>
#include <array>
#include <map>

#include "trireme/base/error.h"
#include "trireme/op/call_kinds.h"
#include "trireme/op/message.h"
#include "trireme/op/rank_groups.h"
#include "trireme/op/structural.h"

namespace trireme {
namespace {

std::string types_text(const ExecutionPlan& plan, std::span<const int> values) {
  std::string out;
  for (const int id : values) {
    const TensorType& type = plan.values[static_cast<size_t>(id)].type;
    out += fmt::format("{}{} x {}", out.empty() ? "" : ", ", to_string(type.dtype), type.elements());
  }
  return out;
}

// Beside the op and the operands: " by sum", " from 2".
std::string terms_of(const OpDef& op, const Attrs& attrs) {
  switch (op.collective->work) {
    case GroupWork::kAllReduce:
    case GroupWork::kReduceScatter:
      return fmt::format(" by {}", to_string(op.collective->call(attrs).reduction));
    case GroupWork::kRingShift:
      return fmt::format(" by {}", op.collective->call(attrs).shift);
    case GroupWork::kBroadcast:
      return fmt::format(" from {}", op.collective->call(attrs).root);
    case GroupWork::kExchange:
      return " as " + attrs.text();
    case GroupWork::kCut:
    case GroupWork::kAllGather:
    case GroupWork::kAllToAll:
      return "";
  }
  return "";
}

// What all who take part in it must say alike.
std::string what_of(const ExecutionPlan& plan, const Action& action) {
  if (is_message(*action.op)) return types_text(plan, action.in.empty() ? action.out : action.in);
  return fmt::format("{} of {}", action.op->name, types_text(plan, action.in)) + terms_of(*action.op, action.attrs);
}

// The same of each kind of call once. Messages have attributes of their own, and say what their value is.
class Whats {
 public:
  explicit Whats(const ExecutionPlan& plan) : plan_(plan) {}

  const SharedText& of(const Action& action) {
    static const Attrs kNone;
    const bool is_one = is_message(*action.op);
    const Few<int, 4>& values = action.in.empty() ? action.out : action.in;
    const auto type_of = [&](int id) -> const TensorType& { return plan_.values[static_cast<size_t>(id)].type; };
    const int kind = kinds_.of(*action.op, is_one ? kNone : action.attrs, values, {}, type_of);
    return texts_.get(kind, [&] { return SharedText(what_of(plan_, action)); });
  }

 private:
  const ExecutionPlan& plan_;
  CallKinds kinds_;
  OfKind<SharedText> texts_;
};

CommCall::Kind kind_of(const Action& action) {
  if (is_message(*action.op)) {
    return message_of(*action.op, action.attrs).sends ? CommCall::Kind::kSend : CommCall::Kind::kRecv;
  }
  return action.op->collective->work == GroupWork::kExchange ? CommCall::Kind::kExchange : CommCall::Kind::kCollective;
}

// The calls of one rank or crew; `ranks_of` gives those that take part in an action, none where this one does not.
template <class RanksOf>
std::vector<CommCall> calls_by(const ExecutionPlan& plan, RanksOf&& ranks_of) {
  std::vector<CommCall> out;
  std::vector<int> call_of(plan.actions.size(), -1);  // -1 once it is known to have ended
  std::vector<int> waits;
  Whats whats(plan);
  for (size_t i = 0; i < plan.actions.size(); ++i) {
    const Action& action = plan.actions[i];
    for (const int wait : action.waits) {
      int& call = call_of[static_cast<size_t>(wait)];
      if (call >= 0) waits.push_back(call);
      call = -1;
    }
    if (!communicates(action.lane)) continue;
    CommCall call{.ranks = ranks_of(action), .what = {}};
    if (call.ranks.empty()) continue;
    call.what = whats.of(action);
    call.action = static_cast<int>(i);
    call.scope = action.scope;
    call.kind = kind_of(action);
    if (is_message(*action.op)) call.tag = message_of(*action.op, action.attrs).tag;
    call.waits = std::move(waits);
    waits.clear();
    call_of[i] = static_cast<int>(out.size());
    out.push_back(std::move(call));
  }
  return out;
}

std::vector<int> ends_of(const Message& message, int here, int there) {
  return message.sends ? std::vector<int>{here, there} : std::vector<int>{there, here};
}

}  // namespace

std::string communication_text(const ExecutionPlan& plan, const Action& action) {
  return is_message(*action.op) ? fmt::format("{} of {}", action.op->name, what_of(plan, action))
                                : what_of(plan, action);
}

std::vector<CommCall> calls_of(const ExecutionPlan& plan, int64_t rank) {
  const int64_t devices = plan.mesh.devices();
  const auto world_rank = [&](int64_t crew, int64_t of_mesh) { return static_cast<int>(crew * devices + of_mesh); };
  return calls_by(plan, [&](const Action& action) {
    if (is_message(*action.op)) {
      const Message message = message_of(*action.op, action.attrs);
      return ends_of(message, world_rank(plan.crew, rank), world_rank(message.crew, rank));
    }
    std::vector<int> ranks;
    for (const int64_t member : groups_of(*action.op, action.attrs).of(rank, plan.mesh)) {
      ranks.push_back(world_rank(plan.crew, member));
    }
    return ranks;
  });
}

Calls calls_of_crews(std::span<const ExecutionPlan* const> crews) {
  Calls out;
  for (const ExecutionPlan* plan : crews) {
    out.push_back(calls_by(*plan, [&](const Action& action) {
      if (!is_message(*action.op)) return std::vector<int>{plan->crew};
      const Message message = message_of(*action.op, action.attrs);
      return ends_of(message, plan->crew, static_cast<int>(message.crew));
    }));
  }
  return out;
}

EventGraph::EventGraph(const Calls& calls) {
  for (const std::vector<CommCall>& of_one : calls) {
    first_.push_back(starts_);
    starts_ += static_cast<int>(of_one.size());
  }
  find_operations(calls);
  add_edges(calls);
  sort();
}

// The k-th call of a member on a communicator is of the k-th operation there, and the k-th send of a tag meets the k-th
// receipt.
void EventGraph::find_operations(const Calls& calls) {
  struct Communicator {
    std::vector<int> operations;
    int in_turn = -1;  // the last of those that wait their turn
  };
  using Key = std::pair<std::vector<int>, int64_t>;  // the ranks, and the tag of messages; -1 for collectives
  std::map<Key, int> ids;
  std::vector<Communicator> communicators;
  operation_.resize(static_cast<size_t>(starts_));
  for (size_t who = 0; who < calls.size(); ++who) {
    std::map<std::pair<int, bool>, size_t> seen;  // by communicator, and for messages by direction
    for (size_t k = 0; k < calls[who].size(); ++k) {
      const CommCall& call = calls[who][k];
      const bool is_send = call.kind == CommCall::Kind::kSend;
      const bool is_of_group = call.kind == CommCall::Kind::kCollective || call.kind == CommCall::Kind::kExchange;
      const auto [id, is_new] =
          ids.try_emplace(Key{call.ranks, is_of_group ? -1 : call.tag}, static_cast<int>(communicators.size()));
      if (is_new) communicators.emplace_back();
      Communicator& communicator = communicators[static_cast<size_t>(id->second)];
      const size_t number = seen[{id->second, is_send}]++;
      if (number == communicator.operations.size()) {
        communicator.operations.push_back(operations());
        turn_after_.push_back(call.kind == CommCall::Kind::kCollective ? communicator.in_turn : -1);
        if (call.kind == CommCall::Kind::kCollective) communicator.in_turn = operations();
        members_.emplace_back();
      }
      const int operation = communicator.operations[number];
      const Start start{static_cast<int>(who), static_cast<int>(k)};
      operation_[static_cast<size_t>(node_of(start))] = operation;
      members_[static_cast<size_t>(operation)].push_back(start);
    }
  }
}

void EventGraph::add_edges(const Calls& calls) {
  const int nodes = starts_ + operations();
  std::vector<std::array<int, 2>> pairs;
  pairs.reserve(static_cast<size_t>(starts_) * 2 + static_cast<size_t>(nodes));
  for (size_t who = 0; who < calls.size(); ++who) {
    for (size_t k = 0; k < calls[who].size(); ++k) {
      const int node = node_of({static_cast<int>(who), static_cast<int>(k)});
      if (k > 0) pairs.push_back({node - 1, node});
      pairs.push_back({node, starts_ + operation_[static_cast<size_t>(node)]});
      for (const int wait : calls[who][k].waits) {
        const int before = node_of({static_cast<int>(who), wait});
        pairs.push_back({starts_ + operation_[static_cast<size_t>(before)], node});
      }
    }
  }
  for (int operation = 0; operation < operations(); ++operation) {
    const int before = turn_after_[static_cast<size_t>(operation)];
    if (before >= 0) pairs.push_back({starts_ + before, starts_ + operation});
  }
  edge_begin_.assign(static_cast<size_t>(nodes) + 1, 0);
  left_.assign(static_cast<size_t>(nodes), 0);
  for (const auto& [from, to] : pairs) {
    ++edge_begin_[static_cast<size_t>(from) + 1];
    ++left_[static_cast<size_t>(to)];
  }
  for (size_t i = 1; i < edge_begin_.size(); ++i) edge_begin_[i] += edge_begin_[i - 1];
  std::vector<int> at(edge_begin_.begin(), edge_begin_.end() - 1);
  edges_.resize(pairs.size());
  for (const auto& [from, to] : pairs) edges_[static_cast<size_t>(at[static_cast<size_t>(from)]++)] = to;
}

void EventGraph::sort() {
  std::vector<int> ready;
  ready.reserve(left_.size());
  for (size_t node = 0; node < left_.size(); ++node) {
    if (left_[node] == 0) ready.push_back(static_cast<int>(node));
  }
  for (size_t next = 0; next < ready.size(); ++next) {
    const auto node = static_cast<size_t>(ready[next]);
    if (!is_end(ready[next])) order_.push_back(start_of(ready[next]));
    for (int e = edge_begin_[node]; e < edge_begin_[node + 1]; ++e) {
      const int to = edges_[static_cast<size_t>(e)];
      if (--left_[static_cast<size_t>(to)] == 0) ready.push_back(to);
    }
  }
}

EventGraph::Start EventGraph::start_of(int node) const {
  const auto next = std::upper_bound(first_.begin(), first_.end(), node);
  const auto who = static_cast<int>(next - first_.begin()) - 1;
  return {who, node - first_[static_cast<size_t>(who)]};
}

int EventGraph::operation_of(Start start) const {
  return operation_[static_cast<size_t>(node_of(start))];
}

int EventGraph::call_of(int who, int operation) const {
  for (const Start& member : members_[static_cast<size_t>(operation)]) {
    if (member.who == who) return member.call;
  }
  invariant(false, "{} takes no part in operation {}", who, operation);
  return -1;
}

// Walks backward from any event that never happens, along such events, until one is met again.
std::vector<EventGraph::Blocked> EventGraph::circle() const {
  if (static_cast<int>(order_.size()) == starts_) return {};
  std::vector<int> before(left_.size(), -1);
  for (size_t node = 0; node < left_.size(); ++node) {
    if (left_[node] == 0) continue;
    for (int e = edge_begin_[node]; e < edge_begin_[node + 1]; ++e) {
      before[static_cast<size_t>(edges_[static_cast<size_t>(e)])] = static_cast<int>(node);
    }
  }
  const auto any = std::find_if(left_.begin(), left_.end(), [](int n) { return n > 0; });
  int at = static_cast<int>(any - left_.begin());
  std::vector<char> met(left_.size(), 0);
  for (; met[static_cast<size_t>(at)] == 0; at = before[static_cast<size_t>(at)]) met[static_cast<size_t>(at)] = 1;
  while (!is_end(at)) at = before[static_cast<size_t>(at)];
  std::vector<Blocked> out;  // from the end of an operation back to those that it comes after
  const int first = at;
  do {
    int earlier = before[static_cast<size_t>(at)];
    if (is_end(earlier)) {
      const Start member = members_[static_cast<size_t>(at - starts_)].front();
      out.push_back({member.who, member.call, call_of(member.who, earlier - starts_), true});
    } else {
      const Start start = start_of(earlier);
      while (!is_end(earlier)) earlier = before[static_cast<size_t>(earlier)];
      out.push_back({start.who, start.call, call_of(start.who, earlier - starts_), false});
    }
    at = earlier;
  } while (at != first);
  return out;
}

}  // namespace trireme
