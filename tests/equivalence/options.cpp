#include "tests/equivalence/options.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

namespace trireme::equivalence {

bool keeps_bits(const Case& test) {
  return test.numerics == Numerics::kInvariant;
}

int threads_of(const Case& test) {
  if (!keeps_bits(test)) return test.threads;
  return test.strategy.mesh.devices() == 1 ? 1 : 1 + static_cast<int>(test.seed / 8 % 3);
}

// Whether the ranks that share the state of some parameter have uneven parts of it, and the parameter whole.
bool shares_uneven_state(const Case& test) {
  const auto index = [&](ValueId id) { return static_cast<size_t>(test.graph.value(id).index); };
  const Strategy& how = test.strategy;
  for (const Update& update : test.graph.updates()) {
    const Shape& shape = test.graph.type(update.parameter).shape;
    if (update.states.empty() || how.mesh.devices() == 1) continue;
    const Layout& state = how.inputs[index(update.states.front())];
    for (int dim = 0; dim < shape.rank(); ++dim) {
      const bool is_whole = how.inputs[index(update.parameter)].cuts(dim, how.mesh) == 1;
      if (is_whole && shape[dim] % state.cuts(dim, how.mesh) != 0) return true;
    }
  }
  return false;
}

// Whether some parameters are trained and others are not.
bool freezes(const Case& test) {
  const std::vector<Input>& inputs = test.graph.inputs();
  return !test.graph.updates().empty() && std::ranges::any_of(inputs, [&](const Input& input) {
    return input.role == Role::kParameter && test.graph.update_of(input.value) == nullptr;
  });
}

// Whether parameters are updated by other numbers than each other.
bool has_groups(const Case& test) {
  std::set<std::string> ways;
  for (const Update& update : test.graph.updates()) {
    const auto node = std::ranges::find_if(test.graph.nodes(), [&](const Node& each) {
      return each.phase == Phase::kUpdate && std::ranges::count(each.inputs, update.parameter) > 0 &&
             std::ranges::count(each.inputs, update.gradient) > 0;
    });
    if (node != test.graph.nodes().end()) ways.insert(fmt::format("{} {}", node->op->name, node->attrs.text()));
  }
  return ways.size() > 1;
}

// Those of what is trained, and by which numbers.
std::vector<std::pair<bool, std::string>> options_of_training(const Case& test) {
  const bool some_frozen = freezes(test), groups = has_groups(test);
  return {{some_frozen, "frozen"},
          {some_frozen && test.crews > 1, "frozen, pipeline"},
          {some_frozen && keeps_bits(test), "frozen, invariant"},
          {some_frozen && test.by_hand, "frozen, by hand"},
          {groups, "groups"},
          {groups && test.crews > 1, "groups, pipeline"},
          {groups && keeps_bits(test), "groups, invariant"},
          {groups && test.by_hand, "groups, by hand"}};
}

// Those of values that lie elsewhere than in the device's memory.
std::vector<std::pair<bool, std::string>> options_of_homes(const Case& test) {
  const bool is_elsewhere = test.device != "cpu";
  const std::string device = "device " + test.device;
  const bool has_state = std::ranges::any_of(test.graph.updates(), [](const Update& u) { return !u.states.empty(); });
  const bool has_homes =
      test.passes && test.homes != "device" && (has_state || test.homed != "state" || test.homes == "kept");
  const bool on_host = test.passes && test.on_host != "none";
  return {{on_host, "on host " + test.on_host},
          {on_host && is_elsewhere, device + ", on host " + test.on_host},
          {on_host && has_homes, "on host, homes"},
          {on_host && has_homes && test.home_tier != "host", "on host, home tier " + test.home_tier},
          {on_host && test.evaluates, "on host, evaluation"},
          {on_host && test.crews > 1, "on host, pipeline"},
          {on_host && test.lingers, "on host, lingers"},
          {on_host && keeps_bits(test), "on host, invariant"},
          {has_homes, "homes " + test.homes},
          {has_homes && !on_host && test.update_part > 0, "updates in parts"},
          {has_homes && !on_host && test.update_part > 0 && is_elsewhere, device + ", updates in parts"},
          {has_homes && !on_host && test.update_part > 0 && test.crews > 1, "updates in parts, pipeline"},
          {has_homes && !on_host && test.update_part > 0 && keeps_bits(test), "updates in parts, invariant"},
          {has_homes && test.prefetch > 0, fmt::format("prefetch {}", test.prefetch)},
          {has_homes && test.homed != "state", "homes of " + test.homed},
          {has_homes && test.homed != "state" && test.home_tier != "host", "homes of " + test.homed + ", disk"},
          {has_homes && test.homed != "state" && test.evaluates, "homes of " + test.homed + ", evaluation"},
          {has_homes && test.homed != "state" && is_elsewhere, device + ", homes of " + test.homed},
          {has_homes && test.homed != "state" && test.crews > 1, "homes of " + test.homed + ", pipeline"},
          {has_homes && test.home_tier != "host", "home tier " + test.home_tier},
          {has_homes && test.home_tier != "host" && test.homes == "kept", "home tier " + test.home_tier + ", kept"},
          {has_homes && test.home_tier != "host" && is_elsewhere, device + ", home tier " + test.home_tier},
          {has_homes && is_elsewhere, device + ", homes"},
          {has_homes && test.lingers, "lingers, homes"},
          {has_homes && test.crews > 1, "homes, pipeline"},
          {has_homes && keeps_bits(test), "homes, invariant"}};
}

// Whether ranks that have a whole parameter share its state, or have parts of the parameter too.
bool shares_state(const Case& test) {
  const auto layout = [&](ValueId id) { return test.strategy.inputs[static_cast<size_t>(test.graph.value(id).index)]; };
  const auto cuts = [&](const Layout& of) {
    int64_t out = 1;
    for (int dim = 0; dim < of.rank(); ++dim) out *= of.cuts(dim, test.strategy.mesh);
    return out;
  };
  return std::ranges::any_of(test.graph.updates(), [&](const Update& update) {
    return !update.states.empty() && cuts(layout(update.states.front())) > cuts(layout(update.parameter));
  });
}

std::vector<std::string> options_of_repeated(const Case& test, int64_t micro_batches) {
  if (micro_batches == 0) return {};
  const bool cuts = test.strategy.mesh.devices() > 1;
  const bool drops =
      std::ranges::any_of(test.graph.nodes(), [](const Node& node) { return node.op->name == "dropout"; });
  const bool trains = !test.graph.updates().empty();
  const std::pair<bool, std::string> all[] = {{true, test.crews > 1 ? test.schedule : "no pipeline"},
                                              {cuts, "ranks"},
                                              {cuts && test.slices, "slices"},
                                              {shares_state(test), "zero"},
                                              {trains, "updates"},
                                              {drops, "dropout"},
                                              {test.interleave > 1, "interleave"},
                                              {!test.passes, "no passes"},
                                              {test.passes && test.recompute != "none", "recompute"},
                                              {test.passes && test.homes != "device", "homes"},
                                              {test.passes && test.on_host != "none", "on host"}};
  std::vector<std::string> out{"option repeated"};
  for (const auto& [is_on, name] : all) {
    if (is_on) out.push_back("option repeated, " + name);
  }
  return out;
}

std::vector<std::string> options_of(const Case& test) {
  const bool has_own = std::ranges::any_of(
      test.graph.inputs(), [](const Input& input) { return input.role == Role::kParameter && !input.piece.empty(); });
  const bool is_elsewhere = test.device != "cpu";
  const std::string device = "device " + test.device;
  const bool shares_uneven = shares_uneven_state(test);
  const std::pair<bool, std::string> all[] = {
      {shares_uneven, "uneven state"},
      {shares_uneven && keeps_bits(test), "uneven state, invariant"},
      {shares_uneven && micro_batches(test.strategy.mesh) > 1, "uneven state, micro-batches"},
      {test.transport != "threads", test.transport},
      {threads_of(test) > 1, keeps_bits(test) ? "threads, invariant" : "threads"},
      {test.sums != "own", "sums " + test.sums},
      {test.rates != "usual", "rates " + test.rates},
      {test.isa != "machine", "isa " + test.isa},
      {is_elsewhere, device},
      {is_elsewhere && test.transport != "threads", fmt::format("{}, {}", device, test.transport)},
      {is_elsewhere && test.by_hand, device + ", by hand"},
      {is_elsewhere && test.evaluates, device + ", evaluation"},
      {is_elsewhere && keeps_bits(test), device + ", invariant"},
      {is_elsewhere && test.crews > 1, device + ", pipeline"},
      {!test.bucket_ends.empty(), "bucket ends"},
      {test.lingers, "lingers"},
      {test.lingers && test.crews > 1, "lingers, pipeline"},
      {test.lingers && test.transport != "threads", "lingers, " + test.transport},
      {test.reuse > 0, "reuse"},
      {test.fusion != "sizes", "fusion " + test.fusion},
      {test.recompute != "none", "recompute " + test.recompute},
      {test.loss_pieces > 1, "loss pieces"},
      {test.is_saved, "saved strategy"},
      {!test.passes, "no passes"},
      {!test.all_to_all, "no all-to-all"},
      {test.by_hand, "by hand"},
      {has_own, "layerwise"},
      {test.evaluates, "evaluation"},
      {test.evaluates && test.by_hand, "evaluation, by hand"},
      {test.evaluates && keeps_bits(test), "evaluation, invariant"},
      {micro_batches(test.strategy.mesh) > 1, "micro-batches"},
      {test.interleave > 1, "interleave"},
      {test.interleave > 1 && test.crews > 1, "interleave, pipeline"},
      {test.interleave > 1 && keeps_bits(test), "interleave, invariant"},
      {test.crews > 1, "pipeline " + test.schedule},
      {test.crews > 1 && keeps_bits(test), "pipeline, invariant"},
      {test.crews > 1 && test.slices && test.strategy.mesh.devices() > 1, "pipeline, slices"},
      {test.crews > 1 && test.evaluates, "pipeline, evaluation"},
      {seq_chunks(test.strategy.mesh) > 1 && test.evaluates, "pipeline seq-1f1b, evaluation"},
      {keeps_bits(test), "invariant"}};
  std::vector<std::string> out;
  for (const auto& [is_on, name] : all) {
    if (is_on) out.push_back("option " + name);
  }
  for (const auto& more : {options_of_training(test), options_of_homes(test)}) {
    for (const auto& [is_on, name] : more) {
      if (is_on) out.push_back("option " + name);
    }
  }
  return out;
}

}  // namespace trireme::equivalence
