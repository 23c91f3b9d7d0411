// The scheduler's knowledge of a job: which nodes have come, which ranks each of them has, which are still alive, and
// how the job ends. No clock, no network, no threads: time comes in as milliseconds, so every order of events can be
// tested.
//
// A *node* is what one agent (`trireme launch`) is responsible for: some workers on one host. Each report of a node
// contains everything known about it, so that reports may be repeated or lost, and a restarted scheduler learns
// everything again. While the job forms, a node's ranks are provisional (in order of arrival). When all ranks have come
// they become final: by node rank, then by node ids that are numbers, then by host and node id, whatever the order of
// arrival was.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace trireme::launch {

enum class NodeState : uint8_t { kWaiting, kRunning, kFailed, kEnded };

// How the workers of a node, or the job, ended. Exit code 0: well.
struct Ending {
  int exit_code = 0;
  int rank = -1;                    // the first that failed; -1: none in particular
  int interrupt = 0;                // the signal that made it end, or 0
  bool may_be_consequence = false;  // of another rank's end
  std::string text;
};

struct NodeReport {
  std::string node_id;    // its name in the job
  uint64_t instance = 0;  // drawn when the agent starts: tells a node that comes back from another one of its name
  int node_rank = -1;     // the user's order of the nodes; -1: none
  int nodes = 0;          // of the job; 0: not known
  int world = 0;          // ranks of the job
  int min_world = 0;      // ranks it can go on with; 0: all
  int workers = 0;        // of them on this node
  int attempt = 0;        // how often the job was started before, as far as the node knows
  int running_world = 0;  // ranks of the running job, from the final view
  std::string host;
  uint64_t machine = 0;       // tells hosts of one name apart
  std::string store_address;  // of the store that this node serves in case it has rank 0
  uint16_t store_port = 0;
  uint64_t job = 0;  // from the final view; 0 and -1 before it
  int first_rank = -1;
  NodeState state = NodeState::kWaiting;
  int interrupt = 0;  // a signal that the node was asked to end by, for all nodes to pass on; or 0
  Ending ending;      // when failed or ended
  uint64_t seen = 0;  // version of the newest view it has
  uint64_t name = 0;  // the job's, from any view; 0: not known
};

enum class Phase : uint8_t { kForming, kRunning, kOver };

// A job may be started again after a failure: the nodes then register again, with the number of the start they come
// for. Who reports an earlier one is told that it is over. With fewer ranks than asked for, but enough, it starts when
// those come that were not lost, or when no more come.

// What a node is told.
struct ClusterView {
  uint64_t version = 0;
  Phase phase = Phase::kForming;
  std::string refused;  // why the node has no place in this job; empty: it has one
  int attempt = 0;      // how often the job was started before
  int restarts = 0;     // how often it may be
  bool again = false;   // it is over, and starts again: a node that comes with `attempt` has a place in that
  int world = 0;        // its ranks, when they are final
  uint64_t job = 0;     // hash of which node has which ranks, when they are final
  int registered = 0;   // ranks
  int first_rank = -1;  // of this node's workers, which have consecutive ones; provisional while the job forms
  int node_index = 0;  // among the nodes; agents with the same node rank, or without one on the same host, are one node
  int nodes = 0;
  int first_local = 0;        // local rank of this agent's first worker
  int local_world = 0;        // ranks of its node
  std::string store_address;  // where all ranks meet
  uint16_t store_port = 0;
  int interrupt = 0;
  int64_t beat_ms = 0;  // how often the node is to report
  Ending ending;        // when over
  uint64_t name = 0;    // the job's, the same in all its starts; 0: it has none yet
};

struct ClusterOptions {
  int world = 1;
  int min_world = 0;              // ranks that will do when no more come; 0: all of them
  int nodes = 0;                  // 0: as many as come
  int restarts = 0;               // at most, after a failure that is not the caller's (exit code 2)
  int64_t last_call_ms = 10'000;  // for more ranks to come when enough have come
  int64_t window_ms = 300'000;    // for all ranks to come
  int64_t silence_ms = 10'000;    // after which a node counts as lost; 0: never
  // For the cause of a failure to show, after one that may be a consequence: at least so long, and as long again as
  // nodes have ranks that have not ended, of which one may be the cause.
  int64_t settle_ms = 500, most_settle_ms = 5'000;
};

