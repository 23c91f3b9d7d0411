// Why a node cannot have a place in the job.
#include <fmt/core.h>

#include "trireme/launch/cluster/cluster.h"

namespace trireme::launch {
std::string ranks_text(int first, int count) {
  return count == 1 ? fmt::format("rank {}", first) : fmt::format("ranks {} to {}", first, first + count - 1);
}

std::string Cluster::objection_to_claim(const NodeReport& report) const {
  if (report.first_rank < 0) return "";
  if (report.first_rank + report.workers > options_.world) {
    return fmt::format("it says it has {} of {}", ranks_text(report.first_rank, report.workers), options_.world);
  }
  for (const auto& [id, node] : nodes_) {
    if (node.last.first_rank < 0 || id == report.node_id) continue;
    if (node.last.job != report.job) {
      return fmt::format("it is a node of another job than node '{}', which came first", id);
    }
    if (node.last.first_rank < report.first_rank + report.workers &&
        report.first_rank < node.last.first_rank + node.last.workers) {
      return fmt::format("it says it has {}, but node '{}' has {}", ranks_text(report.first_rank, report.workers), id,
                         ranks_text(node.last.first_rank, node.last.workers));
    }
  }
  return "";
}

// Why the node cannot have a place; empty when it can.
std::string Cluster::objection(const NodeReport& report) const {
  if (report.world != options_.world) {
    return fmt::format("it was started for a job of {} ranks, but this scheduler's job has {}; give both the same",
                       report.world, options_.world);
  }
  if ((report.min_world == 0 ? report.world : report.min_world) != options_.min_world) {
    return fmt::format(
        "it was started for a job of at least {} ranks, but this scheduler's job has at least {}; give both "
        "the same",
        report.min_world == 0 ? report.world : report.min_world, options_.min_world);
  }
  if (report.nodes != 0 && options_.nodes != 0 && report.nodes != options_.nodes) {
    return fmt::format("it was started for a job of {} nodes, but this scheduler's job has {}; give both the same",
                       report.nodes, options_.nodes);
  }
  if (report.workers < 1 || report.workers > options_.world) {
    return fmt::format("it has {} workers; it must have 1 to {}", report.workers, options_.world);
  }
  const auto known = nodes_.find(report.node_id);
  if (known != nodes_.end()) {
    if (known->second.last.instance == report.instance) {
      return report.workers == known->second.last.workers
                 ? ""
                 : fmt::format("it came with {} workers and has {} now", known->second.last.workers, report.workers);
    }
    return fmt::format("its id '{}' is taken by a node on {}; give each node a --node-rank (or --node-id) of its own",
                       report.node_id, known->second.last.host);
  }
  if (phase_ == Phase::kOver) return "the job is over";
  if (std::string wrong = objection_to_claim(report); !wrong.empty()) return wrong;
  if (registered_ + report.workers <= options_.world) {
    if (phase_ == Phase::kForming || report.first_rank >= 0) return "";
    return fmt::format("the job is running with {} ranks; a late node gets a place only when the job starts again",
                       world_now_);
  }
  if (report.first_rank >= 0) {  // it was there before this scheduler: others make room
    int room = options_.world - registered_;
    for (const auto& [id, node] : nodes_) room += node.last.first_rank < 0 ? node.last.workers : 0;
    if (phase_ == Phase::kForming && report.workers <= room) return "";
  }
  return fmt::format("{} of the job's {} ranks are taken by {} node{}, so there is no place for {} more", registered_,
                     options_.world, nodes_.size(), nodes_.size() == 1 ? "" : "s", report.workers);
}

}  // namespace trireme::launch
