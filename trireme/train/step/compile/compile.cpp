#include "trireme/train/step/compile/compile.h"

#include <algorithm>
#include <set>
#include <utility>

#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/thread_pool.h"
#include "trireme/exec/analysis/soundness.h"
#include "trireme/exec/lowering/plan_execution.h"
#include "trireme/exec/plan/reuse.h"
#include "trireme/mesh/machine.h"
#include "trireme/op/build.h"
#include "trireme/partition/by_hand.h"
#include "trireme/partition/crews.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/narrow_gathers.h"
#include "trireme/pass/recompute_rules.h"
#include "trireme/train/step/compile/choose_homes.h"
#include "trireme/train/step/compile/crew_stages.h"
#include "trireme/train/step/compile/invariant.h"

namespace trireme {

namespace {

// What says how the compiler cuts a model, or moves what it cuts, has no effect on one that its own code cuts.
void check_by_hand(const CompileOptions& options) {
  const Parallel& p = options.parallel;
  require(
      options.numerics == Numerics::kFast,
      "numerics = 'invariant' is not for models cut by hand, whose collectives are their own; use numerics = 'fast'");
  const Communication usual;
  const std::pair<bool, std::string> given[] = {
      {p.pipeline.seq_chunks > 1, fmt::format("{} chunks of positions (seq_chunks)", p.pipeline.seq_chunks)},
      {p.interleave != 1, fmt::format("{} interleaved copies (interleave)", p.interleave)},
      {p.pipeline.crews != 1, fmt::format("a pipeline of {} parts (pp)", p.pipeline.crews)},
      {p.optimizer.level != 0, fmt::format("optimizer parallelism of level {} (zero)", p.optimizer.level)},
      {!p.strategy.empty(), "a strategy"},
      {!p.ops.empty(), p.ops.empty() ? "" : fmt::format("the rule for ops '{}'", to_string(p.ops.front().pattern))},
      {!p.parameters.empty(),
       p.parameters.empty() ? "" : fmt::format("the rule for parameters '{}'", p.parameters.front().pattern)},
      {p.communication.all_to_all != usual.all_to_all, "enable_alltoall = false"},
      {p.communication.gradients_in_f32 != usual.gradients_in_f32, "gradient_fp32_sync = false"},
      {p.communication.all_in_f32 != usual.all_in_f32, "force_fp32_communication"}};
  for (const auto& [is_given, what] : given) {
    require(!is_given,
            "{} is for what the compiler cuts; this model is cut by hand (mode hybrid_parallel, or layerwise "
            "parameters); leave it out",
            what);
  }
  require(
      p.accumulation == 1,
      "{} micro-batches a step: a model that is cut by hand takes its batch in one; use 1, or let the compiler cut it",
      p.accumulation);
}

void check_chunks(const CompileOptions& options) {
  const int64_t chunks = seq_chunks_of(options.parallel);
  require(
      chunks == 1 || options.numerics == Numerics::kFast,
      "numerics = 'invariant' sums the gradients of keys and values in an order of its own, and {} chunks of positions "
      "(seq_chunks) in another; leave one out",
      chunks);
}

Compiled partitioned(Graph graph, const CompileOptions& options) {
  if (options.parallel.by_hand) {
    check_by_hand(options);
    Compiled out;
    out.graph = std::move(graph);
    out.strategy = semi_auto(out.graph, options.ranks,
                             {.mesh = options.parallel.mesh, .dataset = "full_batch", .follow_requests = false});
    out.partitioned = by_hand(out.graph, out.strategy);
    return out;
  }
  Compiled out = with_strategy(std::move(graph), options);
  PartitionOptions how = partition_options(options.parallel, out.graph, out.strategy.mesh, out.strategy.sums);
  if (options.numerics == Numerics::kInvariant)
    how.costs.sum_before_micro_batches = axes_within_micro_batches(out.strategy);
  how.reshards = options.reshards.get();
  out.partitioned = narrow_gathers(partition(out.graph, out.strategy, how));
  return out;
}

ReuseOptions reuse_of(const Communication& how) {
  return {.limit = how.reuse < 0 ? kUsualReuseLimit : how.reuse, .above = how.reuse_above};
}

void log_reuse(const ExecutionPlan& plan, const CompileOptions& options) {
  const ReuseOptions how = reuse_of(options.parallel.communication);
  const ReuseSavings saved = reuse_savings(plan, how.above);
  TRIREME_LOG(kInfo, "exec",
              "plan '{}': reuse of equal collectives, at most {}: {} actions of {} calls; {} bytes of plan saved, {} "
              "streams of {} collectives instead of {}",
              plan.name, how.limit, saved.actions, saved.calls, saved.plan_bytes, saved.streams_after, how.above,
              saved.streams_before);
}

DiskBlocks disk_blocks_of(const TierWays& ways) {
  const int64_t bytes = ways.disk_block.bytes();
  require(bytes >= kSectorBytes && bytes <= 1 << 30 && bytes % kSectorBytes == 0,
          "parallel.disk_block is {} bytes; a block of the disk is a multiple of {}, up to 1GiB", bytes, kSectorBytes);
  require(ways.disk_queue >= 1 && ways.disk_queue <= kMostBlocksUnderWay,
          "parallel.disk_queue = {}; it must be from 1 to {}", ways.disk_queue, kMostBlocksUnderWay);
  return {.bytes = bytes, .under_way = ways.disk_queue};
}

ExecutionPlan planned(const Program& program, const CompileOptions& options, int crew, int crews) {
  ExecutionPlan out = plan_execution(program, {.threads = options.threads,
                                               .device = options.device.get(),
                                               .numerics = options.numerics,
                                               .tuning = options.tuning.get(),
                                               .external_parameters = options.external_parameters,
                                               .crew = crew,
                                               .crews = crews,
                                               .reuse = reuse_of(options.parallel.communication),
                                               .disk_blocks = disk_blocks_of(options.parallel.tier_ways)});
  if (options.parallel.communication.reuse != 0) log_reuse(out, options);
  const std::vector<std::string> unsound = options.passes.verify ? verify(out) : std::vector<std::string>();
  invariant(unsound.empty(), "plan '{}': {}", out.name, unsound.empty() ? "" : unsound.front());
  return out;
}

// Whether what lies where follows from how much there is.
bool chooses_homes(const CompileOptions& options, const PassOptions& passes) {
  const Parallel& parallel = options.parallel;
  return trireme::chooses_homes(parallel.tiers, parallel.tier_ways, passes.on_host.is_asked_for()) &&
         !options.external_parameters && passes.stop_after.empty() && std::ranges::count(passes.disabled, "homes") == 0;
}

// Of these crews, of which there are so many in all. None where programs are to be repeated that do not repeat.
std::vector<CompiledCrew> compiled_crews(std::vector<std::pair<size_t, Program>> programs, int crews,
                                         const CrewRepeats& repeats, const CompileOptions& options,
                                         const PassOptions& passes) {
  std::vector<CompiledCrew> out(programs.size());
  std::vector<char> is_made(out.size(), 1);
  std::vector<std::optional<TooLittleMemory>> refused(out.size());
  const auto compile_crew = [&](int64_t at, int) {
    const size_t crew = programs[static_cast<size_t>(at)].first;
    PassOptions own = passes;
    if (crews > 1) own.dump_name = fmt::format("crew{}_", crew);
    CompiledCrew& made = out[static_cast<size_t>(at)];
    std::vector<PassRemark> remarks;
    own.remarks = &remarks;
    Program program = std::exchange(programs[static_cast<size_t>(at)].second, Program());
    const auto plan_of = [&](const Program& of) { return planned(of, options, static_cast<int>(crew), crews); };
    if (!chooses_homes(options, passes)) {
      made.program = run_passes(std::move(program), own);
      if (!repeats.crews.empty()) {
        std::optional<Program> all = repeated(made.program, repeats.crews[crew], repeats.of_each);
        is_made[static_cast<size_t>(at)] = all ? 1 : 0;
        if (!all) return;
        made.program = std::move(*all);
      }
      made.plan = plan_of(made.program);
      made.homes = with_own_homes(passes, made.plan);
      made.remarks = std::move(remarks);
      return;
    }
    const auto program_of = [&](PassOptions of) {
      for (const Pass* pass : trireme::passes()) {
        if (pass->by_homes) of.disabled.emplace_back(pass->name);
      }
      of.dump_name = own.dump_name;
      of.remarks = &remarks;
      remarks.clear();  // of another trial
      return run_passes(program, of);
    };
    try {
      ChosenHomes chosen = choose_homes(passes, options.parallel.tiers, {program_of, plan_of});
      std::vector<HomeRule> homes = with_own_homes(chosen.passes, chosen.plan);
      made = {std::move(chosen.program), std::move(chosen.plan), std::move(homes), std::move(chosen.chosen),
              std::move(remarks)};
    } catch (const TooLittleMemory& error) {
      refused[static_cast<size_t>(at)] = error;
    }
  };
  ThreadPool none(1);
  (options.pool != nullptr ? *options.pool : none).run(static_cast<int64_t>(out.size()), compile_crew);
  throw_largest(refused);
  if (std::ranges::count(is_made, 0) > 0) out.clear();
  return out;
}

}  // namespace

Device& device_of(const CompileOptions& options) {
  return options.device ? *options.device : cpu_device();
}

PartitionOptions partition_options(const Parallel& parallel, const Graph& graph, const Mesh& mesh,
                                   const SumOrder& sums) {
  Communication how = parallel.communication;
  how.shard_accumulation = sums.each.value_or(how.shard_accumulation);
  return {reshard_costs(how, mesh), sum_types(graph, how), summed_once(graph, sums)};
}

std::vector<HomeRule> with_own_homes(const PassOptions& passes, const ExecutionPlan& plan) {
  std::vector<HomeRule> out = passes.homes;
  if (!passes.on_host.is_asked_for()) return out;
  for (const PlanInput& input : plan.inputs) {
    if (input.role != Role::kParameter) continue;
    const int buffer = plan.values[static_cast<size_t>(input.value)].buffer;
    out.push_back({input.name, Held::kParameter, plan.buffers[static_cast<size_t>(buffer)].tier});
  }
  return out;
}

std::vector<const ExecutionPlan*> Compiled::plans() const {
  std::vector<const ExecutionPlan*> out;
  for (const CompiledCrew& crew : crews) out.push_back(&crew.plan);
  return out;
}

double flops_per_step(const Compiled& compiled, int64_t ranks) {
  double flops = 0;
  for (const CompiledCrew& crew : compiled.crews) flops += flops_per_step(crew.plan);
  return flops * static_cast<double>(ranks) / static_cast<double>(compiled.crews.size());
}

const ExecutionPlan& largest_plan(const Compiled& compiled) {
  const auto bytes = [](const CompiledCrew& crew) { return crew.plan.arena().bytes; };
  return std::ranges::max_element(compiled.crews, {}, bytes)->plan;
}

namespace {

// Without a rule of their own, parameters and state lie where all do. An optimizer without state is none to refuse.
std::vector<HomeRule> homes_asked(const Graph& graph, const Parallel& parallel) {
  std::vector<HomeRule> out, of_model = requested_homes(graph);
  if (const Tier all = parallel.tier_ways.offload_to; all != Tier::kDevice) {
    for (const Held what : {Held::kParameter, Held::kState})
      out.push_back({.parameters = "*", .of = what, .home = all});
  }
  out.insert(out.end(), of_model.begin(), of_model.end());
  out.insert(out.end(), parallel.homes.begin(), parallel.homes.end());
  return out;
}

// What users ask of the passes, checked against the graph.
void check_asked(const Compiled& compiled, const CompileOptions& options) {
  if (options.numerics == Numerics::kInvariant) {
    require(options.passes.loss_pieces == 1,
            "numerics = 'invariant' sums in an order of its own, loss_pieces = {} in pieces; leave one out",
            options.passes.loss_pieces);
    const Device& device = device_of(options);
    require_invariant(compiled.graph, compiled.strategy, device);
    require_invariant(compiled.partitioned, device, axes_within_micro_batches(compiled.strategy));
  }
  if (!compiled.graph.updates().empty()) {
    check_keep_rules(compiled.partitioned.graph, options.passes.recompute.rules);
    check_blocks(compiled.partitioned.graph, options.passes.recompute.blocks);
  }
  if (options.external_parameters) return;
  check_requested_homes(compiled.graph);
  check_homes(compiled.graph, options.parallel.homes);
  check_host_rules(compiled.graph, options.parallel.on_host.rules);
  check_prefetch_rules(compiled.graph, options.parallel.tier_ways.prefetch);
}

PassOptions pass_options(const Compiled& compiled, const CompileOptions& options) {
  const Communication& how = options.parallel.communication;
  PassOptions out = options.passes;
  out.recompute = with_requests(compiled.graph, out.recompute);
  out.fusion = how.fusion;
  out.fusion.ids = fusion_rules(compiled.graph, how.fusion.ids);
  out.rates = compiled.rates;
  std::erase_if(out.fused_products, [&](DType dtype) { return !device_of(options).fuses_products(dtype); });
  if (options.numerics == Numerics::kInvariant) out.disabled.emplace_back("sum_in_products");  // sums are trees
  out.on_host = with_requests(compiled.graph, options.parallel.on_host);
  out.homes = homes_asked(compiled.graph, options.parallel);
  out.tier_ways = options.parallel.tier_ways;
  return out;
}

// A graph that was cut.
Compiled begun(Graph graph, const CompileOptions& options) {
  const std::vector<std::string> wrong = options.passes.verify ? verify(graph) : std::vector<std::string>();
  invariant(wrong.empty(), "graph '{}': {}", graph.name(), wrong.empty() ? "" : wrong.front());
  (void)device_of(options).bits(options.numerics);  // before a strategy is searched for what it does not keep
  check_chunks(options);
  Compiled out = partitioned(std::move(graph), options);
  take_rates(options, out.strategy.mesh, out);
  check_asked(out, options);
  return out;
}

// Whether passes may see fewer micro-batches than there are.
bool may_repeat(const CompileOptions& options) {
  const PassOptions& passes = options.passes;
  return passes.dump_dir.empty() && passes.stop_after.empty() && !chooses_homes(options, passes);
}

}  // namespace

BeforeCrews before_crews(Graph graph, const CompileOptions& options) {
  return before_crews(begun(std::move(graph), options), options);
}

namespace {

std::vector<CompiledCrew> all_compiled(std::vector<Program> programs, const CrewRepeats& repeats,
                                       const CompileOptions& options, const PassOptions& passes) {
  std::vector<std::pair<size_t, Program>> all;
  for (Program& program : programs) all.emplace_back(all.size(), std::move(program));
  return compiled_crews(std::move(all), static_cast<int>(programs.size()), repeats, options, passes);
}

}  // namespace

std::vector<Program> programs_of_crews(const BeforeCrews& from, const CompileOptions& options,
                                       std::span<const size_t> crews) {
  if (!from.whole.timetable) return {from.program};
  return in_crews(from.program, timetable_for(from.whole.graph, options.parallel, from.program.micro_batches), crews);
}

std::vector<CompiledCrew> compile_some_crews(const Compiled& whole, std::vector<Program> programs,
                                             std::span<const size_t> crews, const CompileOptions& options) {
  std::vector<std::pair<size_t, Program>> some;
  for (size_t i = 0; i < crews.size(); ++i) some.emplace_back(crews[i], std::move(programs[i]));
  const size_t count = whole.timetable ? whole.timetable->crews.size() : 1;
  return compiled_crews(std::move(some), static_cast<int>(count), {}, options, pass_options(whole, options));
}

Compiled compile_crews(CrewPrograms from, const CompileOptions& options) {
  Compiled out = std::move(from.whole);
  const PassOptions passes = pass_options(out, options);
  out.crews = all_compiled(std::move(from.programs), from.repeats, options, passes);
  if (out.crews.empty()) {
    TRIREME_LOG(kDebug, "plan", "'{}' does not repeat; all its micro-batches are compiled", out.graph.name());
    from = unrolled(std::move(out), options, false);
    out = std::move(from.whole);
    out.crews = all_compiled(std::move(from.programs), from.repeats, options, passes);
  }
  std::vector<std::vector<PassRemark>> remarks;
  for (const CompiledCrew& crew : out.crews) remarks.push_back(crew.remarks);
  for (std::string& remark : remarks_of_crews(remarks)) out.remarks.push_back(std::move(remark));
  if (out.crews.size() == 1) {
    const std::vector<std::string> unsound = check_communication(out.plan());
    invariant(unsound.empty(), "plan '{}': {}", out.plan().name, unsound.empty() ? "" : unsound.front());
  } else {
    const std::vector<std::string> unsound = check_communication(std::span<const ExecutionPlan* const>(out.plans()));
    require(unsound.empty(), "this model cannot be run by the schedule '{}': {}; use the schedule gpipe",
            out.timetable->name, unsound.empty() ? "" : unsound.front());
  }
  return out;
}

Compiled compile(Graph graph, const CompileOptions& options) {
  return compile_crews(unrolled(begun(std::move(graph), options), options, may_repeat(options)), options);
}

namespace {

// Where the step's forward ops are, by their scopes; a scope that has several stages says nothing.
ScopeStages stages_of_step(const Compiled& step) {
  if (step.strategy.stages.empty()) return {};
  const std::vector<int> stages = stages_of(step.graph, step.strategy.stages);
  ScopeStages out;
  std::set<std::string, std::less<>> several;
  for (size_t i = 0; i < stages.size(); ++i) {
    const Node& node = step.graph.nodes()[i];
    const std::string scope(step.graph.scope_of(node));
    if (node.phase != Phase::kForward || stages[i] < 0) continue;
    const auto [known, is_new] = out.emplace(scope, stages[i]);
    if (!is_new && known->second != stages[i]) several.insert(scope);
  }
  for (const std::string& scope : several) out.erase(scope);
  return out;
}

// Where each parameter lies, for programs beside those of the crews: what one crew's rules say of the parameters of
// another is not asked. Of a parameter that several read, the home is the same.
std::vector<HomeRule> homes_of_parameters(std::span<const CompiledCrew> crews) {
  std::map<std::string, Tier> homes;
  for (const CompiledCrew& crew : crews) {
    for (const PlanInput& input : crew.plan.inputs) {
      if (input.role != Role::kParameter) continue;
      const Tier home = home_of(crew.homes, Held::kParameter, input.name);
      const auto [known, is_new] = homes.emplace(input.name, home);
      if (is_new || known->second == home) continue;
      fail(ErrorKind::kUnsupported,
           "'{}' lies in '{}' on one part of the pipeline and in '{}' on another, by which of their ops run on the "
           "host; give it a home (parallel.home)",
           input.name, to_string(known->second), to_string(home));
    }
  }
  std::vector<HomeRule> out;
  if (std::ranges::none_of(homes, [](const auto& each) { return each.second != Tier::kDevice; })) return out;
  for (const auto& [name, home] : homes) out.push_back({name, Held::kParameter, home});
  return out;
}

// The evaluation runs in what the step leaves free between steps.
void make_room(ExecutionPlan& step, const ExecutionPlan& evaluation, Tier tier, MemorySize most) {
  Arena& arena = step.arena(tier);
  const int64_t bytes = arena.persistent + evaluation.arena(tier).bytes;
  require(
      !most.is_given() || bytes <= most.bytes() || arena.bytes > most.bytes(),
      "'{}' takes {} bytes of the {}'s memory on each rank, and {} where it validates; parallel.{}_memory allows {}: "
      "allow more, or validate by smaller batches (train.eval_batch)",
      step.name, arena.bytes, to_string(tier), bytes, to_string(tier), to_string(most));
  arena.bytes = std::max(arena.bytes, bytes);
}

}  // namespace

Compiled compile_beside(const Compiled& step, Graph graph, const CompileOptions& options) {
  CompileOptions how = options;
  how.external_parameters = true;
  how.parallel.homes = homes_of_parameters(step.crews);
  how.measure = {};  // all of a job goes by the same
  how.parallel.communication.measured = step.measured;
  if (how.parallel.search.kind != SearchKind::kNone) {  // what was found for the step holds beside it
    how.parallel.search.kind = SearchKind::kNone;
    how.parallel.strategy = to_string(step.graph, step.strategy);
  }
  if (const Mesh& mesh = step.strategy.mesh; !how.parallel.strategy.empty()) {  // the file brings its own
    // Without the parts of a micro-batch: copies, which are set apart, and chunks of positions, which the schedule
    // makes.
    const int64_t parts = how.parallel.interleave * seq_chunks(mesh);
    how.parallel.mesh = with_micro_batches(without_micro_batches(mesh), micro_batches(mesh) / parts);
  }
  std::map<std::string, Layout> stored;
  for (const CompiledCrew& crew : step.crews) {
    for (const PlanInput& input : crew.plan.inputs) {
      const bool is_kept = input.role == Role::kParameter || input.role == Role::kState;
      const bool is_batch = input.role == Role::kData && !how.parallel.strategy.empty();  // cut as the file says
      if (!is_kept && !is_batch) continue;
      stored.emplace(input.name, crew.plan.values[static_cast<size_t>(input.value)].layout);
    }
  }
  how.stored = &stored;
  how.stages = stages_of_step(step);
  return compile(std::move(graph), how);
}

CompiledJob compile(Graph step, std::optional<Graph> evaluation, const CompileOptions& options) {
  CompiledJob out{compile(std::move(step), options), std::nullopt};
  if (!evaluation) return out;
  out.evaluation = compile_beside(out.step, std::move(*evaluation), options);
  for (size_t crew = 0; crew < out.step.crews.size(); ++crew) {
    for (const Tier tier : {Tier::kDevice, Tier::kHost})
      make_room(out.step.crews[crew].plan, out.evaluation->crews[crew].plan, tier, options.parallel.tiers.of(tier));
  }
  return out;
}

}  // namespace trireme
