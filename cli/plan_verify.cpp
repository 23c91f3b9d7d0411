// trireme plan verify: the proof of a plan that the exact search found, checked without the search.
#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>
#include <optional>

#include "cli/planned_job.h"
#include "cli/planning_memory.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/planner/certificate/verify_certificate.h"
#include "trireme/train/plan/exact/exact_certificate.h"

namespace trireme::cli {
namespace {

struct VerifyArgs {
  std::string file, certificate;
  PlannedJob job;
  int ranks = 0, threads = 0;  // 0: those of the certificate
  int64_t memory_bytes = 0;
};

// What says nothing without a job.
void check_job_flags(const VerifyArgs& args) {
  const PlannedJob& job = args.job;
  const std::pair<const char*, bool> flags[] = {
      {"--machine", !job.machine.empty()}, {"--batch", job.batch > 0},          {"--seq", job.seq > 0},
      {"--set", !job.set.empty()},         {"--memory", args.memory_bytes > 0}, {"--threads", args.threads > 0}};
  for (const auto& [flag, given] : flags)
    require(!given || !job.config.empty(), "plan verify: {} concerns a job; name the job after the file", flag);
}

std::string plan_line(const std::string& file, const Certificate& certificate, size_t which) {
  if (which == 0) return fmt::format("the plan '{}' is the one that is proven\n", file);
  const auto ps = [&](size_t i) { return static_cast<double>(certificate.best[i].step_ps); };
  return fmt::format("the plan '{}' is number {} of these: no way in their space is faster by more than {:.2f} %\n",
                     file, which + 1, 100 * (ps(which) / ps(0) - 1));
}

int run(const VerifyArgs& args) {
  take_small_blocks();
  check_job_flags(args);
  require_file(args.file, "plan verify", "name a plan that `trireme plan --out` wrote, or its certificate");
  const std::string text = read_file(args.file);
  std::optional<PlanFile> plan;
  std::string proof_text = text;
  if (!is_certificate(text)) {
    plan = parse_plan_file(text);
    const std::string beside = args.certificate.empty() ? args.file + ".certificate" : args.certificate;
    require_file(beside, "plan verify: certificate",
                 fmt::format("--search exact writes one with the plan '{}'", args.file));
    proof_text = read_file(beside);
  } else {
    require(args.certificate.empty(),
            "plan verify: '{}' is a certificate; name the plan instead, or leave --certificate out", args.file);
  }
  const Certificate certificate = parse_certificate(proof_text);
  require(args.ranks == 0 || args.ranks == certificate.ranks, "certificate: it is for {} ranks, not for {}",
          certificate.ranks, args.ranks);
  verify_certificate(certificate);
  std::optional<JobConfig> job;
  if (!args.job.config.empty()) job = args.job.read();
  const size_t which =
      plan ? check_certified_plan(certificate, *plan, job ? keys_of_places(*job) : std::vector<std::string>()) : 0;
  std::fputs(proven_text(certificate).c_str(), stdout);
  if (plan) std::fputs(plan_line(args.file, certificate, which).c_str(), stdout);
  if (!job) {
    std::puts("where the tables come from was not looked at: name the job, to compile them again");
    return 0;
  }
  std::fflush(stdout);
  CertifiedJob certified({.job = *job,
                          .ranks = certificate.ranks,
                          .threads = args.threads > 0 ? args.threads : static_cast<int>(certificate.threads),
                          .memory_bytes = args.memory_bytes});
  certified.check(certificate);
  std::printf("the tables are those of '%s': all were compiled again\n", args.job.config.c_str());
  return 0;
}

}  // namespace

void add_plan_verify(CLI::App& plan, std::function<int()>& chosen) {
  auto args = std::make_shared<VerifyArgs>();
  CLI::App* command = plan.add_subcommand("verify", "Check the proof of a plan that the exact search found");
  command->add_option("file", args->file, "The plan that --out wrote, or its certificate")->required();
  command->add_option("job", args->job.config,
                      "The job or model that was planned; with it, all prices that the proof rests on are compiled "
                      "again. Give it the flags that it was planned with");
  add_planned_job_flags(*command, args->job);
  command->add_option("--certificate", args->certificate, "The plan's certificate; without it FILE.certificate");
  command->add_option("-n,--ranks", args->ranks, "The number of ranks that it must be for")
      ->check(CLI::Range(1, 65536));
  command->add_option("--threads", args->threads, "Compute threads of each rank; by default those of the certificate")
      ->check(CLI::Range(1, 1024));
  add_memory_flag(*command, args->memory_bytes,
                  "Memory of a rank, like 80GB, or in MiB, where the plan was made with it");
  command->footer(
      "The checker counts all ways again, prices the plan and rules out every other way with its own arithmetic, "
      "without\nthe search. It prints what is proven and exits with 0, or what does not follow and exits with "
      "2.\n\nExample:\n  trireme plan examples/gpt_text.toml -n 4 --search exact --out plan.trp\n  trireme plan verify "
      "plan.trp examples/gpt_text.toml");
  command->callback([=, &chosen] { chosen = [=] { return run(*args); }; });
}

}  // namespace trireme::cli
