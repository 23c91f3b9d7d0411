// The flags of commands that start a job on several nodes.
#pragma once

#include <optional>
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
// Of -n 2:4, where nothing makes use of the first number.
void warn_of_range(int ranks, int min_ranks, int restarts);

// Seconds as they are typed, with a fraction or without; none: what holds when nobody says otherwise.
using Seconds = std::optional<double>;
inline constexpr double kWindow_s = 300;
inline constexpr double kHeartbeat_s = 10;
inline constexpr double kLastCall_s = 10;

struct NodeFlags {
  launch::NodeOptions node;
  Seconds window_s;
  Seconds heartbeat_s;
  double last_call_s = kLastCall_s;
  // Whether the job is to be one of nodes: --nnodes or --master was given.
  bool given() const { return node.nodes > 0 || !node.master.empty(); }
  // Throws kInvalidArgument for a flag of nodes beside which neither is given: it would have no effect.
  void check() const;
  launch::NodeOptions options() const;
  // Of the whole job, where each node starts so many.
  int ranks_in_all(int of_a_node) const;
  // What MindSpore's variables say, where no flag does: MS_WORKER_NUM, MS_SCHED_HOST, MS_SCHED_PORT, MS_NODE_ID (or
  // RANK_ID), MS_WORKER_IP, MS_TOPO_TIMEOUT, MS_NODE_TIMEOUT and MS_DISABLE_HEARTBEAT. Nothing without a role; refuses
  // flags of a worker that is to be the scheduler. Warns of those that have no effect here.
  void take_mindspore_variables();
};

// launch::dynamic_cluster_role of this process: MS_WORKER, MS_SCHED or "".
std::string mindspore_role();
// Serves the scheduler that they describe, and returns the job's exit code. `log_dir`: of scheduler.log; empty: none is
// written.
int serve_mindspore_scheduler(const NodeFlags& flags, int restarts, const std::string& log_dir);

void add_node_flags(CLI::App& command, NodeFlags& flags);
// Those that the scheduler has too.
void add_cluster_flags(CLI::App& command, Seconds& window_s, Seconds& heartbeat_s, std::string& secret_file,
                       launch::TlsFiles& tls);
// Milliseconds of a number of seconds that must be at least `low`; `zero` may also be given for none.
int64_t milliseconds_of(double seconds, double low, bool zero, const char* flag);

}  // namespace trireme::cli
