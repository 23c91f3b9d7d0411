#include "trireme/launch/supervise/worker.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

extern char** environ;

namespace trireme::launch {

namespace {

constexpr size_t kMaxSaid = 65'536;
constexpr std::string_view kExecFailed = "exec ";

// Everything that needs memory is made before fork: between fork and exec only plain system calls
// are safe.
struct Prepared {
  std::vector<std::string> environment;
  std::vector<char*> argv;
  std::vector<char*> envp;
  cpu_set_t cores;
  bool pinned = false;
  int output = -1;
  int error_pipe = -1;
  int page = -1;
  pid_t launcher = getpid();
};

std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& changes) {
  std::vector<std::string> all;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    if (std::ranges::find(changes, name, [](const auto& c) { return std::string_view(c.first); }) == changes.end()) {
      all.emplace_back(text);
    }
  }
  for (const auto& [name, value] : changes) {
    if (!value.empty()) all.push_back(name + "=" + value);
  }
  return all;
}

[[noreturn]] void become(const Prepared& prepared) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != prepared.launcher) _exit(127);  // it ended before the line above
  const int null = open("/dev/null", O_RDONLY);
  if (null >= 0) dup2(null, STDIN_FILENO);
  if (prepared.output >= 0) {
    dup2(prepared.output, STDOUT_FILENO);
    dup2(prepared.output, STDERR_FILENO);
  }
  if (prepared.pinned) sched_setaffinity(0, sizeof prepared.cores, &prepared.cores);
  fcntl(prepared.error_pipe, F_SETFD, 0);
  fcntl(prepared.page, F_SETFD, 0);
  for (const int s : {SIGCHLD, SIGPIPE, SIGXFSZ})
    signal(s, SIG_DFL);  // of the others, what the launcher was started to ignore stays ignored
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execvpe(prepared.argv[0], prepared.argv.data(), prepared.envp.data());
  char message[] = "exec 000";
  const int error = errno;
  message[5] = static_cast<char>('0' + error / 100 % 10);
  message[6] = static_cast<char>('0' + error / 10 % 10);
  message[7] = static_cast<char>('0' + error % 10);
  (void)!write(prepared.error_pipe, message, sizeof message - 1);
  (void)!write(prepared.error_pipe, prepared.argv[0], strlen(prepared.argv[0]));
  _exit(127);
}

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", number);
}

std::string log_hint(const Worker& worker) {
  return worker.log_path.empty() ? "" : fmt::format("; its log: {}", worker.log_path);
}

}  // namespace

Worker start_worker(const WorkerStart& start) {
  auto page = std::make_shared<SharedPage>();
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) {
    fail(ErrorKind::kIo, "launch: cannot make a pipe for rank {} ({})", start.rank, std::strerror(errno));
  }
  fcntl(pipe_ends[0], F_SETFL, O_NONBLOCK);
  Prepared prepared;
  prepared.error_pipe = pipe_ends[1];
  prepared.page = page->fd();
  if (!start.log_path.empty()) {
    prepared.output = open(start.log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
    if (prepared.output < 0) {
      const int error = errno;
      close(pipe_ends[0]);
      close(pipe_ends[1]);
      fail(ErrorKind::kIo, "launch: cannot write the log '{}' of rank {} ({})", start.log_path, start.rank,
           std::strerror(error));
    }
  }
  auto changes = start.environment;
  changes.emplace_back("TRIREME_ERROR_FD", std::to_string(pipe_ends[1]));
  changes.emplace_back("TRIREME_PAGE_FD", std::to_string(page->fd()));
  changes.emplace_back("TRIREME_WORKER_LOG", start.log_path);
  prepared.environment = environment_with(changes);
  for (std::string& entry : prepared.environment) prepared.envp.push_back(entry.data());
  prepared.envp.push_back(nullptr);
  for (const std::string& word : start.command) prepared.argv.push_back(const_cast<char*>(word.c_str()));
  prepared.argv.push_back(nullptr);
  CPU_ZERO(&prepared.cores);
  for (const int core : start.cores) CPU_SET(static_cast<size_t>(core), &prepared.cores);
  prepared.pinned = !start.cores.empty();

  const pid_t pid = fork();
  if (pid == 0) become(prepared);
  const int error = errno;
  close(pipe_ends[1]);
  if (prepared.output >= 0) close(prepared.output);
  if (pid < 0) {
    close(pipe_ends[0]);
    fail(ErrorKind::kIo, "launch: cannot start rank {} ({})", start.rank, std::strerror(error));
  }
  setpgid(pid, pid);  // on both sides, so that it holds whoever comes first
  Worker worker;
  worker.rank = start.rank;
  worker.pid = pid;
  worker.error_pipe = pipe_ends[0];
  worker.process = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  worker.log_path = start.log_path;
  worker.page = std::move(page);
  return worker;
}

