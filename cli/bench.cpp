// trireme bench: one training step, one collective, the compiler, the executor, or the machine's limits, measured; one
// line of JSON each.
#include <CLI/CLI.hpp>

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/job_flags.h"
#include "cli/model_flags.h"
#include "cli/step_profile.h"
#include "trireme/backend/device.h"
#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/json_text.h"
#include "trireme/base/rng.h"
#include "trireme/comm/world/time_collective.h"
#include "trireme/exec/analysis/soundness.h"
#include "trireme/exec/analysis/step_bytes.h"
#include "trireme/exec/analysis/traffic.h"
#include "trireme/ops/ops.h"
#include "trireme/train/job/config.h"
#include "trireme/train/job/job.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/job/parallel_settings.h"
#include "trireme/train/report/communication_summary.h"
#include "trireme/train/step/compile/slow_products.h"
#include "trireme/train/step/session/session.h"

namespace trireme::cli {
namespace {

struct StepArgs {
  ModelFlags model;
  int threads = 1;
  int ranks = 1;
  int64_t steps = 10, warmup = 3;
  std::string transport = "auto";
  bool json = false;
  bool by_op = false;
  bool profile = false;
};

double peak_rss_mb() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024.0;
}

double resident_mb() {
  std::ifstream file("/proc/self/statm");
  double all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1048576.0;
}

// Handed to others so far.
int64_t sent_bytes(const comm::World* world) {
  return world == nullptr ? 0 : world->sent_bytes();
}

int64_t planned_bytes(const ExecutionPlan& plan) {
  int64_t bytes = 0;
  for (const PlanTraffic& t : traffic_per_step(plan)) bytes += t.bytes;
  return bytes;
}

// Since the command was started: of a worker, since its launcher was.
double since_start_s() {
  return seconds_since_start_of(is_worker() ? ::getppid() : ::getpid());
}

// The largest of all ranks' values.
double over_ranks(comm::World* world, double mine) {
  if (world == nullptr) return mine;
  world->all().all_reduce({reinterpret_cast<std::byte*>(&mine), {DType::kF64, {1}}}, comm::Reduce::kMax).wait();
  return mine;
}

void print(const JsonObject& line, bool json) {
  if (json) {
    std::printf("%s\n", line.text().c_str());
  } else {
    for (const auto& [key, value] : line.members()) std::printf("%-14s %s\n", key.c_str(), value.text().c_str());
  }
  std::fflush(stdout);
}

// Random data of the right kind, different on each data parallel rank.
void fill_batch(Executor& executor, const std::vector<BatchField>& fields, const std::vector<FieldNeed>& needs) {
  for (size_t i = 0; i < fields.size(); ++i) {
    const std::string& name = fields[i].name;
    if (!executor.has_input(name)) continue;
    executor.fill_inputs({&name, 1}, [&](std::span<const View> views) {
      const View& view = views[0];
      const auto first = static_cast<uint64_t>(executor.input_box(name).start[0]) *
                         static_cast<uint64_t>(view.elements() / std::max<int64_t>(1, view.type.shape[0]));
      if (view.type.dtype == DType::kF32) return fill_normal({1, 1}, first, 0, view.as<float>());
      const auto below = static_cast<uint32_t>(needs[i].below);
      uint64_t at = first;
      for (int32_t& id : view.as<int32_t>()) id = static_cast<int32_t>(random_bits({1, 2}, at++, 0) % below);
    });
  }
}

void print_by_op(const Executor& executor, int64_t steps) {
  std::map<std::string, double> ms;
  for (const ActionTime& time : executor.times()) {
    ms[std::string(time.op)] += time.seconds * 1e3 / static_cast<double>(steps);
  }
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [op, value] : ms) sorted.emplace_back(value, op);
  std::sort(sorted.rbegin(), sorted.rend());
  for (const auto& [value, op] : sorted) std::fprintf(stderr, "%10.3f ms  %s\n", value, op.c_str());
}

// That all threads of this process have worked.
double worked_s() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Steps {
  std::vector<double> ms, cpu_ms;  // of the timed ones, sorted
  double ready_s = 0, first_step_s = 0;
  CommunicationTime communication;  // of a mean timed step
  std::optional<std::vector<ProfileRow>> profile;
};

