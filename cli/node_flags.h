// The flags of commands that start a job on several nodes.
#pragma once

#include <string>
#include <vector>

#include "trireme/launch/cluster/agent.h"

namespace CLI {
class App;
}

namespace trireme::cli {

// As they are typed; seconds may have a fraction.
struct NodeFlags {
  launch::NodeOptions node;
  double window_s = 300;
  double heartbeat_s = 10;
  // Whether the job is to be one of nodes: --nnodes or --master was given.
  bool given() const { return node.nodes > 0 || !node.master.empty(); }
  launch::NodeOptions options() const;
};

void add_node_flags(CLI::App& command, NodeFlags& flags);
// Those that the scheduler has too.
void add_cluster_flags(CLI::App& command, double& window_s, double& heartbeat_s, std::string& secret_file, launch::TlsFiles& tls);
// Milliseconds of a number of seconds that must be at least `low`; `zero` may also be given for none.
int64_t milliseconds_of(double seconds, double low, bool zero, const char* flag);

}  // namespace trireme::cli