void read_error_pipe(Worker& worker) {
  char buffer[4096];
  while (worker.error_pipe >= 0) {
    const ssize_t n = read(worker.error_pipe, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
      close(worker.error_pipe);
      worker.error_pipe = -1;
      return;
    }
    if (worker.said.size() < kMaxSaid) worker.said.append(buffer, static_cast<size_t>(n));
  }
}

bool reap(Worker& worker) {
  if (!worker.running) return true;
  siginfo_t info{};
  // Looked at first and reaped last: until then its number cannot pass to a stranger.
  const int status = waitid(P_PID, static_cast<id_t>(worker.pid), &info, WEXITED | WNOHANG | WNOWAIT);
  if (status == 0 && info.si_pid == 0) return false;
  if (status == 0) {
    kill(-worker.pid, SIGKILL);
    waitid(P_PID, static_cast<id_t>(worker.pid), &info, WEXITED | WNOHANG);
  } else {  // somebody else in this process reaped it
    info.si_code = CLD_EXITED;
    info.si_status = 1;
  }
  worker.running = false;
  worker.ended_s = now_s();
  if (worker.process >= 0) close(worker.process);
  worker.process = -1;
  (info.si_code == CLD_EXITED ? worker.exit_code : worker.signal) = info.si_status;
  read_error_pipe(worker);
  if (worker.error_pipe >= 0) close(worker.error_pipe);
  worker.error_pipe = -1;
  return true;
}

void look_whether_stopped(Worker& worker) {
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(worker.pid), &info, WSTOPPED | WCONTINUED | WNOHANG) != 0 || info.si_pid == 0)
    return;
  worker.stopped_s = info.si_code == CLD_STOPPED ? now_s() : 0;
}

int interrupted_by(const Worker& worker) {
  const int signal = worker.page->page().interrupted.load();
  const bool in_order =
      !worker.running && worker.signal == 0 && (worker.exit_code == 0 || worker.exit_code == 128 + signal);
  return in_order && signal > 0 && signal < NSIG ? signal : 0;
}

bool failed(const Worker& worker) {
  return !worker.running && (worker.exit_code != 0 || worker.signal != 0) && interrupted_by(worker) == 0;
}

Story story_of(const Worker& worker) {
  const std::string who = fmt::format("rank {} (pid {})", worker.rank, worker.pid);
  if (!worker.hang.empty()) return {.text = worker.hang, .exit_code = 3, .at_s = worker.hung_s};
  if (worker.said.starts_with(kExecFailed)) {
    const std::string number = worker.said.substr(kExecFailed.size(), 3);
    const std::string program = worker.said.substr(kExecFailed.size() + number.size());
    return {.text = fmt::format("{}: '{}' could not be started: {}", who, program,
                                std::strerror(std::atoi(number.c_str()))),
            .exit_code = 2,
            .at_s = worker.ended_s};
  }
  if (const auto failure = decode(worker.said)) {
    // Errors of communication already begin with their rank.
    const bool named = failure->text.starts_with("[rank ");
    return {.text = named ? failure->text : fmt::format("rank {}: {}", worker.rank, failure->text),
            .exit_code = exit_code(failure->kind),
            .may_be_consequence = failure->kind == ErrorKind::kComm || failure->kind == ErrorKind::kTimeout,
            .at_s = failure->at_s};
  }
  if (worker.stood_s > 0) {
    return {.text = fmt::format("{} has been stopped by a signal for {}, so it was ended{}", who,
                                duration_text(worker.stood_s), log_hint(worker)),
            .exit_code = 3,
            .at_s = worker.ended_s};
  }
  if (worker.signal != 0) {
    const char* hint = worker.signal == SIGKILL ? "; if nobody did that, the machine ran out of memory" : "";
    return {.text = fmt::format("{} was killed by signal {} ({}){}{}", who, worker.signal, signal_name(worker.signal),
                                hint, log_hint(worker)),
            .exit_code = 3,
            .at_s = worker.ended_s};
  }
  return {
      .text = fmt::format("{} ended with exit code {} and gave no reason{}", who, worker.exit_code, log_hint(worker)),
      .exit_code = worker.exit_code,
      .at_s = worker.ended_s};
}

}  // namespace trireme::launch
