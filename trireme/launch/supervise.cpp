#include "trireme/launch/supervise.h"

#include <sched.h>

#include <algorithm>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/flags.h"
#include "trireme/base/log.h"
#include "trireme/comm/tcp_store.h"
#include "trireme/launch/log_folder.h"
#include "trireme/launch/report.h"
#include "trireme/launch/secret.h"
#include "trireme/launch/signals.h"
#include "trireme/launch/start.h"
#include "trireme/launch/team.h"
#include "trireme/launch/worker.h"

namespace trireme::launch {

namespace {

std::vector<int> own_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<size_t>(core), &set)) cores.push_back(core);
  }
  return cores;
}

WorkerStart worker_start(const LaunchOptions& options, int rank, const comm::TcpStoreServer& server,
                         const SecretFile& secret) {
  const std::vector<int> cores = own_cores();
  const size_t ranks = static_cast<size_t>(options.ranks);
  const size_t threads = options.threads > 0 ? static_cast<size_t>(options.threads)
                                             : std::max<size_t>(1, cores.size() / ranks);
  WorkerStart start;
  start.rank = rank;
  start.command = options.command;
  // A launcher that itself runs in a job of another launcher is not a rank of that job.
  for (const std::string& name : start_variables()) start.environment.emplace_back(name, "");
  start.environment.insert(start.environment.end(),
                           {{"RANK", std::to_string(rank)},
                            {"WORLD_SIZE", std::to_string(options.ranks)},
                            {"LOCAL_RANK", std::to_string(rank)},
                            {"LOCAL_WORLD_SIZE", std::to_string(options.ranks)},
                            {"MASTER_ADDR", server.address()},
                            {"MASTER_PORT", std::to_string(server.port())},
                            {"TRIREME_SECRET_FILE", secret.path()},
                            {"TRIREME_SECRET", ""}});
  if (options.threads > 0 || !flag_text("TRIREME_THREADS")) {
    start.environment.emplace_back("TRIREME_THREADS", std::to_string(threads));
  }
  if (options.pin && ranks * threads <= cores.size()) {
    const auto first =
        cores.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(rank) * threads);
    start.cores.assign(first, first + static_cast<std::ptrdiff_t>(threads));
  } else if (options.pin && rank == 0) {
    TRIREME_LOG(kWarn, "launch", "ranks are not pinned: {} ranks with {} threads each need more than {} cores",
                ranks, threads, cores.size());
  }
  return start;
}

void check(const LaunchOptions& options) {
  require(options.ranks >= 1 && options.ranks <= 4096,
          "launch: {} ranks asked for; a job on one host has from 1 to 4096", options.ranks);
  require(!options.command.empty() && !options.command[0].empty(),
          "launch: no command given; write it after the options, as in 'trireme launch -n 2 "
          "./program'");
  require(options.threads >= 0 && options.threads <= 1024,
          "launch: {} threads of each rank asked for; give 1 to 1024, or 0 for cores over ranks",
          options.threads);
}

}  // namespace

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
    WorkerStart start = worker_start(options, rank, server, secret_file);
    if (rank > 0) start.log_path = logs->file(rank);
    team.start(start);
  }
  team.run(signals);
  LaunchResult result = report_on(team.workers(), team.interrupted(), options.tail_lines);
  if (logs && result.failed_rank >= 0) logs->keep();
  return result;
}

}  // namespace trireme::launch