Steps run_steps(Session& session, const std::vector<BatchField>& fields, const JobConfig& config,
                const StepArgs& args) {
  Steps out;
  Executor& executor = session.step();
  const std::vector<FieldNeed> needs = model_of(config).needs();
  std::optional<StepProfile> profile;
  for (int64_t i = 1; i <= args.warmup + args.steps; ++i) {
    if (args.by_op && i == args.warmup + 1) executor.set_timing(true);
    if (args.profile && i == args.warmup + 1) profile.emplace(executor);
    fill_batch(executor, fields, needs);  // a step may use its batch's memory for something else
    if (executor.has_input("lr")) executor.write_number("lr", 1e-4F);
    if (executor.has_input("step")) executor.write_number("step", i);
    if (i == 1) out.ready_s = since_start_s();
    const double worked = worked_s();
    const double begin = now_s();
    executor.run();
    const double end = now_s();
    if (i == 1) out.first_step_s = since_start_s();
    if (i <= args.warmup) continue;
    out.ms.push_back((end - begin) * 1e3);
    out.cpu_ms.push_back((worked_s() - worked) * 1e3);
    if (profile) profile->add_step();
    out.communication += executor.communication();
  }
  out.communication /= static_cast<double>(args.steps);
  std::sort(out.ms.begin(), out.ms.end());
  std::sort(out.cpu_ms.begin(), out.cpu_ms.end());
  if (profile) out.profile = profile->rows();
  return out;
}

JsonObject json_of(const CommunicationTime& communication) {
  return {{"comm_busy_ms", communication.busy_s * 1e3},
          {"comm_exposed_ms", communication.exposed_s * 1e3},
          {"comm_begin_ms", communication.begin_s * 1e3},
          {"comm_hidden_percent", communication.hidden_percent()}};
}

// Of this rank, as planned: what ops move, what it holds, what it sends.
JsonObject bytes_of(const Session& session) {
  const StepBytes moves = step_bytes(session.compiled().program(), session.plan());
  return {{"moved_bytes", static_cast<int64_t>(moves.moved)},
          {"least_bytes", static_cast<int64_t>(moves.least)},
          {"arena_bytes", session.plan().arena().bytes},
          {"arena_lower_bound", session.plan().arena().lower_bound},
          {"planned_bytes", planned_bytes(session.plan())}};
}

void print_with_profile(JsonObject line, const std::optional<std::vector<ProfileRow>>& profile, bool json) {
  if (profile && json) line.add("profile", profile_json(*profile));
  print(line, json);
  if (profile && !json) std::fputs(profile_text(*profile).c_str(), stdout);
}

int step(const StepArgs& args) {
  require(args.steps >= 1 && args.warmup >= 0,
          "bench step: --steps {} --warmup {}; steps must be 1 or more, warm-up steps 0 or more", args.steps,
          args.warmup);
  config_of(args.model, std::max(args.ranks, ranks_of_job()),
            "bench step");  // a mistake here is reported before ranks start
  if (args.ranks > 1 && !is_worker()) return relaunch({.ranks = args.ranks, .threads = args.threads});
  const Job job({.transport = args.transport, .threads = args.threads});
  const JobConfig config = config_of(args.model, job.size(), "bench step");
  const auto model = make_model(config);
  const Assembly assembly = assembly_of(config, *model, job.size());
  if (job.rank() == 0) log_remarks(config, job.size());
  const double before_mb = resident_mb();
  Session session = session_of(assembly, job.world(), &job.pool());
  if (job.rank() == 0) {
    log_slow_products(session.device(), assembly.options.step.compute);
    log_remarks(session.compiled(), assembly.options.parallel, job.size());
  }
  session.initialise();
  const int64_t sent_before = sent_bytes(job.world());
  const Steps steps = run_steps(session, assembly.batch, config, args);
  const int64_t sent = (sent_bytes(job.world()) - sent_before) / (args.warmup + args.steps);
  const double rss = over_ranks(job.world(), peak_rss_mb());
  const double grown = over_ranks(job.world(), peak_rss_mb() - before_mb);
  const double ready_s = over_ranks(job.world(), steps.ready_s);
  const double first_step_s = over_ranks(job.world(), steps.first_step_s);
  const double median = over_ranks(job.world(), steps.ms[steps.ms.size() / 2]);
  const CommunicationTime communication = over_ranks(job.world(), steps.communication).mean;
  const double units = static_cast<double>(config.train.fit.batch * assembly.options.tokens_per_sample);
  if (job.rank() != 0) return 0;
  if (args.by_op) print_by_op(session.step(), args.steps);
  JsonObject line{{"model", args.model.model},
                  {"world", job.size()},
                  {"threads", job.pool().size()},
                  {"device", config.train.device},
                  {"dtype", to_string(config.train.step.compute)},
                  {"numerics", to_string(config.train.step.numerics)},
                  {"transport", job.world() ? std::string(job.world()->transport()) : "none"},
                  {"batch", args.model.batch},
                  {"parameters", session.parameter_count()},
                  {"ms", median},
                  {"min_ms", steps.ms.front()},
                  {"cpu_ms", steps.cpu_ms[steps.cpu_ms.size() / 2]},
                  {"min_cpu_ms", steps.cpu_ms.front()},
                  {"per_s", units / median * 1e3},
                  {"unit", predicts_classes(config) ? "samples" : "tokens"},
                  {"ready_s", ready_s},
                  {"first_step_s", first_step_s},
                  {"rss_mb", rss},
                  {"rss_of_session_mb", grown},
                  {"loss", session.step().read_number<float>("loss")},
                  {"flops", flops_per_step(session.compiled(), job.size())},
                  {"gflops_per_s", flops_per_step(session.compiled(), job.size()) / median / 1e6}};
  line.add(json_of(communication));
  line.add(bytes_of(session));
  line.add("sent_bytes", sent);
  print_with_profile(std::move(line), steps.profile, args.json);
  return 0;
}

