#include "tests/cli/program.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "trireme/base/clock.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kLimit{120};

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

// This process's environment without what would make the program a rank of some job.
std::vector<std::string> clean_environment() {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    bool drop = false;
    for (const char* prefix :
         {"TRIREME_", "OMPI_", "PMI", "SLURM_", "RANK", "WORLD_SIZE=", "LOCAL_", "MASTER_", "JOB_", "MS_", "TMPDIR="}) {
      drop = drop || text.starts_with(prefix);
    }
    if (!drop) out.push_back(text);
  }
  return out;
}

std::vector<std::string> of_trireme(const std::vector<std::string>& words) {
  std::vector<std::string> command{TRIREME_PROGRAM};
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

}  // namespace

CliTest::CliTest() {
  char name[] = "/tmp/trireme-cli-test-XXXXXX";
  dir_ = ::mkdtemp(name);
  io_ = dir_ + "/io";
  temporary_ = dir_ + "/tmp";
  fs::create_directory(io_);
  fs::create_directory(temporary_);
}

CliTest::~CliTest() {
  for (const int process : left_over()) ::kill(process, SIGKILL);
  if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  std::error_code ignored;
  fs::remove_all(dir_, ignored);
}

Outcome CliTest::run(const Words& words, const Words& environment) {
  start(words, environment);
  return wait();
}

bool CliTest::soon(const std::function<bool()>& holds) {
  const Deadline deadline(std::chrono::seconds(60));
  while (!holds()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

void CliTest::start(const Words& words, const Words& environment) {
  start_program(of_trireme(words), environment);
}

Outcome CliTest::run_shell(const std::string& script, const Words& environment) {
  start_program({"/bin/sh", "-c", script}, environment);
  return wait();
}

void CliTest::start_program(const Words& command, const Words& environment) {
  pid_ = spawn(command, environment, io_ + "/out", io_ + "/err");
}

int CliTest::spawn(Words command, const Words& environment, const std::string& out, const std::string& err,
                   const Enter& enter) const {
  Words variables = clean_environment();
  variables.push_back("TMPDIR=" + temporary_);  // also the mark by which left_over() knows them
  variables.insert(variables.end(), environment.begin(), environment.end());
  const std::vector<char*> argv = pointers(command);
  const std::vector<char*> envp = pointers(variables);
  for (const std::string& file : {out, err}) std::ofstream(file).close();  // nothing is left of an earlier command's
  const int pid = ::fork();
  if (pid != 0) return pid;
  const int files[] = {::open("/dev/null", O_RDONLY), ::open(out.c_str(), O_WRONLY | O_APPEND),
                       ::open(err.c_str(), O_WRONLY | O_APPEND)};
  for (int i = 0; i < 3; ++i) ::dup2(files[i], i);
  if (::chdir(dir_.c_str()) != 0 || (enter && !enter())) ::_exit(126);
  ::execve(argv[0], argv.data(), envp.data());
  ::_exit(127);
}

Outcome CliTest::wait() {
  Outcome outcome = reap(pid_, io_ + "/out", io_ + "/err");
  pid_ = -1;
  return outcome;
}

Outcome CliTest::reap(int pid, const std::string& out, const std::string& err) const {
  Outcome outcome;
  int status = 0;
  const Deadline deadline(kLimit);
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    if (deadline.passed()) {
      outcome.out_of_time = true;
      for (const int process : left_over()) ::kill(process, SIGKILL);
      ::waitpid(pid, &status, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.out = read(out);
  outcome.err = read(err);
  EXPECT_FALSE(outcome.out_of_time) << outcome.out << outcome.err;
  return outcome;
}

CliTest::Program CliTest::begin(const std::string& name, const Words& words, const Words& environment,
                                const Enter& enter) const {
  return {name, spawn(of_trireme(words), environment, io_ + "/" + name + ".out", io_ + "/" + name + ".err", enter)};
}

Outcome CliTest::finish(Program& program) const {
  return reap(std::exchange(program.pid, -1), io_ + "/" + program.name + ".out", io_ + "/" + program.name + ".err");
}

bool CliTest::is_running(const Program& program) {
  siginfo_t ended{};
  ::waitid(P_PID, static_cast<id_t>(program.pid), &ended, WEXITED | WNOHANG | WNOWAIT);
  return ended.si_pid != program.pid;
}

bool CliTest::wait_until(const std::function<bool()>& holds) {
  const Deadline deadline(kLimit);
  while (!holds()) {
    siginfo_t ended{};
    ::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT);
    if (ended.si_pid == pid_ || deadline.passed()) return holds();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

void CliTest::write(const std::string& name, const std::string& text) const {
  std::ofstream(path(name), std::ios::binary) << text;
}

std::string CliTest::read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream all;
  all << file.rdbuf();
  return all.str();
}

std::vector<int> CliTest::left_over() const {
  std::vector<int> out;
  const std::string mark = "TMPDIR=" + temporary_;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", ignored)) {
    const int process = std::atoi(entry.path().filename().c_str());
    if (process <= 0 || process == ::getpid()) continue;
    if (read(entry.path().string() + "/environ").find(mark) != std::string::npos) out.push_back(process);
  }
  return out;
}

std::vector<int> CliTest::workers() const {
  std::stringstream text(read(fmt::format("/proc/{}/task/{}/children", pid_, pid_)));
  std::vector<int> out;
  for (int process = 0; text >> process;) out.push_back(process);
  return out;
}

void CliTest::write_gpt(const std::string& extra_train) const {
  std::string text;
  for (int i = 0; i < 250; ++i) text += fmt::format("line {} of a small text that has some order in it\n", i);
  write("text.txt", text.substr(0, 8000));
  write("gpt.toml",
        "name = \"tiny\"\n[model]\nkind = \"gpt\"\nlayers = 1\nwidth = 16\nheads = 2\ndropout = 0.1\n"
        "[data]\nkind = \"text\"\npaths = [\"text.txt\"]\nseq = 16\nvalidation = 0.1\n"
        "[train]\nsteps = 6\nbatch = 4\nlr = 0.01\nschedule = \"constant\"\n" +
            extra_train);
}

void CliTest::write_mlp() const {
  write("mlp.toml",
        "[model]\nkind = \"mlp\"\nhidden = [8]\n[data]\nkind = \"synthetic\"\nsamples = 64\n"
        "validation = 0.25\n[train]\nepochs = 1\nbatch = 8\n");
}

Outcome GptTest::train(const std::string& out, const Words& more) {
  Words words{"train", "gpt.toml", "--quiet", "--set", "train.sample_tokens=0", "--out", out};
  words.insert(words.end(), more.begin(), more.end());
  return run(words);
}

void GptTest::expect_trains(const std::string& out, const Words& more) {
  const Outcome outcome = train(out, more);
  ASSERT_EQ(outcome.code, 0) << out << ": " << outcome.err;
}

std::string error_line(const Outcome& outcome) {
  std::string found;
  int lines = 0;
  std::stringstream text(outcome.err);
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("  ") || line.starts_with("W ")) continue;  // a note, or a warning in the log
    ++lines;
    if (line.starts_with("error: ")) found = line.substr(7);
  }
  return lines == 1 && !found.empty() ? found : "not one error line but: " + outcome.err;
}

double number_in(const std::string& json, const std::string& key) {
  const std::string name = "\"" + key + "\":";
  const size_t at = json.find(name);
  if (at == std::string::npos) {
    ADD_FAILURE() << "no " << key << " in " << json;
    return 0;
  }
  return std::atof(json.c_str() + at + name.size());
}

}  // namespace trireme::cli
