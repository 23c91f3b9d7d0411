#include "trireme/exec/run/executor.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/base/heap.h"
#include "trireme/exec/plan/step_border.h"
#include "trireme/exec/run/bind_actions.h"
#include "trireme/exec/run/end_copies.h"
#include "trireme/exec/run/external_view.h"
#include "trireme/exec/run/rank_of_mesh.h"
#include "trireme/exec/run/thread_time.h"

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
  std::optional<HostLane> host, casts;  // of ops that run there, and of moves that make another element type

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
    begin_lane(host, std::ranges::count(plan.actions, Lane::kHost, &Action::lane));
    begin_lane(casts, std::ranges::count_if(plan.actions, [&](const Action& a) {
                 const auto type_of = [&](int value) { return &plan.values[static_cast<size_t>(value)].type; };
                 return is_move(*a.op) && casts_on_its_way(*a.op, {type_of(a.in[0]), 1}, {type_of(a.out[0]), 1});
               }));
    views = views_of(plan, memory, options.external, device, {*stream, copied});
    bind();
    copies = end_copies(plan, views);
    if (device.memory() == Memory::kHost) idle = idle_between_steps(plan, memory.arena(Tier::kDevice));
  }

  void begin_lane(std::optional<HostLane>& lane, std::ptrdiff_t works) {
    if (works > 0) lane.emplace(device, options.pool ? options.pool->size() : 1, static_cast<size_t>(works));
  }

  void bind() {
    const auto begin = Clock::now();
    BoundActions bound = bind_actions(plan, {.world = options.world,
                                             .pool = options.pool,
                                             .device = device,
                                             .rank = rank,
                                             .memory = memory,
                                             .views = views,
                                             .kernels = *stream,
                                             .outward = outward.get(),
                                             .inward = inward.get(),
                                             .movers = *movers,
                                             .host = host ? &*host : nullptr,
                                             .casts = casts ? &*casts : nullptr});
    actions = std::move(bound.actions);
    find_in_flight_at_end();
    for (Bound& action : actions) {
      if (action.sends) sending.push_back(&action);
    }
    flights.reserve(sending.size());
    stops.reserve(2 * sending.size());
    binding = {bound.collectives, bound.lookups, std::chrono::duration<double>(Clock::now() - begin).count()};
  }

  void find_in_flight_at_end() {
    std::vector<char> waited(actions.size(), 0);
    for (const Action& action : plan.actions) {
      for (const int other : action.waits) waited[static_cast<size_t>(other)] = 1;
    }
    for (size_t i = 0; i < actions.size(); ++i) {
      const bool is_left = std::ranges::count(border.left, static_cast<int>(i)) > 0;
      if (actions[i].background && !waited[i] && !is_left) in_flight_at_end.push_back(&actions[i]);
    }
  }

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
      stream->launch(bound.kernel, kernel_args(bound, options.pool), bound.what);
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
