#include "cli/node_flags.h"

#include <CLI/CLI.hpp>

#include <cmath>

#include "trireme/base/error.h"

namespace trireme::cli {

int64_t milliseconds_of(double seconds, double low, bool zero, const char* flag) {
  require((zero && seconds == 0) || (std::isfinite(seconds) && seconds >= low && seconds <= 86'400),
          "{} {}: it must be from {} to 86400 seconds{}", flag, seconds, low, zero ? ", or 0 for never" : "");
  return std::llround(1e3 * seconds);
}

void add_cluster_flags(CLI::App& command, double& window_s, double& heartbeat_s, std::string& secret_file, launch::TlsFiles& tls) {
  command.add_option("--window", window_s, "Seconds for all ranks to come")->capture_default_str();
  command.add_option("--heartbeat", heartbeat_s, "Seconds of silence after which a node counts as lost; 0: never")
      ->capture_default_str();
  command.add_option("--secret-file", secret_file,
                     "File of mode 0600 with the job's secret; else TRIREME_SECRET_FILE or TRIREME_SECRET in the environment");
  command.add_option("--tls-cert", tls.certificate, "Certificate (PEM) for TLS to the scheduler");
  command.add_option("--tls-key", tls.key, "Its private key (PEM, mode 0600)");
  command.add_option("--tls-ca", tls.authority, "Authority (PEM) that signed the other side's certificate");
}

void add_node_flags(CLI::App& command, NodeFlags& flags) {
  launch::NodeOptions& node = flags.node;
  command.add_option("--nnodes", node.nodes, "Nodes of the job; run this same command on each");
  command.add_option("--node-rank", node.node_rank, "Place of this node among them; 0 serves the scheduler. Without, the node "
                                                    "with the master's address does");
  command.add_option("--master", node.master, "HOST[:PORT] of the scheduler, the same on every node; port 8118 unless given. "
                                              "Without --nnodes a 'trireme scheduler' is running there");
  command.add_option("--world", node.world, "Ranks of the whole job, where nodes differ or --nnodes is not given");
  command.add_option("--node-id", node.node_id, "Name of this node in the job; numbers order nodes that have no rank");
  command.add_option("--address", node.address, "Address of this node for the others; else the one that reaches the master");
  add_cluster_flags(command, flags.window_s, flags.heartbeat_s, node.secret_file, node.tls);
}

launch::NodeOptions NodeFlags::options() const {
  launch::NodeOptions options = node;
  options.window = std::chrono::seconds((milliseconds_of(window_s, 1, false, "--window") + 999) / 1000);
  options.silence = std::chrono::milliseconds(milliseconds_of(heartbeat_s, 0.2, true, "--heartbeat"));
  return options;
}

}  // namespace trireme::cli
