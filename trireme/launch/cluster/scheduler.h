// The scheduler of a job as a service: agents connect, prove that they know the job's secret, report, and are told the
// state of the job. It trains nothing and keeps nothing on disk: when it dies and is started again, the nodes tell it
// again who they are, and meanwhile the job goes on. The transport is gRPC, one bidirectional stream of bytes for each
// agent.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "trireme/comm/stores/hmac.h"
#include "trireme/launch/cluster/cluster.h"
#include "trireme/launch/cluster/tls.h"

namespace trireme::launch {

struct SchedulerOptions {
  ClusterOptions cluster;
  comm::Secret secret{};
  std::string address = "127.0.0.1";  // numeric, of the interface to listen on
  uint16_t port = 0;                  // 0: a free one
  std::optional<TlsTexts> tls;
  std::string log_path;  // of what happens to the job; empty: this process's log
  std::chrono::milliseconds handshake_deadline{2000};
  size_t max_pending = 128;  // handshakes at once, and connections without a proof; one more ends the oldest
  std::chrono::milliseconds linger{10'000};  // after the end of the job, for nodes that do not answer
};

// Serves from a thread of its own until destroyed.
class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options);  // kIo when it cannot listen there
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  uint16_t port() const;
  // Ends the job, unless it is over.
  void end(const Ending& ending);
  // Waits until the job is over and all nodes that can be told know it, or the linger has passed.
  Ending wait();
  // Whether wait() would return at once.
  bool is_done() const;

  struct Counts {
    int64_t admitted = 0;  // connections that proved the secret
    int64_t refused = 0;   // that did not, or sent what is not sealed as the next message
    int64_t expired = 0;   // streams without a proof, ended by the deadline or by newer ones
    int64_t unproven = 0;  // connections without a proof, with streams or not, ended by a deadline or by newer ones
    int64_t broken = 0;    // proven ones that sent an impossible message
  };
  Counts counts() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace trireme::launch
