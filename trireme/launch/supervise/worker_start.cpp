#include "trireme/launch/supervise/worker_start.h"

#include <algorithm>

#include "trireme/base/cores.h"
#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/base/flags.h"
#include "trireme/base/log.h"
#include "trireme/launch/start/cores.h"
#include "trireme/launch/start/start.h"

namespace trireme::launch {
namespace {

// The cores of each rank of this host, or none where it may not or cannot have its own.
std::vector<std::vector<int>> cores_of_ranks(const LaunchOptions& options, const std::vector<int>& allowed,
                                             size_t ranks, size_t threads) {
  if (!options.pin || flag_int("TRIREME_PIN", 0, 1).value_or(1) == 0) return {};
  static const std::vector<Core> host = cores_of_host();  // takes milliseconds, and hosts do not change
  return assign_cores(host, allowed, ranks, threads);
}

std::string threads_each(size_t threads) {
  return fmt::format("{} thread{} each", threads, threads == 1 ? "" : "s");
}

void log_cores(const std::vector<std::vector<int>>& cores, size_t threads) {
  std::string text;
  for (size_t rank = 0; rank < cores.size(); ++rank) {
    text += fmt::format("{}{}: {}", rank == 0 ? "" : ", ", rank, units_text(cores[rank]));
  }
  TRIREME_LOG(kInfo, "launch", "pinned ranks of this host, of {}, to cpus  {}", threads_each(threads), text);
}

}  // namespace

WorkerStart worker_start(const LaunchOptions& options, const RankPlace& place) {
  const std::vector<int> cores = allowed_cores();
  const size_t ranks = static_cast<size_t>(place.local_world);
  const size_t threads =
      options.threads > 0 ? static_cast<size_t>(options.threads) : std::max<size_t>(1, cores.size() / ranks);
  WorkerStart start;
  start.rank = place.rank;
  start.command = options.command;
  // A launcher that itself runs in a job of another launcher is not a rank of that job.
  for (const std::string& name : start_variables()) start.environment.emplace_back(name, "");
  start.environment.insert(start.environment.end(), {{"RANK", std::to_string(place.rank)},
                                                     {"WORLD_SIZE", std::to_string(place.world)},
                                                     {"LOCAL_RANK", std::to_string(place.local_rank)},
                                                     {"LOCAL_WORLD_SIZE", std::to_string(place.local_world)},
                                                     {"GROUP_RANK", std::to_string(place.node)},
                                                     {"MASTER_ADDR", place.store_address},
                                                     {"MASTER_PORT", std::to_string(place.store_port)},
                                                     {"TRIREME_SECRET_FILE", place.secret_file},
                                                     {"TRIREME_SECRET", ""},
                                                     {"TRIREME_TLS_PASSWORD", ""},  // the launcher's own
                                                     {"TRIREME_JOB", place.job},
                                                     {"TRIREME_RESTARTS", std::to_string(options.restarts)},
                                                     {"TRIREME_RESTART_COUNT", std::to_string(place.attempt)}});
  if (options.threads > 0 || !flag_text("TRIREME_THREADS")) {
    start.environment.emplace_back("TRIREME_THREADS", std::to_string(threads));
  }
  const std::vector<std::vector<int>> pinned = cores_of_ranks(options, cores, ranks, threads);
  if (!pinned.empty()) {
    start.cores = pinned[static_cast<size_t>(place.local_rank)];
    if (place.local_rank == 0) log_cores(pinned, threads);
  } else if (options.pin && place.local_rank == 0 && ranks * threads > cores.size()) {
    TRIREME_LOG(kWarn, "launch", "ranks are not pinned: {} with {} need more than {}",
                counted(static_cast<int64_t>(ranks), "rank"), threads_each(threads),
                counted(static_cast<int64_t>(cores.size()), "core"));
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
          "launch: {} threads of each rank asked for; give 1 to 1024, or 0 for the cores divided by the ranks",
          options.threads);
  require(options.min_ranks >= 0 && options.min_ranks <= options.ranks,
          "launch: -n {}:{}; the first must be 1 or more and not above the second", options.min_ranks, options.ranks);
  require(options.restarts >= 0 && options.restarts <= 1'000'000, "launch: {} restarts asked for; give 0 to 1000000",
          options.restarts);
}

}  // namespace trireme::launch
