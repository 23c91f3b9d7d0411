#include "trireme/launch/supervise/supervise.h"

#include <algorithm>
#include <optional>

#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/comm/stores/tcp_store.h"
#include "trireme/launch/start/secret.h"
#include "trireme/launch/supervise/descriptors.h"
#include "trireme/launch/supervise/log_echo.h"
#include "trireme/launch/supervise/log_folder.h"
#include "trireme/launch/supervise/outcome.h"
#include "trireme/launch/supervise/signals.h"
#include "trireme/launch/supervise/team.h"
#include "trireme/launch/supervise/worker_start.h"

namespace trireme::launch {

namespace {

LaunchResult run_once(const LaunchOptions& options, const std::string& job, int attempt, const Signals& signals,
                      std::optional<LogFolder>& logs) {
  const comm::Secret secret = comm::random_secret();
  const SecretFile secret_file(secret);
  const comm::TcpStoreServer server({.secret = secret});
  TRIREME_LOG(kInfo, "launch", "starting {} of '{}'  store={}:{}", counted(options.ranks, "rank"), options.command[0],
              server.address(), server.port());
  Team team(options.grace);
  for (int rank = 0; rank < options.ranks; ++rank) {
    WorkerStart start = worker_start(options, {.rank = rank,
                                               .world = options.ranks,
                                               .local_rank = rank,
                                               .local_world = options.ranks,
                                               .attempt = attempt,
                                               .job = job,
                                               .store_address = server.address(),
                                               .store_port = server.port(),
                                               .secret_file = secret_file.path()});
    if (rank > 0) start.log_path = logs->file(rank, attempt);
    team.start(start);
  }
  LogEcho echo(options, team.workers());
  team.run(signals, {.on_turn = [&] { echo.turn(); }});
  return outcome_of(team.workers(), team.interrupted(), options.tail_lines);
}

// A mistake of the caller's is there the next time as well.
bool may_help_to_restart(const LaunchResult& result) {
  return result.failed_rank >= 0 && !result.interrupted && result.exit_code != exit_code(ErrorKind::kInvalidArgument);
}

// The ranks of the next start, or 0 when none that the job can have are enough.
int ranks_after(const LaunchOptions& options, const LaunchResult& result) {
  if (options.min_ranks == 0) return options.ranks;
  int ranks = std::max(options.min_ranks, options.ranks - result.killed_ranks);
  while (options.can_run && ranks >= options.min_ranks && !options.can_run(ranks)) --ranks;
  return ranks >= options.min_ranks ? ranks : 0;
}

}  // namespace

LaunchResult supervise(const LaunchOptions& asked) {
  check(asked);
  LaunchOptions options = asked;
  make_room_for_descriptors(options.ranks);
  std::optional<LogFolder> logs;  // a single rank writes to the terminal
  if (options.ranks > 1) logs.emplace(options.log_dir);
  const Signals signals;
  const std::string job = comm::to_hex(comm::random_secret()).substr(0, 16);
  LaunchResult result = run_once(options, job, 0, signals, logs);
  for (int attempt = 1; attempt <= options.restarts && may_help_to_restart(result); ++attempt) {
    const int ranks = ranks_after(options, result);
    if (ranks == 0) {
      result.report += fmt::format("  the job cannot go on with {} to {} ranks\n", options.min_ranks,
                                   options.ranks - result.killed_ranks);
      break;
    }
    options.ranks = ranks;
    TRIREME_LOG(kWarn, "launch", "the job starts again ({} of {}){}: {}", attempt, options.restarts,
                options.min_ranks > 0 ? fmt::format(" with {} rank{}", ranks, ranks == 1 ? "" : "s") : "",
                result.cause.substr(0, result.cause.find('\n')));
    result = run_once(options, job, attempt, signals, logs);
  }
  if (logs && result.failed_rank >= 0) logs->keep();
  return result;
}

}  // namespace trireme::launch
