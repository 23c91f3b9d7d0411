// trireme launch: starts any program as the ranks of a job on this host, or this node's part of a job on several.
#include <CLI/CLI.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "cli/commands.h"
#include "cli/node_flags.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/launch/secret.h"
#include "trireme/launch/supervise.h"

namespace trireme::cli {
namespace {

struct LaunchArgs {
  NodeFlags flags;
  launch::LaunchOptions local;
  bool join = true;
  std::string make_secret;
};

// Goes on as a process of its own, without a terminal. True in that one; false in the one that the user waits for.
bool go_to_background(const std::string& log_dir) {
  require(!log_dir.empty(), "launch: --no-join needs --log-dir, where what the launcher has to say goes");
  disk().make_directory(log_dir);
  const std::string path = join_path(log_dir, "launcher.log");
  const int log = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) fail(ErrorKind::kIo, "launch: cannot write '{}' ({})", path, std::strerror(errno));
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid < 0) fail(ErrorKind::kIo, "launch: cannot start a process ({})", std::strerror(errno));
  if (pid > 0) {
    close(log);
    std::printf("started as process %d; its logs: %s\n", static_cast<int>(pid), log_dir.c_str());
    return false;
  }
  setsid();
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(null, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  return true;
}

int launch_job(const LaunchArgs& args) {
  if (!args.make_secret.empty()) {
    launch::make_secret_file(args.make_secret);
    std::printf("wrote a secret to %s; copy it to every node, with mode 0600\n", args.make_secret.c_str());
    return 0;
  }
  launch::LaunchOptions local = args.local;
  require(local.ranks >= 1, "launch: -n {}; it must be 1 or more", local.ranks);
  for (const int rank : local.tail) require(rank >= 0, "launch: --tail {}; ranks go from 0", rank);
  local.echo = [](std::string_view line) {
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fflush(stdout);
  };
  if (!args.join && !go_to_background(local.log_dir)) return 0;
  if (!args.flags.given()) return tell(launch::supervise(local));
  require(local.restarts == 0, "launch: --restarts {} with --nnodes: only a job on one host is started again; start this one again "
          "by hand", local.restarts);
  launch::NodeOptions node = args.flags.options();
  node.local = local;
  return tell(launch::launch_node(node));
}

}  // namespace

void add_launch(CLI::App& app, Action& chosen) {
  auto args = std::make_shared<LaunchArgs>();
  CLI::App* command = app.add_subcommand("launch", "Start a program as several ranks, on this host or as one node of several");
  CLI::Option* ranks = command->add_option("-n,--ranks", args->local.ranks, "Ranks to start on this host");
  command->add_option("--threads", args->local.threads, "Compute threads of each rank; 0: cores over ranks");
  command->add_option("--log-dir", args->local.log_dir,
                      "Folder of worker_<rank>.log: of the ranks other than 0, or with --nnodes of all, and of scheduler.log");
  command->add_option("--tail", args->local.tail, "Ranks whose logs are shown here as they grow, as in --tail 1,3")->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--restarts", args->local.restarts, "How often to start all ranks again after one has failed, on one host")
      ->check(CLI::Range(0, 1000000));
  command->add_flag("--bind-core", args->local.pin, "Give each rank cores of its own");
  command->add_flag("--join,!--no-join", args->join, "Wait for the ranks to end (the default), or return at once");
  command->add_option("--make-secret", args->make_secret, "Write a fresh secret to this file, and do nothing else");
  add_node_flags(*command, args->flags);
  command->add_option("program", args->local.command, "The program and its arguments");
  command->prefix_command();
  command->positionals_at_end();
  command->footer(
      "Examples:\n  trireme launch -n 2 ./my_program --its-own-option\n"
      "  trireme launch --make-secret job.secret\n"
      "  trireme launch --nnodes 2 --node-rank 0 --master 10.0.0.5 -n 4 --secret-file job.secret ./my_program   # and 1 on the other");
  command->callback([=, &chosen] {
    for (const std::string& word : command->remaining()) {
      if (word != "--" || !args->local.command.empty()) args->local.command.push_back(word);
    }
    require(ranks->count() > 0 || !args->make_secret.empty(), "launch: -n is required. See `trireme help launch`.");
    chosen = [=] { return launch_job(*args); };
  });
}

}  // namespace trireme::cli
