// trireme plan: the best ways to cut a job over ranks, before any is started.
#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>

#include "cli/commands.h"
#include "cli/job_flags.h"
#include "cli/plan_progress.h"
#include "cli/plan_tables.h"
#include "cli/planned_job.h"
#include "cli/planning_memory.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/joined_text.h"
#include "trireme/base/log.h"
#include "trireme/planner/certificate/verify_certificate.h"
#include "trireme/train/job/config.h"
#include "trireme/train/job/job.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/plan/exact/exact_certificate.h"
#include "trireme/train/plan/exact/exact_compiled.h"
#include "trireme/train/plan/exact/exact_plan.h"
#include "trireme/train/plan/exact/ways_beside.h"
#include "trireme/train/plan/exports/export_way.h"
#include "trireme/train/plan/pages/plan_page.h"
#include "trireme/train/plan/plan_text.h"
#include "trireme/train/plan/questions/advice.h"
#include "trireme/train/plan/questions/nearest_compiled.h"
#include "trireme/train/plan/questions/what_if.h"

namespace trireme::cli {
namespace {

// Where nothing else is asked every way is compiled up to so many ranks; beyond there are thousands.
constexpr int kMostRanksOfAllCompiled = 8;

struct PlanArgs : PlannedJob {
  int ranks = 1;
  int threads = 0;
  std::string out, certificate, tables, html, why_not, only, export_to, export_file;
  bool sensitivities = false, advise = false, compile = false;
  int64_t memory_bytes = 0;
  int top = 3;
  int64_t most_jobs = kUsualMostJobs;
  bool top_given = false;
  std::string search = "auto";
};

// What was asked about the plan.
struct Answers {
  std::string why_not;
  std::vector<Sensitivity> sensitivities;
};

// `plan_by` is the search that found the plan; `why_not` says why not a way that follows a rule.
template <class Plan>
Answers answers(const PlanArgs& args, const PlanRequest& request, const Plan& plan, const std::optional<WayRule>& rule,
                Plan (*plan_by)(const PlanRequest&), const std::function<std::string(const PlanRequest&)>& why_not) {
  Answers out;
  if (rule) {
    PlanRequest asked = request;
    asked.is_asked = [&](const Way& way) { return rule->is_kept_by(way); };
    out.why_not = why_not(asked);
  }
  if (args.sensitivities) {
    out.sensitivities = sensitivities(request, plan.machine, plan.memory_bytes, [&](PlanRequest other) {
      other.other_cuts = 0;
      return best_of(plan_by(other));
    });
  }
  std::fputs(out.why_not.c_str(), stdout);
  if (args.sensitivities) std::fputs(sensitivities_text(best_of(plan), out.sensitivities).c_str(), stdout);
  return out;
}

// What is asked about ways, read before anything takes time.
struct Asked {
  std::optional<WayRule> why_not, only;
};

// Of the ways there are; of --only the request looks at no others.
void read_rules(const PlanArgs& args, const std::vector<Way>& ways, Asked& asked, PlanRequest& request) {
  if (!args.why_not.empty()) asked.why_not = parse_way_rule(args.why_not, ways);
  if (args.only.empty()) return;
  asked.only = parse_way_rule(args.only, ways);
  request.is_asked = [&asked](const Way& way) { return asked.only->is_kept_by(way); };
}

PlannedTokens tokens_of(const JobConfig& job) {
  const bool classes = predicts_classes(job);
  return {job.train.fit.batch * (classes ? 1 : fields_of(job)[0].sample.elements()), classes ? "samples" : "tokens"};
}

template <class Plan>
void write_page(const PlanArgs& args, const Plan& plan, const Answers& more, PlanPage page) {
  page.why_not = more.why_not;
  add_sensitivities(best_of(plan), more.sensitivities, page);
  atomic_write(args.html, render_plan_page(page));
  std::printf("wrote %s\n", args.html.c_str());
}

void write_export(const PlanArgs& args, const PlanRequest& request, const Way& way,
                  const std::vector<int64_t>& layers_of_stages) {
  const std::string text = export_way(args.export_to, without_cuts(request.job), way, request.ranks, layers_of_stages);
  if (args.export_file.empty()) {
    std::printf("for %s:\n%s", args.export_to.c_str(), text.c_str());
    return;
  }
  atomic_write(args.export_file, text);
  std::printf("wrote %s for %s\n", args.export_file.c_str(), args.export_to.c_str());
}

void require_some(const PlanArgs& args, const Asked& asked, int64_t ways) {
  require(!asked.only || ways > 0, "plan: no way over {} ranks follows --only \"{}\"", args.ranks,
          asked.only ? asked.only->text() : "");
}

bool compiles_all(const PlanArgs& args) {
  return args.search == "compiled" || (args.search == "auto" && args.ranks <= kMostRanksOfAllCompiled);
}

bool compiles_best(const PlanArgs& args) {
  return args.compile || args.ranks <= kMostRanksOfBestCompiled;
}

// Nothing: all ways are compiled.
std::optional<ExactPlan> exact_plan(const PlanArgs& args, Asked& asked, PlanRequest& request) {
  if (compiles_all(args)) return std::nullopt;
  try {
    if (!args.why_not.empty() || !args.only.empty())
      read_rules(args, example_ways(exact_setting(request), request), asked, request);
    PlanRequest watched = request;
    PlanProgress progress;
    progress.watch(watched);
    ExactPlan plan = plan_exact(watched);
    if (plan.ledger.ways == 0) require_some(args, asked, std::ssize(example_ways(plan.setting, request)));
    return plan;
  } catch (const Error& error) {
    if (args.search == "exact" || error.kind() != ErrorKind::kUnsupported) throw;
    asked = {};
    request.is_asked = {};
    std::fprintf(stderr, "every way is compiled instead: %s\n", error.what());
    return std::nullopt;
  }
}

// By the search that `plan` takes for so many ranks.
std::unique_ptr<AdviceSearch> advice_search(const PlanArgs& args, const PlanRequest& request) {
  if (compiles_all(args)) return compiled_advice_search(request);
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
    require(!given, "plan: --advise prints advice and no plan, so {} would do nothing; leave one out", flag);
  PlanProgress progress;
  progress.watch(request);
  const std::unique_ptr<AdviceSearch> search = advice_search(args, request);
  const Advice advice = advise(request, *search);
  progress.clear();
  std::fputs(advice.text.c_str(), stdout);
  return advice.way ? 0 : 1;
}

// With the figures that the plan rests on, for who reads it: changed in a machine's file they make another plan.
void write_plan(const PlanArgs& args, const PlanFile& file, const Machine& machine) {
  std::string text = to_string(file) + "# by the rates of this machine:\n";
  std::istringstream figures(to_string(machine));
  for (std::string line; std::getline(figures, line);) text += line.empty() ? "#\n" : "# " + line + "\n";
  atomic_write(args.out, text);
  std::printf("wrote %s; train by it with: trireme train %s -n %d --plan %s\n", args.out.c_str(),
              is_file(args.config) ? quoted(args.config).c_str() : "JOB", args.ranks, quoted(args.out).c_str());
}

// Nothing is written that does not prove what it says.
void write_certificate(const std::string& path, const Certificate& certificate) {
  const std::string text = to_string(certificate);
  verify_certificate(parse_certificate(text));
  atomic_write(path, text);
  std::printf("wrote %s; check its proof with: trireme plan verify %s\n", path.c_str(), quoted(path).c_str());
}

// Nothing: nothing is compiled for so many ranks.
std::optional<CompiledPlan> compile_found(const PlanArgs& args, const PlanRequest& request, const ExactPlan& plan) {
  if (!compiles_best(args)) return std::nullopt;
  PlanRequest watched = request;
  PlanProgress progress;
  progress.watch(watched);
  return compiled_plan(plan, watched);
}

void print_compiled(const ExactPlan& plan, const CompiledPlan& compiled) {
  std::fputs(compiled_text(plan, compiled).c_str(), stdout);
  require_any(plan, compiled);
  std::fputs(chosen_text(plan, compiled).c_str(), stdout);
}

// A certificate is of the best ways by the tables: with so many of these that the chosen one is among them. Where that
// would be too many, the request and the plan stay as they are.
void add_best_up_to(const ExactWay& chosen, PlanRequest& request, ExactPlan& plan) {
  constexpr size_t kFewest = 32, kMost = 512;
  for (size_t top = kFewest; top <= kMost; top *= 4) {
    PlanRequest more = request;
    more.top = top;
    more.other_cuts = 0;
    ExactPlan found = plan_exact(more);
    if (std::ranges::none_of(found.best, [&](const ExactWay& way) { return way.outer == chosen.outer; })) continue;
    request = more;
    plan = std::move(found);
    return;
  }
}

// `which` of the plan's ways is written beside it, if it is one of them; nothing: one that no table knows.
void write_proof(const PlanArgs& args, const PlanRequest& request, const ExactPlan& plan, std::optional<size_t> which) {
  const bool is_beside = args.certificate.empty() && (!which || *which < plan.ways()) && !args.out.empty();
  const std::string file = is_beside ? args.out + ".certificate" : args.certificate;
  if (file.empty()) return;
  const char* const proof = plan.best.empty() ? "that by these nothing fits" : "of the best by these";
  if (!args.only.empty()) {
    std::printf("no certificate is written: it would be of all ways, of which --only leaves some out\n");
  } else if (!plan.is_proven) {
    std::printf(
        "no certificate is written, as the plan is not proven to be the best; --most-jobs 0 lets the search go on "
        "until one is\n");
  } else if (is_beside && !which) {
    std::printf(
        "no certificate is written beside it: what is proven is by the tables, and none says what this way takes; "
        "--certificate FILE writes the proof %s\n",
        proof);
  } else if (is_beside && *which >= plan.best.size()) {
    std::printf(
        "no certificate is written beside it: what is proven is by the tables, by which %s; --certificate FILE writes "
        "the proof %s\n",
        plan.fits_by_tables(plan.way(*which)) ? "hundreds of others are faster" : "it does not fit", proof);
  } else {
    write_certificate(file, certificate_of(plan, request));
  }
}

// The plan's file and its proof.
void write_exact(const PlanArgs& args, PlanRequest request, ExactPlan plan,
                 const std::optional<CompiledPlan>& compiled) {
  if (compiled && compiled->is_beside()) {
    if (!args.out.empty()) write_plan(args, plan_file(plan, request, *compiled), plan.machine);
    return write_proof(args, request, plan, std::nullopt);
  }
  size_t chosen = compiled ? compiled->which.value_or(0) : 0;
  if (chosen >= plan.best.size() && chosen < plan.ways() && !args.out.empty() && args.only.empty()) {
    const ExactWay way = plan.way(chosen);
    if (plan.fits_by_tables(way)) add_best_up_to(way, request, plan);
    for (size_t i = 0; i < plan.ways(); ++i) chosen = plan.way(i).outer == way.outer ? i : chosen;
  }
  const WayCost* const cost = compiled && compiled->has_any() ? &compiled->cost() : nullptr;
  const bool fits = cost != nullptr || !plan.best.empty();
  if (fits && !args.out.empty()) write_plan(args, plan_file(plan, args.ranks, chosen, cost), plan.machine);
  write_proof(args, request, plan, fits ? chosen : plan.ways());
}

int run_exact(const PlanArgs& args, const PlanRequest& request, const Asked& asked, const ExactPlan& plan) {
  const PlannedTokens tokens = tokens_of(request.job);
  std::fputs(exact_text(plan, args.ranks, tokens.per_step, tokens.unit).c_str(), stdout);
  if (asked.only) std::printf("of all ways these were only the ones that keep %s\n", asked.only->text().c_str());
  std::fflush(stdout);
  const std::optional<CompiledPlan> compiled = compile_found(args, request, plan);
  if (compiled) print_compiled(plan, *compiled);
  const auto why_not = [&](const PlanRequest& kept_by_rule) {
    const ExactPlan kept = plan_exact(kept_by_rule);
    const std::optional<CompiledPlan> compiled_kept = compile_found(args, kept_by_rule, kept);
    return why_not_text({plan, compiled}, {kept, compiled_kept}, *asked.why_not);
  };
  const Answers more = answers(args, request, plan, asked.why_not, plan_exact, why_not);
  const bool fits = !plan.best.empty() || (compiled && compiled->has_any());
  if (fits && !args.html.empty())
    write_page(args, plan, more, compiled ? page_of(plan, *compiled, request, tokens) : page_of(plan, request, tokens));
  write_exact(args, request, plan, compiled);
  if (fits && !args.export_to.empty()) {  // the last, as a system may not be able to say the plan
    const bool is_beside = compiled && compiled->is_beside();
    const ExactWay* const way = is_beside ? nullptr : &plan.way(compiled ? *compiled->which : 0);
    write_export(args, request, way ? way->outer.way() : compiled->way(plan),
                 way ? way->layers_of_stages(plan.parts) : std::vector<int64_t>());
  }
  return fits ? 0 : 1;
}

int run_compiled(const PlanArgs& args, PlanRequest& request, Asked& asked) {
  require(!args.compile,
          "plan: --compile is for the exact search, as the other one compiles all ways; add --search exact, or leave "
          "--compile out");
  require(args.certificate.empty(), "plan: only the exact search writes a certificate; add --search exact");
  require(args.tables.empty(), "plan: only the exact search has tables to keep; add --search exact");
  const std::vector<Way> ways = ways_of(request);
  read_rules(args, ways, asked, request);
  require_some(args, asked, asked.only ? std::ranges::count_if(ways, request.is_asked) : 1);
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
  if (const auto nearest = plan.best.empty() ? nearest_compiled(request, plan) : std::nullopt)
    std::fputs(nearest_text(*nearest).c_str(), stdout);
  const Answers more = answers(args, request, plan, asked.why_not, plan_job, [&](const PlanRequest& kept_by_rule) {
    return why_not_text(plan, plan_job(kept_by_rule), *asked.why_not);
  });
  if (plan.best.empty()) return 1;
  if (!args.html.empty()) write_page(args, plan, more, page_of(plan, request, tokens));
  if (!args.out.empty()) write_plan(args, plan_file(plan, request), plan.machine);
  if (!args.export_to.empty()) write_export(args, request, plan.best.front().way, {});
  return 0;
}

// A search may take long: what cannot be written is said before.
void check_files(const PlanArgs& args) {
  require(args.export_file.empty() || !args.export_to.empty(),
          "plan: --out-export needs --export, which names the system");
  const std::pair<const char*, const std::string*> files[] = {{"--out", &args.out},
                                                              {"--out-export", &args.export_file},
                                                              {"--certificate", &args.certificate},
                                                              {"--tables", &args.tables},
                                                              {"--html", &args.html}};
  for (const auto& [flag, file] : files) {
    if (!file->empty()) require_place_for(*file, fmt::format("plan: {}", flag));
  }
}

int run(const PlanArgs& args) {
  take_small_blocks();
  require(!args.config.empty(),
          "plan: config is required: the job's TOML file, or a model by the name that `trireme models` lists. See "
          "`trireme help plan`.");
  check_files(args);
  PlanRequest request{.job = args.read(),
                      .ranks = args.ranks,
                      .threads = compute_threads(args.threads, args.ranks),
                      .memory_bytes = args.memory_bytes,
                      .top = static_cast<size_t>(args.top),
                      .most_jobs = args.most_jobs};
  require(!args.sensitivities || !request.job.parallel.machine.empty(),
          "plan: --sensitivities changes the figures of a machine's file; name one with --machine");
  require(args.certificate.empty() || args.only.empty(),
          "plan: a certificate is about all ways, and --only leaves some out; leave out --certificate or --only");
  refuse_fixed_counts(request.job, request.ranks);
  if (const std::vector<std::string> cuts = cuts_left_out(request.job); !cuts.empty()) {
    TRIREME_LOG(kWarn, "cli",
                "plan: the job sets {}; a plan chooses these itself and looks at other values as well. To plan only "
                "some, use --only",
                joined_text(cuts, ", "));
  }
  if (compiles_best(args)) request.other_cuts = request.top;
  PlanTables tables(args.tables);
  request.tables = &tables.known();
  Asked asked;
  const auto exact = args.advise ? std::nullopt : exact_plan(args, asked, request);
  if (exact) tables.write();  // whatever the answers to other questions come to
  const int out = args.advise ? run_advice(args, request)
                  : exact     ? run_exact(args, request, asked, *exact)
                              : run_compiled(args, request, asked);
  tables.write();
  return out;
}

// What is asked about ways.
void add_questions(CLI::App& command, PlanArgs& args) {
  const CLI::Validator is_rule(
      [](std::string& rule) {
        return std::string(rule.empty() ? "it is empty; give a rule like \"tp=4 zero=1\"" : "");
      },
      "");
  command
      .add_option("--why-not", args.why_not,
                  "A rule, like \"tp=4 zero=1\": shows the best way that follows it beside the best of all, or why "
                  "there is none")
      ->check(is_rule);
  command
      .add_option("--only", args.only, "A rule, like \"tp=4 schedule=1f1b\": only ways that follow it are looked at")
      ->check(is_rule);
  command.add_flag("--sensitivities", args.sensitivities,
                   "Plan again for machines with half or twice the link rates and memory, and twice the arithmetic; "
                   "each takes as long as the plan");
  command.add_flag("--advise", args.advise,
                   "Say in words which kinds of parallelism to use and which not, and what each would take");
}

// What is written of the plan, and for whom.
void add_files(CLI::App& command, PlanArgs& args) {
  const CLI::Validator is_named(
      [](std::string& name) { return std::string(name.empty() ? "it is empty; name a file" : ""); }, "");
  std::vector<std::string> systems;
  for (const ExportSystem& each : export_systems()) systems.emplace_back(each.name);
  command.add_option("--export", args.export_to, "Also print the plan as flags or configuration of another system")
      ->check(CLI::IsMember(systems));
  command
      .add_option("--out-export", args.export_file, "File to write the output of --export to, instead of printing it")
      ->check(is_named);
  command
      .add_option("--out", args.out,
                  "File to write the plan to, for `trireme train --plan`; the exact search writes its proof beside it, "
                  "FILE.certificate")
      ->check(is_named);
  command.add_flag("--compile", args.compile,
                   "For the exact search: compile the ways shown (--top), and the best of other splits, as training "
                   "does; the plan is the fastest in virtual time that fits. Always done up to 32 ranks, with others "
                   "and what --auto finds");
  command
      .add_option("--certificate", args.certificate,
                  "File to write the proof of the exact search to, even if nothing fits")
      ->check(is_named);
  command
      .add_option("--tables", args.tables,
                  "File of the tables that the exact search compiles: those that are there are not compiled again, for "
                  "whatever memory, batch, ranks or layers, and it is written with the new ones")
      ->check(is_named);
  command
      .add_option("--html", args.html,
                  "File to draw the plan to, for a browser: where time and memory go, and how each layer is cut")
      ->check(is_named);
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
  add_memory_flag(*command, args->memory_bytes,
                  "Memory of a rank, like 80GB, or a number of MiB; by default that of the machine");
  command->add_option("--top", args->top, "Number of ways to show")->check(CLI::Range(1, 1000))->capture_default_str();
  command
      ->add_option(
          "--most-jobs", args->most_jobs,
          "For the exact search: how many jobs of one block it compiles before it stops; it stops at once if "
          "so many would not price each way to cut a stage. Then it prices the ways that are likely the "
          "fastest, and shows the best of them with what is proven so far. 0: it goes on until everything is "
          "proven. It applies to each search of --advise, and once more to that for what would fit where nothing does")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 31))
      ->capture_default_str();
  add_questions(*command, *args);
  command
      ->add_option("--search", args->search,
                   "compiled: every way is compiled; exact: only parts of the model are, and all ways follow from "
                   "their prices; auto: exact for more than 8 ranks if the model's blocks are alike")
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
      "which is proven; collectives count as if nothing hid them. Up to 32 ranks the likely ways are then compiled, "
      "and\n"
      "so is what --auto finds, for which there are no prices; the plan is the fastest of these that fits.\n\n"
      "Example:\n  trireme plan examples/gpt_text.toml -n 4 --out plan.trp\n"
      "  trireme plan gpt3-175b -n 512 --machine machines/h100x512.toml --batch 1536 --set train.dtype=bf16");
  command->callback([=, &chosen] {
    args->top_given = command->count("--top") > 0;
    if (command->get_subcommands().empty()) chosen = [=] { return run(*args); };
  });
}

}  // namespace trireme::cli
