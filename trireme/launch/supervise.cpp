#include "trireme/launch/supervise.h"

#include <optional>

#include "trireme/base/log.h"
#include "trireme/comm/tcp_store.h"
#include "trireme/launch/log_echo.h"
#include "trireme/launch/log_folder.h"
#include "trireme/launch/report.h"
#include "trireme/launch/secret.h"
#include "trireme/launch/signals.h"
#include "trireme/launch/team.h"
#include "trireme/launch/worker_start.h"

namespace trireme::launch {

LaunchResult supervise(const LaunchOptions& options) {
  check(options);
  std::optional<LogFolder> logs;  // a single rank writes to the terminal
  if (options.ranks > 1) logs.emplace(options.log_dir);
  const Signals signals;
  const comm::Secret secret = comm::random_secret();
  const SecretFile secret_file(secret);
  const comm::TcpStoreServer server({.secret = secret});
  TRIREME_LOG(kInfo, "launch", "starting {} ranks of '{}'  store={}:{}", options.ranks,
              options.command[0], server.address(), server.port());
  Team team(options.grace);
  for (int rank = 0; rank < options.ranks; ++rank) {
    WorkerStart start = worker_start(options, {.rank = rank,
                                               .world = options.ranks,
                                               .local_rank = rank,
                                               .local_world = options.ranks,
                                               .store_address = server.address(),
                                               .store_port = server.port(),
                                               .secret_file = secret_file.path()});
    if (rank > 0) start.log_path = logs->file(rank);
    team.start(start);
  }
  LogEcho echo(options, team.workers());
  team.run(signals, {.on_turn = [&] { echo.turn(); }});
  LaunchResult result = report_on(team.workers(), team.interrupted(), options.tail_lines);
  if (logs && result.failed_rank >= 0) logs->keep();
  return result;
}

}  // namespace trireme::launch
