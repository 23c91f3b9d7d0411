#include "tests/equivalence/run.h"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

#include "tests/equivalence/oracle.h"
#include "tests/equivalence/shrink.h"
#include "trireme/backend/cpu/isa.h"
#include "trireme/base/log.h"
#include "trireme/base/thread_pool.h"
#include "trireme/comm/comm.h"
#include "trireme/exec/executor.h"
#include "trireme/exec/soundness.h"
#include "trireme/layout/simulate.h"
#include "trireme/op/build.h"
#include "trireme/op/conformance.h"
#include "trireme/partition/micro_batches.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/pipeline.h"
#include "trireme/plan/parallel.h"
#include "trireme/plan/propagate.h"

namespace trireme::equivalence {
namespace {

constexpr uint32_t kBatch = 48;   // cases that are made, run and compared together
constexpr int kCarefulRuns = 32;  // of the oracle, before a case is said to differ

// A graph of a case on its way to the ranks: the step's, or the evaluation's.
struct Built {
  Program program;
  ExecutionPlan plan;
  std::vector<std::vector<HostTensor>> outputs;  // of each output, every rank's piece
};

// A case on its way from the graph to its verdict.
struct Running {
  const Case* test = nullptr;
  CaseInputs inputs;
  Expected expected;
  Tensors bits;  // of the outputs as one rank with one thread computes them, where the case is to have them
  Built step;
  std::optional<Built> evaluation;
  Verdict verdict;

  bool is_open() const { return verdict.kind == Verdict::Kind::kAgrees; }
  void fail(const std::string& text) { verdict = {Verdict::Kind::kFails, text}; }
};

// While it lives, kernels use what this instruction set has.
class UsedIsa {
 public:
  explicit UsedIsa(const std::string& name) {
    for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
      if (to_string(isa) == name) set_isa(std::min(isa, before_));
    }
  }
  ~UsedIsa() { set_isa(before_); }
  UsedIsa(const UsedIsa&) = delete;
  UsedIsa& operator=(const UsedIsa&) = delete;

