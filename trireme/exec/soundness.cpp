#include "trireme/exec/soundness.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "trireme/base/error.h"
#include "trireme/exec/collective.h"
#include "trireme/op/build.h"
#include "trireme/op/rank_groups.h"

namespace trireme {
namespace {

using Findings = std::vector<std::string>;

std::string what_of(const ExecutionPlan& plan, const Action& action) {
  std::string out = fmt::format("{} of", action.op->name);
  for (size_t i = 0; i < action.in.size(); ++i) {
    const TensorType& type = plan.values[static_cast<size_t>(action.in[i])].type;
    out += fmt::format("{} {} x {}", i > 0 ? "," : "", to_string(type.dtype), type.elements());
  }
  return out + collective_terms(*action.op, action.attrs);
}

std::string describe(const CommCall& call) {
  return fmt::format("action {} ({}{})", call.action, call.what,
                     call.scope.empty() ? "" : fmt::format(" at '{}'", call.scope));
}

// -- all ranks ------------------------------------------------------------------------------------

using Sequences = std::map<std::vector<int>, std::map<int, std::vector<const CommCall*>>>;  // by communicator and rank

Sequences by_communicator(const std::vector<std::vector<CommCall>>& calls, Findings& out) {
  Sequences sequences;
  for (size_t rank = 0; rank < calls.size(); ++rank) {
    for (const CommCall& call : calls[rank]) {
      const auto me = static_cast<int>(rank);
      if (std::find(call.ranks.begin(), call.ranks.end(), me) == call.ranks.end()) {
        out.push_back(fmt::format("rank {}: {} is on the ranks {}, which it is none of", me, describe(call),
                                  fmt::join(call.ranks, ",")));
        return sequences;
      }
      sequences[call.ranks][me].push_back(&call);
    }
  }
  return sequences;
}

// The first place where a member's sequence is not the first member's.
std::string first_difference(const std::vector<int>& ranks,
                             const std::map<int, std::vector<const CommCall*>>& members) {
  static const std::vector<const CommCall*> kNone;
  const auto sequence = [&](int rank) -> const std::vector<const CommCall*>& {
    const auto found = members.find(rank);
    return found == members.end() ? kNone : found->second;
  };
  const std::vector<const CommCall*>& first = sequence(ranks.front());
  for (const int rank : ranks) {
    const std::vector<const CommCall*>& other = sequence(rank);
    for (size_t k = 0; k < std::max(first.size(), other.size()); ++k) {
      if (k < first.size() && k < other.size() && first[k]->what == other[k]->what) continue;
      return fmt::format("operation {} on the ranks {}: rank {} starts {}, rank {} starts {}", k, fmt::join(ranks, ","),
                         ranks.front(), k < first.size() ? describe(*first[k]) : "nothing", rank,
                         k < other.size() ? describe(*other[k]) : "nothing");
    }
  }
  return "";
}

// The operations of all communicators as nodes, the order in which each rank starts them as edges.
class OrderGraph {
 public:
  explicit OrderGraph(const std::vector<std::vector<CommCall>>& calls) {
    std::map<std::vector<int>, std::vector<int>> nodes;  // of a communicator, by number
    for (size_t rank = 0; rank < calls.size(); ++rank) {
      std::map<std::vector<int>, size_t> seen;
      int before = -1;
      for (const CommCall& call : calls[rank]) {
        std::vector<int>& known = nodes[call.ranks];
        const size_t number = seen[call.ranks]++;
        if (number == known.size()) {
          known.push_back(static_cast<int>(next_.size()));
          next_.emplace_back();
        }
        const int node = known[number];
        if (before >= 0) next_[static_cast<size_t>(before)].push_back({node, static_cast<int>(rank), &call});
        before = node;
      }
    }
  }

  // "" when there is no cycle; else who starts what after what.
  std::string cycle() const {
    std::vector<int> waits(next_.size(), 0);
    for (const std::vector<Edge>& edges : next_) {
      for (const Edge& edge : edges) ++waits[static_cast<size_t>(edge.to)];
    }
    std::vector<int> ready;
    for (size_t i = 0; i < next_.size(); ++i) {
      if (waits[i] == 0) ready.push_back(static_cast<int>(i));
    }
    size_t done = 0;
    while (!ready.empty()) {
      const int node = ready.back();
      ready.pop_back();
      ++done;
      for (const Edge& edge : next_[static_cast<size_t>(node)]) {
        if (--waits[static_cast<size_t>(edge.to)] == 0) ready.push_back(edge.to);
      }
    }
    return done == next_.size() ? "" : walk(waits);
  }

 private:
  struct Edge {
    int to = 0;
    int rank = 0;
    const CommCall* call = nullptr;  // the one that is started second
  };

  // Walks backward from any operation that never gets ready, along operations that do not either,
  // until one is met again.
  std::string walk(const std::vector<int>& waits) const {
    std::vector<std::pair<int, Edge>> from(next_.size(), {-1, {}});
    for (size_t i = 0; i < next_.size(); ++i) {
      for (const Edge& edge : next_[i]) {
        if (waits[i] > 0) from[static_cast<size_t>(edge.to)] = {static_cast<int>(i), edge};
      }
    }
    int at = 0;
    while (waits[static_cast<size_t>(at)] == 0) ++at;
    std::set<int> seen;
    while (seen.insert(at).second) at = from[static_cast<size_t>(at)].first;
    std::string out = "operations wait for each other in a circle:";
    const int start = at;
    do {
      const auto& [before, edge] = from[static_cast<size_t>(at)];
      out += fmt::format(" rank {} starts {} on the ranks {} only after the next;", edge.rank, describe(*edge.call),
                         fmt::join(edge.call->ranks, ","));
      at = before;
    } while (at != start);
    out.pop_back();
    return out;
  }

