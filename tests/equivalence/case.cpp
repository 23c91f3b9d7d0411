#include "tests/equivalence/case.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <sstream>

#include "tests/equivalence/oracle.h"
#include "tests/equivalence/random_graph.h"
#include "tests/equivalence/random_strategy.h"
#include "tests/equivalence/random_text.h"
#include "tests/equivalence/shrink.h"
#include "trireme/base/error.h"
#include "trireme/exec/execution_plan.h"
#include "trireme/exec/soundness.h"
#include "trireme/op/registry.h"
#include "trireme/parallel/parallel.h"
#include "trireme/partition/by_hand.h"
#include "trireme/partition/crews.h"
#include "trireme/partition/micro_batches.h"
#include "trireme/partition/partition.h"
#include "trireme/train/step/invariant.h"

namespace trireme::equivalence {
namespace {

constexpr std::string_view kStrategy = "strategy mesh=";

std::string word_after(std::string_view line, std::string_view key, const std::string& otherwise) {
  const size_t at = line.find(fmt::format(" {}=", key));
  if (at == std::string_view::npos) return otherwise;
  const std::string_view word = line.substr(at + key.size() + 2);
  return std::string(word.substr(0, word.find(' ')));
}

int64_t number_after(std::string_view line, std::string_view key, int64_t otherwise) {
  const std::string word = word_after(line, key, "");
  return word.empty() ? otherwise : std::stoll(word);
}

std::vector<int64_t> numbers_after(std::string_view line, std::string_view key) {
  std::vector<int64_t> out;
  std::stringstream all(word_after(line, key, ""));
  for (std::string number; std::getline(all, number, ',');) out.push_back(std::stoll(number));
  return out;
}

int64_t devices_of(const Case& test) {
  return without_micro_batches(test.strategy.mesh).devices();
}

// Stages of the parts in their order; one may have no op at all.
ScopeStages any_stages(const Graph& graph, int count, Draw& draw) {
  ScopeStages out;
  std::vector<std::string> scopes;
  for (const Node& node : graph.nodes()) {
    const std::string scope(graph.scope_of(node));
    if (node.phase != Phase::kForward || scope.empty() || std::ranges::find(scopes, scope) != scopes.end()) continue;
    scopes.push_back(scope);
  }
  std::vector<int> numbers;
  for (size_t i = 0; i < scopes.size(); ++i) numbers.push_back(static_cast<int>(draw.below(count)));
  std::ranges::sort(numbers);
  for (size_t i = 0; i < scopes.size(); ++i) out[scopes[i]] = numbers[i];
  return out;
}

// How a training step is made, beside how it is cut.
void add_options(Case& test, Draw& draw) {
  test.bucket_bytes = draw.of({1, 200, 1000, 0});
  test.passes = draw.chance(80);
  test.all_to_all = draw.chance(80);
  if (draw.chance(12)) {
    static const std::vector<std::string> kTransports{"shm", "shm", "ucx", "mpi"};
    test.transport = draw.of(kTransports);
  }
  test.evaluates = draw.chance(20) && !evaluation_of(test).outputs().empty();
  if (draw.chance(30)) test.rates = draw.chance(60) ? "measured" : "named";
  if (draw.chance(20)) {
    static const std::vector<std::string> kSets{"baseline", "baseline", "avx2", "avx512"};
    test.isa = draw.of(kSets);
  }
  if (draw.chance(20)) {
    test.bucket_bytes = 0;
    for (int64_t end = draw.below(3) + 1; end < 9; end += draw.below(3) + 1) test.bucket_ends.push_back(end);
  }
  if (Draw own(test.seed * 2246822519U + 9); own.chance(35)) {  // of its own: all else is as it was
    static const std::vector<std::string> kFusions{"mixed", "off", "ids", "ids"};
    test.fusion = own.of(kFusions);
  }
  if (Draw own(test.seed * 2246822519U + 11); own.chance(35)) test.reuse = own.of({2, 1000});
  test.is_saved = draw.chance(15);
  if (draw.chance(25)) {
    static const std::array kRecompute{"rows", "rows", "blocks", "most", "local"};
    test.recompute = kRecompute[test.seed % kRecompute.size()];
  }
  if (Draw own(test.seed * 2246822519U + 13); own.chance(15)) {
    static const std::vector<std::string> kKept{"slices", "slices", "gathered", "all"};
    test.recompute = own.of(kKept);
  }
  if (Draw own(test.seed * 2246822519U + 23); own.chance(40))
    test.homes = std::array{"host", "mixed", "kept"}[static_cast<size_t>(own.below(3))];
  if (Draw own(test.seed * 2246822519U + 41); own.chance(50)) test.home_tier = own.chance(60) ? "disk" : "both";
  if (Draw own(test.seed * 2246822519U + 43); own.chance(60))
    test.homed = std::array{"parameters", "gradients", "all", "all"}[static_cast<size_t>(own.below(4))];
  if (Draw own(test.seed * 2246822519U + 47); own.chance(30))
    test.on_host = std::array{"updates", "updates", "parts", "kinds", "all"}[static_cast<size_t>(own.below(5))];
  if (Draw own(test.seed * 2246822519U + 53); own.chance(60)) test.update_part = own.of({32, 64, 200, 600});
  if (Draw own(test.seed * 2246822519U + 59); own.chance(50)) test.prefetch = own.of({1, 2, 9});
  if (test.numerics == Numerics::kInvariant) return;  // has threads of its own, and takes no loss in pieces
  if (draw.chance(8)) test.threads = static_cast<int>(draw.of({2, 3}));
  if (draw.chance(40)) test.loss_pieces = draw.of({2, 3});
  const int64_t sums = draw.below(4);
  if (computes_in_bf16(test.graph) && sums < 2) test.sums = sums == 0 ? "narrow" : "f32";
}

// Copies that are interleaved, from draws of their own.
void add_interleave(Case& test) {
  Draw draw(test.seed * 2246822519U + 5);
  const int64_t count = micro_batches(test.strategy.mesh);
  if (count == 1 || !draw.chance(25)) return;
  test.interleave = count % 2 == 0 && draw.chance(60) ? 2 : count;
}

// Whether crews wait for each other for ever. The compiler refuses the schedule then (train/step/compile.cpp).
bool is_stuck(const std::vector<Program>& crews, Numerics numerics) {
  std::vector<ExecutionPlan> plans;
  for (const Program& program : crews) {
    plans.push_back(plan_execution(
        program,
        {.numerics = numerics, .crew = static_cast<int>(plans.size()), .crews = static_cast<int>(crews.size())}));
  }
  std::vector<const ExecutionPlan*> all;
  for (const ExecutionPlan& plan : plans) all.push_back(&plan);
  return !check_communication(std::span<const ExecutionPlan* const>(all)).empty();
}

// Stages of a pipeline, from draws of their own. What works on all micro-batches at once goes by gpipe.
void add_pipeline(Case& test) {
  Draw draw(test.seed * 2246822519U + 3);
  const int64_t most = std::min<int64_t>(micro_batches(test.strategy.mesh) / test.interleave, 8 / devices_of(test));
  if (test.by_hand || most < 2 || !draw.chance(85)) return;
  static const std::vector<std::string> kSchedules{"gpipe",     "1f1b",  "1f1b", "interleaved", "interleaved-delayed",
                                                   "zb-h1",     "zb-h2", "zb-v", "v-half",      "v-min",
                                                   "dualpipe-v"};
  constexpr int kAttempts = 6;
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    Case trial = test;
    trial.crews = 2 + draw.below(most - 1);
    trial.schedule = attempt == kAttempts ? "gpipe" : draw.of(kSchedules);
    // Fits the fewest cases, so it is tried more often.
    if (Draw own(test.seed * 2246822519U + 29); attempt == 1 && own.chance(12)) trial.schedule = "v-min";
    try {
      const Timetable timetable = timetable_for(trial, trial.graph, micro_batches(trial.strategy.mesh));
      trial.strategy.stages = draw.chance(30) ? choose_stages(trial.graph, timetable.stages, {})
                                              : any_stages(trial.graph, timetable.stages, draw);
      stages_of(trial.graph, trial.strategy.stages);
      const Program whole = in_micro_batches(partitioned(trial), {.interleave = trial.interleave});
      if (is_stuck(in_crews(whole, timetable), trial.numerics)) continue;
    } catch (const Error& e) {
      // Too few modules, micro-batches that the schedule does not take, or all of them at once.
      if (e.kind() != ErrorKind::kInvalidArgument) throw;
      continue;
    }
    test = std::move(trial);
    return;
  }
}

int steps_of(const Graph& graph) {
  const bool trains =
      std::ranges::any_of(graph.outputs(), [](const Output& output) { return output.updates != kNoValue; });
  return !trains ? 1 : computes_in_bf16(graph) ? 2 : 3;
}

Case any_case(uint32_t seed, Numerics numerics, Draw& draw) {
  Case out;
  out.seed = seed;
  out.numerics = numerics;
  out.graph = random_graph(draw, numerics);
  out.strategy = random_strategy(out.graph, draw, numerics);
  out.steps = steps_of(out.graph);
  add_options(out, draw);
  add_interleave(out);
  add_pipeline(out);
  return out;
}

// Cuts nothing: the graph is what each rank runs.
Strategy as_by_hand(const Graph& graph, const Mesh& mesh) {
  return semi_auto(graph, mesh.devices(), {.mesh = to_string(mesh), .dataset = "full_batch", .follow_requests = false});
}

// A model of text whose micro-batches go through the stages in chunks of positions.
Case case_in_chunks(uint32_t seed, Draw& draw) {
  Case out;
  out.seed = seed;
  out.crews = draw.of({2, 2, 2, 3, 4});
  out.schedule = "seq-1f1b";
  const int64_t chunks = draw.of({2, 2, 3, 4});
  const int64_t count = out.crews * draw.of({1, 1, 2});
  out.graph = random_text_graph(draw, 2 * count, chunks);
  out.steps = steps_of(out.graph);
  const PipelineParallel pipeline{.crews = out.crews, .schedule = out.schedule, .seq_chunks = chunks};
  constexpr int kAttempts = 100;
  for (int attempt = 1;; ++attempt) {
    try {
      const ScopeStages stages = any_stages(out.graph, static_cast<int>(out.crews), draw);
      out.strategy = random_strategy_in_chunks(out.graph, draw, pipeline, count, stages);
      out.strategy.stages = stages;
      in_crews(in_micro_batches(partitioned(out)), timetable_for(out, out.graph, micro_batches(out.strategy.mesh)));
      break;
    } catch (const Error& e) {  // stages that go back, cuts that do not divide, or what needs all positions
      if (e.kind() != ErrorKind::kInvalidArgument) throw;
      if (attempt == kAttempts)
        fail(ErrorKind::kInternal, "seq-1f1b refuses {} random cases, the last of them so: {}", kAttempts, e.what());
    }
  }
  add_options(out, draw);
  return out;
}

Case case_by_hand(uint32_t seed, Draw& draw) {
  static const std::vector<std::string> kMeshes{"dp=2", "tp=2",      "dp=3",      "dp=4", "dp=2,tp=2",
                                                "dp=6", "dp=3,tp=2", "dp=2,tp=4", "dp=8", "dp=2,tp=2,sp=2"};
  const Mesh mesh = parse_mesh(draw.of(kMeshes));
  Case out;
  out.seed = seed;
  out.by_hand = true;
  out.graph = random_graph_by_hand(draw, mesh);
  out.strategy = as_by_hand(out.graph, mesh);
  out.steps = steps_of(out.graph);
  add_options(out, draw);
  out.sums = "own";
  return out;
}

bool is_accepted(const Case& test) {
  try {
    require_invariant(test.graph, test.strategy);
    require_invariant(partitioned(test));
    if (!test.evaluates) return true;
    const Graph evaluation = evaluation_of(test);
    const Strategy strategy = evaluation_strategy(test, evaluation);
    require_invariant(evaluation, strategy);
    require_invariant(partitioned(test, evaluation, strategy));
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kUnsupported) throw;
    return false;
  }
  return true;
}

