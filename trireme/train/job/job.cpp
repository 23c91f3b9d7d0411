#include "trireme/train/job/job.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <thread>

#include "trireme/base/cores.h"
#include "trireme/base/error.h"
#include "trireme/base/flags.h"
#include "trireme/base/log.h"
#include "trireme/launch/rank/rank_info.h"

namespace trireme {
namespace {

Job* current_job = nullptr;

// The last word of a program that does not catch its errors.
[[noreturn]] void tell_and_end() {
  int code = exit_code(ErrorKind::kInternal);
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
  } catch (const Error& e) {
    code = exit_code(e.kind());
    if (!launch::report_failure(e)) {
      const std::string line = fmt::format("error: {}\n", e.what());
      [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
    }
  } catch (const std::exception& e) {
    const std::string line = fmt::format("error: {}\n", e.what());
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
  }
  ::_exit(code);
}

// A launcher may have given this rank cores of its own. Those count, where they are not more than its share of the
// host.
int threads_of_this_rank(int asked, int local_ranks) {
  const auto share = static_cast<int>(std::thread::hardware_concurrency()) / std::max(1, local_ranks);
  return std::max(compute_threads(asked, local_ranks), std::min(share, compute_threads(asked, 1)));
}

}  // namespace

int compute_threads(int asked, int local_ranks) {
  if (asked > 0) return asked;
  if (const auto threads = flag_int("TRIREME_THREADS", 1, 1024)) return static_cast<int>(*threads);
  return std::max(1, static_cast<int>(allowed_cores().size()) / std::max(1, local_ranks));
}

struct Job::State {
  launch::RankInfo info;
  std::unique_ptr<comm::World> world;
  std::unique_ptr<ThreadPool> pool;
  std::string command;
};

Job::Job(const JobOptions& options) : state_(std::make_unique<State>()) {
  require(
      current_job == nullptr,
      "Job: this process has joined a job already; a process is one rank of one job at a time, so end that Job first");
  state_->info = launch::find_rank();
  set_log_rank(state_->info.rank);
  const int threads = threads_of_this_rank(options.threads, state_->info.local_world);
  state_->pool = std::make_unique<ThreadPool>(threads);
  if (state_->info.world > 1) {
    state_->world = launch::join(state_->info, {.transport = options.transport, .insecure = options.insecure});
  } else {
    TRIREME_LOG(kInfo, "launch", "rank 0 of 1, started by {}", state_->info.started_by);
  }
  TRIREME_LOG(kInfo, "train", "joined  threads={} transport={}", threads,
              state_->world ? state_->world->transport() : "none");
  current_job = this;
}

Job Job::init(int argc, char** argv, const JobOptions& options) {
  std::set_terminate(tell_and_end);
  Job job(options);
  for (int i = 0; i < argc; ++i) job.state_->command += (i > 0 ? " " : "") + std::string(argv[i]);
  return job;
}

Job::Job(Job&& other) noexcept : state_(std::move(other.state_)) {
  if (current_job == &other) current_job = this;
}

Job::~Job() {
  if (current_job == this) current_job = nullptr;
}

Job& Job::current() {
  if (current_job == nullptr) {
    static Job alone{JobOptions{}};
    return alone;
  }
  return *current_job;
}

int Job::rank() const {
  return state_->info.rank;
}
int Job::size() const {
  return state_->info.world;
}
comm::World* Job::world() const {
  return state_->world.get();
}
ThreadPool& Job::pool() const {
  return *state_->pool;
}
const std::string& Job::command() const {
  return state_->command;
}

}  // namespace trireme
