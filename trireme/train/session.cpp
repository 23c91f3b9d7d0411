#include "trireme/train/session.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/exec/soundness.h"
#include "trireme/op/build.h"
#include "trireme/partition/by_hand.h"
#include "trireme/partition/micro_batches.h"
#include "trireme/partition/partition.h"
#include "trireme/train/initialise.h"
#include "trireme/train/invariant.h"
#include "trireme/train/measure_rates.h"

namespace trireme {

Compiled compile(Graph graph, const CompileOptions& options) {
  const std::vector<std::string> wrong = verify(graph);
  invariant(wrong.empty(), "graph '{}': {}", graph.name(), wrong.empty() ? "" : wrong.front());
  Compiled out;
  out.graph = std::move(graph);
  const Communication& how = options.parallel.communication;
  if (options.parallel.by_hand) {
    require(options.parallel.numerics == Numerics::kFast,
            "numerics = 'invariant' is not for models cut by hand, whose collectives are their own; use numerics = 'fast'");
    require(options.parallel.accumulation == 1,
            "{} micro-batches a step: a model that is cut by hand takes its batch in one; use 1, or let the compiler cut it",
            options.parallel.accumulation);
    out.strategy = semi_auto(out.graph, options.ranks,
                             {.mesh = options.parallel.mesh, .dataset = "full_batch", .follow_requests = false});
    out.partitioned = by_hand(out.graph, out.strategy);
  } else {
    out.strategy = semi_auto(out.graph, options.ranks, options.parallel, options.stored);
    out.partitioned = partition(out.graph, out.strategy, {.costs = reshard_costs(how, out.strategy.mesh),
                                                          .sum_types = sum_types(out.graph, how)});
  }
  const bool in_tree = options.parallel.numerics == Numerics::kInvariant;
  PassOptions passes = options.passes;
  passes.recompute = passes.recompute || options.parallel.recompute;
  passes.loss_pieces = std::max(passes.loss_pieces, options.parallel.loss_pieces);
  if (in_tree) {
    require(passes.loss_pieces == 1, "numerics = 'invariant' sums in an order of its own, loss_pieces = {} in pieces; leave one out", passes.loss_pieces);
    require_invariant(out.graph, out.strategy);
    require_invariant(out.partitioned);
  }
  passes.all_reduce = {.bucket_bytes = how.bucket_bytes,
                       .bucket_ends = how.bucket_ends,
                       .rates = {reshard_costs(how, out.strategy.mesh), how.machine}};
  if (options.rates && !how.machine) passes.all_reduce.rates = options.rates(out.strategy.mesh);
  if (!how.fuse_all_reduce) passes.disabled.emplace_back("fuse_all_reduce");
  out.program = run_passes(in_micro_batches(out.partitioned, {.sums_in_tree = in_tree}), passes);
  out.plan = plan_execution(out.program, {.threads = options.threads,
                                          .numerics = options.parallel.numerics,
                                          .external_parameters = options.external_parameters});
  std::vector<std::string> unsound = verify(out.plan);
  if (unsound.empty()) unsound = check_communication(out.plan);
  invariant(unsound.empty(), "plan '{}': {}", out.plan.name, unsound.empty() ? "" : unsound.front());
  return out;
}

namespace {

bool sends_messages(const Session::Options& options) {
  const comm::World* world = options.world;
  return world != nullptr && options.pool != nullptr && world->size() > 1 && world->transport() != "shm" && world->transport() != "threads";
}

}  // namespace

Session::Session(Graph step, std::optional<Graph> evaluation, const Options& options) : options_(options) {
  const CompileOptions how{.ranks = options.world ? options.world->size() : 1,
                           .threads = options.pool ? options.pool->size() : 1,
                           .parallel = options.parallel,
                           .passes = options.passes};
  CompileOptions step_how = how;
  if (sends_messages(options)) {
    step_how.rates = [&](const Mesh& mesh) { return measure_rates(*options.world, *options.pool, mesh); };
  }
  compiled_ = compile(std::move(step), step_how);
  if (evaluation) {
    CompileOptions eval_how = how;
    eval_how.external_parameters = true;
    if (!how.parallel.strategy.empty()) eval_how.parallel.mesh = to_string(compiled_.strategy.mesh);  // the file brings its own
    std::map<std::string, Layout> stored;
    for (const PlanInput& input : compiled_.plan.inputs) {
      if (input.role != Role::kParameter && input.role != Role::kState) continue;
      stored.emplace(input.name, compiled_.plan.values[static_cast<size_t>(input.value)].layout);
    }
    eval_how.stored = &stored;
    compiled_evaluation_ = compile(std::move(*evaluation), eval_how);
    compiled_.plan.arena_bytes = std::max(compiled_.plan.arena_bytes, compiled_.plan.persistent_bytes +
                                                                          compiled_evaluation_->plan.arena_bytes);
  }
  if (options.world && options.world->size() > 1) {
    agree(compiled_.plan, *options.world);
    if (compiled_evaluation_) agree(compiled_evaluation_->plan, *options.world);
  }
  step_ = std::make_unique<Executor>(compiled_.plan,
                                     ExecutorOptions{.world = options.world, .pool = options.pool});
  if (compiled_evaluation_) {
    ExecutorOptions eval{.world = options.world, .pool = options.pool};
    eval.arena = step_->arena().subspan(static_cast<size_t>(compiled_.plan.persistent_bytes));
    eval.external = [this](std::string_view name) { return step_->input(name); };
    evaluation_ = std::make_unique<Executor>(compiled_evaluation_->plan, eval);
  }
  for (const PlanInput& input : compiled_.plan.inputs) {
    if (input.role == Role::kParameter || input.role == Role::kState) persistent_.push_back(input);
  }
}

void Session::initialise() {
  for (const PlanInput& input : persistent_) {
    const PlanValue& value = compiled_.plan.values[static_cast<size_t>(input.value)];
    trireme::initialise(step_->input(input.name), step_->input_box(input.name), value.whole, input.init,
                        options_.seed, input.name);
  }
  if (options_.parameter_broadcast && options_.world && options_.world->size() > 1) broadcast_parameters();
}

void Session::broadcast_parameters() {
  const Mesh& mesh = compiled_.plan.mesh;
  for (const PlanInput& input : persistent_) {
    if (input.role != Role::kParameter) continue;
    const std::vector<int> axes = compiled_.plan.values[static_cast<size_t>(input.value)].layout.replica_axes(mesh);
    const std::vector<int64_t> holders = mesh.group_of(options_.world->rank(), axes);
    if (holders.size() < 2) continue;
    options_.world->group({holders.begin(), holders.end()}).broadcast(step_->input(input.name), 0).wait();
  }
}

int64_t Session::parameter_count() const {
  int64_t count = 0;
  for (const PlanInput& input : persistent_) {
    if (input.role != Role::kParameter) continue;
    count += compiled_.plan.values[static_cast<size_t>(input.value)].whole.elements();
  }
  return count;
}

std::vector<PlanInput> Session::pieces_to_write(int64_t rank) const {
  const Mesh& mesh = compiled_.plan.mesh;
  std::vector<ckpt::Replicas> boxes;
  std::vector<size_t> input_of;
  for (size_t i = 0; i < persistent_.size(); ++i) {
    const PlanValue& value = compiled_.plan.values[static_cast<size_t>(persistent_[i].value)];
    for (const std::vector<int64_t>& holders : mesh.groups(value.layout.replica_axes(mesh))) {
      boxes.push_back({value.type.bytes(), {holders.begin(), holders.end()}});
      input_of.push_back(i);
    }
  }
  const std::vector<int> writers = ckpt::assign_writers(boxes, static_cast<int>(mesh.devices()));
  std::vector<PlanInput> out;
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (writers[i] == rank) out.push_back(persistent_[input_of[i]]);
  }
  return out;
}

}  // namespace trireme