struct CollectiveArgs {
  std::string op = "all_reduce";
  std::vector<int64_t> bytes = {4096, 1048576, 134217728};
  int ranks = 2;
  std::string transport = "auto";
  std::string reduce = "sum";
  bool copied = false;
  bool json = false;
};

int collective(const CollectiveArgs& args) {
  require(args.ranks >= 2 || is_worker(), "bench collective: -n {}; it takes 2 ranks or more", args.ranks);
  for (const int64_t bytes : args.bytes) {
    require(bytes >= 0 && bytes % 4 == 0,
            "bench collective: --bytes {}; elements are f32, so it must be a multiple of 4", bytes);
  }
  if (!is_worker()) return relaunch({.ranks = args.ranks, .threads = 1});
  const Job job({.transport = args.transport, .threads = 1});
  require(job.world() != nullptr, "bench collective: one rank has nobody to talk to; use -n 2 or more");
  const comm::TimingOptions options{.in_arena = !args.copied,
                                    .reduce = args.reduce == "max" ? comm::Reduce::kMax : comm::Reduce::kSum};
  for (const comm::CollectiveTiming& t : comm::time_collective(*job.world(), args.op, args.bytes, options)) {
    if (job.rank() != 0) continue;
    print({{"op", args.op},
           {"world", job.size()},
           {"transport", job.world()->transport()},
           {"bytes", t.bytes},
           {"us", t.median_us},
           {"min_us", t.min_us},
           {"p99_us", t.p99_us},
           {"bus_gb_per_s", t.bus_gb_per_s}},
          args.json);
  }
  return 0;
}

void add_step(CLI::App& bench, Action& chosen) {
  auto args = std::make_shared<StepArgs>();
  CLI::App* command = bench.add_subcommand("step", "Time the training step of a built-in model");
  add_model_flags(*command, args->model);
  command->add_option("--threads", args->threads, "Compute threads of each rank")->capture_default_str();
  command->add_option("-n,--ranks", args->ranks, "Ranks on this host")->capture_default_str();
  command->add_option("--steps", args->steps, "Steps to time")->capture_default_str();
  command->add_option("--warmup", args->warmup, "Steps before")->capture_default_str();
  command->add_option("--transport", args->transport, "auto, shm, ucx or mpi")->capture_default_str();
  CLI::Option* by_op = command->add_flag("--by-op", args->by_op, "Also the time of each op, on standard error");
  command
      ->add_flag("--profile", args->profile,
                 "Also the time of each kernel on each kind of operands, with its share, arithmetic and bytes")
      ->excludes(by_op);
  command->add_flag("--json", args->json, "One line of JSON");
  command->footer(
      "ms and min_ms: of the clock; cpu_ms and min_cpu_ms: that this rank's threads have worked.\n"
      "moved_bytes: what the ops of rank 0 read and write in a step; what fused ops hand each other does not count, "
      "nor "
      "what passes between ranks.\n"
      "least_bytes: if all were fused as far as can be: parameters, state and batch read once, what the step replaces "
      "written once, and what the backward pass reads of the forward pass written once and read once.");
  command->callback([=, &chosen] { chosen = [=] { return step(*args); }; });
}