Case case_of(uint32_t seed) {
  Draw draw(seed);
  if (seed % 16 == 3) return case_by_hand(seed, draw);
  if (seed % 32 == 9) return case_in_chunks(seed, draw);
  if (seed % 8 != 5) return any_case(seed, Numerics::kFast, draw);
  constexpr int kAttempts = 100;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Case out = any_case(seed, Numerics::kInvariant, draw);
    if (is_accepted(out)) return out;
  }
  fail(ErrorKind::kInternal, "numerics = 'invariant' refuses {} random cases", kAttempts);
}

}  // namespace

Case random_case(uint32_t seed) {
  Case out = case_of(seed);
  Draw draw(seed * 2246822519U + 1);  // of its own: all else is as it is on the CPU
  if (draw.chance(12)) out.device = "guarded";
  if (Draw own(seed * 2246822519U + 17); own.chance(8)) out.lingers = true;
  if (Draw own(seed * 2246822519U + 19); out.crews > 1 && own.chance(40)) out.slices = true;
  return out;
}

Graph evaluation_of(const Case& test) {
  const Graph& step = test.graph;
  std::vector<char> is_forward;
  for (const Output& output : step.outputs()) {
    const NodeId producer = step.value(output.value).producer;
    const bool made = output.updates == kNoValue && producer >= 0;
    is_forward.push_back(made && step.node(producer).phase == Phase::kForward ? 1 : 0);
  }
  return with_outputs(test, is_forward).graph;
}

