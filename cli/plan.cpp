// trireme plan: the best ways to cut a job over ranks, before any is started.
#include <CLI/CLI.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/job_flags.h"
#include "cli/plan_progress.h"
#include "cli/planned_job.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/planner/certificate/verify_certificate.h"
#include "trireme/train/job/config.h"
#include "trireme/train/job/job.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/plan/exact/exact_certificate.h"
#include "trireme/train/plan/exact/exact_compiled.h"
#include "trireme/train/plan/exact/exact_plan.h"
#include "trireme/train/plan/exports/export.h"
#include "trireme/train/plan/pages/plan_page.h"
#include "trireme/train/plan/plan_text.h"
#include "trireme/train/plan/questions/advice.h"
#include "trireme/train/plan/questions/what_if.h"

namespace trireme::cli {
namespace {

constexpr int kMostCompiledRanks = 32;  // for which every way is compiled, where nothing else is asked

struct PlanArgs : PlannedJob {
  int ranks = 1;
  int threads = 0;
  std::string out, certificate, html, why_not, only, export_to, export_file;
  bool sensitivities = false, advise = false, compile = false;
  int64_t memory_mib = 0;
  int top = 3;
  int64_t most_jobs = 1000;
  bool top_given = false;
  std::string search = "auto";
};

// What was asked about the plan.
struct Answers {
  std::string why_not;
  std::vector<Sensitivity> sensitivities;
};

Answers answers(const PlanArgs& args, const PlanRequest& request, const JobPlan& plan,
                const std::optional<WayRule>& rule) {
  Answers out;
  if (rule) {
    PlanRequest asked = request;
    asked.is_asked = [&](const Way& way) { return rule->is_kept_by(way); };
    out.why_not = why_not_text(plan, plan_job(asked), *rule);
  }
  if (args.sensitivities) out.sensitivities = sensitivities(request, plan);
  return out;
}

PlannedTokens tokens_of(const JobConfig& job) {
  const bool classes = predicts_classes(job);
  return {job.train.fit.batch * (classes ? 1 : fields_of(job)[0].sample.elements()), classes ? "samples" : "tokens"};
}

void write_page(const PlanArgs& args, const PlanPage& page) {
  atomic_write(args.html, render_plan_page(page));
  std::printf("wrote %s\n", args.html.c_str());
}

void write_export(const PlanArgs& args, const PlanRequest& request, const Way& way) {
  const std::string text = export_way(args.export_to, without_cuts(request.job), way, request.ranks);
  if (args.export_file.empty()) {
    std::printf("for %s:\n%s", args.export_to.c_str(), text.c_str());
    return;
  }
  atomic_write(args.export_file, text);
  std::printf("wrote %s for %s\n", args.export_file.c_str(), args.export_to.c_str());
}

// What is asked of ways that are compiled.
void check_asks(const PlanArgs& args) {
  const std::pair<const char*, bool> asked[] = {{"--why-not", !args.why_not.empty()},
                                                {"--only", !args.only.empty()},
                                                {"--sensitivities", args.sensitivities},
                                                {"--export", !args.export_to.empty()}};
  for (const auto& [flag, given] : asked)
    require(!given, "plan: {} needs ways that are compiled, and the exact search compiles none; add --search compiled",
            flag);
}

// Nothing: all ways are compiled.
std::optional<ExactPlan> exact_plan(const PlanArgs& args, const PlanRequest& request) {
  if (args.search == "compiled" || (args.search == "auto" && args.ranks <= kMostCompiledRanks)) return std::nullopt;
  check_asks(args);
  PlanRequest watched = request;
  PlanProgress progress;
  progress.watch(watched);
  try {
    return plan_exact(watched);
  } catch (const Error& error) {
    if (args.search == "exact" || error.kind() != ErrorKind::kUnsupported) throw;
    progress.clear();
    std::fprintf(stderr, "every way is compiled instead: %s\n", error.what());
    return std::nullopt;
  }
}

// By the search that `plan` takes for so many ranks.
std::unique_ptr<AdviceSearch> advice_search(const PlanArgs& args, const PlanRequest& request) {
  if (args.search == "compiled" || (args.search == "auto" && args.ranks <= kMostCompiledRanks))
    return compiled_advice_search(request);
  try {
    return exact_advice_search(request);
  } catch (const Error& error) {
    if (args.search == "exact" || error.kind() != ErrorKind::kUnsupported) throw;
    std::fprintf(stderr, "every way is compiled instead: %s\n", error.what());
    return compiled_advice_search(request);
  }
}

int run_advice(const PlanArgs& args, PlanRequest request) {
  const std::pair<const char*, bool> others[] = {{"--why-not", !args.why_not.empty()},
                                                 {"--only", !args.only.empty()},
                                                 {"--sensitivities", args.sensitivities},
                                                 {"--export", !args.export_to.empty()},
                                                 {"--out", !args.out.empty()},
                                                 {"--html", !args.html.empty()},
                                                 {"--certificate", !args.certificate.empty()},
                                                 {"--top", args.top_given},
                                                 {"--compile", args.compile}};
  for (const auto& [flag, given] : others)
    require(!given, "plan: --advise prints advice and no plan, so that {} has nothing to work on; leave one out", flag);
  PlanProgress progress;
  progress.watch(request);
  const std::unique_ptr<AdviceSearch> search = advice_search(args, request);
  const Advice advice = advise(request, *search);
  progress.clear();
  std::fputs(advice.text.c_str(), stdout);
  return advice.way ? 0 : 1;
}

void write_plan(const PlanArgs& args, const PlanFile& file) {
  atomic_write(args.out, to_string(file));
  std::printf("wrote %s; train by it with: trireme train %s -n %d --plan %s\n", args.out.c_str(),
              is_file(args.config) ? args.config.c_str() : "JOB", args.ranks, args.out.c_str());
}

// Nothing is written that does not prove what it says.
void write_certificate(const std::string& path, const Certificate& certificate) {
  const std::string text = to_string(certificate);
  verify_certificate(parse_certificate(text));
  atomic_write(path, text);
  std::printf("wrote %s; check its proof with: trireme plan verify %s\n", path.c_str(), path.c_str());
}

// By virtual time; as many as there are where none fits.
size_t fastest_that_fits(const std::vector<CompiledWay>& compiled) {
  size_t out = compiled.size();
  for (size_t i = 0; i < compiled.size(); ++i) {
    const bool is_faster = out == compiled.size() || compiled[i].cost->step_s < compiled[out].cost->step_s;
    if (compiled[i].fits && is_faster) out = i;
  }
  return out;
}

int run_exact(const PlanArgs& args, const PlanRequest& request, const ExactPlan& plan) {
  const PlannedTokens tokens = tokens_of(request.job);
  std::fputs(exact_text(plan, args.ranks, tokens.per_step, tokens.unit).c_str(), stdout);
  const bool fits = !plan.best.empty();
  size_t chosen = 0;
  if (fits && (args.compile || args.ranks <= kMostCompiledRanks)) {
    const std::vector<CompiledWay> compiled = compile_best(plan, request);
    std::fputs(compiled_text(plan, compiled).c_str(), stdout);
    chosen = fastest_that_fits(compiled);
  }
  require(chosen < std::max<size_t>(plan.best.size(), 1),
          "plan: none of the {} best by their tables fits when it is compiled; ask for more with --top, or leave some "
          "memory out with --memory",
          plan.best.size());
  if (chosen > 0)
    std::printf("the fastest of them that fits is the plan: %s\n", plan.best[chosen].outer.way().text().c_str());
  if (fits && !args.html.empty()) {
    ExactPlan shown = plan;  // from the chosen one on
    shown.best.erase(shown.best.begin(), shown.best.begin() + static_cast<std::ptrdiff_t>(chosen));
    write_page(args, page_of(shown, request, tokens));
  }
  if (fits && !args.out.empty()) write_plan(args, plan_file(plan, args.ranks, chosen));
  const std::string certificate =
      !args.certificate.empty() || !fits || args.out.empty() ? args.certificate : args.out + ".certificate";
  if (!certificate.empty() && !plan.is_proven) {
    std::printf(
        "no certificate is written, as the plan is not proven to be the best; --most-jobs 0 lets the search go on "
        "until one is\n");
    return fits ? 0 : 1;
  }
  if (!certificate.empty()) write_certificate(certificate, certificate_of(plan, request));
  return fits ? 0 : 1;
}

int run(const PlanArgs& args) {
  require(!args.config.empty(), "plan: config is required. See `trireme help plan`.");
  require(args.export_file.empty() || !args.export_to.empty(), "plan: --out-export takes --export beside it");
  PlanRequest request{.job = args.read(),
                      .ranks = args.ranks,
                      .threads = compute_threads(args.threads, args.ranks),
                      .memory_bytes = args.memory_mib << 20,
                      .top = static_cast<size_t>(args.top),
                      .most_jobs = args.most_jobs};
  if (const std::vector<std::string> cuts = cuts_left_out(request.job); !cuts.empty()) {
    TRIREME_LOG(
        kWarn, "cli",
        "plan: {} of the job: how it is cut is what is planned, so ways with other values are looked at as well; "
        "--only keeps to some",
        fmt::join(cuts, ", "));
  }
  if (args.advise) return run_advice(args, request);
  if (const auto exact = exact_plan(args, request)) return run_exact(args, request, *exact);
  require(!args.compile,
          "plan: --compile is of the exact search, the other one compiles all ways; give --search exact");
  require(args.certificate.empty(), "plan: the certificate is that of the exact search; give --search exact");
  std::optional<WayRule> rule, only;  // read before anything takes time
  const std::vector<Way> ways = ways_of(request);
  if (!args.why_not.empty()) rule = parse_way_rule(args.why_not, ways);
  if (!args.only.empty()) {
    only = parse_way_rule(args.only, ways);
    request.is_asked = [&only](const Way& way) { return only->is_kept_by(way); };
    require(std::ranges::any_of(ways, request.is_asked), "plan: no way over {} ranks has all of --only \"{}\"",
            args.ranks, only->text());
  }
  require(!args.sensitivities || !request.job.parallel.machine.empty(),
          "plan: --sensitivities changes the figures of a machine's file; give one by --machine");
  PlanRequest watched = request;
  PlanProgress progress;
  progress.watch(watched);
  const JobPlan plan = plan_job(watched);
  progress.clear();
  if (const std::string remark = remark_on_ranks(plan.machine, args.ranks); !remark.empty()) {
    TRIREME_LOG(kWarn, "cli", "plan: {}", remark);
  }
  const PlannedTokens tokens = tokens_of(request.job);
  std::fputs(plan_text(plan, args.ranks, tokens.per_step, tokens.unit).c_str(), stdout);
  const Answers more = answers(args, request, plan, rule);
  std::fputs(more.why_not.c_str(), stdout);
  if (args.sensitivities) std::fputs(sensitivities_text(plan, more.sensitivities).c_str(), stdout);
  if (plan.best.empty()) return 1;
  if (!args.html.empty()) {
    PlanPage page = page_of(plan, request, tokens);
    page.why_not = more.why_not;
    add_sensitivities(plan, more.sensitivities, page);
    write_page(args, page);
  }
  if (!args.export_to.empty()) write_export(args, request, plan.best.front().way);
  if (!args.out.empty()) write_plan(args, plan_file(plan, request));
  return 0;
}

// What is written of the plan, and for whom.
void add_files(CLI::App& command, PlanArgs& args) {
  std::vector<std::string> systems;
  for (const ExportSystem& each : export_systems()) systems.emplace_back(each.name);
  command.add_option("--export", args.export_to, "Also print the best as flags or configuration of another system")
      ->check(CLI::IsMember(systems));
  command.add_option("--out-export", args.export_file, "File to write these to, instead of printing them");
  command.add_option("--out", args.out,
                     "File to write the best to, for `trireme train --plan`; that of the exact search has its proof "
                     "beside it, FILE.certificate");
  command.add_flag(
      "--compile", args.compile,
      "Of the exact search: compile the ways shown (--top) as training does; the plan is the fastest of them "
      "in virtual time that fits. Up to 32 ranks without being asked");
  command.add_option("--certificate", args.certificate,
                     "File to write the proof of the exact search to, also where nothing fits");
  command.add_option("--html", args.html,
                     "File to draw the best to, for a browser: where time and memory go, and how each layer is cut");
}

}  // namespace

void add_plan(CLI::App& app, Action& chosen) {
  auto args = std::make_shared<PlanArgs>();
  CLI::App* command = app.add_subcommand("plan", "Find the best ways to cut a job over ranks, without starting any");
  command->add_option("config", args->config,
                      "The job's TOML file, or a model by the name that `trireme models` lists");
  command->add_option("-n,--ranks", args->ranks, "Ranks to plan for")->check(CLI::Range(1, 65536));
  add_planned_job_flags(*command, *args);
  command->add_option("--threads", args->threads, "Compute threads of each rank; 0: the cores divided by the ranks")
      ->check(CLI::Range(0, 1024));
  add_memory_flag(*command, args->memory_mib,
                  "Memory of a rank, like 80GB, or in MiB; without it what the machine has");
  command->add_option("--top", args->top, "How many ways are shown")->check(CLI::Range(1, 1000))->capture_default_str();
  command
      ->add_option(
          "--most-jobs", args->most_jobs,
          "Of the exact search: jobs of a block that it compiles before it is stopped, at once where so many would not "
          "price each way to cut a stage; then it prices the ways that are likely the fastest, and shows the best of "
          "them with what is proven so far; 0: it goes on until all is proven. With --advise of each of its searches")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 31))
      ->capture_default_str();
  command->add_option(
      "--why-not", args->why_not,
      "A rule, like \"tp=4 zero=1\": the best way that keeps it, beside the best of all, or why none does");
  command->add_flag(
      "--sensitivities", args->sensitivities,
      "Plan again with links, memory and arithmetic half and twice what they are; takes some times as long");
  command->add_flag("--advise", args->advise,
                    "Say in words which kinds of parallelism to use and which not, with what each would take");
  command->add_option("--only", args->only, "A rule, like \"tp=4 schedule=1f1b\": of all ways only those that keep it");
  command
      ->add_option(
          "--search", args->search,
          "compiled: every way is compiled; exact: parts are, and all ways follow from their prices; auto: exact "
          "for more than 32 ranks, where the model's blocks are alike")
      ->check(CLI::IsMember({"auto", "compiled", "exact"}))
      ->capture_default_str();
  add_files(*command, *args);
  add_plan_verify(*command, chosen);
  command->footer(
      "compiled: every way that the job's keys can cut the model over the ranks (pipeline, tensor, sequence, context, "
      "expert "
      "and\n"
      "optimizer parallelism, micro-batches, schedules, recomputation, and what --auto finds) is compiled as training\n"
      "compiles it, so that the bytes are those of training; the time is that of the modelled step, by the machine's\n"
      "rates. Of those that fit, the one with the shortest step is the best.\n\n"
      "exact, for many ranks: what stands before the blocks, one block and what stands after them are compiled and\n"
      "priced for each way to cut a stage, and of all ways and all cuts into stages the best by these prices is "
      "found,\n"
      "which is proven; collectives count as if nothing hid them. It does not look at what --auto finds.\n\n"
      "Example:\n  trireme plan examples/gpt_text.toml -n 4 --out plan.trp\n"
      "  trireme plan gpt3-175b -n 512 --machine machines/h100x512.toml --batch 1536 --set train.dtype=bf16");
  command->callback([=, &chosen] {
    args->top_given = command->count("--top") > 0;
    if (command->get_subcommands().empty()) chosen = [=] { return run(*args); };
  });
}

}  // namespace trireme::cli
