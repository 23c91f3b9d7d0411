// One node of a job on several: finds the scheduler (or runs it, if that is this node's part), learns which ranks its
// workers have, starts and supervises them, and ends with the job. No shared file system, ssh or MPI: nodes need to
// reach the master's address and to share one secret.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "trireme/comm/stores/hmac.h"
#include "trireme/launch/cluster/tls.h"
#include "trireme/launch/supervise/launch_options.h"

namespace trireme::launch {

inline constexpr uint16_t kDefaultPort = 8118;

struct NodeOptions {
  LaunchOptions local;                          // this node's workers; with `log_dir` every rank writes to a file there
  bool terminal = false;                        // rank 0 writes to the terminal all the same
  int nodes = 0;                                // 0: not known; then a scheduler is running already
  int node_rank = -1;                           // 0 serves the scheduler; -1: the node with the master's address does
  std::string node_id;                          // empty: of the node rank, or drawn
  std::string master;                           // HOST[:PORT] of the scheduler; may be empty for one node
  int world = 0;                                // 0: nodes times this node's workers
  int min_nodes = 0;                            // that will do, when others do not come or are lost; 0: all
  int min_world = 0;                            // ranks that will do, where `world` is given; 0: all
  std::chrono::milliseconds last_call{10'000};  // for more to come when enough have come
  std::chrono::seconds window{300};             // for all nodes to come
  std::chrono::milliseconds silence{
      10'000};              // after which a node counts as lost, or a worker that is stopped; 0: never
  std::string address;      // of this node, for the other nodes' ranks; empty: the one that reaches the master
  std::string secret_file;  // empty: from the environment; for one node a fresh one
  TlsFiles tls;
};

// Throws what keeps this node out of the job. See supervise() for signals. After a failure that is not the caller's the
// job starts again, at most `local.restarts` times (of the scheduler's node), with the nodes that are left or come
// again.
LaunchResult launch_node(const NodeOptions& options);

// The secret in the file, or else in TRIREME_SECRET_FILE or TRIREME_SECRET; refuses none at all.
comm::Secret cluster_secret(const std::string& secret_file);

}  // namespace trireme::launch
