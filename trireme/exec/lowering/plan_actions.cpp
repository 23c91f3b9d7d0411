#include "trireme/exec/lowering/plan_actions.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "trireme/backend/device.h"
#include "trireme/exec/lowering/bounds_in_flight.h"
#include "trireme/exec/plan/communication_bytes.h"
#include "trireme/op/structural.h"

namespace trireme {
namespace {

class ActionPlanner {
 public:
  ActionPlanner(const Program& program, const PlanOptions& options, const Device& device)
      : program_(program), graph_(program.graph), options_(options), device_(device), in_flight_(graph_) {
    out_.maker.assign(graph_.values().size(), -1);
    out_.home.assign(graph_.values().size(), Tier::kDevice);
  }

  PlannedActions run() {
    const size_t count = graph_.nodes().size();
    out_.actions.reserve(count);
    out_.scratch_bytes.reserve(count);
    out_.kind_of.reserve(count);
    for (const Node& node : graph_.nodes()) add(node);
    return std::move(out_);
  }

 private:
  void add(const Node& node) {
    const auto number = static_cast<int>(out_.actions.size());
    const int kind = out_.kinds.of(graph_, node);
    Action action{
        .op = &def_of(node), .attrs = node.attrs, .in = node.inputs, .out = node.outputs, .scope = scope_of(node)};
    action.lane = lane_of(*action.op, node.attrs, node.on_host);
    out_.kind_of.push_back(kind);
    out_.scratch_bytes.push_back(choose_kernel(action, node, kind));
    note_homes(node);
    for (const ValueId id : node.outputs) out_.maker[static_cast<size_t>(id)] = number;
    add_waits(action);
    in_flight_.bound(number, action, node, out_.scratch_bytes.back() + staged_bytes(action));
    out_.actions.push_back(std::move(action));
  }

  // Returns the bytes of scratch that the action takes.
  int64_t choose_kernel(Action& action, const Node& node, int kind) {
    if (action.lane == Lane::kComm)
      return collective_scratch_.get(kind, [&] { return collective_scratch(*action.op, out_.kinds[kind].types()); });
    int64_t scratch = 0;
    if (action.op->kernel) {
      const KernelChoice& kernel = kernel_of({def_of(node), node.attrs, node.on_host}, node, kind);
      action.kernel = shared(kernel.name);
      scratch = kernel.scratch_bytes;
    }
    if (const CallKind& types = out_.kinds[kind]; casts_on_its_way(*action.op, types.in(), types.out())) {
      const Attrs attrs = Attrs::of(CastAttrs{types.out()[0].dtype});
      action.kernel = shared(kernel_of({structural().cast, attrs, true}, node, kind).name);
      return device_.memory() == Memory::kHost ? 0 : graph_.type(node.outputs[0]).bytes();
    }
    const bool meets_disk = is_move(*action.op) && move_of(node.attrs).meets_disk();
    return meets_disk ? staged_by_disk(graph_.type(node.inputs[0]).bytes(), options_.disk_blocks) : scratch;
  }

  // Of a communication whose values are copied to the host's memory and back, at most.
  int64_t staged_bytes(const Action& action) const {
    if (!communicates(action.lane) || device_.sends_in_place()) return 0;
    int64_t out = 0;
    for (const ValueId id : action.in) out += graph_.type(id).bytes();
    for (const ValueId id : action.out) out += graph_.type(id).bytes();
    return out;
  }

  struct Called {
    const OpDef& op;
    const Attrs& attrs;
    bool on_host = false;
  };

  // Of what the node calls, on its values.
  const KernelChoice& kernel_of(const Called& called, const Node& node, int kind) {
    const CallKind& values = out_.kinds[kind];
    const TypeArgs local{values.in(), values.out(), called.attrs};
    const Device& device = called.on_host ? cpu_device() : device_;
    if (options_.numerics == Numerics::kFast) {
      return (called.on_host ? host_kernels_ : kernels_).get(kind, [&] {
        return device.choose({called.op, local, local, Numerics::kFast, options_.threads, options_.tuning});
      });
    }
    std::vector<TensorType> in, out;
    const auto whole = [&](ValueId id) {
      const auto part = program_.part_of(id);
      return part != nullptr ? part->whole : *program_.whole[static_cast<size_t>(id)];
    };
    for (const ValueId id : node.inputs) in.push_back({graph_.type(id).dtype, whole(id)});
    for (const ValueId id : node.outputs) out.push_back({graph_.type(id).dtype, whole(id)});
    invariant_kernel_ =
        device.choose({called.op, local, {in, out, called.attrs}, Numerics::kInvariant, options_.threads});
    return invariant_kernel_;
  }

  // What the action reads and an action in the background makes.
  void add_waits(Action& action) const {
    for (const ValueId id : action.in) {
      const int from = out_.maker[static_cast<size_t>(id)];
      if (from < 0 || !in_background(lane(from)) || joins_on_host(action, from)) continue;
      if (std::find(action.waits.begin(), action.waits.end(), from) == action.waits.end()) action.waits.push_back(from);
    }
  }
  // Parts that are made where they belong, which nobody reads before the next step (step_border.h).
  bool joins_on_host(const Action& action, int maker) const {
    return action.op->traits.joins_in_place && lane(maker) == Lane::kHost;
  }
  Lane lane(int action) const { return out_.actions[static_cast<size_t>(action)].lane; }

  void note_homes(const Node& node) {
    if (node.on_host) {
      for (const ValueId id : node.inputs) put_home(id, Tier::kHost);
    }
    if (is_move(def_of(node))) put_home(node.inputs[0], move_of(node.attrs).from);
  }
  // Where an input lies, which is so all there or in part.
  void put_home(ValueId id, Tier tier) {
    out_.home[static_cast<size_t>(id)] = tier;
    if (const ValueId whole = seen_in_part(id); whole != kNoValue) out_.home[static_cast<size_t>(whole)] = tier;
  }
  // The input that a value is a part of, or kNoValue.
  ValueId seen_in_part(ValueId id) const {
    const int from = out_.maker[static_cast<size_t>(id)];
    if (from < 0) return kNoValue;
    const Node& node = graph_.nodes()[static_cast<size_t>(from)];
    if (node.op != &structural().part) return kNoValue;
    return out_.maker[static_cast<size_t>(node.inputs[0])] < 0 ? node.inputs[0] : kNoValue;
  }

  // Texts that many actions have are kept once.
  const SharedText& scope_of(const Node& node) {
    const auto at = static_cast<size_t>(node.scope);
    if (scopes_.size() <= at) scopes_.resize(at + 1);
    if (scopes_[at].empty()) scopes_[at] = graph_.scope_of(node);
    return scopes_[at];
  }
  const SharedText& shared(const std::string& name) { return names_.try_emplace(name, name).first->second; }

  const Program& program_;
  const Graph& graph_;
  const PlanOptions& options_;
  const Device& device_;
  BoundsInFlight in_flight_;
  OfKind<int64_t> collective_scratch_;
  OfKind<KernelChoice> kernels_, host_kernels_;
  KernelChoice invariant_kernel_;                      // the one that was chosen last
  std::vector<SharedText> scopes_;                     // by number
  std::unordered_map<std::string, SharedText> names_;  // of kernels
  PlannedActions out_;
};

}  // namespace

PlannedActions plan_actions(const Program& program, const PlanOptions& options, const Device& device) {
  return ActionPlanner(program, options, device).run();
}

}  // namespace trireme