void add_collective(CLI::App& bench, Action& chosen) {
  auto args = std::make_shared<CollectiveArgs>();
  CLI::App* command = bench.add_subcommand("collective", "Time a collective between ranks of this host");
  command->add_option("--op", args->op, "all_reduce, all_gather, reduce_scatter, all_to_all, broadcast or barrier")
      ->capture_default_str();
  command->add_option("--bytes", args->bytes, "Sizes")->delimiter(',')->capture_default_str();
  command->add_option("-n,--ranks", args->ranks, "Ranks on this host")->capture_default_str();
  command->add_option("--transport", args->transport, "auto, shm, ucx or mpi")->capture_default_str();
  command->add_option("--reduce", args->reduce, "Of all_reduce and reduce_scatter: sum or max")
      ->check(CLI::IsMember({"sum", "max"}))
      ->capture_default_str();
  command->add_flag("--copied", args->copied, "Operands outside of the memory that peers can read");
  command->add_flag("--json", args->json, "One line of JSON per size");
  command->callback([=, &chosen] { chosen = [=] { return collective(*args); }; });
}

struct CompileArgs {
  ModelFlags model;
  int64_t ranks = 1;
  int threads = 1;
  int64_t rounds = 3;
  bool json = false;
};

// From a model to the actions of a rank, as a job's start does it; none is started.
int time_compile(const CompileArgs& args) {
  require(args.ranks >= 1 && args.threads >= 1 && args.rounds >= 1,
          "bench compile: -n {} --threads {} --rounds {}; each must be 1 or more", args.ranks, args.threads,
          args.rounds);
  const JobConfig config = config_of(args.model, args.ranks, "bench compile");
  const auto model = make_model(config);
  const Assembly assembly = assembly_of(config, *model, args.ranks);
  struct Round {
    double ms, graph_ms, check_ms;
  };
  std::vector<Round> rounds;
  size_t nodes = 0, actions = 0;
  for (int64_t round = 0; round < args.rounds; ++round) {
    const double begin = now_s();
    JobGraphs graphs = graphs_of(assembly, args.ranks);
    const double traced = now_s();
    nodes = graphs.step.nodes().size();
    const CompiledJob job = compile(std::move(graphs.step), std::nullopt,
                                    compile_options(assembly, graphs.parallel, args.ranks, args.threads));
    const double compiled = now_s();
    const std::vector<const ExecutionPlan*> plans = job.step.plans();
    const bool is_sound = check_communication(plans).empty();  // which compiling has asked already
    invariant(is_sound, "bench compile: the plans of '{}' are not sound together", args.model.model);
    rounds.push_back({(compiled - begin) * 1e3, (traced - begin) * 1e3, (now_s() - compiled) * 1e3});
    actions = job.step.crews[0].plan.actions.size();
  }
  std::sort(rounds.begin(), rounds.end(), [](const Round& a, const Round& b) { return a.ms < b.ms; });
  const Round& median = rounds[rounds.size() / 2];
  print({{"model", args.model.model},
         {"ranks", args.ranks},
         {"nodes", nodes},
         {"actions", actions},
         {"ms", median.ms},
         {"graph_ms", median.graph_ms},
         {"check_ms", median.check_ms},
         {"us_per_action", median.ms * 1e3 / static_cast<double>(std::max<size_t>(1, actions))},
         {"rss_mb", peak_rss_mb()}},
        args.json);
  return 0;
}

