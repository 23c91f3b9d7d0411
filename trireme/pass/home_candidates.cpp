#include "trireme/pass/home_candidates.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "trireme/parallel/asked/paths.h"
#include "trireme/pass/host_inputs.h"
#include "trireme/pass/recompute_rules.h"
#include "trireme/pass/step_times.h"

namespace trireme {
namespace {

using HomeKind = HomeCandidate::Kind;

// "h.3" of "h.3.mlp.c_fc.weight": up to the first number; without one the first name, "wte".
std::string part_of_model(std::string_view path) {
  const std::string_view numbered = numbered_module(path).path;
  return std::string(numbered.empty() ? path.substr(0, path.find('.')) : numbered);
}

class Candidates {
 public:
  Candidates(const Program& program, const PassOptions& passes)
      : graph_(program.graph),
        passes_(passes),
        starts_(start_times(program, passes.rates)),
        first_(graph_.values().size(), -1),
        last_(graph_.values().size(), -1),
        last_early_(graph_.values().size(), -1),
        first_late_(graph_.values().size(), -1),
        scopes_(scopes_of_kept(graph_)) {
    find_uses();
    add_inputs();
    add_gradients();
    add_kept();
  }

  std::vector<HomeCandidate> take() {
    std::vector<HomeCandidate> out;
    find_again();
    for (auto& [key, candidate] : found_) {
      candidate.idle_s /= static_cast<double>(std::max<int64_t>(1, candidate.bytes));
      if (candidate.bytes > 0) out.push_back(std::move(candidate));
    }
    std::ranges::stable_sort(out, std::ranges::greater(), &HomeCandidate::worth);
    return out;
  }

 private:
  static size_t at(ValueId id) { return static_cast<size_t>(id); }

  void find_uses() {
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      const Node& node = graph_.node(id);
      const bool late = is_for_backward(node) || node.phase == Phase::kUpdate;
      const auto use = [&](ValueId value) {
        if (first_[at(value)] < 0) first_[at(value)] = id;
        last_[at(value)] = id;
        if (!late) last_early_[at(value)] = id;
        if (late && first_late_[at(value)] < 0) first_late_[at(value)] = id;
      };
      for (const ValueId value : node.inputs) use(value);
      for (const ValueId value : node.outputs) use(value);
    }
  }

  void add(HomeKind kind, std::string_view path, ValueId value, int64_t moves, double idle_s, bool on_host = false) {
    const std::string part = part_of_model(path);
    if (part.empty()) return;
    HomeCandidate& out = found_[{kind, on_host, part}];
    const int64_t bytes = graph_.type(value).bytes();
    out.kind = kind;
    out.on_host = on_host;
    out.part = part;
    out.bytes += bytes;
    out.moves = moves;
    out.idle_s += idle_s * static_cast<double>(bytes);
  }

  const std::string& name_of(ValueId parameter) const {
    return graph_.inputs()[at(graph_.value(parameter).index)].name;
  }
  bool is_settled(Held what, std::string_view parameter) const {
    return std::ranges::any_of(
        passes_.homes, [&](const HomeRule& rule) { return rule.of == what && rule.parameters.matches(parameter); });
  }
  double step_s() const { return starts_.back(); }

  // A parameter comes for the forward pass and for the backward pass, and what replaces it leaves.
  void add_inputs() {
    const std::vector<Tier> homes = homes_of_inputs(graph_, passes_.homes, host_nodes(graph_));
    const std::vector<char> once = that_come_once(graph_, passes_.homes, host_nodes(graph_));
    const auto is_elsewhere = [&](ValueId input) { return homes[at(graph_.value(input).index)] != Tier::kDevice; };
    for (const Input& input : graph_.inputs()) {
      if (is_elsewhere(input.value) && once[at(graph_.value(input.value).index)] == 0) continue;
      if (input.role == Role::kParameter && !is_settled(Held::kParameter, input.name))
        add(HomeKind::kParameters, input.name, input.value, 3, step_s() / 2, is_elsewhere(input.value));
    }
    for (const Update& update : graph_.updates()) {
      const std::string& name = name_of(update.parameter);
      if (is_settled(Held::kState, name)) continue;
      for (const ValueId state : update.states) add(HomeKind::kState, name, state, 2, step_s(), is_elsewhere(state));
    }
  }

  double between(NodeId from, NodeId to) const {
    return starts_[static_cast<size_t>(to)] - starts_[static_cast<size_t>(from)];
  }

  void add_gradients() {
    for (const Update& update : graph_.updates()) {
      const std::string& name = name_of(update.parameter);
      const NodeId producer = graph_.value(update.gradient).producer;
      const bool is_made = producer >= 0 && !graph_.node(producer).on_host;
      if (!is_made || is_settled(Held::kGradient, name)) continue;
      add(HomeKind::kGradients, name, update.gradient, 2,
          between(first_[at(update.gradient)], last_[at(update.gradient)]));
    }
  }

