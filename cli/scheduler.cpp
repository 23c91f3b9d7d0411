// trireme scheduler: the scheduler of a job alone, for agents that are started by hand or by something else.
#include <CLI/CLI.hpp>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "cli/node_flags.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/launch/cluster/address.h"
#include "trireme/launch/cluster/scheduler.h"
#include "trireme/launch/start/host_address.h"

namespace trireme::cli {
namespace {

struct SchedulerArgs {
  int port = launch::kDefaultPort;
  std::string address = "127.0.0.1";
  Range world;
  int nodes = 0;
  int restarts = 0;
  double last_call_s = 10;
  Seconds window_s;
  Seconds heartbeat_s;
  std::string secret_file;
  launch::TlsFiles tls;
  std::string log_dir;
};

int serve(const SchedulerArgs& args) {
  require(args.port >= 0 && args.port <= 65'535, "scheduler: --port {}; it must be 1 to 65535, or 0 for a free one",
          args.port);
  launch::SchedulerOptions options{
      .cluster = {.world = args.world.most,
                  .min_world = args.world.least,
                  .nodes = args.nodes,
                  .restarts = args.restarts,
                  .last_call_ms = milliseconds_of(args.last_call_s, 0.1, true, "scheduler: --last-call"),
                  .window_ms = milliseconds_of(args.window_s.value_or(kWindow_s), 1, false, "scheduler: --window"),
                  .silence_ms =
                      milliseconds_of(args.heartbeat_s.value_or(kHeartbeat_s), 0.2, true, "scheduler: --heartbeat")},
      .secret = launch::cluster_secret(args.secret_file),
      .address = launch::address_for_others(args.address, "scheduler: --address"),
      .port = static_cast<uint16_t>(args.port)};
  if (args.tls.on()) options.tls = launch::read_tls(args.tls);
  if (!args.log_dir.empty()) {
    disk().make_directory(args.log_dir);
    options.log_path = join_path(args.log_dir, "scheduler.log");
  }
  launch::Scheduler scheduler(options);
  std::printf("scheduler: waiting at %s for %d ranks\n",
              launch::host_port_text(options.address, scheduler.port()).c_str(), args.world.most);
  std::fflush(stdout);
  const launch::Ending ending = scheduler.wait();
  if (ending.exit_code != 0) std::fprintf(stderr, "error: %s\n", ending.text.c_str());
  return ending.exit_code;
}

}  // namespace

int serve_mindspore_scheduler(const NodeFlags& flags, int restarts, const std::string& log_dir) {
  const launch::HostPort at = launch::parse_host_port(flags.node.master, launch::kDefaultPort, "MS_SCHED_HOST");
  return serve({.port = at.port,
                .address = at.host,
                .world = {flags.node.min_world, flags.node.world},
                .restarts = restarts,
                .last_call_s = flags.last_call_s,
                .window_s = flags.window_s,
                .heartbeat_s = flags.heartbeat_s,
                .secret_file = flags.node.secret_file,
                .tls = flags.node.tls,
                .log_dir = log_dir});
}

void add_scheduler(CLI::App& app, Action& chosen) {
  auto args = std::make_shared<SchedulerArgs>();
  CLI::App* command = app.add_subcommand("scheduler", "Run the scheduler of one job, which gives ranks to its nodes");
  command
      ->add_option_function<std::string>(
          "--world", [args](const std::string& text) { args->world = parse_range(text, "scheduler: --world"); },
          "Ranks of the job; 2:8: up to 8, and with 2 it goes on when others are lost")
      ->required();
  command
      ->add_option("--restarts", args->restarts,
                   "How often to start the job again after a failure, with the nodes that are left")
      ->check(CLI::Range(0, 1000000));
  command
      ->add_option("--last-call", args->last_call_s,
                   "Seconds to wait for more ranks when the fewest of --world have come")
      ->capture_default_str();
  command->add_option("--port", args->port, "Port to listen on; 0: a free one")->capture_default_str();
  command->add_option("--address", args->address, "Address to listen on")->capture_default_str();
  command->add_option("--nnodes", args->nodes, "Nodes of the job; checked when given");
  command->add_option("--log-dir", args->log_dir, "Folder of scheduler.log");
  add_cluster_flags(*command, args->window_s, args->heartbeat_s, args->secret_file, args->tls);
  command->footer(
      "It trains nothing, and ends with the job, with the job's exit code. When it dies, the job goes on; start it "
      "again with the same options.\n\nExample:\n  trireme scheduler --world 8 --address 10.0.0.5 --secret-file "
      "job.secret");
  command->callback([=, &chosen] { chosen = [=] { return serve(*args); }; });
}

}  // namespace trireme::cli
