#include "trireme/launch/supervise.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/flags.h"
#include "trireme/base/log.h"
#include "trireme/comm/tcp_store.h"
#include "trireme/launch/report.h"
#include "trireme/launch/start.h"
#include "trireme/launch/worker.h"

namespace trireme::launch {

namespace {

using std::chrono::milliseconds;

// After the first failure, the time for its cause or its like in other ranks to show by itself.
constexpr milliseconds kSettle{200};

std::string temporary_path(std::string_view what) {
  return fmt::format("{}/trireme-{}-XXXXXX", flag_text("TMPDIR").value_or("/tmp"), what);
}

// The job's secret in a file that only its owner can read, gone with the object.
class SecretFile {
 public:
  explicit SecretFile(const comm::Secret& secret) : path_(temporary_path("secret")) {
    const int fd = mkstemp(path_.data());  // mode 0600
    const std::string hex = comm::to_hex(secret);
    const bool ok =
        fd >= 0 && write(fd, hex.data(), hex.size()) == static_cast<ssize_t>(hex.size());
    const int error = errno;
    if (fd >= 0) close(fd);
    if (!ok) {
      fail(ErrorKind::kIo, "launch: cannot write the secret file '{}' ({})", path_,
           std::strerror(error));
    }
  }
  ~SecretFile() { unlink(path_.c_str()); }
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The folder of the ranks' logs; a temporary one goes unless it is kept.
class LogFolder {
 public:
  LogFolder(const std::string& wanted, int ranks) : path_(wanted), temporary_(wanted.empty()) {
    if (ranks == 1) {  // which writes to the terminal
      temporary_ = false;
    } else if (temporary_) {
      path_ = temporary_path("logs");
      if (mkdtemp(path_.data()) == nullptr) {
        fail(ErrorKind::kIo, "launch: cannot make the folder '{}' ({})", path_,
             std::strerror(errno));
      }
    } else {
      std::error_code error;
      std::filesystem::create_directories(path_, error);
      if (error)
        fail(ErrorKind::kIo, "launch: cannot make the folder '{}' ({})", path_, error.message());
    }
  }
  ~LogFolder() {
    std::error_code ignored;
    if (temporary_) std::filesystem::remove_all(path_, ignored);
  }
  LogFolder(const LogFolder&) = delete;
  LogFolder& operator=(const LogFolder&) = delete;
  void keep() { temporary_ = false; }
  std::string file(int rank) const {
    return rank == 0 ? "" : fmt::format("{}/worker_{}.log", path_, rank);
  }

 private:
  std::string path_;
  bool temporary_;
};

// The signals that concern a launcher as bytes to poll for, while it lives. Those that this process
// was started to ignore (nohup, background jobs of a script) stay ignored.
class Signals {
 public:
  Signals() {
    // A parent may have left SIGCHLD ignored, and then the workers' exit codes would be lost.
    struct sigaction usual {};
    usual.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &usual, &child_before_);
    sigset_t wanted;
    sigemptyset(&wanted);
    for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) {
      struct sigaction now {};
      sigaction(s, nullptr, &now);
      if (now.sa_handler != SIG_IGN) sigaddset(&wanted, s);
    }
    pthread_sigmask(SIG_BLOCK, &wanted, &before_);
    fd_ = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd_ < 0) {
      restore();
      fail(ErrorKind::kIo, "launch: cannot listen for signals ({})", std::strerror(errno));
    }
  }
  ~Signals() {
    close(fd_);
    restore();
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  int fd() const { return fd_; }
  // The next one received, or 0.
  int next() const {
    signalfd_siginfo info{};
    return read(fd_, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  void restore() {
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    sigaction(SIGCHLD, &child_before_, nullptr);
  }

  struct sigaction child_before_ {};
  sigset_t before_;
  int fd_;
};

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

// The workers, and what has been asked of them so far. Destruction ends all that still run.
class Team {
 public:
  explicit Team(milliseconds grace) : grace_(grace) {}
  ~Team() {
    for (Worker& worker : workers_) {
      if (worker.running) kill(-worker.pid, SIGKILL);
    }
    while (!all_ended()) wait(nullptr);
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  void start(const WorkerStart& start) { workers_.push_back(start_worker(start)); }
  const std::vector<Worker>& workers() const { return workers_; }
  int interrupted() const { return interrupted_; }

  void run(const Signals& signals) {
    while (!all_ended()) {
      wait(&signals);
      while (const int signal = signals.next()) {
        if (signal != SIGCHLD) interrupt(signal);
      }
      const bool any_failed = std::ranges::any_of(workers_, failed);
      if (any_failed && !failure_) failure_.emplace(kSettle);
      if (failure_ && failure_->passed()) end();
      if (ending_ && ending_->passed()) kill_all();
    }
  }

 private:
  bool all_ended() const {
    return std::ranges::none_of(workers_, [](const Worker& w) { return w.running; });
  }

  void wait(const Signals* signals) {
    std::vector<pollfd> polled;
    if (signals != nullptr) polled.push_back({signals->fd(), POLLIN, 0});
    for (const Worker& worker : workers_) {
      if (worker.error_pipe >= 0) polled.push_back({worker.error_pipe, POLLIN, 0});
    }
    // The time limit covers a SIGCHLD that went to another thread, and the deadlines of `run`.
    poll(polled.data(), polled.size(), 50);
    for (Worker& worker : workers_) {
      read_error_pipe(worker);
      reap(worker);
    }
  }

  void interrupt(int signal) {
    if (interrupted_ != 0) {
      end();
      return;
    }
    interrupted_ = signal;
    for (const Worker& worker : workers_) {
      if (worker.running) kill(-worker.pid, signal);
    }
  }

  void end() {
    if (ending_) return;
    ending_.emplace(grace_);
    for (Worker& worker : workers_) {
      if (!worker.running) continue;
      worker.asked = true;
      kill(-worker.pid, SIGTERM);
    }
  }

  void kill_all() {
    for (const Worker& worker : workers_) {
      if (worker.running) kill(-worker.pid, SIGKILL);
    }
  }

  milliseconds grace_;
  std::vector<Worker> workers_;
  int interrupted_ = 0;              // by this signal
  std::optional<Deadline> failure_;  // set by the first one; passes when the others are to end
  std::optional<Deadline> ending_;   // set by SIGTERM; passes when SIGKILL follows
};

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
  LogFolder logs(options.log_dir, options.ranks);
  const Signals signals;
  const comm::Secret secret = comm::random_secret();
  const SecretFile secret_file(secret);
  const comm::TcpStoreServer server({.secret = secret});
  TRIREME_LOG(kInfo, "launch", "starting {} ranks of '{}'  store={}:{}", options.ranks,
              options.command[0], server.address(), server.port());
  Team team(options.grace);
  for (int rank = 0; rank < options.ranks; ++rank) {
    WorkerStart start = worker_start(options, rank, server, secret_file);
    start.log_path = logs.file(rank);
    team.start(start);
  }
  team.run(signals);
  LaunchResult result = report_on(team.workers(), team.interrupted(), options.tail_lines);
  if (result.failed_rank >= 0) logs.keep();
  return result;
}

}  // namespace trireme::launch