class Cluster {
 public:
  Cluster(const ClusterOptions& options, int64_t now_ms);

  // Takes the report in and answers it.
  ClusterView report(const NodeReport& report, int64_t now_ms);
  // A node's connection ended. It may come back; while the job forms its place is free until then.
  void disconnected(const std::string& node_id, uint64_t instance, int64_t now_ms);
  // Ends what time ends: the window, nodes that are silent, a failure whose cause does not show. Call it now and then.
  void tick(int64_t now_ms);

  // The caller itself did not run for so long, and heard nobody: no node counts as silent for that.
  void stood_still(int64_t ms);
  // Somebody came who does not know the job's secret: it may be a node of the job that was given a different one.
  void note_another_secret() { ++other_secrets_; }
  // Ends the job for a reason of the caller's, unless it is over.
  void end_now(const Ending& ending);

  bool has(const std::string& node_id) const { return nodes_.contains(node_id) || earlier_.contains(node_id); }
  // What a node that has a place would be told now.
  ClusterView view_of(const std::string& node_id) const;
  // Grows when nodes that wait should be told: ranks are final, a signal is to be passed on, the job is over.
  uint64_t version() const { return version_; }
  Phase phase() const { return phase_; }
  const Ending& ending() const { return ending_; }
  int registered() const { return registered_; }
  // True when the job is over and no node is left that does not know and can still be told.
  bool everyone_knows() const;
  // What happened since the last call, as lines for the scheduler's log.
  std::vector<std::string> take_events();

 private:
  struct Node {
    NodeReport last;
    int64_t heard_ms = 0;
    int64_t order = 0;  // of coming
    int first_rank = -1;
    int node_index = 0;
    int first_local = 0;
    int local_world = 0;
    int64_t away_since_ms = -1;  // when its connection ended; -1: it is connected
    bool gone = false;           // lost after the job was over
  };
  using Nodes = std::map<std::string, Node>;

  std::string objection(const NodeReport& report) const;
  std::string objection_to_claim(const NodeReport& report) const;
  ClusterView refuse(const NodeReport& report, std::string why);
  ClusterView view_of_earlier() const;
  void take_report(const NodeReport& report, int64_t now_ms);
  void look_whether_complete(int64_t now_ms);
  bool may_start_again(const Ending& ending) const;
  void begin_again(int attempt, int64_t now_ms);
  void make_room_for(const NodeReport& report);
  void take_in(const NodeReport& report, Node& node);
  void drop(Nodes::iterator node, const std::string& why);
  void assign_final_ranks();
  bool are_of_the_job_they_say(const std::vector<Node*>& order) const;
  std::vector<Node*> in_final_order();
  void note_failure(const NodeReport& report, int64_t now_ms);
  void end(Ending ending);
  bool lost(const Node& node, int64_t now_ms) const;
  bool is_decided(int64_t now_ms) const;
  std::string missing_text() const;
  std::string name_of(const NodeReport& node) const;

  ClusterOptions options_;
  int64_t window_ends_ms_;
  Phase phase_ = Phase::kForming;
  Nodes nodes_;
  std::set<std::string> earlier_;  // ids of the nodes of the start before
  Ending previous_;                // how that ended
  int attempt_ = 0;
  bool again_ = false;  // it ended just now, and the job starts again
  int hoped_for_ = 0;   // ranks of its nodes that were not lost
  int64_t last_came_ms_ = 0;
  int world_now_ = 0;      // when final
  int claimed_world_ = 0;  // ranks of the running job, by nodes that were in it before this scheduler; 0: none
  int64_t next_order_ = 0;
  int registered_ = 0;
  uint64_t job_ = 0;   // when final
  uint64_t name_ = 0;  // `job_` of the first start
  int node_count_ = 0;
  std::string store_address_;
  uint16_t store_port_ = 0;
  int interrupt_ = 0;
  int64_t other_secrets_ = 0;  // connections
  int64_t decide_at_ms_ = -1;  // when candidate_ becomes the ending, or later
  Ending candidate_;
  Ending ending_;
  uint64_t version_ = 1;
  std::vector<std::string> events_;
  std::string last_refusal_;
};

std::string ranks_text(int first, int count);  // "rank 3", "ranks 3 to 5"

}  // namespace trireme::launch
