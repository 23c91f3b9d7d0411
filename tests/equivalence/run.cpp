#include "tests/equivalence/run.h"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

#include "tests/equivalence/linger.h"
#include "tests/equivalence/options.h"
#include "tests/equivalence/oracle.h"
#include "tests/equivalence/pass_options.h"
#include "tests/equivalence/programs.h"
#include "tests/equivalence/shrink.h"
#include "tests/equivalence/used_isa.h"
#include "trireme/backend/device.h"
#include "trireme/base/log.h"
#include "trireme/base/thread_pool.h"
#include "trireme/comm/comm.h"
#include "trireme/exec/analysis/soundness.h"
#include "trireme/exec/lowering/plan_execution.h"
#include "trireme/exec/run/executor.h"
#include "trireme/layout/interpret_reshard.h"
#include "trireme/op/build.h"
#include "trireme/op/conformance.h"
#include "trireme/parallel/parallel.h"
#include "trireme/parallel/propagate/propagate.h"
#include "trireme/pass/passes.h"
#include "trireme/train/step/compile/compile.h"

namespace trireme::equivalence {
namespace {

constexpr int kCarefulRuns = 32;  // of the oracle, before a case is said to differ

// A graph of a case on its way to the ranks: the step's, or the evaluation's.
struct Built {
  // An output as one crew has it: what a step reports all crews have.
  struct Result {
    int crew = 0;
    size_t index = 0;                // among its plan's outputs
    std::vector<HostTensor> pieces;  // every rank's
  };

  std::vector<ExecutionPlan> plans;  // of the crews
  std::vector<Result> results;
  int64_t repeated = 0;  // micro-batches that were not compiled, but are as others

  int64_t ranks_of_crew() const { return plans[0].mesh.devices(); }
  int64_t ranks() const { return ranks_of_crew() * static_cast<int64_t>(plans.size()); }
  ExecutionPlan& plan_of(int64_t rank) { return plans[static_cast<size_t>(rank / ranks_of_crew())]; }
  const PlanOutput& output(const Result& result) const {
    return plans[static_cast<size_t>(result.crew)].outputs[result.index];
  }
};

// A case on its way from the graph to its verdict.
struct Running {
  const Case* test = nullptr;
  std::shared_ptr<Device> device;
  CaseInputs inputs;
  Expected expected;
  Tensors bits;  // of the outputs as one rank with one thread computes them, where the case is to have them
  Built step;
  std::optional<Built> evaluation;
  Verdict verdict;

