#include "cli/node_flags.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/base/flags.h"
#include "trireme/base/log.h"
#include "trireme/launch/cluster/address.h"
#include "trireme/launch/start/start.h"

namespace trireme::cli {

int64_t milliseconds_of(double seconds, double low, bool zero, const char* flag) {
  require((zero && seconds == 0) || (std::isfinite(seconds) && seconds >= low && seconds <= 86'400),
          "{} {}: it must be from {} to 86400 seconds{}", flag, seconds, low, zero ? ", or 0 for never" : "");
  return std::llround(1e3 * seconds);
}

Range parse_range(const std::string& text, const char* flag) {
  const size_t colon = text.find(':');
  const auto number = [&](std::string_view part) {
    int value = 0;
    const auto [stop, status] = std::from_chars(part.data(), part.data() + part.size(), value);
    require(status == std::errc() && stop == part.data() + part.size() && value >= 1,
            "{} {}: it must be a number from 1, or two joined by a colon, as in 2:4", flag, text);
    return value;
  };
  if (colon == std::string::npos) return {0, number(text)};
  const Range range{number(std::string_view(text).substr(0, colon)), number(std::string_view(text).substr(colon + 1))};
  require(range.least <= range.most, "{} {}: the first must not be above the second", flag, text);
  return range;
}

void warn_of_range(int ranks, int min_ranks, int restarts) {
  if (min_ranks == 0 || restarts > 0) return;
  TRIREME_LOG(kWarn, "launch",
              "-n {0}:{1} starts {1} ranks and goes on with fewer only if --restarts is given; add it, or -n {1}",
              min_ranks, ranks);
}

void add_cluster_flags(CLI::App& command, Seconds& window_s, Seconds& heartbeat_s, std::string& secret_file,
                       launch::TlsFiles& tls) {
  command.add_option("--window", window_s, "Seconds to wait for all ranks")->default_str(fmt::format("{}", kWindow_s));
  command.add_option("--heartbeat", heartbeat_s, "Seconds of silence after which a node counts as lost; 0: never")
      ->default_str(fmt::format("{}", kHeartbeat_s));
  command.add_option(
      "--secret-file", secret_file,
      "File of mode 0600 with the job's secret; else TRIREME_SECRET_FILE or TRIREME_SECRET in the environment");
  command.add_option("--tls-cert", tls.certificate,
                     "Certificate for TLS to the scheduler: PEM, or a bundle with its key (PKCS#12)");
  command.add_option("--tls-key", tls.key, "Its private key (PEM, mode 0600); a bundle has it");
  command.add_option("--tls-ca", tls.authority, "Authority (PEM) that signed the other side's certificate");
  command.add_option("--tls-crl", tls.revoked, "Lists (PEM) of certificates that the authority has revoked");
  command.add_option("--tls-password-file", tls.password,
                     "File of mode 0600 whose first line is the password of an encrypted key; else "
                     "TRIREME_TLS_PASSWORD in the environment");
  command.add_option("--tls-warn-days", tls.warn_days, "Warn of a certificate that expires within this many days")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
}

void add_node_flags(CLI::App& command, NodeFlags& flags) {
  launch::NodeOptions& node = flags.node;
  command.add_option_function<std::string>(
      "--nnodes",
      [&node](const std::string& text) {
        const Range range = parse_range(text, "--nnodes");
        node.nodes = range.most;
        node.min_nodes = range.least;
      },
      "Nodes of the job; run this same command on each. 2:4: up to 4, and with 2 it goes on when others are lost");
  command.add_option(
      "--node-rank", node.node_rank,
      "Number of this node among them; node 0 runs the scheduler. Without it the node with the master's address does");
  command.add_option("--master", node.master,
                     "HOST[:PORT] of the scheduler, the same on every node; port 8118 unless given. "
                     "Without --nnodes a 'trireme scheduler' is running there");
  command.add_option_function<std::string>(
      "--world",
      [&node](const std::string& text) {
        const Range range = parse_range(text, "--world");
        node.world = range.most;
        node.min_world = range.least;
      },
      "Ranks of the whole job, where nodes differ or --nnodes is not given; 2:8 as for --nnodes");
  command
      .add_option("--last-call", flags.last_call_s,
                  "Seconds to wait for more when the fewest of --nnodes or --world have come")
      ->capture_default_str();
  command.add_option("--node-id", node.node_id,
                     "Name of this node in the job; numbers give the order of nodes without --node-rank");
  command.add_option("--address", node.address,
                     "Address of this node for the others; by default the one that reaches the master");
  add_cluster_flags(command, flags.window_s, flags.heartbeat_s, node.secret_file, node.tls);
}

std::string mindspore_role() {
  return launch::dynamic_cluster_role(flag_values());
}

namespace {

// Warns about variables that have another meaning, or none, in this program.
void warn_of_mindspore_variables() {
  if (mindspore_role() == "MS_SCHED")
    return;  // once for a job is enough; the workers' terminals are the ones that are read
  if (flag_bool("MS_ENABLE_RECOVERY").value_or(false)) {
    TRIREME_LOG(kWarn, "launch",
                "MS_ENABLE_RECOVERY=1 has no effect; --restarts lets a job go on after a failure "
                "(docs/guide/03_starting_a_job.md)");
  }
  for (const char* name : {"MS_RECOVERY_PATH", "MS_RECEIVE_MSG_TIMEOUT", "MS_RETRY_INTERVAL_LOWER",
                           "MS_RETRY_INTERVAL_UPPER", "MS_HCCL_CM_INIT", "MS_ENABLE_LCCL"}) {
    if (const auto text = flag_text(name))
      TRIREME_LOG(kWarn, "launch", "{}={} has no effect (docs/howto/come_from_mindspore.md says why)", name, *text);
  }
}

}  // namespace

void NodeFlags::take_mindspore_variables() {
  const std::string role = mindspore_role();
  if (role.empty()) return;
  require(role != "MS_SCHED" || !given(),
          "environment: MS_ROLE=MS_SCHED, but {} makes this a node with ranks; leave the option out, or unset MS_ROLE",
          node.nodes > 0 ? "--nnodes" : "--master");
  const auto host = flag_text("MS_SCHED_HOST");
  const auto port = flag_int("MS_SCHED_PORT", 1024, 65'535);
  if (node.master.empty()) {
    require(host && port, "environment: MS_ROLE={} but {} is not set; it says where the scheduler is", role,
            host ? "MS_SCHED_PORT" : "MS_SCHED_HOST");
    node.master = launch::host_port_text(*host, static_cast<uint16_t>(*port));
  }
  if (node.world == 0 && node.nodes == 0) node.world = static_cast<int>(*flag_int("MS_WORKER_NUM", 1, 65'536));
  if (node.node_id.empty()) node.node_id = flag_text("MS_NODE_ID").value_or(flag_text("RANK_ID").value_or(""));
  if (node.address.empty()) node.address = flag_text("MS_WORKER_IP").value_or("");
  if (const auto seconds = flag_int("MS_TOPO_TIMEOUT", 1, 86'400); seconds && !window_s)
    window_s = static_cast<double>(*seconds);
  if (!heartbeat_s && flag_bool("MS_DISABLE_HEARTBEAT").value_or(false)) heartbeat_s = 0;
  if (const auto seconds = flag_int("MS_NODE_TIMEOUT", 1, 86'400); seconds && !heartbeat_s)
    heartbeat_s = static_cast<double>(*seconds);
  warn_of_mindspore_variables();
}

void NodeFlags::check() const {
  if (given()) return;
  const std::pair<const char*, bool> flags[] = {{"--node-rank", node.node_rank >= 0},
                                                {"--world", node.world > 0},
                                                {"--last-call", last_call_s != kLastCall_s},
                                                {"--node-id", !node.node_id.empty()},
                                                {"--address", !node.address.empty()},
                                                {"--window", window_s.has_value()},
                                                {"--heartbeat", heartbeat_s.has_value()},
                                                {"--secret-file", !node.secret_file.empty()},
                                                {"--tls-cert", !node.tls.certificate.empty()},
                                                {"--tls-key", !node.tls.key.empty()},
                                                {"--tls-ca", !node.tls.authority.empty()},
                                                {"--tls-crl", !node.tls.revoked.empty()},
                                                {"--tls-password-file", !node.tls.password.empty()}};
  for (const auto& [flag, is_given] : flags) {
    require(!is_given,
            "{} is for jobs on several nodes, and this job runs on this host alone; add --nnodes or --master, or leave "
            "it out",
            flag);
  }
}

launch::NodeOptions NodeFlags::options() const {
  launch::NodeOptions options = node;
  options.window =
      std::chrono::seconds((milliseconds_of(window_s.value_or(kWindow_s), 1, false, "--window") + 999) / 1000);
  options.silence =
      std::chrono::milliseconds(milliseconds_of(heartbeat_s.value_or(kHeartbeat_s), 0.2, true, "--heartbeat"));
  options.last_call = std::chrono::milliseconds(milliseconds_of(last_call_s, 0.1, true, "--last-call"));
  return options;
}

int NodeFlags::ranks_in_all(int of_a_node) const {
  if (!given()) return of_a_node;
  const launch::NodeOptions asked = options();
  const int fewest = asked.min_world > 0 ? asked.min_world : asked.world;
  require(asked.nodes != 1 || (fewest <= of_a_node && (asked.world == 0 || of_a_node <= asked.world)),
          "--world {} with --nnodes 1, whose only node starts {} (-n): these are all there can be; leave --world out",
          asked.world, counted(of_a_node, "rank"));
  return asked.world > 0 ? asked.world : std::max(asked.nodes, 1) * of_a_node;
}

}  // namespace trireme::cli
