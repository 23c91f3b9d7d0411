#include "trireme/exec/run/bind_actions.h"

#include <optional>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/exec/background/bound_collective.h"
#include "trireme/exec/background/bound_message.h"
#include "trireme/exec/background/cast_move.h"
#include "trireme/exec/background/staged_work.h"
#include "trireme/exec/plan/communication_bytes.h"
#include "trireme/op/move.h"
#include "trireme/op/rank_groups.h"
#include "trireme/op/structural.h"

namespace trireme {
namespace {

class ActionBinder {
 public:
  ActionBinder(const ExecutionPlan& plan, const RankResources& rank)
      : plan_(plan), my_(rank), ranks_of_call_(plan.calls.size()) {}

  BoundActions run() {
    out_.actions.resize(plan_.actions.size());
    for (size_t i = 0; i < plan_.actions.size(); ++i) {
      Bound& bound = out_.actions[i];
      bound.action = &plan_.actions[i];
      bind_values(bound);
      bind_work(bound);
    }
    return std::move(out_);
  }

 private:
  void bind_values(Bound& bound) const {
    const Action& action = *bound.action;
    bound.what = fmt::format("in {}{}", action.op->name,
                             action.scope.empty() ? ", outside of all modules" : fmt::format(" at '{}'", action.scope));
    for (const int id : action.in) {
      bound.in.push_back(my_.views[static_cast<size_t>(id)]);
      bound.in_place.push_back(place_of(id));
    }
    for (const int id : action.out) {
      bound.out.push_back(my_.views[static_cast<size_t>(id)]);
      bound.out_place.push_back(place_of(id));
    }
    if (action.scratch >= 0) bound.scratch = my_.memory.bytes_of(plan_.buffers[static_cast<size_t>(action.scratch)]);
  }

  Place place_of(int value) const {
    const PlanValue& v = plan_.values[static_cast<size_t>(value)];
    if (plan_.by_hand) return {v.type.shape, Box::whole(v.type.shape).start};
    if (v.part_of) {
      const Mesh mesh = with_micro_batches(plan_.mesh, plan_.micro_batches, plan_.seq_chunks);
      const int64_t place = my_.rank * plan_.micro_batches + v.part_of->micro_batch;
      return {v.part_of->whole, local_box(v.part_of->whole, v.part_of->layout, mesh, place).start};
    }
    return {v.whole, local_box(v.whole, v.layout, plan_.mesh, my_.rank).start};
  }

  void bind_work(Bound& bound) {
    const Action& action = *bound.action;
    if (action.op->traits.joins_in_place) return;
    if (action.op->traits.zero_cost_view && are_in_one_buffer(action.in[0], action.out[0])) return;
    if (is_message(*action.op)) return bind_message(bound);
    if (is_move(*action.op)) {
      if (casts_on_its_way(*action.op, {&bound.in[0].type, 1}, {&bound.out[0].type, 1})) return bind_cast_move(bound);
      bound.background = my_.movers.bind(action, bound.in[0], bound.out[0], bound.scratch, my_.kernels);
      return;
    }
    if (!action.op->collective) return bind_kernel(bound);
    if (is_communication(*action.op)) return bind_collective(bound);
    bound.dim = action.op->collective->call(action.attrs).parted;
    bound.part = groups_of(*action.op, action.attrs).place_of(my_.rank, plan_.mesh);
  }

  void bind_cast_move(Bound& bound) const {
    KernelFn* const cast = kernel_named(cpu_device(), structural().cast, bound.action->kernel);
    bound.background = std::make_unique<BoundCastMove>(bound.in[0], bound.out[0], bound.scratch, cast, bound.what,
                                                       my_.device, my_.kernels, *my_.casts);
  }

  static KernelFn* kernel_named(const Device& device, const OpDef& op, std::string_view name) {
    KernelFn* const kernel = device.kernel(op, name);
    require(kernel != nullptr,
            "the plan asks for kernel '{}' of op '{}', which device '{}' of this build does not have", name, op.name,
            device.name());
    return kernel;
  }

  bool are_in_one_buffer(int a, int b) const {
    return plan_.values[static_cast<size_t>(a)].buffer == plan_.values[static_cast<size_t>(b)].buffer;
  }

