// The flags of commands that start a job on several nodes.
#pragma once

#include <string>
#include <vector>

#include "trireme/launch/cluster/agent.h"

namespace CLI {
class App;
}

namespace trireme::cli {

// "4", or "2:4" for the fewest that will do and all that are wanted; `least` is 0 for the former.
struct Range {
  int least = 0;
  int most = 0;
};
Range parse_range(const std::string& text, const char* flag);

// As they are typed; seconds may have a fraction.
struct NodeFlags {
  launch::NodeOptions node;
  double window_s = 300;
  double heartbeat_s = 10;
  double last_call_s = 10;
  // Whether the job is to be one of nodes: --nnodes or --master was given.
  bool given() const { return node.nodes > 0 || !node.master.empty(); }
  launch::NodeOptions options() const;
  // What MindSpore's variables of a worker say, where no flag does: MS_WORKER_NUM, MS_SCHED_HOST, MS_SCHED_PORT, MS_NODE_ID
  // (or RANK_ID), MS_WORKER_IP, MS_TOPO_TIMEOUT, MS_NODE_TIMEOUT and MS_DISABLE_HEARTBEAT. Nothing without MS_ROLE=MS_WORKER.
  void take_mindspore_variables();
};

// Of a process that MindSpore's variables alone describe: MS_WORKER, MS_SCHED or MS_PSERVER; "" of any other.
std::string mindspore_role();
// Serves the scheduler that they describe, and returns the job's exit code.
int serve_mindspore_scheduler(const NodeFlags& flags);

void add_node_flags(CLI::App& command, NodeFlags& flags);
// Those that the scheduler has too.
void add_cluster_flags(CLI::App& command, double& window_s, double& heartbeat_s, std::string& secret_file, launch::TlsFiles& tls);
// Milliseconds of a number of seconds that must be at least `low`; `zero` may also be given for none.
int64_t milliseconds_of(double seconds, double low, bool zero, const char* flag);

}  // namespace trireme::cli