void add_compile(CLI::App& bench, Action& chosen) {
  auto args = std::make_shared<CompileArgs>();
  CLI::App* command = bench.add_subcommand("compile", "Time to compile a built-in model to the actions of a rank");
  add_model_flags(*command, args->model);
  command->add_option("-n,--ranks", args->ranks, "Ranks to plan for; none is started")->capture_default_str();
  command->add_option("--threads", args->threads, "Compute threads of each rank")->capture_default_str();
  command->add_option("--rounds", args->rounds, "Times to do it; the median counts")->capture_default_str();
  command->add_flag("--json", args->json, "One line of JSON");
  command->footer(
      "Example:\n  trireme bench compile --layers 96 --width 12288 --heads 96 --seq 2048 --vocab 50257 --batch 1 --tp "
      "8 -n 1024");
  command->callback([=, &chosen] { chosen = [=] { return time_compile(*args); }; });
}

struct ExecutorArgs {
  int64_t actions = 10000;
  int64_t steps = 50;
  bool json = false;
};

// A chain of additions of one number each: what is left of an action without its work.
int executor(const ExecutorArgs& args) {
  require(args.actions >= 1 && args.steps >= 1, "bench executor: --actions {} --steps {}; each must be 1 or more",
          args.actions, args.steps);
  Graph graph("tiny");
  const ValueId x = graph.add_input("x", {DType::kF32, {1}}, Role::kData);
  Tensor y(graph, x);
  for (int64_t i = 0; i < args.actions; ++i) y = add(y, Tensor(graph, x));
  graph.add_output("y", y.id());
  const Compiled compiled = compile(std::move(graph), {.passes = {.disabled = {"fuse_rows"}}});  // they would be one
  Executor tiny(compiled.plan(), {});
  std::vector<double> us;
  for (int64_t i = 0; i <= args.steps; ++i) {
    tiny.input("x").as<float>()[0] = 1;
    const double begin = now_s();
    tiny.run();
    if (i > 0) us.push_back((now_s() - begin) * 1e6 / static_cast<double>(args.actions));  // the first warms up
  }
  std::sort(us.begin(), us.end());
  print({{"actions", compiled.plan().actions.size()},
         {"steps", args.steps},
         {"us_per_action", us[us.size() / 2]},
         {"min_us_per_action", us.front()}},
        args.json);
  return 0;
}

void add_executor(CLI::App& bench, Action& chosen) {
  auto args = std::make_shared<ExecutorArgs>();
  CLI::App* command =
      bench.add_subcommand("executor", "Time of an action that does next to nothing: an addition of two numbers");
  command->add_option("--actions", args->actions, "Actions of a step")->capture_default_str();
  command->add_option("--steps", args->steps, "Steps to time")->capture_default_str();
  command->add_flag("--json", args->json, "One line of JSON");
  command->callback([=, &chosen] { chosen = [=] { return executor(*args); }; });
}

void add_peak(CLI::App& bench, Action& chosen) {
  struct PeakArgs {
    int threads = 1;
    bool json = false;
  };
  auto args = std::make_shared<PeakArgs>();
  CLI::App* command = bench.add_subcommand(
      "peak",
      "The machine's own limits: multiply-adds in f32 and in bf16 (by the tiles of AMX, or the dot products of "
      "avx512_bf16, or in f32 where there are neither), memcpy, STREAM triad");
  command->add_option("--threads", args->threads, "Compute threads")->capture_default_str();
  command->add_flag("--json", args->json, "One line of JSON");
  command->callback([=, &chosen] {
    chosen = [=] {
      require(args->threads >= 1, "bench peak: --threads {}; it must be 1 or more", args->threads);
      ThreadPool pool(args->threads);
      const Peak p = cpu_device().measure_peak(pool, {}).value();
      print({{"threads", p.threads},
             {"isa", p.isa},
             {"f32_gflops_per_s", p.f32_flops_per_s / 1e9},
             {"bf16_gflops_per_s", p.bf16_flops_per_s / 1e9},
             {"memcpy_gb_per_s", p.memcpy_bytes_per_s / 1e9},
             {"triad_gb_per_s", p.triad_bytes_per_s / 1e9}},
            args->json);
      return 0;
    };
  });
}

}  // namespace

void add_bench(CLI::App& app, Action& chosen) {
  CLI::App* bench =
      app.add_subcommand("bench", "Measure a step, a collective, the compiler, the executor, or the machine");
  bench->require_subcommand(1);
  add_step(*bench, chosen);
  add_collective(*bench, chosen);
  add_bench_decode(*bench, chosen);
  add_compile(*bench, chosen);
  add_executor(*bench, chosen);
  add_peak(*bench, chosen);
}

}  // namespace trireme::cli
