#include "trireme/train/step/session/session.h"

#include <algorithm>
#include <iterator>

#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/exec/analysis/soundness.h"
#include "trireme/exec/run/agree.h"
#include "trireme/train/step/compile/choose_homes.h"
#include "trireme/train/step/session/initialise.h"
#include "trireme/train/step/session/measure_rates.h"
#include "trireme/train/step/session/tune.h"

namespace trireme {

namespace {

bool sends_messages(const Session::Options& options) {
  const comm::World* world = options.world;
  return world != nullptr && options.pool != nullptr && world->size() > 1 && !world->is_in_memory();
}

CompileOptions compile_options(const Session::Options& options) {
  CompileOptions how = options.compile;
  const int64_t ranks = options.world ? options.world->size() : 1;
  const int threads = options.pool ? options.pool->size() : 1;
  require(how.ranks == 1 || how.ranks == ranks, "session: graphs compiled for {} ranks in a world of {}", how.ranks,
          ranks);
  require(how.threads == 1 || how.threads == threads, "session: graphs compiled for {} threads and a pool of {}",
          how.threads, threads);
  how.ranks = ranks;
  how.threads = threads;
  how.pool = options.pool;
  if (!how.measure && sends_messages(options)) {
    how.measure = [&](const Mesh& mesh) {
      return measure_rates(*options.world, *options.pool, mesh, device_of(options.compile));
    };
  }
  return how;
}

ExecutorOptions executor_options(const Session::Options& options) {
  return {.world = options.world, .pool = options.pool, .device = options.compile.device.get(), .disk = options.disk};
}

void log_plan(const char* of, const ExecutionPlan& plan) {
  TRIREME_LOG(kDebug, "train", "plan  of={} hash={:016x} actions={} arena_bytes={} persistent_bytes={}", of, hash(plan),
              plan.actions.size(), plan.arena().bytes, plan.arena().persistent);
}

// Beside what reuse saves of the plan, which its compiling logs.
void log_binding(const Executor& executor) {
  const Executor::Binding& bound = executor.binding();
  TRIREME_LOG(kInfo, "exec", "plan '{}': bound {} collectives with {} look-ups of groups; all actions took {:.2f} ms",
              executor.plan().name, bound.collectives, bound.lookups, 1e3 * bound.seconds);
}

// Where kernels work in the host's memory, what lies on the host takes as much of it.
void say_what_homes_save(const ExecutionPlan& plan, const Device& device, const comm::World* world) {
  const bool moves = std::ranges::any_of(
      plan.actions, [](const Action& action) { return is_move(*action.op) && !move_of(action.attrs).meets_disk(); });
  if (!moves || device.memory() == Memory::kDevice || (world && world->rank() > 0)) return;
  TRIREME_LOG(kWarn, "train",
              "parallel.home, parallel.keep and ops on the host put {} bytes there; the device '{}' works in the "
              "host's memory, too, so the process takes no less",
              plan.arena(Tier::kHost).bytes, device.name());
}

}  // namespace

Session::Session(Graph step, std::optional<Graph> evaluation, const Options& options) : options_(options) {
  CompileOptions how = compile_options(options);
  compile_for(std::move(step), std::move(evaluation), how);
  if (options.world) crew_ = static_cast<int>(options.world->rank() / plan().mesh.devices());
  if (options.world && options.world->size() > 1) {
    agree(compiled_.plans(), *options.world);
    if (compiled_evaluation_) agree(compiled_evaluation_->plans(), *options.world);
  }
  for (const ExecutionPlan* each : compiled_.plans()) require_fits(*each, device(), how.parallel.tiers);
  say_what_homes_save(plan(), device(), options.world);
  for (const std::string& rules : as_keys(compiled_.crews[static_cast<size_t>(crew_)].chosen_homes))
    TRIREME_LOG(kInfo, "plan", "chosen for {} of the device's memory: {}", to_string(how.parallel.tiers.device), rules);
  if (const std::string on_host = host_ops_text(plan()); !on_host.empty())
    TRIREME_LOG(kInfo, "plan", "on the host, beside device '{}': {}", plan().device, on_host);
  log_plan("step", plan());
  const ExecutionPlan* const of_evaluation = compiled_evaluation_ ? &compiled_evaluation_->plan(crew_) : nullptr;
  if (of_evaluation != nullptr) log_plan("evaluation", *of_evaluation);
  step_ = std::make_unique<Executor>(plan(), executor_options(options));
  if (how.parallel.communication.reuse != 0) log_binding(*step_);
  if (of_evaluation != nullptr) {
    ExecutorOptions eval = options_beside_step();
    eval.arena = step_->arena().subspan(static_cast<size_t>(plan().arena().persistent));
    const std::span<std::byte> on_host = step_->arena(Tier::kHost);
    eval.host_arena = on_host.subspan(static_cast<size_t>(plan().arena(Tier::kHost).persistent));
    evaluation_ = std::make_unique<Executor>(*of_evaluation, eval);
  }
  for (const PlanInput& input : plan().inputs) {
    if (input.role == Role::kParameter || input.role == Role::kState) persistent_.push_back(input);
  }
}

ExecutorOptions Session::options_beside_step() const {
  ExecutorOptions out = executor_options(options_);
  out.external = [this](std::string_view name) { return step_->input(name); };
  out.beside = step_.get();
  return out;
}

std::unique_ptr<Session::Beside> Session::beside(Graph graph) const {
  auto out = std::make_unique<Beside>(Beside{compile_beside(compiled_, std::move(graph), how_), nullptr});
  if (options_.world && options_.world->size() > 1) agree(out->compiled.plans(), *options_.world);
  const ExecutionPlan& plan = out->compiled.plan(crew_);
  log_plan("beside", plan);
  out->executor = std::make_unique<Executor>(plan, options_beside_step());
  return out;
}

void Session::compile_for(Graph step, std::optional<Graph> evaluation, CompileOptions& how) {
  if (how.tuning) how.tuning = agreed_tuning(how.tuning, options_.world);
  CompiledJob made = compile(std::move(step), std::move(evaluation), how);
  if (how.tuning && !options_.tuning.is_off()) {
    std::vector<const ExecutionPlan*> plans = made.step.plans();
    if (made.evaluation) std::ranges::copy(made.evaluation->plans(), std::back_inserter(plans));
    if (auto found = tune(plans, device(), *how.tuning, options_.tuning, options_.world)) {
      how.tuning = std::move(found);
      how.parallel.communication.measured = made.step.measured;
      std::optional<Graph> again;
      if (made.evaluation) again = std::move(made.evaluation->graph);
      made = compile(std::move(made.step.graph), std::move(again), how);
    }
  }
  compiled_ = std::move(made.step);
  compiled_evaluation_ = std::move(made.evaluation);
  how_ = how;
  how_.measure = {};
}

void Session::initialise() {
  for (const PlanInput& input : persistent_) {
    const PlanValue& value = plan().values[static_cast<size_t>(input.value)];
    step_->fill_inputs({&input.name, 1}, [&](std::span<const View> out) {
      trireme::initialise(out[0], step_->input_box(input.name), value.whole, input.init, options_.seed, input.name);
    });
  }
  if (options_.parameter_broadcast && options_.world && options_.world->size() > 1) broadcast_parameters();
}

void Session::broadcast_parameters() {
  const Mesh& mesh = plan().mesh;
  const auto first = crew_ * mesh.devices();
  for (const PlanInput& input : persistent_) {
    if (input.role != Role::kParameter) continue;
    const Axes axes = plan().values[static_cast<size_t>(input.value)].layout->replica_axes(mesh);
    std::vector<int> holders;
    for (const int64_t holder : mesh.group_of(options_.world->rank() - first, axes))
      holders.push_back(static_cast<int>(first + holder));
    if (holders.size() < 2) continue;
    const HostPiece piece = step_->read_input(input.name);
    options_.world->group(holders).broadcast(piece.view, 0).wait();
    step_->write_input(input.name, piece.view);
  }
}

int64_t Session::parameter_count() const {
  int64_t count = 0;
  for (const Input& input : compiled_.graph.inputs()) {
    if (input.role == Role::kParameter) count += compiled_.graph.type(input.value).shape.elements();
  }
  return count;
}

std::vector<PlanInput> Session::pieces_to_write(int64_t rank) const {
  const Mesh& mesh = plan().mesh;
  std::vector<ckpt::Replicas> boxes;
  std::vector<size_t> input_of;
  for (size_t i = 0; i < persistent_.size(); ++i) {
    const PlanValue& value = plan().values[static_cast<size_t>(persistent_[i].value)];
    for (const std::vector<int64_t>& holders : mesh.groups(value.layout->replica_axes(mesh))) {
      boxes.push_back({value.type.bytes(), {holders.begin(), holders.end()}});
      input_of.push_back(i);
    }
  }
  const std::vector<int> writers = ckpt::assign_writers(boxes, static_cast<int>(mesh.devices()));
  std::vector<PlanInput> out;
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (writers[i] == rank - crew_ * mesh.devices()) out.push_back(persistent_[input_of[i]]);
  }
  return out;
}

}  // namespace trireme