Strategy evaluation_strategy(const Case& test, const Graph& evaluation) {
  const Mesh mesh = without_micro_batches(test.strategy.mesh);
  if (test.by_hand) return as_by_hand(evaluation, mesh);
  std::map<std::string, Layout> stored;
  for (size_t i = 0; i < test.graph.inputs().size(); ++i) {
    const Input& input = test.graph.inputs()[i];
    if (input.role == Role::kParameter || input.role == Role::kState)
      stored.emplace(input.name, test.strategy.inputs[i]);
  }
  const int64_t chunks = seq_chunks(test.strategy.mesh);
  Parallel parallel{.mesh = to_string(mesh), .accumulation = micro_batches(test.strategy.mesh) / chunks};
  if (chunks > 1) parallel.pipeline = {.crews = test.crews, .schedule = test.schedule, .seq_chunks = chunks};
  const auto cut = [&] {
    Strategy out = semi_auto(evaluation, mesh.devices(), parallel,
                             {.stored = &stored, .numerics = test.numerics, .stages = test.strategy.stages});
    out.stages = test.strategy.stages;
    return out;
  };
  try {
    return cut();
  } catch (const Error& e) {  // a batch that does not divide
    if (e.kind() != ErrorKind::kInvalidArgument) throw;
  }
  parallel.dataset = "full_batch";
  parallel.accumulation = 1;
  return cut();
}

