// trireme launch: starts any program as the ranks of a job on this host, or this node's part of a job on several.
#include <CLI/CLI.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "cli/commands.h"
#include "cli/node_flags.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/joined_text.h"
#include "trireme/launch/cluster/address.h"
#include "trireme/launch/start/rank_table.h"
#include "trireme/launch/start/secret.h"
#include "trireme/launch/supervise/supervise.h"

namespace trireme::cli {
namespace {

struct LaunchArgs {
  NodeFlags flags;
  launch::LaunchOptions local;
  bool join = true;
  std::string rank_table;
  std::string make_secret;
};

// Goes on as a process of its own, without a terminal. True in that one; false in the one that the user waits for.
bool go_to_background(const std::string& log_dir) {
  require(!log_dir.empty(), "launch: --no-join needs --log-dir, where the launcher's messages go");
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

// The ranks that the table gives this host.
void take_rank_table(LaunchArgs& args) {
  const launch::RankTable table =
      launch::parse_rank_table(read_file(args.rank_table), fmt::format("rank table '{}'", args.rank_table));
  std::vector<std::string> servers;
  for (const auto& entry : table.ranks) {
    if (servers.empty() || servers.back() != entry.server) servers.push_back(entry.server);
  }
  const auto own = std::ranges::find_if(servers, [&](const std::string& server) {
    try {
      return launch::is_own_address(launch::resolve(server));
    } catch (Error& e) {
      e.note(fmt::format("it is a server_id of the rank table '{}'", args.rank_table));
      throw;
    }
  });
  require(own != servers.end(), "launch: --rank-table {}: none of its {} hosts ({}) has an address of this host",
          args.rank_table, servers.size(), joined_text(servers, ", "));
  args.local.ranks = static_cast<int>(std::ranges::count(table.ranks, *own, &launch::RankTable::Entry::server));
  if (servers.size() == 1) return;
  launch::NodeOptions& node = args.flags.node;
  node.nodes = static_cast<int>(servers.size());
  node.node_rank = static_cast<int>(own - servers.begin());
  node.world = static_cast<int>(table.ranks.size());
  if (node.master.empty()) node.master = servers[0];
}

int launch_job(LaunchArgs args) {
  if (!args.make_secret.empty()) {
    launch::make_secret_file(args.make_secret);
    std::printf("wrote a secret to %s; copy it to every node, with mode 0600\n", args.make_secret.c_str());
    return 0;
  }
  if (!args.rank_table.empty()) take_rank_table(args);
  args.flags.take_mindspore_variables();
  if (mindspore_role() == "MS_SCHED")
    return serve_mindspore_scheduler(args.flags, args.local.restarts, args.local.log_dir);
  args.flags.check();
  warn_of_range(args.local.ranks, args.local.min_ranks, args.local.restarts);
  launch::LaunchOptions local = args.local;
  const int last = args.flags.ranks_in_all(local.ranks) - 1;
  for (const int rank : local.tail)
    require(rank >= 0 && rank <= last, "launch: --tail {}; this job's ranks go from 0 to {}", rank, last);
  local.echo = [](std::string_view line) {
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fflush(stdout);
  };
  if (!args.join && !go_to_background(local.log_dir)) return 0;
  if (!args.flags.given()) return tell(launch::supervise(local));
  require(
      local.min_ranks == 0,
      "launch: -n {}:{}: with --nnodes or --master, -n is the number of ranks on this node; let the number of nodes "
      "vary instead, as in --nnodes 2:4",
      local.min_ranks, local.ranks);
  launch::NodeOptions node = args.flags.options();
  node.local = local;
  return tell(launch::launch_node(node));
}

}  // namespace

void add_launch(CLI::App& app, Action& chosen) {
  auto args = std::make_shared<LaunchArgs>();
  CLI::App* command =
      app.add_subcommand("launch", "Start a program as several ranks, on this host or as one node of several");
  CLI::Option* ranks = command->add_option_function<std::string>(
      "-n,--ranks",
      [args](const std::string& text) {
        const Range range = parse_range(text, "launch: -n");
        args->local.ranks = range.most;
        args->local.min_ranks = range.least;
      },
      "Ranks to start on this host. 2:4 starts 4, and after ranks were killed --restarts starts those that are left, "
      "but at least 2");
  command->add_option("--threads", args->local.threads,
                      "Compute threads of each rank; 0: the cores divided by the ranks");
  command->add_option(
      "--log-dir", args->local.log_dir,
      "Folder of the logs: worker_<rank>.log of all ranks but 0, with --nnodes of all ranks, and scheduler.log");
  command->add_option("--tail", args->local.tail, "Ranks whose logs are shown here as they grow, as in --tail 1,3")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      ->add_option("--restarts", args->local.restarts,
                   "How often to start all ranks again after one has failed; with --nnodes on all nodes that are left")
      ->check(CLI::Range(0, 1000000));
  command->add_flag("--bind-core", args->local.pin, "Give each rank cores of its own");
  command->add_flag("--join,!--no-join", args->join, "Wait for the ranks to end (the default), or return at once");
  command->add_option("--make-secret", args->make_secret, "Write a fresh secret to this file, and do nothing else");
  CLI::Option* table = command->add_option(
      "--rank-table", args->rank_table,
      "JSON file with every rank's host, from which the nodes and the ranks of this host are taken");
  add_node_flags(*command, args->flags);
  command->add_option("program", args->local.command, "The program and its arguments");
  command->prefix_command();
  command->positionals_at_end();
  command->footer(
      "Examples:\n  trireme launch -n 2 ./my_program --its-own-option\n"
      "  trireme launch --make-secret job.secret\n"
      "  trireme launch --nnodes 2 --node-rank 0 --master 10.0.0.5 -n 4 --secret-file job.secret ./my_program   # and "
      "1 on the other");
  command->callback([=, &chosen] {
    // Of a '--' before the program that alone remains; any other is the program's own.
    const std::vector<std::string> rest = command->remaining();
    if (rest != std::vector<std::string>{"--"})
      args->local.command.insert(args->local.command.end(), rest.begin(), rest.end());
    require(ranks->count() == 0 || table->count() == 0,
            "launch: -n and --rank-table are both given; the table has the number of ranks, so leave -n out");
    require(ranks->count() > 0 || table->count() > 0 || !args->make_secret.empty() || !mindspore_role().empty(),
            "launch: -n is required. See `trireme help launch`.");
    chosen = [=] { return launch_job(*args); };
  });
}

}  // namespace trireme::cli
