// The case of a seed.
#include <algorithm>
#include <array>

#include "tests/equivalence/case.h"
#include "tests/equivalence/draw.h"
#include "tests/equivalence/oracle.h"
#include "tests/equivalence/programs.h"
#include "tests/equivalence/random_graph.h"
#include "tests/equivalence/random_strategy.h"
#include "tests/equivalence/random_text.h"
#include "trireme/base/error.h"
#include "trireme/exec/analysis/soundness.h"
#include "trireme/exec/lowering/plan_execution.h"
#include "trireme/exec/plan/execution_plan.h"
#include "trireme/parallel/parallel.h"
#include "trireme/parallel/timetable/shorter.h"
#include "trireme/partition/crews.h"
#include "trireme/partition/micro_batches.h"
#include "trireme/train/step/compile/invariant.h"

namespace trireme::equivalence {
namespace {

constexpr uint32_t kOfCi = 6000;  // these cases, by which coverage.txt and seeds of defects go, are as they were

int64_t devices_of(const Case& test) {
  return without_micro_batches(test.strategy.mesh).devices();
}

std::vector<std::string> scopes_of(const Graph& graph) {
  std::vector<std::string> out;
  for (const Node& node : graph.nodes()) {
    const std::string scope(graph.scope_of(node));
    if (node.phase != Phase::kForward || scope.empty() || std::ranges::find(out, scope) != out.end()) continue;
    out.push_back(scope);
  }
  return out;
}

// Stages of the parts in their order. One may have no op at all, unless `has_all`.
ScopeStages any_stages(const Graph& graph, int count, Draw& draw, bool has_all = false) {
  ScopeStages out;
  const std::vector<std::string> scopes = scopes_of(graph);
  std::vector<int> numbers;
  for (size_t i = 0; i < scopes.size(); ++i) {
    const auto at = static_cast<int>(i);
    numbers.push_back(has_all && at < count ? at : static_cast<int>(draw.below(count)));
  }
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

// Whether crews wait for each other for ever. The compiler refuses the schedule then (train/step/compile/compile.cpp).
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
    if (Draw own(test.seed * 2246822519U + 73); test.seed > kOfCi && attempt <= 2 && own.chance(20))
      trial.schedule = "drawn";
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

// Cuts a model of text into stages, and over ranks, as is drawn, until something is cut that its schedule can run;
// false where nothing is in so many attempts. `has_all`: no stage is without an op.
bool is_text_cut(Case& test, const PipelineParallel& pipeline, int64_t count, bool has_all, int attempts, Draw& draw) {
  const int stages_of_crews = timetable_of(pipeline, count / test.interleave).stages;
  const bool is_never_stuck = pipeline.seq_chunks > 1 && pipeline.schedule.given() == nullptr;
  for (int attempt = 1; attempt <= attempts; ++attempt) {
    try {
      const ScopeStages stages =
          test.crews > 1 ? any_stages(test.graph, stages_of_crews, draw, has_all) : ScopeStages{};
      test.strategy = random_strategy_of_text(test.graph, draw, pipeline, count, stages);
      test.strategy.stages = stages;
      const CrewPrograms made = crew_programs(test, test.graph, partitioned(test), true);
      if (is_never_stuck || !is_stuck(made.programs, test.numerics)) return true;
    } catch (const Error& e) {  // stages that go back, cuts that do not divide, or what needs all positions
      if (e.kind() != ErrorKind::kInvalidArgument) throw;
    }
  }
  return false;
}

void cut_text(Case& test, const PipelineParallel& pipeline, int64_t count, bool has_all, Draw& draw) {
  constexpr int kAttempts = 100;
  if (!is_text_cut(test, pipeline, count, has_all, kAttempts, draw))
    fail(ErrorKind::kInternal, "{} refuses {} random cuts of the graph of seed {}", test.schedule, kAttempts,
         test.seed);
}

// Whether a model of text learns where a token stands.
bool learns_places(uint32_t seed) {
  return seed > kOfCi && Draw(seed * 2246822519U + 67).chance(40);
}

// Whether it does so by the table that its tokens have.
bool shares_table(uint32_t seed) {
  return learns_places(seed) && Draw(seed * 2246822519U + 97).chance(35);
}

// A model of text whose micro-batches go through the stages in chunks of positions.
Case case_in_chunks(uint32_t seed, Draw& draw) {
  Case out;
  out.seed = seed;
  out.crews = draw.of({2, 2, 2, 3, 4});
  out.schedule = "seq-1f1b";
  const int64_t chunks = draw.of({2, 2, 3, 4});
  const int64_t count = out.crews * draw.of({1, 1, 2});
  out.graph = random_text_graph(
      draw,
      {.samples = 2 * count, .chunks = chunks, .places = learns_places(seed), .shares_table = shares_table(seed)});
  out.steps = steps_of(out.graph);
  const PipelineParallel usual{.crews = out.crews, .schedule = out.schedule, .seq_chunks = chunks};
  bool is_cut = false;
  if (Draw own(seed * 2246822519U + 73); seed > kOfCi && own.chance(25)) {
    constexpr int kAttempts = 20;
    out.schedule = "drawn";
    PipelineParallel drawn = usual;
    drawn.schedule = drawn_schedule(seed, out.crews, count, chunks);
    is_cut = is_text_cut(out, drawn, count, false, kAttempts, draw);
  }
  if (!is_cut) {
    out.schedule = usual.schedule.text();
    cut_text(out, usual, count, false, draw);
  }
  add_options(out, draw);
  return out;
}

// Of some numbers of micro-batches the least of which a few are enough to compile; 0: none of them.
int64_t count_that_repeats(const PipelineParallel& pipeline) {
  for (const int64_t count : {24, 36, 48, 64, 96}) {
    try {
      if (shorter(timetable_of(pipeline, count))) return count;
    } catch (const Error& e) {  // those that the schedule does not take
      if (e.kind() != ErrorKind::kInvalidArgument) throw;
    }
  }
  return 0;
}

// A model of text in a pipeline of many micro-batches.
Case case_of_many(uint32_t seed, Draw& draw) {
  static const std::vector<std::string> kSchedules{
      "1f1b", "1f1b", "interleaved", "interleaved-delayed", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "dualpipe-v"};
  Case out;
  out.seed = seed;
  int64_t count = 0, stages = 0;
  while (count == 0 || stages > 4) {
    out.crews = draw.of({2, 2, 2, 3, 4});
    out.schedule = draw.of(kSchedules);
    const PipelineParallel pipeline{.crews = out.crews, .schedule = out.schedule};
    count = count_that_repeats(pipeline);
    if (count > 0) stages = timetable_of(pipeline, count).stages;
  }
  int64_t chunks = 0;  // of positions, where a schedule has them
  if (Draw own(seed * 2246822519U + 61); seed > kOfCi && own.chance(20)) {
    out.crews = stages = 1;
    out.schedule = "1f1b";
  } else if (seed > kOfCi && own.chance(20)) {
    out.crews = stages = own.of({2, 2, 3});
    out.schedule = "seq-1f1b";
    chunks = own.of({2, 2, 3});
    count = count_that_repeats({.crews = out.crews, .schedule = out.schedule, .seq_chunks = chunks});
  }
  out.interleave = draw.of({1, 1, 1, 2});
  if (chunks > 0) out.interleave = 1;
  count *= out.interleave;
  // Of one position the gradients of queries would be rounding alone. Parts that nothing reads are gone.
  const TextSizes sizes{.samples = 2 * count,
                        .chunks = std::max<int64_t>(chunks, 2),
                        .most_parts = 2,
                        .least_parts = stages - 2,
                        .narrow = DType::kF64,
                        .dropout = chunks == 0,
                        .places = learns_places(seed),
                        .shares_table = shares_table(seed)};
  do {
    out.graph = random_text_graph(draw, sizes);
  } while (static_cast<int64_t>(scopes_of(out.graph).size()) < stages);
  out.steps = std::min(steps_of(out.graph), 2);
  cut_text(out, {.crews = out.crews, .schedule = out.schedule, .seq_chunks = chunks}, count, true, draw);
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

Case case_of(uint32_t seed) {
  Draw draw(seed);
  if (seed % 16 == 3) return case_by_hand(seed, draw);
  if (seed % 32 == 9) return case_in_chunks(seed, draw);
  if (seed % 64 == 17) return case_of_many(seed, draw);
  if (seed % 8 != 5) return any_case(seed, Numerics::kFast, draw);
  constexpr int kAttempts = 100;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Case out = any_case(seed, Numerics::kInvariant, draw);
    if (is_accepted(out)) return out;
  }
  fail(ErrorKind::kInternal, "numerics = 'invariant' refuses {} random cases", kAttempts);
}

}  // namespace

bool is_accepted(const Case& test) {
  if (test.numerics != Numerics::kInvariant) return true;
  try {
    require_invariant(test.graph, test.strategy, cpu_device());
    require_invariant(partitioned(test), cpu_device(), axes_within_micro_batches(test.strategy));
    if (!test.evaluates) return true;
    const Graph evaluation = evaluation_of(test);
    const Strategy strategy = evaluation_strategy(test, evaluation);
    require_invariant(evaluation, strategy, cpu_device());
    require_invariant(partitioned(test, evaluation, strategy), cpu_device(), axes_within_micro_batches(strategy));
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kUnsupported) throw;
    return false;
  }
  return true;
}

Case random_case(uint32_t seed) {
  Case out = case_of(seed);
  Draw draw(seed * 2246822519U + 1);  // of its own: all else is as it is on the CPU
  if (draw.chance(12)) out.device = "guarded";
  if (Draw own(seed * 2246822519U + 17); own.chance(8)) out.lingers = true;
  if (Draw own(seed * 2246822519U + 19); out.crews > 1 && own.chance(40)) out.slices = true;
  return out;
}

}  // namespace trireme::equivalence
