#include "tests/equivalence/run.h"

#include <algorithm>
#include <deque>
#include <map>

#include "tests/equivalence/oracle.h"
#include "tests/equivalence/shrink.h"
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

// A case on its way from the graph to its verdict.
struct Running {
  const Case* test = nullptr;
  std::vector<Tensors> inputs;  // of each step
  Expected expected;
  Tensors bits;  // of the outputs as one rank with one thread computes them, where the case is to have them
  Program program;
  ExecutionPlan plan;
  std::vector<std::vector<HostTensor>> outputs;  // of each output, every rank's piece
  Verdict verdict;

  bool is_open() const { return verdict.kind == Verdict::Kind::kAgrees; }
  void fail(const std::string& text) { verdict = {Verdict::Kind::kFails, text}; }
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

Program in_micro_batches(const Case& test) {
  return in_micro_batches(partitioned(test), {.sums_in_tree = keeps_bits(test) || test.seed % 2 == 0});
}

Program with_passes(const Case& test, const Program& program) {
  if (!test.passes) return program;
  const Rates rates{reshard_costs({.all_to_all = test.all_to_all}, test.strategy.mesh)};
  return run_passes(program,
                    {.all_reduce = {.bucket_bytes = test.bucket_bytes, .bucket_ends = test.bucket_ends, .rates = rates},
                     .recompute = test.recompute,
                     .loss_pieces = test.loss_pieces});
}

void refuse(const std::vector<std::string>& findings, std::string_view what) {
  if (!findings.empty()) fail(ErrorKind::kInternal, "{}: {}", what, findings.front());
}

void check_texts(const Running& r) {
  const Case& test = *r.test;
  const std::string strategy = to_string(test.graph, test.strategy);
  invariant(to_string(test.graph, parse_strategy(strategy, test.graph)) == strategy,
            "the strategy reads back otherwise");
  const std::string plan = to_string(r.plan);
  invariant(to_string(parse_plan(plan)) == plan, "the plan reads back otherwise");
}

std::vector<std::string> check_all_ranks(const ExecutionPlan& plan) {
  std::vector<std::vector<CommCall>> calls;
  for (int64_t rank = 0; rank < plan.mesh.devices(); ++rank) calls.push_back(calls_of(plan, rank));
  return check_communication(calls);
}

void compile(Running& r) {
  const Case& test = *r.test;
  set_log_levels("error");  // many cases have no loss that can be taken in pieces
  refuse(verify(test.graph), "graph");
  refuse(verify(partitioned(test)), "partitioned program");
  r.program = in_micro_batches(test);
  refuse(verify(r.program), "program in micro-batches");
  r.program = with_passes(test, r.program);
  r.plan = plan_execution(r.program, {.threads = threads_of(test), .numerics = test.numerics});
  refuse(verify(r.plan), "plan");
  refuse(check_communication(r.plan), "communication");
  if (test.seed % 8 == 0) refuse(check_all_ranks(r.plan), "communication of all ranks");
  if (test.seed % 8 == 0) check_texts(r);
  r.outputs.resize(r.plan.outputs.size());
  for (auto& pieces : r.outputs) pieces.resize(static_cast<size_t>(r.plan.mesh.devices()));
}

void run_on_rank(Running& r, const std::vector<Tensors>& steps, comm::World* world) {
  std::optional<ThreadPool> pool;
  if (r.plan.threads > 1) pool.emplace(r.plan.threads);
  Executor executor(r.plan, {.world = world, .pool = pool ? &*pool : nullptr});
  for (const Tensors& inputs : steps) {
    for (const auto& [name, whole] : inputs) {
      const Box box = executor.input_box(name);
      std::ranges::fill(executor.input(name).raw(), std::byte{0});  // beyond the whole's end
      copy_region(whole.view(), Box::whole(whole.shape()), executor.input(name), box, held(box, whole.shape()));
    }
    executor.run();
  }
  for (size_t i = 0; i < r.plan.outputs.size(); ++i) {
    const View view = executor.output(r.plan.outputs[i].name);
    HostTensor piece(view.type);
    std::copy(view.raw().begin(), view.raw().end(), piece.view().raw().begin());
    r.outputs[i][static_cast<size_t>(world == nullptr ? 0 : world->rank())] =
        std::move(piece);  // each rank has a place of its own
  }
}

Tensors run_alone(const Case& test, const std::vector<Tensors>& inputs) {
  const Case alone = uncut(test);
  Running r;
  r.test = &alone;
  compile(r);
  run_on_rank(r, inputs, nullptr);
  Tensors out;
  for (size_t i = 0; i < r.plan.outputs.size(); ++i)
    out.emplace(r.plan.outputs[i].name, std::move(r.outputs[i].front()));
  return out;
}

Running begin(const Case& test) {
  Running r;
  r.test = &test;
  try {
    r.inputs = random_inputs(test.graph, test.seed, test.steps);
    r.expected = one_device(test, r.inputs);
    if (!r.expected.finite) {
      r.verdict.kind = Verdict::Kind::kWild;
      return r;
    }
    if (test.seed % 4 == 0) {
      const std::string wrong = check_gradients(test.graph, r.inputs.front(), test.seed);
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
  const auto ranks = static_cast<int>(all.front()->plan.mesh.devices());
  comm::spawn_ranks(ranks, transport_of(*all.front()->test), [&](comm::World& world) {
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

// The first output that is too far from one device's, or "".
std::string difference(Running& r) {
  r.verdict.compared = r.verdict.vague = 0;
  for (size_t i = 0; i < r.plan.outputs.size(); ++i) {
    const PlanOutput& output = r.plan.outputs[i];
    const HostTensor& want = r.expected.outputs.at(output.name);
    const Layout& layout = r.plan.values[static_cast<size_t>(output.value)].layout;
    const double allowed = r.expected.allowed.at(output.name);
    const HostTensor got = gather(r.outputs[i], layout, r.plan.mesh, want.type());
    ++r.verdict.compared;
    if (keeps_bits(*r.test) && !std::ranges::equal(got.view().raw(), r.bits.at(output.name).view().raw()))
      return fmt::format("output '{}': other bits than on one rank", output.name);
    if (r.expected.vague.contains(output.name)) ++r.verdict.vague;
    const std::string found = conformance::difference(got, want, allowed);
    if (!found.empty()) return fmt::format("output '{}': {}", output.name, found);
  }
  return "";
}

void compare(Running& r) {
  if (difference(r).empty()) return;
  r.expected = one_device(*r.test, r.inputs, kCarefulRuns);
  const std::string found = difference(r);
  if (!found.empty()) r.verdict = {Verdict::Kind::kDiffers, found};
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
    program = to_string(with_passes(small, in_micro_batches(small)));
  } catch (const std::exception& e) {
    program = e.what();
  }
  return fmt::format("{}the smallest case like it: {}\n{}its program:\n{}", what, run_cases({&small, 1}).front().text,
                     to_string(small), program);
}

// "op matmul", "kernel matmul.onednn", "option recompute": what the plan of a case does.
std::set<std::string> reached_by(const Case& test, const ExecutionPlan& plan) {
  std::set<std::string> out;
  for (const Action& action : plan.actions) {
    out.insert(fmt::format("op {}{}", action.op->name, computes_in_bf16(test.graph) ? " in bf16" : ""));
    if (!action.kernel.empty()) out.insert("kernel " + action.kernel);
  }
  const auto option = [&](bool is_on, std::string_view name) {
    if (is_on) out.insert(fmt::format("option {}", name));
  };
  option(test.transport != "threads", test.transport);
  option(plan.threads > 1, keeps_bits(test) ? "threads, invariant" : "threads");
  option(test.sums != "own", "sums " + test.sums);
  option(!test.bucket_ends.empty(), "bucket ends");
  option(test.recompute, "recompute");
  option(test.loss_pieces > 1, "loss pieces");
  option(test.is_saved, "saved strategy");
  option(!test.passes, "no passes");
  option(!test.all_to_all, "no all-to-all");
  option(micro_batches(test.strategy.mesh) > 1, "micro-batches");
  option(keeps_bits(test), "invariant");
  return out;
}

}  // namespace

std::set<std::string> reached_by(const Case& test) {
  Running r;
  r.test = &test;
  compile(r);
  return reached_by(test, r.plan);
}

std::vector<Verdict> run_cases(std::span<const Case> cases) {
  std::deque<Running> all;
  for (const Case& test : cases) all.push_back(begin(test));
  std::map<std::pair<int64_t, std::string>, std::vector<Running*>> by_world;
  for (Running& r : all) {
    if (r.is_open()) by_world[{r.plan.mesh.devices(), transport_of(*r.test)}].push_back(&r);
  }
  for (const auto& [world, group] : by_world) run_on_ranks(group);
  std::vector<Verdict> out;
  for (Running& r : all) {
    try {
      if (r.is_open()) compare(r);
    } catch (const std::exception& e) {  // replicas that differ in some bit
      r.verdict = {Verdict::Kind::kDiffers, e.what()};
    }
    out.push_back(r.verdict);
  }
  return out;
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