  void add_kept() {
    const std::vector<RecomputeAsked> asked = recompute_asked(graph_, passes_.recompute);
    for (ValueId id = 0; id < static_cast<ValueId>(graph_.values().size()); ++id) {
      const NodeId producer = graph_.value(id).producer;
      const NodeId early = last_early_[at(id)], late = first_late_[at(id)];
      if (producer < 0 || graph_.node(producer).on_host || early < 0 || late <= early ||
          graph_.type(id).bytes() < passes_.recompute.fewest_bytes)
        continue;
      const RecomputeAsked& of_op = asked[static_cast<size_t>(producer)];
      if (of_op.home != Tier::kDevice || of_op.kept) continue;
      add(HomeKind::kKept, scopes_[static_cast<size_t>(producer)], id, 2, between(early, late));
    }
  }

  // What the ops of modules that have a number take in the forward pass: they are what is computed again.
  void find_again() {
    std::map<std::string, double> seconds;
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      const Node& node = graph_.node(id);
      if (node.phase == Phase::kForward && !is_for_backward(node))
        seconds[part_of_model(scopes_[static_cast<size_t>(id)])] += between(id, id + 1);
    }
    for (auto& [key, candidate] : found_) {
      const auto known = seconds.find(candidate.part);
      if (candidate.kind == HomeKind::kKept && candidate.part.find('.') != std::string::npos && known != seconds.end())
        candidate.again_s = known->second;
    }
  }

  const Graph& graph_;
  const PassOptions& passes_;
  std::vector<double> starts_;
  std::vector<NodeId> first_, last_, last_early_, first_late_;              // uses of each value
  std::vector<std::string_view> scopes_;                                    // of what each node makes
  std::map<std::tuple<HomeKind, bool, std::string>, HomeCandidate> found_;  // by kind, on_host and part
};

Held held_of(HomeKind kind) {
  if (kind == HomeKind::kParameters) return Held::kParameter;
  return kind == HomeKind::kState ? Held::kState : Held::kGradient;
}

}  // namespace

std::vector<HomeCandidate> home_candidates(const Program& program, const PassOptions& passes) {
  return Candidates(program, passes).take();
}

void choose_again(std::vector<Leaving>& leaving, double step_s, const Machine& machine) {
  std::array<double, kTiers> busy_s{};  // of the lane that brings it back, which has as much to do or more
  const auto take = [&](const Leaving& of) {
    const double times = of.candidate->kind == HomeKind::kParameters ? 2 : 1;
    return times * move_seconds({of.tier, Tier::kDevice}, of.candidate->bytes, machine);
  };
  for (const Leaving& of : leaving) {
    if (of.candidate->again_s < 0) busy_s[static_cast<size_t>(of.tier)] += take(of);
  }
  for (Leaving& of : leaving) {
    if (of.candidate->again_s < 0) continue;
    double& busy = busy_s[static_cast<size_t>(of.tier)];
    const double waited_s = std::max(0.0, busy + take(of) - step_s) - std::max(0.0, busy - step_s);
    of.again = of.candidate->again_s < waited_s;
    if (!of.again) busy += take(of);
  }
}

void add_home(const Leaving& leaving, PassOptions& passes) {
  const HomeCandidate& candidate = *leaving.candidate;
  if (candidate.kind != HomeKind::kKept) {
    passes.homes.insert(passes.homes.begin(), {candidate.part, held_of(candidate.kind), leaving.tier});
    return;
  }
  using Keep = Recompute::Rule::Keep;
  const Keep away = leaving.tier == Tier::kDisk ? Keep::kDisk : Keep::kHost;
  passes.recompute.rules.insert(passes.recompute.rules.begin(),
                                {.pattern = candidate.part, .keep = leaving.again ? Keep::kAgain : away});
}

ChosenRule rule_of(const Leaving& leaving) {
  const HomeCandidate& candidate = *leaving.candidate;
  if (candidate.kind != HomeKind::kKept)
    return {"home", to_string(HomeRule{candidate.part, held_of(candidate.kind), leaving.tier})};
  return {"keep", fmt::format("{} = {}", candidate.part, leaving.again ? "again" : to_string(leaving.tier))};
}

std::vector<std::string> as_keys(std::span<const ChosenRule> rules) {
  std::vector<std::string> out;
  for (const std::string_view key : {"home", "keep"}) {
    std::string list;
    for (const ChosenRule& each : rules) {
      if (each.key == key) list += fmt::format("{}\"{}\"", list.empty() ? "" : ", ", each.rule);
    }
    if (!list.empty()) out.push_back(fmt::format("{} = [{}]", key, list));
  }
  return out;
}

}  // namespace trireme
