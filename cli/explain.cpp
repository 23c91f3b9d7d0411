// trireme explain: any box of the way from a model to its actions, as text.
#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/explain_time.h"
#include "cli/job_flags.h"
#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/joined_text.h"
#include "trireme/base/log.h"
#include "trireme/base/thread_pool.h"
#include "trireme/exec/analysis/traffic.h"
#include "trireme/parallel/without_effect.h"
#include "trireme/partition/partition.h"
#include "trireme/partition/why.h"
#include "trireme/pass/fuse_rows.h"
#include "trireme/pass/step_times.h"
#include "trireme/train/job/config.h"
#include "trireme/train/job/job.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/job/parallel_settings.h"
#include "trireme/train/report/memory_chart.h"
#include "trireme/train/step/compile/choose_homes.h"
#include "trireme/train/step/compile/remarks.h"

namespace trireme::cli {
namespace {

const std::vector<std::string> kStages{"graph",  "grad",   "search",  "plan", "partition", "timetable",
                                       "passes", "memory", "traffic", "time", "actions"};

const std::vector<std::string> kGraphs{"step", "evaluation", "inference"};

struct ExplainArgs {
  JobFlags job;
  std::string stage = "plan";
  std::string of = "step";
  std::string value;
  UnlikeRanks unlike;
  PassOptions passes;
};

std::string arena_text(const ExecutionPlan& plan, Tier tier) {
  const Arena& arena = plan.arena(tier);
  std::string out = fmt::format("{}arena {} bytes: {} persistent, {} of the step; at least {} are live at once\n",
                                tier == Tier::kDevice ? "" : fmt::format("{} ", to_string(tier)), arena.bytes,
                                arena.persistent, arena.bytes - arena.persistent, arena.lower_bound);
  const std::vector<int64_t> kinds = bytes_by_holding(plan, tier);
  for (int kind = 0; kind < kHoldings; ++kind) {
    out += fmt::format("  {:<11} {:>14} bytes at the fullest moment\n", to_string(static_cast<Holding>(kind)),
                       kinds[static_cast<size_t>(kind)]);
  }
  return out;
}

// Of a crew whose actions ran then.
std::string over_time_text(const ExecutionPlan& plan, const VirtualTime& time, size_t crew) {
  std::string out;
  for (const Tier tier : kEveryTier) {
    if (plan.arena(tier).bytes == 0) continue;
    out += fmt::format("the {} over the modelled step, at the fullest moment of each of its parts:\n{}",
                       to_string(tier), memory_lines(memory_chart(plan, time.spans[crew], time.makespan_s, tier)));
  }
  return out;
}

std::string memory_text(const ExecutionPlan& plan, const Device& device, const VirtualTime& time, size_t crew) {
  std::string out;
  if (device.memory_bytes() > 0) {
    out += fmt::format("device '{}' has {} bytes, in buffers aligned to {}\n", device.name(), device.memory_bytes(),
                       device.alignment());
  }
  out += arena_text(plan, Tier::kDevice);
  for (const Tier tier : {Tier::kHost, Tier::kDisk}) {
    if (plan.arena(tier).bytes > 0) out += arena_text(plan, tier);
  }
  out += over_time_text(plan, time, crew);
  std::vector<std::string> names(plan.buffers.size());
  for (const PlanInput& input : plan.inputs) {
    names[static_cast<size_t>(plan.values[static_cast<size_t>(input.value)].buffer)] = input.name;
  }
  for (const trireme::Action& action : plan.actions) {
    for (const int id : action.out) {
      std::string& name = names[static_cast<size_t>(plan.values[static_cast<size_t>(id)].buffer)];
      if (name.empty()) name = fmt::format("{} {}", action.op->name, action.scope);
    }
    if (action.scratch >= 0)
      names[static_cast<size_t>(action.scratch)] = fmt::format("{} {}", action.op->name, action.scope);
  }
  out += fmt::format("{:>6} {:<11} {:>14} {:>14} {:>13}  {}\n", "buffer", "holds", "offset", "bytes", "live",
                     "first written by");
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const Buffer& b = plan.buffers[i];
    out += fmt::format("{:>6} {:<11} {:>14} {:>14} {:>13}  {}\n", i, to_string(b.holding), b.offset, b.bytes,
                       fmt::format("{}..{}", b.first, b.last),
                       names[i] + (b.tier == Tier::kDevice ? "" : fmt::format(", on the {}", to_string(b.tier))));
  }
  return out;
}

// What was chosen to leave the device's memory, because of how much of it there is.
std::string chosen_text(const CompiledCrew& crew) {
  if (crew.chosen_homes.empty()) return "";
  return fmt::format("chosen, for the section [parallel]{}, before rules that stand there:\n{}\n",
                     crew.plan.crews > 1 ? " (one list of each key, with those of all crews)" : "",
                     joined_text(as_keys(crew.chosen_homes), "\n"));
}

std::string traffic_text(const ExecutionPlan& plan) {
  std::string out = fmt::format("{:<15} {:<12} {:>7} {:>16}\n", "collective", "over", "a step", "bytes of a rank");
  int64_t bytes = 0;
  for (const PlanTraffic& t : traffic_per_step(plan)) {
    out += fmt::format("{:<15} {:<12} {:>7} {:>16}\n", t.op, t.axes, t.calls, t.bytes);
    bytes += t.bytes;
  }
  return out + fmt::format("{:<36} {:>16}\n", "all", bytes);
}

// "crew 1: ranks 2 to 3, stages 1"
std::string heading_of(const Compiled& compiled, int crew) {
  const int64_t ranks = compiled.plan(crew).mesh.devices();
  std::string stages;
  const std::vector<int> crews = crews_of_stages(*compiled.timetable);
  for (size_t stage = 0; stage < crews.size(); ++stage) {
    if (crews[stage] == crew) stages += fmt::format("{}{}", stages.empty() ? "" : ", ", stage);
  }
  return fmt::format(
      "{}# crew {}: {}, {}\n", crew > 0 ? "\n" : "", crew,
      ranks == 1 ? fmt::format("rank {}", crew) : fmt::format("ranks {} to {}", crew * ranks, (crew + 1) * ranks - 1),
      stages.find(',') == std::string::npos ? "stage " + stages : "stages " + stages);
}

std::string on_host_text(const ExecutionPlan& plan) {
  const std::string ops = host_ops_text(plan);
  return ops.empty() ? "" : fmt::format("on the host, beside device '{}': {}\n", plan.device, ops);
}

std::string text_of_crew(const std::string& stage, const CompiledCrew& crew, const Rates& rates) {
  if (stage == "passes")
    return to_string(crew.program) + fused_text(crew.program) + on_host_text(crew.plan) + "\n" +
           beside_table(crew.program, rates);
  return stage == "traffic" ? traffic_text(crew.plan) : to_string(crew.plan);
}

// What does not fit is worth seeing, too.
void require_fit(const Compiled& compiled, const Device& device, const TierSizes& sizes, const std::string& text) {
  try {
    for (const CompiledCrew& crew : compiled.crews) require_fits(crew.plan, device, sizes);
  } catch (const Error&) {
    std::fputs(text.c_str(), stdout);
    throw;
  }
}

// Whether what is shown depends on what validates between steps: that can take more memory than the step in its arena.
bool needs_evaluation(const ExplainArgs& args, const TierSizes& sizes) {
  const bool is_limited = std::ranges::any_of(kEveryTier, [&](Tier t) { return sizes.of(t).is_given(); });
  return args.of == "evaluation" ||
         (args.of == "step" && args.value.empty() && (is_limited || args.stage == "memory" || args.stage == "actions"));
}

// Whether nothing that is shown or said follows from passes and memory.
bool ends_with_search(const ExplainArgs& args, const Assembly& assembly) {
  const Parallel& parallel = assembly.options.parallel;
  return args.stage == "search" && parallel.search.kind != SearchKind::kNone && args.of == "step" &&
         args.passes.dump_dir.empty() && parallel.communication.reuse == 0 && parallel.tiers.disk.directory().empty() &&
         !is_bounded(*make_device(assembly.options.device), parallel.tiers);
}

// The graph that --of names, compiled as the job compiles it.
Compiled compiled_of(const ExplainArgs& args, const Assembly& assembly, int ranks, int threads) {
  JobGraphs graphs = graphs_of(assembly, ranks);
  CompileOptions how = compile_options(assembly, graphs.parallel, ranks, threads);
  if (ends_with_search(args, assembly)) return with_strategy(std::move(graphs.step), how);
  ThreadPool pool(compute_threads(0, 1));
  how.pool = &pool;
  if (!needs_evaluation(args, assembly.options.parallel.tiers)) graphs.evaluation.reset();
  CompiledJob job = compile(std::move(graphs.step), std::move(graphs.evaluation), how);
  if (args.of == "step") return std::move(job.step);
  if (args.of == "evaluation") {
    require(job.evaluation.has_value(),
            "explain: --of evaluation, but data.validation = 0 holds nothing out; raise it, or leave --of out");
    return std::move(*job.evaluation);
  }
  return compile_beside(job.step, inference_of(assembly, ranks), how);
}

// The stages that tell something of each crew.
std::string text_of_crews(const ExplainArgs& args, const JobConfig& config, const Compiled& compiled,
                          const Device& device) {
  std::string out;
  const bool of_memory = args.stage == "memory";
  const VirtualTime time = of_memory ? modelled_step(compiled.plans(), compiled.rates, {}) : VirtualTime();
  for (size_t i = 0; i < compiled.crews.size(); ++i) {
    const CompiledCrew& crew = compiled.crews[i];
    if (compiled.crews.size() > 1) out += heading_of(compiled, static_cast<int>(i));
    out += of_memory ? chosen_text(crew) + on_host_text(crew.plan) + memory_text(crew.plan, device, time, i)
                     : text_of_crew(args.stage, crew, compiled.rates);
  }
  const std::string context = args.stage == "traffic" ? describe_context(config) : "";
  return out + (context.empty() ? "" : context + "\n");
}

std::string text_of_compiled(const ExplainArgs& args, const JobConfig& config, const Assembly& assembly,
                             const Compiled& compiled, const Device& device) {
  if (!args.value.empty()) {
    return why(
        compiled.graph, compiled.strategy, args.value,
        partition_options(assembly.options.parallel, compiled.graph, compiled.strategy.mesh, compiled.strategy.sums));
  }
  if (args.stage == "search") {
    require(!compiled.search.empty(),
            "explain: --stage search shows what the mode auto_parallel finds on several ranks; add --auto and -n 2 or "
            "more");
    return compiled.search;
  }
  if (args.stage == "plan") return strategy_file(compiled.graph, compiled.strategy);
  if (args.stage == "partition") return to_string(compiled.partitioned);
  if (args.stage == "timetable") {
    require(
        compiled.timetable.has_value(),
        "explain: --stage timetable shows the order of work in a pipeline, and this job has none; add --pp 2 or more");
    return to_string(*compiled.timetable);
  }
  if (args.stage == "time") {
    const VirtualTime time = modelled_step(compiled.plans(), compiled.rates, args.unlike);
    if (!config.train.trace.empty()) write_trace(compiled.plans(), time, config.train.trace);
    return time_text(compiled.plans(), compiled.rates, time, args.unlike.given());
  }
  return text_of_crews(args, config, compiled, device);
}

std::string text_of(const ExplainArgs& args, const JobConfig& config, const Assembly& assembly, int ranks,
                    int threads) {
  if (args.value.empty() && args.stage == "graph") {
    return to_string(args.of == "inference" ? inference_of(assembly, ranks) : evaluation_of(assembly, ranks));
  }
  if (args.value.empty() && args.stage == "grad") return to_string(graphs_of(assembly, ranks).step);
  const Compiled compiled = compiled_of(args, assembly, ranks, threads);
  const bool is_cut = args.of == "step" && ranks > 1 && !compiled.partitioned.by_hand;
  std::string groups;
  if (args.of == "step") {
    log_remarks(compiled, assembly.options.parallel, ranks);
    groups = nn::describe_groups(compiled.graph, config.train.step.groups);
  }
  const std::string whole = is_cut && args.value.empty()
                                ? stays_whole(compiled.graph, compiled.strategy, assembly.options.parallel.optimizer)
                                : "";
  if (!whole.empty()) TRIREME_LOG(kWarn, "cli", "{}", whole);
  if (is_cut && !config.parallel.communication.shard_accumulation) {
    const std::string order = order_without_effect(compiled, assembly.options.parallel);
    if (!order.empty()) TRIREME_LOG(kWarn, "cli", "{}", order);
  }
  const std::shared_ptr<Device> device = make_device(assembly.options.device);
  const TierSizes& sizes = assembly.options.parallel.tiers;
  std::string out = text_of_compiled(args, config, assembly, compiled, *device);
  if (args.stage == "memory" && !groups.empty())
    out = "parameters " + groups + "\n" + out;
  else if (!groups.empty())
    TRIREME_LOG(kInfo, "cli", "parameters {}", groups);
  if (args.value.empty() && is_bounded(*device, sizes)) require_fit(compiled, *device, sizes, out);
  return out;
}

// Of passes, where what is shown stands before them; --dump writes what they make all the same, where they run.
void check_pass_flags(const ExplainArgs& args) {
  static constexpr std::string_view kAfter[] = {"passes", "memory", "traffic", "time", "actions"};
  const bool dumps = !args.passes.dump_dir.empty();
  const bool runs = args.value.empty() && args.stage != "graph" && args.stage != "grad";
  const bool shows = args.value.empty() && std::ranges::find(kAfter, args.stage) != std::end(kAfter);
  const std::string what = args.value.empty() ? "--stage " + args.stage : "--value";
  const auto refuse = [&](const char* flag) {
    fail(ErrorKind::kInvalidArgument,
         "explain: {} concerns the passes, and {} shows the program before them; add --stage passes, or leave {} out",
         flag, what, flag);
  };
  if (dumps && !runs) refuse("--dump");
  if (!args.passes.disabled.empty() && !shows && !dumps) refuse("--disable-pass");
  if (!args.passes.stop_after.empty() && !shows && !dumps) refuse("--stop-after");
}

// A plan needs no data, but its job does.
void warn_of_missing_data(const JobConfig& config) {
  JobConfig copy = config;
  const std::string reads = " " + data_of(config).reads() + " ";
  const auto look = [](const std::string& key, const std::string& path) {
    if (path.empty() || is_file(path) || is_directory(path)) return;
    TRIREME_LOG(kWarn, "cli", "{}: there is no '{}'; what is shown does not depend on it, but `trireme train` reads it",
                key, path);
  };
  for (const ConfigKey& key : config_keys(copy)) {
    if (reads.find(" " + key.name + " ") == std::string::npos) continue;
    if (auto* const* path = std::get_if<std::string*>(&key.target)) look(key.name, **path);
    if (auto* const* paths = std::get_if<std::vector<std::string>*>(&key.target)) {
      for (const std::string& path : **paths) look(key.name, path);
    }
  }
}

int run(const ExplainArgs& args) {
  if (std::find(kStages.begin(), kStages.end(), args.stage) == kStages.end()) {
    fail(ErrorKind::kInvalidArgument, "explain: no stage '{}'.{}", args.stage, suggestion(args.stage, kStages));
  }
  require(std::find(kGraphs.begin(), kGraphs.end(), args.of) != kGraphs.end(),
          "explain: there is no graph '{}' for --of.{}", args.of, suggestion(args.of, kGraphs));
  require(!args.unlike.given() || (args.stage == "time" && args.value.empty()),
          "explain: --slow and --late change the modelled step, which --stage time alone shows; add it");
  require(args.of == "step" || args.stage != "grad",
          "explain: --stage grad shows the training step, which alone has gradients; leave --of {} out", args.of);
  require(args.value.empty() || args.stage == "plan",
          "explain: --value says why a tensor lies as it does, and --stage {} shows something else; leave one out",
          args.stage);
  check_pass_flags(args);
  args.job.nodes.check();
  const auto [config, planned] = read_as_it_runs(args.job);
  log_remarks(config, args.job.ranks_in_all());
  warn_of_missing_data(config);
  require(config.train.trace.empty() || args.stage == "time",
          "explain: --trace writes the modelled step, which --stage time alone makes; add it, or leave --trace out");
  if (!args.passes.dump_dir.empty()) disk().make_directory(args.passes.dump_dir);
  const auto model = make_model(config);
  const int ranks = args.job.ranks_in_all();
  Assembly assembly = assembly_of(config, *model, ranks);
  PassOptions& passes = assembly.options.passes;
  passes.disabled = args.passes.disabled;
  passes.stop_after = args.passes.stop_after;
  passes.dump_dir = args.passes.dump_dir;
  const Communication& communication = assembly.options.parallel.communication;
  const std::string& transport = config.parallel.transport;
  const bool measures = ranks > 1 && (transport == "ucx" || transport == "mpi" || args.job.nodes.given());
  if (measures && !communication.machine && !communication.measured) {
    TRIREME_LOG(kWarn, "cli",
                "the job measures its links as it starts, and groups sums of gradients and gathers of weights by them. "
                "This plan assumes the links of a typical host, so the run's memory, and with zero = 3 the bytes that "
                "it sends, may differ. A run leaves what it measured in its folder; to see that run's plan: --set "
                "parallel.rates={}/rates.toml",
                args.job.out);
  }
  const bool is_plan_asked = args.stage == "search" && args.value.empty() && !planned.empty();
  std::fputs((is_plan_asked ? planned
                            : text_of(args, config, assembly, ranks, compute_threads(args.job.threads, args.job.ranks)))
                 .c_str(),
             stdout);
  return 0;
}

std::string names_of_passes() {
  std::string out;
  for (const Pass* pass : passes()) out += (out.empty() ? "" : ", ") + std::string(pass->name);
  return out;
}

void add_pass_flags(CLI::App& command, PassOptions& passes) {
  command
      .add_option("--disable-pass", passes.disabled,
                  "Leave a pass out; may be repeated. The passes are, in order: " + names_of_passes())
      ->allow_extra_args(false);
  command.add_option("--stop-after", passes.stop_after, "The last pass to run");
  command.add_option("--dump", passes.dump_dir,
                     "Folder for the program after each pass that changed it, as 001_<pass>.program. "
                     "TRIREME_LOG=pass=debug shows how long each took");
}

}  // namespace

