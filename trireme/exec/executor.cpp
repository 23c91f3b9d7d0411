#include "trireme/exec/executor.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/base/heap.h"
#include "trireme/exec/bound_action.h"
#include "trireme/exec/bound_message.h"
#include "trireme/exec/carrier.h"
#include "trireme/exec/collective.h"
#include "trireme/exec/end_copies.h"
#include "trireme/exec/external_view.h"
#include "trireme/exec/host_lane.h"
#include "trireme/exec/rank_of_mesh.h"
#include "trireme/exec/step_border.h"
#include "trireme/exec/thread_time.h"
#include "trireme/exec/tier_memory.h"
#include "trireme/op/rank_groups.h"

namespace trireme {
namespace {

constexpr size_t kMostKeptBytes = 8 << 20;  // freed memory in the first run, in which kernels make what they keep

Device& of_plan(Device& device, const ExecutionPlan& plan) {
  require(plan.device == device.name(), "the plan is for device '{}'; it is to run on '{}'", plan.device,
          device.name());
  return device;
}

}  // namespace

struct Executor::State {
  const ExecutionPlan& plan;
  ExecutorOptions options;
  Device& device;
  int64_t rank;  // of the mesh
  TierMemory memory;
  std::vector<DeviceMemory> copied;  // of external parameters that the host has
  std::vector<View> views;           // per value
  std::span<std::byte> idle;         // between steps
  std::vector<Bound> actions;
  std::vector<std::optional<BoundCollective::Ranks>> ranks_of_call;
  Binding binding;
  std::vector<Bound*> in_flight_at_end;  // not what the step leaves under way
  StepBorder border = step_border(plan);
  Clock::time_point begun;                    // the step
  std::vector<Bound*> sending;                // actions that communicate, in their order
  std::vector<Interval> flights, stops;       // of the step, as in communication_time; room for all is there
  std::vector<std::pair<View, View>> copies;  // from, to: updates that are not in place
  CommunicationTime communication;            // of the last step
  std::vector<ActionTrace> trace;             // of the last step, if it is traced
  bool timing = false;
  bool times_work = false;  // in processor time
  bool tracing = false;
  bool first_run = true;
  // Of kernels, of copies from the device to the host and back where work in the background needs them, and of moves;
  // they end first, for their work uses all of the above.
  std::unique_ptr<DeviceStream> stream, outward, inward;
  std::optional<Movers> movers;
  std::optional<HostLane> host;  // where ops of the plan run there

  State(const ExecutionPlan& p, const ExecutorOptions& o)
      : plan(p),
        options(o),
        device(o.device ? *o.device : cpu_device()),
        rank(rank_of_mesh(p, o.world)),
        memory(p, {o.world, o.arena, o.host_arena, o.disk}, of_plan(device, p),
               o.beside ? &o.beside->state_->memory : nullptr),
        stream(device.stream()) {
    if (!device.sends_in_place()) outward = device.stream(), inward = device.stream();
    movers.emplace(plan, memory, device);
    const auto on_host = std::ranges::count(plan.actions, Lane::kHost, &Action::lane);
    if (on_host > 0) host.emplace(device, options.pool ? options.pool->size() : 1, static_cast<size_t>(on_host));
    views = views_of(plan, memory, options.external, device, {*stream, copied});
    bind_actions();
    copies = end_copies(plan, views);
    if (device.memory() == Memory::kHost) idle = idle_between_steps(plan, memory.arena(Tier::kDevice));
  }

  Place place_of(int value) const {
    const PlanValue& v = plan.values[static_cast<size_t>(value)];
    if (plan.by_hand) return {v.type.shape, Box::whole(v.type.shape).start};
    if (v.part_of) {
      const Mesh mesh = with_micro_batches(plan.mesh, plan.micro_batches, plan.seq_chunks);
      const int64_t place = rank * plan.micro_batches + v.part_of->micro_batch;
      return {v.part_of->whole, local_box(v.part_of->whole, v.part_of->layout, mesh, place).start};
    }
    return {v.whole, local_box(v.whole, v.layout, plan.mesh, rank).start};
  }

