#include "trireme/exec/analysis/soundness.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"
#include "trireme/op/build.h"
#include "trireme/op/call_kinds.h"
#include "trireme/op/message.h"
#include "trireme/op/rank_groups.h"

namespace trireme {
namespace {

using Findings = std::vector<std::string>;

// What findings call those who communicate, and what they do.
class Words {
 public:
  explicit Words(std::span<const std::string> names) : names_(names) {}

  std::string who(int rank) const {
    const auto at = static_cast<size_t>(rank);
    return at < names_.size() ? names_[at] : fmt::format("rank {}", rank);
  }
  std::string describe(const CommCall& call) const {
    const std::string scope = call.scope.empty() ? "" : fmt::format(" at '{}'", call.scope);
    return fmt::format("action {} ({}{})", call.action, what(call), scope);
  }
  // With whom besides.
  std::string with(const CommCall& call) const {
    return is_message(call) || call.ranks.size() < 2
               ? describe(call)
               : fmt::format("{} on the ranks {}", describe(call), joined_text(call.ranks, ","));
  }
  static bool is_message(const CommCall& call) {
    return call.kind == CommCall::Kind::kSend || call.kind == CommCall::Kind::kRecv;
  }

 private:
  std::string what(const CommCall& call) const {
    if (call.kind == CommCall::Kind::kSend)
      return fmt::format("send of {} to {} with tag {}", call.what, who(call.ranks[1]), call.tag);
    if (call.kind == CommCall::Kind::kRecv)
      return fmt::format("recv of {} from {} with tag {}", call.what, who(call.ranks[0]), call.tag);
    return std::string(call.what.view());
  }