  void bind_kernel(Bound& bound) const {
    const Action& action = *bound.action;
    const bool on_host = action.lane == Lane::kHost;
    KernelFn* const kernel = kernel_named(on_host ? cpu_device() : my_.device, *action.op, action.kernel);
    if (on_host) {
      bound.background = std::make_unique<BoundHostOp>(
          HostWork{.kernel = kernel, .args = kernel_args(bound, my_.pool), .what = &bound.what}, my_.device,
          my_.kernels, *my_.host);
    } else {
      bound.kernel = kernel;
    }
  }

  void bind_collective(Bound& bound) {
    const Action& action = *bound.action;
    BoundCollective::Ranks ranks = ranks_of(action);
    ranks.tag = static_cast<int>(&action - plan_.actions.data());
    bound.sends = ranks.group != nullptr;
    std::vector<TensorType> in, out;
    for (const View& view : bound.in) in.push_back(view.type);
    for (const View& view : bound.out) out.push_back(view.type);
    bind_staged(bound, collective_scratch(*action.op, {in, out, action.attrs}), [&](const Staging& at) {
      return std::make_unique<BoundCollective>(*action.op, action.attrs, at.in, at.out, at.scratch, ranks);
    });
  }

  // The group of a collective, and this rank's place in it. Actions of one call have the same.
  BoundCollective::Ranks ranks_of(const Action& action) {
    ++out_.collectives;
    if (action.call >= 0 && ranks_of_call_[static_cast<size_t>(action.call)])
      return *ranks_of_call_[static_cast<size_t>(action.call)];
    ++out_.lookups;
    const RankGroups groups = groups_of(*action.op, action.attrs);
    std::vector<int> members;
    for (const int64_t member : groups.of(my_.rank, plan_.mesh)) members.push_back(world_rank(plan_.crew, member));
    BoundCollective::Ranks out;
    if (!members.empty()) out.place = groups.place_of(my_.rank, plan_.mesh);
    if (members.size() > 1) out.group = &my_.world->group(members);
    if (action.call >= 0) ranks_of_call_[static_cast<size_t>(action.call)] = out;
    return out;
  }

  void bind_message(Bound& bound) const {
    const Message message = message_of(*bound.action->op, bound.action->attrs);
    require(my_.world != nullptr && message.crew >= 0 && message.crew < plan_.crews,
            "the plan sends to crew {} of {}; no such ranks are here", message.crew, plan_.crews);
    bound.sends = true;
    bind_staged(bound, 0, [&](const Staging& at) {
      const View& view = message.sends ? at.in.at(0) : at.out.at(0);
      return std::make_unique<BoundMessage>(my_.world->all(), world_rank(message.crew, my_.rank), message, view);
    });
  }

  int world_rank(int64_t crew, int64_t of_mesh) const {
    return static_cast<int>(crew * plan_.mesh.devices() + of_mesh);
  }

  // Binds work in the background to its operands and results, on the host's side of a device that has one.
  template <class Bind>
  void bind_staged(Bound& bound, int64_t work_bytes, Bind&& bind) const {
    if (my_.inward == nullptr) {
      bound.background = bind(Staging{.in = bound.in, .out = bound.out, .scratch = bound.scratch});
      return;
    }
    Staging staging = stage(bound.in, bound.out, bound.scratch, work_bytes);
    auto work = bind(staging);
    bound.background = std::make_unique<StagedWork>(std::move(work), std::move(staging), my_.device,
                                                    CopyStreams{my_.kernels, *my_.outward, *my_.inward});
  }

  const ExecutionPlan& plan_;
  const RankResources& my_;
  std::vector<std::optional<BoundCollective::Ranks>> ranks_of_call_;
  BoundActions out_;
};

}  // namespace

BoundActions bind_actions(const ExecutionPlan& plan, const RankResources& rank) {
  return ActionBinder(plan, rank).run();
}

KernelArgs kernel_args(Bound& bound, ThreadPool* pool) {
  return {bound.in,      bound.out, bound.in_place,     bound.out_place, bound.action->attrs,
          bound.scratch, pool,      &bound.kernel_state};
}

}  // namespace trireme