Timetable timetable_for(const Case& test, const Graph& graph, int64_t count) {
  const int64_t of_mesh = micro_batches(test.strategy.mesh);
  const int64_t chunks = seq_chunks(test.strategy.mesh);
  const Timetable of_step =
      timetable_of({.crews = test.crews, .schedule = test.schedule, .seq_chunks = chunks > 1 ? chunks : 0},
                   of_mesh / interleave_of(test, of_mesh) / chunks);
  const bool trains =
      std::ranges::any_of(graph.nodes(), [](const Node& node) { return node.phase != Phase::kForward; });
  return trains ? of_step : forward_only(of_step, count / interleave_of(test, count) / chunks);
}

int64_t interleave_of(const Case& test, int64_t count) {
  return count % test.interleave == 0 ? test.interleave : 1;
}

Machine machine_of(const Case& test) {
  Draw draw(test.seed * 2654435761U + 1);
  const auto any = [&](double low, double high) { return std::exp(draw.between(std::log(low), std::log(high))); };
  const Mesh mesh = without_micro_batches(test.strategy.mesh);
  Machine out{.name = "drawn",
              .devices_per_host = mesh.devices(),
              .memory_bytes = int64_t{1} << 40,
              .memory_bytes_per_s = any(1e8, 1e11),
              .flops_per_s = {{"f32", any(1e6, 1e12)}, {"bf16", any(1e6, 1e12)}},
              .achievable = draw.between(0.1, 1)};
  for (int axis = mesh.axes(); axis-- > 0;) {  // the last joins ranks that are neighbours
    out.levels.push_back(
        {mesh.axis(axis).name, mesh.stride(axis) * mesh.axis(axis).size, any(1e-9, 1e-2), any(1e4, 1e11)});
  }
  if (out.levels.empty()) out.levels.push_back({"host", 1, 1e-6, 1e9});
  check(out, "the machine of a case");
  return out;
}

Rates rates_of(const Case& test) {
  Communication how{.all_to_all = test.all_to_all};
  if (test.rates != "usual") how.machine = machine_of(test);
  return {reshard_costs(how, test.strategy.mesh), how.machine};
}

PartitionOptions partition_options(const Case& test, const Graph& graph, const Mesh& mesh) {
  const bool added_up_later = test.numerics == Numerics::kFast && test.seed % 3 == 0;  // another tree of sums
  Communication how{.all_to_all = test.all_to_all,
                    .gradients_in_f32 = test.sums != "narrow",
                    .all_in_f32 = test.sums == "f32",
                    .shard_accumulation = added_up_later};
  if (test.rates == "named") how.machine = machine_of(test);
  return {.costs = reshard_costs(how, mesh), .sum_types = sum_types(graph, how)};
}