  bool is_open() const { return verdict.kind == Verdict::Kind::kAgrees; }
  void fail(const std::string& text) { verdict = {Verdict::Kind::kFails, text}; }
};

std::string transport_of(const Case& test) {
  const std::vector<std::string>& known = comm::transports_of_threads();
  return std::ranges::find(known, test.transport) == known.end() ? "shm" : test.transport;
}

// The same case on one rank.
Case on_one_rank(const Case& test) {
  Case out = test;
  out.crews = 1;
  out.strategy =
      propagate(test.graph, Mesh(), Asks{.inputs = std::vector<std::optional<Layout>>(test.graph.inputs().size())});
  return out;
}

// `beside`: the plans of the step, whose parameters it reads; null: it is the step.
PassOptions passes_for(const Case& test, const std::vector<ExecutionPlan>* beside) {
  PassOptions out = pass_options(test);
  if (beside == nullptr) return out;
  std::vector<HomeRule> homes;
  for (const ExecutionPlan& plan : *beside) {
    const std::vector<HomeRule> own = with_own_homes(out, plan);
    homes.insert(homes.end(), own.begin(), own.end());
  }
  out.homes = std::move(homes);
  return out;
}

void check_texts(const Graph& graph, const Strategy& strategy, const std::vector<ExecutionPlan>& plans) {
  const std::string cuts = to_string(graph, strategy);
  invariant(to_string(graph, parse_strategy(cuts, graph)) == cuts, "the strategy reads back otherwise");
  for (const ExecutionPlan& plan : plans) {
    const std::string text = to_string(plan);
    invariant(to_string(parse_plan(text)) == text, "the plan reads back otherwise");
  }
}

std::vector<std::string> check_all_ranks(const std::vector<ExecutionPlan>& plans) {
  std::vector<std::vector<CommCall>> calls;
  for (const ExecutionPlan& plan : plans) {
    for (int64_t rank = 0; rank < plan.mesh.devices(); ++rank) calls.push_back(calls_of(plan, rank));
  }
  return check_communication(calls);
}

Built build(const Case& test, const Device& device, const Graph& graph, const Strategy& strategy,
            const std::vector<ExecutionPlan>* beside) {
  Built out;
  refuse(verify(graph), "graph");
  const Program whole = partitioned(test, graph, strategy);
  refuse(verify(whole), "partitioned program");
  const Programs programs = programs_of(test, graph, whole, passes_for(test, beside));
  out.repeated = programs.repeated;
  for (const Program& program : programs.crews) {
    const auto crew = static_cast<int>(out.plans.size());
    const ExecutionPlan& plan =
        out.plans.emplace_back(plan_execution(program, {.threads = threads_of(test),
                                                        .device = &device,
                                                        .numerics = test.numerics,
                                                        .external_parameters = beside != nullptr,
                                                        .crew = crew,
                                                        .crews = static_cast<int>(test.crews),
                                                        .reuse = {.limit = test.reuse}}));
    refuse(verify(plan), "plan");
    for (size_t i = 0; i < plan.outputs.size(); ++i)
      out.results.push_back({crew, i, std::vector<HostTensor>(static_cast<size_t>(plan.mesh.devices()))});
  }
  std::vector<const ExecutionPlan*> plans;
  for (const ExecutionPlan& plan : out.plans) plans.push_back(&plan);
  refuse(check_communication(std::span<const ExecutionPlan* const>(plans)), "communication");
  if (test.seed % 8 == 0) refuse(check_all_ranks(out.plans), "communication of all ranks");
  if (test.seed % 8 == 0) check_texts(graph, strategy, out.plans);
  return out;
}

void compile(Running& r) {
  const Case& test = *r.test;
  set_log_levels("error");  // many cases have no loss that can be taken in pieces
  r.device = test.device == "guarded" ? make_device(fmt::format("guarded:{}", test.seed))
             : test.lingers           ? lingering_cpu(test.seed)
                                      : make_device(test.device);
  r.step = build(test, *r.device, test.graph, test.strategy, nullptr);
  const Graph evaluation = test.evaluates ? evaluation_of(test) : Graph();
  if (evaluation.outputs().empty()) return;
  r.evaluation = build(test, *r.device, evaluation, evaluation_strategy(test, evaluation), &r.step.plans);
  for (size_t crew = 0; crew < r.step.plans.size(); ++crew) {  // has room for both, as a job's has
    Arena& arena = r.step.plans[crew].arena();
    arena.bytes = std::max(arena.bytes, arena.persistent + r.evaluation->plans[crew].arena().bytes);
  }
}

void feed(Executor& executor, const Tensors& inputs) {
  for (const PlanInput& input : executor.plan().inputs) {
    const auto whole = inputs.find(input.name);
    if (whole == inputs.end()) continue;
    const Box box = executor.input_box(input.name);
    executor.fill_inputs({&input.name, 1}, [&](std::span<const View> pieces) {
      const Shape& shape = whole->second.shape();
      std::ranges::fill(pieces[0].raw(), std::byte{0});  // beyond the whole's end
      copy_region(whole->second.view(), Box::whole(shape), pieces[0], box, held(box, shape));
    });
  }
}

// Where an output is found after a step: one that replaces an input, in its place.
HostPiece found_at(const Executor& executor, const PlanOutput& output) {
  for (const PlanInput& input : executor.plan().inputs) {
    if (input.value == output.updates) return executor.read_input(input.name);
  }
  return executor.read_output(output.name);
}

// Those that replace what is kept, or all others. Each rank has a place of its own.
void take_outputs(Built& built, const Executor& executor, int64_t rank, bool kept) {
  for (Built::Result& result : built.results) {
    const PlanOutput& output = built.output(result);
    if (rank / built.ranks_of_crew() != result.crew || (output.updates >= 0) != kept) continue;
    const HostPiece found = found_at(executor, output);
    HostTensor piece(found.view.type);
    std::ranges::copy(found.view.raw(), piece.view().raw().begin());
    result.pieces[static_cast<size_t>(rank % built.ranks_of_crew())] = std::move(piece);
  }
}

void run_on_rank(Running& r, const CaseInputs& all, comm::World* world) {
  const int64_t rank = world == nullptr ? 0 : world->rank();
  const ExecutionPlan& plan = r.step.plan_of(rank);
  std::optional<ThreadPool> pool;
  if (plan.threads > 1) pool.emplace(plan.threads);
  ExecutorOptions how{.world = world, .pool = pool ? &*pool : nullptr, .device = r.device.get()};
  Executor executor(plan, how);
  std::optional<Executor> evaluation;
  if (r.evaluation) {
    how.arena = executor.arena().subspan(static_cast<size_t>(plan.arena().persistent));
    how.external = [&](std::string_view name) { return executor.input(name); };
    how.beside = &executor;
    evaluation.emplace(r.evaluation->plan_of(rank), how);
  }
  for (const Tensors& inputs : all.steps) {
    feed(executor, inputs);
    executor.run();
    take_outputs(r.step, executor, rank, false);
    if (!evaluation) continue;
    feed(*evaluation, all.evaluation);
    evaluation->run();
    take_outputs(*r.evaluation, *evaluation, rank, false);
  }
  take_outputs(r.step, executor, rank, true);  // as the evaluation leaves them
}

Tensors run_alone(const Case& test, const CaseInputs& inputs) {
  Case alone = on_one_rank(test);
  alone.device = "cpu";
  alone.lingers = false;
  Running r;
  r.test = &alone;
  compile(r);
  run_on_rank(r, inputs, nullptr);
  Tensors out;
  for (Built::Result& result : r.step.results)
    out.emplace(r.step.output(result).name, std::move(result.pieces.front()));
  if (!r.evaluation) return out;
  for (Built::Result& result : r.evaluation->results)
    out.emplace(evaluated(r.evaluation->output(result).name), std::move(result.pieces.front()));
  return out;
}

Running begin(const Case& test) {
  const UsedIsa isa(test.isa);
  Running r;
  r.test = &test;
  try {
    r.inputs = random_inputs(test);
    r.expected = one_device(test, r.inputs);
    if (!r.expected.finite) {
      r.verdict.kind = Verdict::Kind::kWild;
      return r;
    }
    if (test.seed % 4 == 0 || test.by_hand) {
      const std::string wrong = check_gradients(test, r.inputs.steps.front());
      if (!wrong.empty()) r.verdict = {Verdict::Kind::kSlope, wrong};
    }
    compile(r);
    if (keeps_bits(test)) r.bits = run_alone(test, r.inputs);
  } catch (const std::exception& e) {
    r.fail(e.what());
  }
  return r;
}

void run_together(std::span<Running* const> all) {
  const Running& first = *all.front();
  const UsedIsa isa(first.test->isa);
  const auto linger = [&](comm::WorldOptions& options) {
    if (first.test->lingers) options.rest = drawn_rests(first.test->seed * 64 + static_cast<uint32_t>(options.rank));
  };
  comm::spawn_ranks(
      static_cast<int>(first.step.ranks()), transport_of(*first.test),
      [&](comm::World& world) {
        for (Running* r : all) run_on_rank(*r, r->inputs, &world);
      },
      0, linger);
}

// An error breaks the world, so cases that share one with it are run again on their own.
void run_on_ranks(std::span<Running* const> all) {
  try {
    run_together(all);
  } catch (const std::exception& e) {
    if (all.size() == 1) return all.front()->fail(e.what());
    for (Running* const& one : all) run_on_ranks({&one, 1});
  }
}

// How an output lies too far from what is expected, or "".
std::string difference(Running& r, const Built& built, const Built::Result& result, const std::string& name) {
  const ExecutionPlan& plan = built.plans[static_cast<size_t>(result.crew)];
  const PlanOutput& output = built.output(result);
  const Layout& layout = plan.values[static_cast<size_t>(output.value)].layout;
  const Shape& whole = plan.values[static_cast<size_t>(output.value)].whole;
  const double allowed = r.expected.allowed.at(name);
  ++r.verdict.compared;
  if (r.expected.vague.contains(name)) ++r.verdict.vague;
  if (r.test->by_hand) {
    const std::vector<HostTensor>& got = result.pieces;
    if (output.updates >= 0) gather(got, layout, plan.mesh, {got[0].type().dtype, whole});  // throws at other bits
    for (size_t rank = 0; rank < got.size(); ++rank) {
      const std::string found = conformance::difference(got[rank], r.expected.outputs[rank].at(name), allowed);
      if (!found.empty()) return fmt::format("on rank {}: {}", rank, found);
    }
    return "";
  }
  const HostTensor& want = r.expected.outputs[0].at(name);
  const HostTensor got = gather(result.pieces, layout, plan.mesh, want.type());
  if (keeps_bits(*r.test) && !std::ranges::equal(got.view().raw(), r.bits.at(name).view().raw()))
    return "other bits than on one rank";
  return conformance::difference(got, want, allowed);
}

// The first output that is too far from one device's, or "".
std::string difference(Running& r) {
  r.verdict.compared = r.verdict.vague = 0;
  for (const Built* built : {&r.step, r.evaluation ? &*r.evaluation : nullptr}) {
    if (built == nullptr) continue;
    for (const Built::Result& result : built->results) {
      const std::string& output = built->output(result).name;
      const std::string name = built == &r.step ? output : evaluated(output);
      const std::string found = difference(r, *built, result, name);
      const std::string of_crew = built->plans.size() > 1 ? fmt::format(" of crew {}", result.crew) : "";
      if (!found.empty()) return fmt::format("output '{}'{}: {}", name, of_crew, found);
    }
  }
  return "";
}

void compare(Running& r) {
  if (difference(r).empty()) return;
  r.expected = one_device(*r.test, r.inputs, kCarefulRuns);
  const std::string found = difference(r);
  if (!found.empty()) r.verdict = {Verdict::Kind::kDiffers, found};
}

Verdict verdict_of(Running& r) {
  try {
    if (r.is_open()) compare(r);
  } catch (const std::exception& e) {  // replicas that differ in some bit
    r.verdict = {Verdict::Kind::kDiffers, e.what()};
  }
  return r.verdict;
}

// "op matmul", "kernel matmul.onednn": what a plan of the case does.
void note(const Case& test, const Built& built, std::set<std::string>& out) {
  for (const ExecutionPlan& plan : built.plans) {
    for (const Action& action : plan.actions) {
      out.insert(fmt::format("op {}{}", action.op->name, computes_in_bf16(test.graph) ? " in bf16" : ""));
      if (!action.kernel.empty()) out.insert(fmt::format("kernel {}", action.kernel));
    }
  }
}

}  // namespace

std::set<std::string> reached_by(const Case& test) {
  const UsedIsa isa(test.isa);
  Running r;
  r.test = &test;
  try {
    compile(r);
  } catch (Error& e) {
    e.note(fmt::format("in the case of seed {}", test.seed));
    throw;
  }
  std::set<std::string> out;
  note(test, r.step, out);
  if (r.evaluation) note(test, *r.evaluation, out);
  for (std::string& option : options_of(test)) out.insert(std::move(option));
  for (std::string& option : options_of_repeated(test, r.step.repeated)) out.insert(std::move(option));
  if (r.evaluation && r.evaluation->repeated > 0) out.insert("option repeated, evaluation");
  return out;
}

std::string program_text(const Case& test) {
  try {
    std::string out;
    for (const Program& of_crew : programs_of(test, test.graph, partitioned(test), passes_for(test, nullptr)).crews)
      out += to_string(of_crew);
    return out;
  } catch (const std::exception& e) {
    return e.what();
  }
}

std::vector<Verdict> run_cases(std::span<const Case> cases) {
  std::deque<Running> all;
  for (const Case& test : cases) all.push_back(begin(test));
  std::map<std::tuple<int64_t, std::string, std::string, bool>, std::vector<Running*>> by_world;
  for (Running& r : all) {
    if (r.is_open()) by_world[{r.step.ranks(), transport_of(*r.test), r.test->isa, r.test->lingers}].push_back(&r);
  }
  for (const auto& [world, group] : by_world) run_on_ranks(group);
  std::vector<Verdict> out;
  for (Running& r : all) out.push_back(verdict_of(r));
  return out;
}

// Rank 0 gathers what each rank has of each output.
void gather_outputs(Built& built, comm::World& world) {
  const int64_t of_crew = built.ranks_of_crew();
  for (Built::Result& result : built.results) {
    const ExecutionPlan& plan = built.plans[static_cast<size_t>(result.crew)];
    const TensorType type = plan.values[static_cast<size_t>(built.output(result).value)].type;
    const int64_t bytes = type.bytes();
    HostTensor own(type);
    if (world.rank() / of_crew == result.crew)
      own = std::move(result.pieces[static_cast<size_t>(world.rank() % of_crew)]);
    const HostTensor all(TensorType{DType::kU8, {bytes * world.size()}});
    world.all().all_gather({own.view().data, {DType::kU8, {bytes}}}, all.view()).wait();
    for (int64_t rank = 0; rank < of_crew; ++rank) {
      HostTensor& piece = result.pieces[static_cast<size_t>(rank)];
      piece = HostTensor(type);
      const auto from = all.view().raw().subspan(static_cast<size_t>((result.crew * of_crew + rank) * bytes),
                                                 static_cast<size_t>(bytes));
      std::ranges::copy(from, piece.view().raw().begin());
    }
  }
}

Verdict run_case_over(comm::World& world, const Case& test) {
  Running r = begin(test);
  if (!r.is_open()) return r.verdict;
  {
    const UsedIsa isa(test.isa);
    run_on_rank(r, r.inputs, &world);
  }
  gather_outputs(r.step, world);
  if (r.evaluation) gather_outputs(*r.evaluation, world);
  return verdict_of(r);
}

}  // namespace trireme::equivalence