 private:
  Isa before_ = isa();
};

bool keeps_bits(const Case& test) {
  return test.numerics == Numerics::kInvariant;
}

int threads_of(const Case& test) {
  if (!keeps_bits(test)) return test.threads;
  return test.strategy.mesh.devices() == 1 ? 1 : 1 + static_cast<int>(test.seed / 8 % 3);
}

std::string transport_of(const Case& test) {
  const std::vector<std::string>& known = comm::transports_of_threads();
  return std::ranges::find(known, test.transport) == known.end() ? "shm" : test.transport;
}

// The same case on one rank.
Case uncut(const Case& test) {
  Case out = test;
  out.strategy =
      propagate(test.graph, Mesh(), Asks{.inputs = std::vector<std::optional<Layout>>(test.graph.inputs().size())});
  return out;
}

Program in_micro_batches(const Case& test, Program program) {
  return in_micro_batches(std::move(program), {.sums_in_tree = keeps_bits(test) || test.seed % 2 == 0});
}

Program with_passes(const Case& test, Program program) {
  if (!test.passes) return program;
  return run_passes(
      std::move(program),
      {.all_reduce = {.bucket_bytes = test.bucket_bytes, .bucket_ends = test.bucket_ends, .rates = rates_of(test)},
       .recompute = test.recompute,
       .loss_pieces = test.loss_pieces});
}

void refuse(const std::vector<std::string>& findings, std::string_view what) {
  if (!findings.empty()) fail(ErrorKind::kInternal, "{}: {}", what, findings.front());
}

void check_texts(const Graph& graph, const Strategy& strategy, const ExecutionPlan& plan) {
  const std::string cuts = to_string(graph, strategy);
  invariant(to_string(graph, parse_strategy(cuts, graph)) == cuts, "the strategy reads back otherwise");
  const std::string text = to_string(plan);
  invariant(to_string(parse_plan(text)) == text, "the plan reads back otherwise");
}

std::vector<std::string> check_all_ranks(const ExecutionPlan& plan) {
  std::vector<std::vector<CommCall>> calls;
  for (int64_t rank = 0; rank < plan.mesh.devices(); ++rank) calls.push_back(calls_of(plan, rank));
  return check_communication(calls);
}

Built build(const Case& test, const Graph& graph, const Strategy& strategy, bool external_parameters) {
  Built out;
  refuse(verify(graph), "graph");
  const Program whole = partitioned(test, graph, strategy);
  refuse(verify(whole), "partitioned program");
  out.program = in_micro_batches(test, whole);
  refuse(verify(out.program), "program in micro-batches");
  out.program = with_passes(test, std::move(out.program));
  out.plan = plan_execution(
      out.program,
      {.threads = threads_of(test), .numerics = test.numerics, .external_parameters = external_parameters});
  refuse(verify(out.plan), "plan");
  refuse(check_communication(out.plan), "communication");
  if (test.seed % 8 == 0) refuse(check_all_ranks(out.plan), "communication of all ranks");
  if (test.seed % 8 == 0) check_texts(graph, strategy, out.plan);
  out.outputs.resize(out.plan.outputs.size());
  for (auto& pieces : out.outputs) pieces.resize(static_cast<size_t>(out.plan.mesh.devices()));
  return out;
}

void compile(Running& r) {
  const Case& test = *r.test;
  set_log_levels("error");  // many cases have no loss that can be taken in pieces
  r.step = build(test, test.graph, test.strategy, false);
  const Graph evaluation = test.evaluates ? evaluation_of(test) : Graph();
  if (evaluation.outputs().empty()) return;
  r.evaluation = build(test, evaluation, evaluation_strategy(test, evaluation), true);
  ExecutionPlan& plan = r.step.plan;  // has room for both, as a job's has
  plan.arena().bytes = std::max(plan.arena().bytes, plan.arena().persistent + r.evaluation->plan.arena().bytes);
}

void feed(Executor& executor, const Tensors& inputs) {
  for (const PlanInput& input : executor.plan().inputs) {
    const auto whole = inputs.find(input.name);
    if (whole == inputs.end()) continue;
    const Box box = executor.input_box(input.name);
    const View piece = executor.input(input.name);
    std::ranges::fill(piece.raw(), std::byte{0});  // beyond the whole's end
    copy_region(whole->second.view(), Box::whole(whole->second.shape()), piece, box, held(box, whole->second.shape()));
  }
}

// Where an output is found after a step: one that replaces an input, in its place.
View found_at(const Executor& executor, const PlanOutput& output) {
  for (const PlanInput& input : executor.plan().inputs) {
    if (input.value == output.updates) return executor.input(input.name);
  }
  return executor.output(output.name);
}

// Those that replace what is kept, or all others. Each rank has a place of its own.
void take_outputs(Built& built, const Executor& executor, int64_t rank, bool kept) {
  for (size_t i = 0; i < built.plan.outputs.size(); ++i) {
    if ((built.plan.outputs[i].updates >= 0) != kept) continue;
    const View view = found_at(executor, built.plan.outputs[i]);
    HostTensor piece(view.type);
    std::copy(view.raw().begin(), view.raw().end(), piece.view().raw().begin());
    built.outputs[i][static_cast<size_t>(rank)] = std::move(piece);
  }
}

void run_on_rank(Running& r, const CaseInputs& all, comm::World* world) {
  std::optional<ThreadPool> pool;
  if (r.step.plan.threads > 1) pool.emplace(r.step.plan.threads);
  ExecutorOptions how{.world = world, .pool = pool ? &*pool : nullptr};
  Executor executor(r.step.plan, how);
  std::optional<Executor> evaluation;
  if (r.evaluation) {
    how.arena = executor.arena().subspan(static_cast<size_t>(r.step.plan.arena().persistent));
    how.external = [&](std::string_view name) { return executor.input(name); };
    evaluation.emplace(r.evaluation->plan, how);
  }
  const int64_t rank = world == nullptr ? 0 : world->rank();
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
  const Case alone = uncut(test);
  Running r;
  r.test = &alone;
  compile(r);
  run_on_rank(r, inputs, nullptr);
  Tensors out;
  for (size_t i = 0; i < r.step.plan.outputs.size(); ++i) {
    out.emplace(r.step.plan.outputs[i].name, std::move(r.step.outputs[i].front()));
  }
  if (!r.evaluation) return out;
  for (size_t i = 0; i < r.evaluation->plan.outputs.size(); ++i) {
    out.emplace(evaluated(r.evaluation->plan.outputs[i].name), std::move(r.evaluation->outputs[i].front()));
  }
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
  comm::spawn_ranks(static_cast<int>(first.step.plan.mesh.devices()), transport_of(*first.test),
                    [&](comm::World& world) {
                      for (Running* r : all) run_on_rank(*r, r->inputs, &world);
                    });
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
std::string difference(Running& r, const Built& built, size_t i, const std::string& name) {
  const PlanOutput& output = built.plan.outputs[i];
  const Layout& layout = built.plan.values[static_cast<size_t>(output.value)].layout;
  const Shape& whole = built.plan.values[static_cast<size_t>(output.value)].whole;
  const double allowed = r.expected.allowed.at(name);
  ++r.verdict.compared;
  if (r.expected.vague.contains(name)) ++r.verdict.vague;
  if (r.test->by_hand) {
    const std::vector<HostTensor>& got = built.outputs[i];
    if (output.updates >= 0)
      gather(got, layout, built.plan.mesh, {got[0].type().dtype, whole});  // throws at other bits
    for (size_t rank = 0; rank < got.size(); ++rank) {
      const std::string found = conformance::difference(got[rank], r.expected.outputs[rank].at(name), allowed);
      if (!found.empty()) return fmt::format("on rank {}: {}", rank, found);
    }
    return "";
  }
  const HostTensor& want = r.expected.outputs[0].at(name);
  const HostTensor got = gather(built.outputs[i], layout, built.plan.mesh, want.type());
  if (keeps_bits(*r.test) && !std::ranges::equal(got.view().raw(), r.bits.at(name).view().raw()))
    return "other bits than on one rank";
  return conformance::difference(got, want, allowed);
}

// The first output that is too far from one device's, or "".
std::string difference(Running& r) {
  r.verdict.compared = r.verdict.vague = 0;
  for (const Built* built : {&r.step, r.evaluation ? &*r.evaluation : nullptr}) {
    for (size_t i = 0; built != nullptr && i < built->plan.outputs.size(); ++i) {
      const std::string& output = built->plan.outputs[i].name;
      const std::string name = built == &r.step ? output : evaluated(output);
      const std::string found = difference(r, *built, i, name);
      if (!found.empty()) return fmt::format("output '{}': {}", name, found);
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

std::string beginning(const std::string& text) {
  return text.substr(0, 24);
}

std::string report(const Case& test, const Verdict& verdict, bool shrink) {
  const std::string what = fmt::format("seed {}: {}\n", test.seed, verdict.text);
  if (!shrink) return what;
  // A gradient belongs to its whole graph.
  if (verdict.kind == Verdict::Kind::kSlope) return what + to_string(test);
  const Case small = shrunk(test, [&](const Case& smaller) {
    const Verdict now = run_cases({&smaller, 1}).front();
    if (now.kind != verdict.kind) return false;
    return now.kind == Verdict::Kind::kDiffers || beginning(now.text) == beginning(verdict.text);
  });
  std::string program;
  try {
    program = to_string(with_passes(small, in_micro_batches(small, partitioned(small))));
  } catch (const std::exception& e) {
    program = e.what();
  }
  return fmt::format("{}the smallest case like it: {}\n{}its program:\n{}", what, run_cases({&small, 1}).front().text,
                     to_string(small), program);
}

// "op matmul", "kernel matmul.onednn": what a plan of the case does.
void note(const Case& test, const ExecutionPlan& plan, std::set<std::string>& out) {
  for (const Action& action : plan.actions) {
    out.insert(fmt::format("op {}{}", action.op->name, computes_in_bf16(test.graph) ? " in bf16" : ""));
    if (!action.kernel.empty()) out.insert("kernel " + action.kernel);
  }
}

std::vector<std::string> options_of(const Case& test) {
  const bool has_own = std::ranges::any_of(
      test.graph.inputs(), [](const Input& input) { return input.role == Role::kParameter && !input.piece.empty(); });
  const std::pair<bool, std::string> all[] = {
      {test.transport != "threads", test.transport},
      {threads_of(test) > 1, keeps_bits(test) ? "threads, invariant" : "threads"},
      {test.sums != "own", "sums " + test.sums},
      {test.rates != "usual", "rates " + test.rates},
      {test.isa != "machine", "isa " + test.isa},
      {!test.bucket_ends.empty(), "bucket ends"},
      {test.recompute, "recompute"},
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
      {keeps_bits(test), "invariant"}};
  std::vector<std::string> out;
  for (const auto& [is_on, name] : all) {
    if (is_on) out.push_back("option " + name);
  }
  return out;
}

}  // namespace

std::set<std::string> reached_by(const Case& test) {
  const UsedIsa isa(test.isa);
  Running r;
  r.test = &test;
  compile(r);
  std::set<std::string> out;
  note(test, r.step.plan, out);
  if (r.evaluation) note(test, r.evaluation->plan, out);
  for (std::string& option : options_of(test)) out.insert(std::move(option));
  return out;
}

std::vector<Verdict> run_cases(std::span<const Case> cases) {
  std::deque<Running> all;
  for (const Case& test : cases) all.push_back(begin(test));
  std::map<std::tuple<int64_t, std::string, std::string>, std::vector<Running*>> by_world;
  for (Running& r : all) {
    if (r.is_open()) by_world[{r.step.plan.mesh.devices(), transport_of(*r.test), r.test->isa}].push_back(&r);
  }
  for (const auto& [world, group] : by_world) run_on_ranks(group);
  std::vector<Verdict> out;
  for (Running& r : all) out.push_back(verdict_of(r));
  return out;
}

// Rank 0 gathers what each rank has of each output.
void gather_outputs(Built& built, comm::World& world) {
  for (std::vector<HostTensor>& pieces : built.outputs) {
    const TensorType type = pieces[static_cast<size_t>(world.rank())].type();
    const int64_t bytes = type.bytes();
    const HostTensor all(TensorType{DType::kU8, {bytes * world.size()}});
    const View mine{pieces[static_cast<size_t>(world.rank())].view().data, {DType::kU8, {bytes}}};
    world.all().all_gather(mine, all.view()).wait();
    for (int rank = 0; rank < world.size(); ++rank) {
      HostTensor& piece = pieces[static_cast<size_t>(rank)];
      if (rank != world.rank()) piece = HostTensor(type);
      const auto from = all.view().raw().subspan(static_cast<size_t>(rank * bytes), static_cast<size_t>(bytes));
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

Tally run_seeds(uint32_t first, uint32_t count, bool shrink) {
  Tally tally;
  for (uint32_t from = first; from < first + count; from += kBatch) {
    std::vector<Case> cases;
    for (uint32_t seed = from; seed < std::min(from + kBatch, first + count); ++seed) {
      try {
        cases.push_back(random_case(seed));
      } catch (const std::exception& e) {
        tally.failure = fmt::format("seed {}: no case can be made: {}", seed, e.what());
        return tally;
      }
    }
    const std::vector<Verdict> verdicts = run_cases(cases);
    for (size_t i = 0; i < cases.size(); ++i) {
      ++tally.cases;
      tally.wild += verdicts[i].kind == Verdict::Kind::kWild ? 1 : 0;
      Tally::Outputs& outputs = computes_in_bf16(cases[i].graph) ? tally.in_bf16 : tally.in_wide;
      outputs.compared += verdicts[i].compared;
      outputs.vague += verdicts[i].vague;
      if (!verdicts[i].is_bad()) continue;
      tally.failure = report(cases[i], verdicts[i], shrink);
      return tally;
    }
  }
  return tally;
}

}  // namespace trireme::equivalence