  std::span<const std::string> names_;
};

// -- all ranks ------------------------------------------------------------------------------------

// By ranks, and the tag of messages; then by rank.
using Sequences = std::map<std::pair<std::vector<int>, int64_t>, std::map<int, std::vector<const CommCall*>>>;
constexpr int64_t kOfGroup = -1;

// Whether the rank may make the call: one of its members, and at the right end of a message.
bool takes_part(const CommCall& call, int rank) {
  if (call.kind == CommCall::Kind::kSend) return call.ranks[0] == rank && call.ranks[1] != rank;
  if (call.kind == CommCall::Kind::kRecv) return call.ranks[1] == rank && call.ranks[0] != rank;
  return std::find(call.ranks.begin(), call.ranks.end(), rank) != call.ranks.end();
}

Sequences by_communicator(const Calls& calls, const Words& words, Findings& out) {
  Sequences sequences;
  for (size_t rank = 0; rank < calls.size(); ++rank) {
    const auto me = static_cast<int>(rank);
    for (const CommCall& call : calls[rank]) {
      if (!takes_part(call, me)) {
        out.push_back(fmt::format("{}: {} is on the ranks {}, {}", words.who(me), words.describe(call),
                                  joined_text(call.ranks, ","),
                                  Words::is_message(call) ? "between which it sends nothing" : "which it is none of"));
        return sequences;
      }
      sequences[{call.ranks, Words::is_message(call) ? call.tag : kOfGroup}][me].push_back(&call);
    }
  }
  return sequences;
}

const std::vector<const CommCall*>& calls_by_rank(const Sequences::mapped_type& members, int rank) {
  static const std::vector<const CommCall*> kNone;
  const auto found = members.find(rank);
  return found == members.end() ? kNone : found->second;
}

// The first place where a member's sequence is not the first member's.
std::string first_difference(const std::vector<int>& ranks, const Sequences::mapped_type& members, const Words& words) {
  const std::vector<const CommCall*>& first = calls_by_rank(members, ranks.front());
  for (const int rank : ranks) {
    const std::vector<const CommCall*>& other = calls_by_rank(members, rank);
    for (size_t k = 0; k < std::max(first.size(), other.size()); ++k) {
      if (k < first.size() && k < other.size() && first[k]->what == other[k]->what) continue;
      return fmt::format("operation {} on the ranks {}: {} starts {}, {} starts {}", k, joined_text(ranks, ","),
                         words.who(ranks.front()), k < first.size() ? words.describe(*first[k]) : "nothing",
                         words.who(rank), k < other.size() ? words.describe(*other[k]) : "nothing");
    }
  }
  return "";
}

// The first message that has one side only, or two that differ.
std::string first_unmet(const std::vector<int>& ranks, const Sequences::mapped_type& members, const Words& words) {
  const std::vector<const CommCall*>& sends = calls_by_rank(members, ranks[0]);
  const std::vector<const CommCall*>& receipts = calls_by_rank(members, ranks[1]);
  for (size_t k = 0; k < std::max(sends.size(), receipts.size()); ++k) {
    if (k >= receipts.size()) {
      return fmt::format("{}: {} has no partner: {} starts {} such receipts", words.who(ranks[0]),
                         words.describe(*sends[k]), words.who(ranks[1]), receipts.size());
    }
    if (k >= sends.size()) {
      return fmt::format("{}: {} has no partner: {} starts {} such sends", words.who(ranks[1]),
                         words.describe(*receipts[k]), words.who(ranks[0]), sends.size());
    }
    if (sends[k]->what == receipts[k]->what) continue;
    return fmt::format("{} starts {}, which meets {}'s {}", words.who(ranks[0]), words.describe(*sends[k]),
                       words.who(ranks[1]), words.describe(*receipts[k]));
  }
  return "";
}

std::string circle_text(const Calls& calls, const EventGraph& graph, const Words& words) {
  std::string out = "operations wait for each other in a circle:";
  for (const EventGraph::Blocked& blocked : graph.circle()) {
    const auto& own = calls[static_cast<size_t>(blocked.who)];
    const std::string call = words.with(own[static_cast<size_t>(blocked.call)]);
    const std::string after = words.with(own[static_cast<size_t>(blocked.after)]);
    if (blocked.in_turn) {
      out += fmt::format(" on {} it is the turn of {} only after that of {};", words.who(blocked.who), call, after);
    } else {
      out += fmt::format(" {} starts {} only after the end of {};", words.who(blocked.who), call, after);
    }
  }
  out.pop_back();
  return out;
}

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
  const auto types_of = [&](std::span<const int> values) {
    std::vector<TensorType> out;
    for (const int id : values) out.push_back(as_moved(plan.values[static_cast<size_t>(id)].type));
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

// A message between crews, as one side has it.
std::string check_message(const ExecutionPlan& plan, const Action& action) {
  const Message message = message_of(*action.op, action.attrs);
  if (message.crew < 0 || message.crew >= plan.crews || message.crew == plan.crew) {
    return fmt::format(
        "names crew {}; this is the plan of crew {} of {}, whose messages go to and come from the others", message.crew,
        plan.crew, plan.crews);
  }
  std::vector<TensorType> in;
  for (const int id : action.in) in.push_back(plan.values[static_cast<size_t>(id)].type);
  if (in.size() != (message.sends ? 1 : 0)) return fmt::format("has {} operands", in.size());
  const std::vector<TensorType> made = action.op->infer.get()({in, action.attrs});  // throws for a tag out of range
  if (action.out.size() != made.size()) return fmt::format("has {} results", action.out.size());
  if (made.empty()) return "";
  const TensorType& out = plan.values[static_cast<size_t>(action.out[0])].type;
  return out == made[0] ? "" : fmt::format("makes {} of a message of {}", to_string(out), to_string(made[0]));
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

std::vector<std::string> check_communication(const Calls& calls, std::span<const std::string> names) {
  const Words words(names);
  Findings out;
  const Sequences sequences = by_communicator(calls, words, out);
  if (!out.empty()) return out;
  for (const auto& [key, members] : sequences) {
    const auto& [ranks, tag] = key;
    std::string found = tag == kOfGroup ? first_difference(ranks, members, words) : first_unmet(ranks, members, words);
    if (!found.empty()) out.push_back(std::move(found));
  }
  if (!out.empty()) return out;  // operations that do not match are no one graph
  const EventGraph graph(calls);
  size_t starts = 0;
  for (const std::vector<CommCall>& of_one : calls) starts += of_one.size();
  if (graph.order().size() < starts) out.push_back(circle_text(calls, graph, words));
  return out;
}

std::vector<std::string> check_communication(const ExecutionPlan& plan) {
  Findings out;
  std::map<std::vector<int>, std::string> checked;  // by axes
  const auto wrong_with_groups = [&](const Action& action) -> std::string {
    const RankGroups groups = groups_of(*action.op, action.attrs);
    const std::vector<int> axes(groups.axes.begin(), groups.axes.end());
    const auto [known, is_new] = checked.try_emplace(axes);
    if (is_new) known->second = check_axes(axes, plan.mesh);
    const std::string of_groups = groups.ranks.empty() ? known->second : groups.why_not(plan.mesh);
    return of_groups.empty() ? check_action(plan, action) : of_groups;
  };
  CallKinds kinds;
  OfKind<std::string> wrong_of_kind;
  const auto type_of = [&](int id) -> const TensorType& { return plan.values[static_cast<size_t>(id)].type; };
  const auto wrong_with = [&](const Action& action) -> std::string {
    if (is_message(*action.op)) return check_message(plan, action);
    const int kind = kinds.of(*action.op, action.attrs, action.in, action.out, type_of);
    return wrong_of_kind.get(kind, [&] { return wrong_with_groups(action); });
  };
  for (size_t i = 0; i < plan.actions.size(); ++i) {
    const Action& action = plan.actions[i];
    if (!communicates(action.lane)) continue;
    const std::string wrong = wrong_with(action);
    if (wrong.empty()) continue;
    const std::string scope = action.scope.empty() ? "" : fmt::format(" at '{}'", action.scope);
    out.push_back(fmt::format("action {} ({}{}): {}", i, communication_text(plan, action), scope, wrong));
  }
  return out;
}

std::vector<std::string> check_communication(std::span<const ExecutionPlan* const> crews) {
  Findings out;
  std::vector<std::string> names;
  for (size_t i = 0; i < crews.size(); ++i) {
    const ExecutionPlan& plan = *crews[i];
    const int64_t devices = crews[0]->mesh.devices();
    const int64_t first = static_cast<int64_t>(i) * devices;
    names.push_back(devices == 1 ? fmt::format("rank {}", first)
                                 : fmt::format("crew {} (ranks {} to {})", i, first, first + devices - 1));
    if (plan.crew != static_cast<int>(i) || plan.crews != static_cast<int>(crews.size())) {
      out.push_back(fmt::format("plan {} of {} is for crew {} of {}", i, crews.size(), plan.crew, plan.crews));
    }
    if (plan.mesh.devices() != devices) {
      out.push_back(fmt::format("crew {} has the mesh '{}' of {} ranks, crew 0 '{}' of {}; all have as many", i,
                                to_string(plan.mesh), plan.mesh.devices(), to_string(crews[0]->mesh), devices));
    }
    for (const std::string& finding : check_communication(plan)) out.push_back(names.back() + ": " + finding);
  }
  return out.empty() ? check_communication(calls_of_crews(crews), names) : out;
}

}  // namespace trireme