  void bind_actions() {
    const auto begin = Clock::now();
    actions.resize(plan.actions.size());
    ranks_of_call.resize(plan.calls.size());
    std::vector<char> waited(plan.actions.size(), 0);
    for (size_t i = 0; i < plan.actions.size(); ++i) {
      const Action& action = plan.actions[i];
      Bound& bound = actions[i];
      bound.action = &action;
      bound.what =
          fmt::format("in {}{}", action.op->name,
                      action.scope.empty() ? ", outside of all modules" : fmt::format(" at '{}'", action.scope));
      for (const int id : action.in) {
        bound.in.push_back(views[static_cast<size_t>(id)]);
        bound.in_place.push_back(place_of(id));
      }
      for (const int id : action.out) {
        bound.out.push_back(views[static_cast<size_t>(id)]);
        bound.out_place.push_back(place_of(id));
      }
      if (action.scratch >= 0) {
        const Buffer& buffer = plan.buffers[static_cast<size_t>(action.scratch)];
        bound.scratch = memory.bytes_of(buffer);
      }
      for (const int comm : action.waits) waited[static_cast<size_t>(comm)] = 1;
      bind_work(bound);
    }
    for (size_t i = 0; i < actions.size(); ++i) {
      const bool is_left = std::ranges::count(border.left, static_cast<int>(i)) > 0;
      if (actions[i].background && !waited[i] && !is_left) in_flight_at_end.push_back(&actions[i]);
      if (actions[i].sends) sending.push_back(&actions[i]);
    }
    flights.reserve(sending.size());
    stops.reserve(2 * sending.size());
    binding.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  }

  void bind_work(Bound& bound) {
    const Action& action = *bound.action;
    if (action.op->traits.joins_in_place) return;
    if (action.op->traits.zero_cost_view && are_in_one_buffer(action.in[0], action.out[0])) return;
    if (is_message(*action.op)) return bind_message(bound);
    if (is_move(*action.op)) {
      bound.background = movers->bind(action, bound.in[0], bound.out[0], bound.scratch, *stream);
      return;
    }
    if (!action.op->collective) return bind_kernel(bound);
    if (!is_communication(*action.op)) {
      bound.dim = action.op->collective->call(action.attrs).parted;
      bound.part = groups_of(*action.op, action.attrs).place_of(rank, plan.mesh);
      return;
    }
    BoundCollective::Ranks ranks = ranks_of(action);
    ranks.tag = static_cast<int>(&action - plan.actions.data());
    bound.sends = ranks.group != nullptr;
    std::vector<TensorType> in, out;
    for (const View& view : bound.in) in.push_back(view.type);
    for (const View& view : bound.out) out.push_back(view.type);
    carry(bound, collective_scratch(*action.op, {in, out, action.attrs}), [&](const Staging& at) {
      return std::make_unique<BoundCollective>(*action.op, action.attrs, at.in, at.out, at.scratch, ranks);
    });
  }

  bool are_in_one_buffer(int a, int b) const {
    return plan.values[static_cast<size_t>(a)].buffer == plan.values[static_cast<size_t>(b)].buffer;
  }

  void bind_kernel(Bound& bound) {
    const Action& action = *bound.action;
    const bool on_host = action.lane == Lane::kHost;
    const Device& where = on_host ? cpu_device() : device;
    KernelFn* const kernel = where.kernel(*action.op, action.kernel);
    require(kernel != nullptr,
            "the plan asks for kernel '{}' of op '{}', which device '{}' of this build does not have", action.kernel,
            action.op->name, where.name());
    if (on_host) {
      bound.background = std::make_unique<BoundHostOp>(
          HostWork{.kernel = kernel, .args = args_of(bound), .what = &bound.what}, device, *stream, *host);
    } else {
      bound.kernel = kernel;
    }
  }