void add_explain(CLI::App& app, Action& chosen) {
  auto args = std::make_shared<ExplainArgs>();
  CLI::App* command = app.add_subcommand("explain", "Print what a configuration becomes, stage by stage");
  args->job.takes_models = true;
  add_job_flags(*command, args->job);
  leave_run_out_of_help(*command);
  command
      ->add_option(
          "--stage", args->stage,
          "graph: forward and loss; grad: the training step; search: what --auto finds, in short; plan: the cuts; "
          "partition: the ranks' program, "
          "of one micro-batch on a mesh with the axis micro_batch where there are several; timetable: of a "
          "pipeline, in which order each part of the ranks works; passes: after the "
          "passes, all "
          "micro-batches one after the other, the ops that were fused, and when each collective beside them "
          "is ready, begins and ends in a modelled step; memory: what each tier has over the modelled step, and every "
          "buffer; traffic: the bytes a rank sends in a "
          "step; time: how long the modelled step takes, and how long each lane is busy, exposed and idle in "
          "it; actions: the execution plan")
      ->capture_default_str();
  command
      ->add_option(
          "--slow", args->unlike.slow,
          "With --stage time: RANK=FACTOR, this rank takes FACTOR times as long to compute; may be given again")
      ->allow_extra_args(false);
  command
      ->add_option("--late", args->unlike.late,
                   "With --stage time: RANK=SECONDS, this rank begins SECONDS later; may be given again")
      ->allow_extra_args(false);
  command->add_option("--value", args->value,
                      "Print instead why a tensor lies as it does. A parameter, an input or a part of the model, like "
                      "h.0.mlp.c_fc; * stands for any characters");
  command
      ->add_option("--of", args->of,
                   "step, evaluation (of what is held out, in the step's memory) or inference (the model alone)")
      ->capture_default_str();
  add_pass_flags(*command, args->passes);
  command->footer(
      "Ranks are planned for, but none is started. The other options of `trireme train`, for where a run writes, how "
      "it\n"
      "goes on and how its ranks meet, are accepted too, so that the same command line explains and trains; they "
      "change\n"
      "no plan.\n\n"
      "Example:\n  trireme explain examples/gpt_text.toml -n 2 --stage partition");
  command->callback([=, &chosen] { chosen = [=] { return run(*args); }; });
}

}  // namespace trireme::cli