Program partitioned(const Case& test, const Graph& graph, const Strategy& strategy) {
  const Strategy saved = test.is_saved ? parse_strategy(to_string(graph, strategy), graph) : Strategy{};
  const Strategy& cuts = test.is_saved ? saved : strategy;
  if (test.by_hand) return by_hand(graph, cuts);
  return partition(graph, cuts, partition_options(test, graph, cuts.mesh));
}

Program partitioned(const Case& test) {
  return partitioned(test, test.graph, test.strategy);
}

std::string to_string(const Case& test) {
  return fmt::format(
      "case seed={} steps={} bucket={} ends={} fusion={} reuse={} passes={:d} alltoall={:d} transport={} threads={} "
      "recompute={} "
      "homes={} homed={} tier={} part={} prefetch={} onhost={} "
      "pieces={} "
      "saved={:d} sums={} rates={} isa={} device={} lingers={:d} interleave={} crews={} schedule={} slices={:d} "
      "byhand={:d} "
      "evaluates={:d} "
      "invariant={:d}\n{}{}",
      test.seed, test.steps, test.bucket_bytes, fmt::join(test.bucket_ends, ","), test.fusion, test.reuse, test.passes,
      test.all_to_all, test.transport, test.threads, test.recompute, test.homes, test.homed, test.home_tier,
      test.update_part, test.prefetch, test.on_host, test.loss_pieces, test.is_saved, test.sums, test.rates, test.isa,
      test.device, test.lingers, test.interleave, test.crews, test.schedule, test.slices, test.by_hand, test.evaluates,
      test.numerics == Numerics::kInvariant, to_string(test.graph), to_string(test.graph, test.strategy));
}

Case parse_case(std::string_view text) {
  const size_t end = text.find('\n');
  const size_t strategy = text.find(kStrategy);
  require(end != std::string_view::npos && strategy != std::string_view::npos,
          "a case is a line, a graph and a strategy");
  const std::string_view line = text.substr(0, end);
  Case out;
  // What a line does not name is as a case has it that asks for nothing.
  require(line.starts_with("case seed="), "a case begins with 'case seed=...', not '{}'", line);
  out.seed = static_cast<uint32_t>(number_after(line, "seed", 0));
  out.steps = static_cast<int>(number_after(line, "steps", 1));
  out.bucket_bytes = number_after(line, "bucket", 0);
  out.bucket_ends = numbers_after(line, "ends");
  out.fusion = word_after(line, "fusion", "sizes");
  out.reuse = number_after(line, "reuse", 0);
  out.passes = number_after(line, "passes", 1) != 0;
  out.all_to_all = number_after(line, "alltoall", 1) != 0;
  out.transport = word_after(line, "transport", "threads");
  out.threads = static_cast<int>(number_after(line, "threads", 1));
  out.recompute = word_after(line, "recompute", "none");
  out.homes = word_after(line, "homes", "device");
  out.homed = word_after(line, "homed", "state");
  out.home_tier = word_after(line, "tier", "host");
  out.update_part = number_after(line, "part", 0);
  out.prefetch = number_after(line, "prefetch", 0);
  out.on_host = word_after(line, "onhost", "none");
  out.loss_pieces = number_after(line, "pieces", 1);
  out.is_saved = number_after(line, "saved", 0) != 0;
  out.sums = word_after(line, "sums", "own");
  out.rates = word_after(line, "rates", "usual");
  out.isa = word_after(line, "isa", "machine");
  out.device = word_after(line, "device", "cpu");
  out.lingers = number_after(line, "lingers", 0) != 0;
  out.interleave = number_after(line, "interleave", 1);
  out.crews = number_after(line, "crews", 1);
  out.schedule = word_after(line, "schedule", "1f1b");
  out.slices = number_after(line, "slices", 0) != 0;
  out.by_hand = number_after(line, "byhand", 0) != 0;
  out.evaluates = number_after(line, "evaluates", 0) != 0;
  out.numerics = number_after(line, "invariant", 0) != 0 ? Numerics::kInvariant : Numerics::kFast;
  out.graph = parse_graph(text.substr(end + 1, strategy - end - 1), find_op_base);
  out.strategy = parse_strategy(text.substr(strategy), out.graph);
  return out;
}

}  // namespace trireme::equivalence