  KernelArgs args_of(Bound& bound) const {
    return {bound.in,      bound.out,    bound.in_place,     bound.out_place, bound.action->attrs,
            bound.scratch, options.pool, &bound.kernel_state};
  }

  // The group of a collective, and this rank's place in it. Actions of one call have the same.
  BoundCollective::Ranks ranks_of(const Action& action) {
    ++binding.collectives;
    if (action.call >= 0 && ranks_of_call[static_cast<size_t>(action.call)])
      return *ranks_of_call[static_cast<size_t>(action.call)];
    ++binding.lookups;
    const RankGroups groups = groups_of(*action.op, action.attrs);
    std::vector<int> members;
    for (const int64_t member : groups.of(rank, plan.mesh)) members.push_back(world_rank(plan.crew, member));
    BoundCollective::Ranks out;
    if (!members.empty()) out.place = groups.place_of(rank, plan.mesh);
    if (members.size() > 1) out.group = &options.world->group(members);
    if (action.call >= 0) ranks_of_call[static_cast<size_t>(action.call)] = out;
    return out;
  }

  // Binds work in the background to its operands and results, on the host's side of a device that has one.
  template <class Bind>
  void carry(Bound& bound, int64_t work_bytes, Bind&& bind) {
    if (!inward) {
      bound.background = bind(Staging{.in = bound.in, .out = bound.out, .scratch = bound.scratch});
      return;
    }
    Staging staging = stage(bound.in, bound.out, bound.scratch, work_bytes);
    auto work = bind(staging);
    bound.background = std::make_unique<CarriedWork>(std::move(work), std::move(staging), device,
                                                     CopyStreams{*stream, *outward, *inward});
  }

  void bind_message(Bound& bound) {
    const Message message = message_of(*bound.action->op, bound.action->attrs);
    require(options.world != nullptr && message.crew >= 0 && message.crew < plan.crews,
            "the plan sends to crew {} of {}; no such ranks are here", message.crew, plan.crews);
    bound.sends = true;
    carry(bound, 0, [&](const Staging& at) {
      const View& view = message.sends ? at.in.at(0) : at.out.at(0);
      return std::make_unique<BoundMessage>(options.world->all(), world_rank(message.crew, rank), message, view);
    });
  }

  int world_rank(int64_t crew, int64_t of_mesh) const { return static_cast<int>(crew * plan.mesh.devices() + of_mesh); }

  void run_action(Bound& bound) {
    if (!border.left.empty()) {
      for (const int left : border.ends[static_cast<size_t>(number_of(bound))]) wait(left_at(left));
    }
    for (const int comm : bound.action->waits) wait(actions[static_cast<size_t>(comm)]);
    const bool timed = timing || tracing;
    const auto begin = timed ? Clock::now() : Clock::time_point{};
    const double worked = times_work ? thread_worked_s() : 0;
    noting(bound, [&] { begin_work(bound); });
    if (!timed) return;
    const auto end = Clock::now();
    bound.seconds += times_work ? thread_worked_s() - worked : std::chrono::duration<double>(end - begin).count();
    const bool is_under_way = bound.background && bound.background->is_under_way();
    if (tracing && !is_under_way) trace.push_back({number_of(bound), false, begin, end});
  }

  void begin_work(Bound& bound) {
    if (bound.kernel != nullptr) {
      stream->launch(bound.kernel, args_of(bound), bound.what);
    } else if (bound.background) {
      start(bound);
    } else if (bound.action->op->collective) {
      cut(bound);
    }
  }

  // The lanes of the host and of the disk note what it was that failed themselves: it may be of an earlier action.
  void end_work(Bound& bound) {
    if (!bound.sends) return bound.background->wait();
    noting(bound, [&] { bound.background->wait(); });
  }

  // Errors of an action say which it is, wherever it is waited for.
  template <class Call>
  void noting(const Bound& bound, Call&& call) {
    try {
      call();
    } catch (Error& e) {
      e.note(bound.what);
      throw;
    }
  }