  std::vector<std::vector<Edge>> next_;
};

// -- one plan -------------------------------------------------------------------------------------

// Whether the axes name groups that every rank is in exactly one of; "" or what is wrong.
std::string check_axes(const std::vector<int>& axes, const Mesh& mesh) {
  std::vector<int> sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] < 0 || sorted[i] >= mesh.axes())
      return fmt::format("the mesh '{}' has no axis {}", to_string(mesh), sorted[i]);
    if (i > 0 && sorted[i] == sorted[i - 1]) return fmt::format("axis '{}' is named twice", mesh.axis(sorted[i]).name);
  }
  std::vector<int> times(static_cast<size_t>(mesh.devices()), 0);
  for (const std::vector<int64_t>& group : mesh.groups(axes)) {
    for (const int64_t rank : group) ++times[static_cast<size_t>(rank)];
  }
  if (std::any_of(times.begin(), times.end(), [](int n) { return n != 1; })) return "a rank is not in one group";
  return "";
}

// Whether the results are what the op makes of the operands.
std::string check_types(const ExecutionPlan& plan, const Action& action, int64_t size) {
  const auto types_of = [&](const std::vector<int>& values) {
    std::vector<TensorType> out;
    for (const int id : values) out.push_back(plan.values[static_cast<size_t>(id)].type);
    return out;
  };
  const std::vector<TensorType> in = types_of(action.in);
  const std::vector<TensorType> out = types_of(action.out);
  std::vector<TensorType> made;
  try {
    made = result_types(*action.op, in, action.attrs);
  } catch (const Error& e) {
    return e.text();
  }
  if (made.size() != out.size()) return fmt::format("has {} operands and {} results", in.size(), out.size());
  for (size_t i = 0; i < made.size(); ++i) {
    if (made[i] == out[i]) continue;
    return fmt::format("makes {} of {} over {} ranks", to_string(out[i]), to_string(in[i]), size);
  }
  return "";
}

std::string check_action(const ExecutionPlan& plan, const Action& action) {
  const RankGroups groups = groups_of(*action.op, action.attrs);
  const std::vector<int> axes(groups.axes.begin(), groups.axes.end());
  const int64_t size = groups.ranks.empty() ? plan.mesh.size_of(axes) : groups.size;
  if (groups.size != size) return fmt::format("says its groups have {} ranks; they have {}", groups.size, size);
  if (action.op->collective->call != nullptr) {
    const int64_t root = action.op->collective->call(action.attrs).root;
    if (root < 0 || root >= size) return fmt::format("its root is {} in groups of {} ranks", root, size);
  }
  return check_types(plan, action, size);
}

}  // namespace

std::vector<CommCall> calls_of(const ExecutionPlan& plan, int64_t rank) {
  std::vector<CommCall> out;
  for (size_t i = 0; i < plan.actions.size(); ++i) {
    const Action& action = plan.actions[i];
    if (!is_communication(*action.op)) continue;
    CommCall call{.what = what_of(plan, action), .action = static_cast<int>(i), .scope = action.scope};
    for (const int64_t member : groups_of(*action.op, action.attrs).of(rank, plan.mesh))
      call.ranks.push_back(static_cast<int>(member));
    if (!call.ranks.empty()) out.push_back(std::move(call));
  }
  return out;
}

std::vector<std::string> check_communication(const std::vector<std::vector<CommCall>>& calls) {
  Findings out;
  const Sequences sequences = by_communicator(calls, out);
  if (!out.empty()) return out;
  for (const auto& [ranks, members] : sequences) {
    if (std::string found = first_difference(ranks, members); !found.empty()) out.push_back(std::move(found));
  }
  if (!out.empty()) return out;  // there is no one graph of operations that do not match
  if (std::string cycle = OrderGraph(calls).cycle(); !cycle.empty()) out.push_back(std::move(cycle));
  return out;
}

std::vector<std::string> check_communication(const ExecutionPlan& plan) {
  Findings out;
  std::map<std::vector<int>, std::string> checked;  // by axes
  for (size_t i = 0; i < plan.actions.size(); ++i) {
    const Action& action = plan.actions[i];
    if (!is_communication(*action.op)) continue;
    const RankGroups groups = groups_of(*action.op, action.attrs);
    const std::vector<int> axes(groups.axes.begin(), groups.axes.end());
    const auto [known, is_new] = checked.try_emplace(axes);
    if (is_new) known->second = check_axes(axes, plan.mesh);
    std::string wrong = groups.ranks.empty() ? known->second : groups.why_not(plan.mesh);
    if (wrong.empty()) wrong = check_action(plan, action);
    if (wrong.empty()) continue;
    out.push_back(fmt::format("action {} ({}{}): {}", i, what_of(plan, action),
                              action.scope.empty() ? "" : fmt::format(" at '{}'", action.scope), wrong));
  }
  return out;
}

}  // namespace trireme