  int number_of(const Bound& bound) const { return static_cast<int>(bound.action - plan.actions.data()); }

  Bound& left_at(int left) { return actions[static_cast<size_t>(border.left[static_cast<size_t>(left)])]; }

  // Ends what the last step has left under way.
  void settle() {
    for (const int left : border.left) wait(actions[static_cast<size_t>(left)]);
  }
  // Where the value is, when nothing under way uses its bytes, which may be lent by another executor.
  const View& settled(int value) {
    if (options.beside != nullptr) options.beside->state_->settle();
    if (!border.left.empty() && border.used[static_cast<size_t>(value)] != 0) settle();
    return views[static_cast<size_t>(value)];
  }

  // The local cut of a replicated value.
  void cut(const Bound& bound) {
    const Shape& piece = bound.out[0].type.shape;
    Box part = Box::whole(piece);
    part.start[bound.dim] = bound.part * piece[bound.dim];
    stream->copy_region(bound.in[0], Box::whole(bound.in[0].type.shape), bound.out[0], part, part);
  }

  void start(Bound& bound) {
    bound.background->prepare();
    bound.sent = Clock::now();
    bound.background->start();
    if (bound.sends) stops.push_back({bound.sent, Clock::now()});
  }

  void wait(Bound& bound) {
    if (!bound.background->is_under_way()) return end_work(bound);
    const auto begin = Clock::now();
    end_work(bound);
    const auto end = Clock::now();
    if (bound.sends) stops.push_back({begin, end});
    if (timing) bound.seconds += std::chrono::duration<double>(end - begin).count();
    if (!tracing) return;
    trace.push_back({number_of(bound), true, begin, end});
    if (!bound.sends)
      trace.push_back({number_of(bound), false, std::max(bound.sent, begun), bound.background->ended()});
  }

  CommunicationTime note_communication(Clock::time_point begin) {
    flights.clear();
    for (const Bound* bound : sending) flights.push_back({bound->sent, bound->background->ended()});
    CommunicationTime out = communication_time(flights, stops);
    if (!flights.empty()) out.begin_s = std::chrono::duration<double>(flights.front().begin - begin).count();
    return out;
  }

  void run() {
    if (options.beside != nullptr) options.beside->state_->settle();
    begun = Clock::now();
    stops.clear();
    trace.clear();
    for (Bound& bound : actions) {
      if (first_run) trim_heap(kMostKeptBytes);
      run_action(bound);
    }
    first_run = false;
    for (Bound* bound : in_flight_at_end) wait(*bound);
    communication = note_communication(begun);
    for (size_t i = 0; tracing && i < border.left.size(); ++i) {
      const Bound& left = left_at(static_cast<int>(i));
      if (left.background->is_under_way()) trace.push_back({number_of(left), false, left.sent, Clock::now()});
    }
    for (size_t i = 0; tracing && i < sending.size(); ++i)
      trace.push_back({number_of(*sending[i]), false, sending[i]->sent, sending[i]->background->ended()});
    for (const auto& [from, to] : copies) stream->copy(from, to);
    stream->synchronize();
  }

  HostPiece read(int value) {
    const View& piece = settled(value);
    if (piece.memory == Memory::kHost) return {piece};
    HostTensor copy(piece.type);
    if (piece.memory == Memory::kDisk) {
      movers->read(value, copy.view());
    } else {
      stream->copy(piece, copy.view());
      stream->synchronize();
    }
    return {copy.view(), std::move(copy)};
  }

  // Memory for a value between steps: of the step's own, if it has room there, else `own`.
  View between_steps(const TensorType& type, HostTensor& own) const {
    if (static_cast<int64_t>(idle.size()) >= type.bytes()) return {idle.data(), type};
    own = HostTensor(type);
    return own.view();
  }

  HostPiece borrow(int value) {
    const View& piece = settled(value);
    if (piece.memory != Memory::kDisk) return read(value);
    HostPiece out;
    out.view = between_steps(piece.type, out.copy);
    movers->read(value, out.view);
    return out;
  }

  void write(int value, const View& from) {
    const View& to = settled(value);
    if (to.memory == Memory::kDisk) return movers->write(value, from);
    stream->copy(from, to);
    stream->synchronize();
  }

  Box box_of(int value) const {
    const PlanValue& v = plan.values[static_cast<size_t>(value)];
    return local_box(v.whole, v.layout, plan.mesh, rank);
  }
};

Executor::Executor(const ExecutionPlan& plan, const ExecutorOptions& options)
    : state_(std::make_unique<State>(plan, options)) {}
Executor::~Executor() = default;

void Executor::run() {
  state_->run();
}
const ExecutionPlan& Executor::plan() const {
  return state_->plan;
}
std::span<std::byte> Executor::arena(Tier tier) const {
  return state_->memory.arena(tier);
}

void Executor::settle() const {
  state_->settle();
}

std::string Executor::disk() const {
  return state_->movers->disk();
}

bool Executor::has_input(std::string_view name) const {
  return std::ranges::any_of(state_->plan.inputs, [&](const PlanInput& input) { return input.name == name; });
}

void Executor::write_input(std::string_view name, const View& from) {
  const View to = state_->views[static_cast<size_t>(state_->plan.input(name).value)];
  require(from.type == to.type, "input '{}' is {}; it cannot be written from {}", name, to_string(to.type),
          to_string(from.type));
  state_->write(state_->plan.input(name).value, from);
}

void Executor::fill_inputs(std::span<const std::string> names, const std::function<void(std::span<const View>)>& fill) {
  std::vector<View> views;
  std::vector<HostTensor> copies;
  for (const std::string& name : names) {
    const View view = input(name);
    const bool is_one = names.size() == 1 && view.memory == Memory::kDisk;
    views.push_back(view.memory == Memory::kHost ? view
                    : is_one                     ? state_->between_steps(view.type, copies.emplace_back())
                                                 : copies.emplace_back(view.type).view());
  }
  fill(views);
  for (size_t i = 0; i < names.size(); ++i) {
    const int to = state_->plan.input(names[i]).value;
    if (state_->views[static_cast<size_t>(to)].memory != Memory::kHost) state_->write(to, views[i]);
  }
}

HostPiece Executor::read_input(std::string_view name) const {
  return state_->read(state_->plan.input(name).value);
}
HostPiece Executor::borrow_input(std::string_view name) const {
  return state_->borrow(state_->plan.input(name).value);
}
HostPiece Executor::read_output(std::string_view name) const {
  return state_->read(state_->plan.output(name).value);
}

View Executor::input(std::string_view name) const {
  return state_->settled(state_->plan.input(name).value);
}
View Executor::output(std::string_view name) const {
  return state_->settled(state_->plan.output(name).value);
}
Box Executor::input_box(std::string_view name) const {
  return state_->box_of(state_->plan.input(name).value);
}
Box Executor::output_box(std::string_view name) const {
  return state_->box_of(state_->plan.output(name).value);
}

const Executor::Binding& Executor::binding() const {
  return state_->binding;
}

CommunicationTime Executor::communication() const {
  return state_->communication;
}

void Executor::set_timing(bool on, bool worked) {
  state_->timing = on;
  state_->times_work = on && worked;
  for (Bound& bound : state_->actions) bound.seconds = 0;
}

std::vector<ActionTime> Executor::times() const {
  std::vector<ActionTime> out;
  for (const Bound& bound : state_->actions) {
    out.push_back({bound.action->op->name, bound.action->scope, bound.action->lane, bound.seconds});
  }
  return out;
}

void Executor::set_tracing(bool on) {
  state_->tracing = on;
  state_->trace.clear();
  if (on) state_->trace.reserve(4 * state_->actions.size());  // it runs in one step or two, and is waited for once
}

std::span<const ActionTrace> Executor::trace() const {
  return state_->trace;
}

}  // namespace trireme
