#include "trireme/launch/cluster/cluster.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <ranges>
#include <tuple>
#include <utility>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/hash.h"

namespace trireme::launch {
namespace {

constexpr int64_t kComeBack = 3'000;  // ms for a node of a running job to connect again
constexpr int kExitOfPeers = 3;       // ErrorKind::kComm's
constexpr int kExitOfCaller = 2;      // ErrorKind::kInvalidArgument's
constexpr const char* kNotOfThisJob =
    "the job has been running since before this scheduler was started, and it is none of its nodes";

std::string seconds_text(int64_t ms) {
  return duration_text(static_cast<double>(ms) / 1e3);
}

// Three reports may be lost before a node counts as lost.
int64_t beat_ms(int64_t silence_ms) {
  return silence_ms == 0 ? 2'500 : std::clamp<int64_t>(silence_ms / 4, 50, 2'500);
}

// A node id that is a whole number, as its place among others; any other comes after all of them.
int64_t number_of(const std::string& id) {
  int64_t value = 0;
  const auto [stop, status] = std::from_chars(id.data(), id.data() + id.size(), value);
  const bool whole = status == std::errc() && stop == id.data() + id.size();
  return whole ? value : std::numeric_limits<int64_t>::max();
}

auto final_place(const NodeReport& node) {
  const int rank = node.node_rank >= 0 ? node.node_rank : std::numeric_limits<int>::max();
  return std::tuple(rank, number_of(node.node_id), std::string_view(node.host), node.machine,
                    std::string_view(node.node_id));
}

// Agents of one name are one node: the same local ranks.
std::string group_of(const NodeReport& node) {
  return node.node_rank >= 0 ? fmt::format("rank {}", node.node_rank)
                             : fmt::format("host {} {}", node.host, node.machine);
}

// Tells the members of a job and their order.
uint64_t job_of(const auto& nodes) {
  std::string text;
  for (const NodeReport& node : nodes) text += fmt::format("{} {} {}\n", node.node_id, node.instance, node.workers);
  return hash64(text);
}

}  // namespace

Cluster::Cluster(const ClusterOptions& options, int64_t now_ms)
    : options_(options), window_ends_ms_(now_ms + options.window_ms) {
  require(options.world >= 1 && options.world <= 65'536, "scheduler: a job of {} ranks; it must have 1 to 65536",
          options.world);
  require(options.nodes >= 0 && options.nodes <= options.world,
          "scheduler: {} nodes for {} ranks; each node has at least one", options.nodes, options.world);
  require(options.min_world >= 0 && options.min_world <= options.world,
          "scheduler: {} to {} ranks; the first must be 1 or more and not above the second", options.min_world,
          options.world);
  if (options_.min_world == 0) options_.min_world = options_.world;
}

std::string Cluster::name_of(const NodeReport& node) const {
  if (node.node_rank >= 0) return fmt::format("node {} ('{}' on {})", node.node_rank, node.node_id, node.host);
  return fmt::format("node '{}' on {}", node.node_id, node.host);
}

// Of the nodes that are not in the running job, the last to come go first.
void Cluster::make_room_for(const NodeReport& report) {
  while (registered_ + report.workers > options_.world) {
    auto last = nodes_.end();
    for (auto at = nodes_.begin(); at != nodes_.end(); ++at) {
      if (at->second.last.first_rank >= 0) continue;
      if (last == nodes_.end() || at->second.order > last->second.order) last = at;
    }
    invariant(last != nodes_.end(), "no node can make room for '{}'", report.node_id);
    drop(last, "makes room for a node that has been in the job");
  }
}

void Cluster::drop(Nodes::iterator node, const std::string& why) {
  events_.push_back(fmt::format("{} leaves: {}", name_of(node->second.last), why));
  registered_ -= node->second.last.workers;
  nodes_.erase(node);
  ++version_;
}

ClusterView Cluster::refuse(const NodeReport& report, std::string why) {
  std::string event = fmt::format("{} is refused: {}", name_of(report), why);
  if (std::exchange(last_refusal_, event) != event)
    events_.push_back(std::move(event));  // it reports once more to leave
  ClusterView view{
      .version = version_, .phase = phase_, .refused = std::move(why), .attempt = attempt_, .registered = registered_};
  if (phase_ == Phase::kOver) view.ending = ending_;
  return view;
}

ClusterView Cluster::view_of_earlier() const {
  return {.version = version_,
          .phase = Phase::kOver,
          .attempt = attempt_,
          .restarts = options_.restarts,
          .again = phase_ != Phase::kOver,
          .ending = phase_ == Phase::kOver ? ending_ : previous_,
          .name = name_};
}

ClusterView Cluster::report(const NodeReport& report, int64_t now_ms) {
  if (report.attempt > attempt_ && phase_ == Phase::kForming) {  // an earlier scheduler started the job again
    nodes_.clear();
    previous_ = {.exit_code = kExitOfPeers, .text = "the job was started again under an earlier scheduler"};
    begin_again(report.attempt, now_ms);
  }
  if (report.attempt < attempt_) return view_of_earlier();
  if (report.attempt > attempt_) return refuse(report, "it is of a later start of the job");
  if (std::string wrong = objection(report); !wrong.empty()) return refuse(report, std::move(wrong));
  take_report(report, now_ms);
  if (again_) begin_again(attempt_ + 1, now_ms);
  return has(report.node_id) ? view_of(report.node_id) : refuse(report, kNotOfThisJob);
}

void Cluster::take_report(const NodeReport& report, int64_t now_ms) {
  if (!nodes_.contains(report.node_id)) {
    make_room_for(report);
    last_came_ms_ = now_ms;
    Node node;
    node.order = next_order_++;
    node.first_rank = report.first_rank >= 0 ? report.first_rank : registered_;
    registered_ += report.workers;
    events_.push_back(fmt::format("{} comes with {} worker{}: {} for now; {} of {} ranks have come", name_of(report),
                                  report.workers, report.workers == 1 ? "" : "s",
                                  ranks_text(node.first_rank, report.workers), registered_, options_.world));
    nodes_.emplace(report.node_id, std::move(node));
  }
  Node& node = nodes_.at(report.node_id);
  node.heard_ms = now_ms;
  node.away_since_ms = -1;
  take_in(report, node);
  look_whether_complete(now_ms);
  if (phase_ == Phase::kRunning && report.ending.exit_code != 0 && report.ending.interrupt == 0)
    note_failure(report, now_ms);
  const bool all_ended =
      std::ranges::all_of(nodes_, [](const auto& entry) { return entry.second.last.state == NodeState::kEnded; });
  if (phase_ == Phase::kRunning && all_ended && decide_at_ms_ < 0) {
    Ending all{.interrupt = interrupt_};
    if (interrupt_ != 0) {
      all.exit_code = 128 + interrupt_;
      all.text = fmt::format("interrupted by signal {}; all ranks ended cleanly", interrupt_);
    }
    end(std::move(all));
  }
}

// Complete are all ranks that can be; or, in a job that can go on with fewer, those that are left of the start before,
// or that have come when no more did for a while.
void Cluster::look_whether_complete(int64_t now_ms) {
  if (phase_ != Phase::kForming) return;
  const int all = claimed_world_ > 0 ? claimed_world_ : options_.world;
  const bool enough = claimed_world_ == 0 && registered_ >= options_.min_world;
  const bool last_call = now_ms - last_came_ms_ >= options_.last_call_ms || now_ms >= window_ends_ms_;
  if (registered_ == all || (enough && ((hoped_for_ > 0 && registered_ >= hoped_for_) || last_call)))
    assign_final_ranks();
}

bool Cluster::may_start_again(const Ending& ending) const {
  return phase_ == Phase::kRunning && attempt_ < options_.restarts && ending.exit_code != 0 &&
         ending.exit_code != kExitOfCaller && ending.interrupt == 0 && interrupt_ == 0;
}

void Cluster::begin_again(int attempt, int64_t now_ms) {
  again_ = false;
  hoped_for_ = 0;
  earlier_.clear();
  for (const auto& [id, node] : nodes_) {
    hoped_for_ += node.gone || node.away_since_ms >= 0 ? 0 : node.last.workers;
    earlier_.insert(id);
  }
  nodes_.clear();
  registered_ = 0;
  claimed_world_ = 0;
  job_ = 0;
  decide_at_ms_ = -1;
  attempt_ = attempt;
  window_ends_ms_ = now_ms + options_.window_ms;
  last_came_ms_ = now_ms;
  phase_ = Phase::kForming;
  ++version_;
}

void Cluster::take_in(const NodeReport& report, Node& node) {
  node.last = report;
  if (report.running_world > 0) claimed_world_ = report.running_world;
  if (report.name != 0) name_ = report.name;  // given under an earlier scheduler, or by this one
  if (report.interrupt != 0 && interrupt_ == 0) {
    interrupt_ = report.interrupt;
    events_.push_back(
        fmt::format("{} was interrupted by signal {}; it is passed to all nodes", name_of(report), interrupt_));
    ++version_;
  }
}

std::vector<Cluster::Node*> Cluster::in_final_order() {
  std::vector<Node*> order;
  for (auto& [id, node] : nodes_) order.push_back(&node);
  const bool claimed = std::ranges::any_of(order, [](const Node* n) { return n->last.first_rank >= 0; });
  std::ranges::sort(order, [](const Node* a, const Node* b) { return final_place(a->last) < final_place(b->last); });
  if (!claimed) return order;
  // Nodes of a job that ran under an earlier scheduler keep their ranks; what it had not told takes what is left, which
  // in the job's own order is what it would have been given.
  std::vector<Node*> placed;
  std::vector<Node*> rest;
  for (Node* node : order) (node->last.first_rank >= 0 ? placed : rest).push_back(node);
  std::ranges::sort(placed, {}, [](const Node* n) { return n->last.first_rank; });
  std::vector<Node*> merged;
  int next = 0;
  for (auto at = placed.begin(); merged.size() < order.size();) {
    const bool here = at != placed.end() && (*at)->last.first_rank <= next;
    if (!here && rest.empty()) break;
    Node* node = here ? *at++ : rest.front();
    if (!here) rest.erase(rest.begin());
    merged.push_back(node);
    next += node->last.workers;
  }
  return merged;
}

// Holds for nodes that are all new. Else the hash tells whether they are, all of them, those of the job that some say
// they are in.
bool Cluster::are_of_the_job_they_say(const std::vector<Node*>& order) const {
  int next = 0;
  for (const Node* node : order) {
    if (node->last.first_rank >= 0 && node->last.first_rank != next) return false;
    next += node->last.workers;
  }
  if (order.size() != nodes_.size()) return false;
  const uint64_t job =
      job_of(order | std::views::transform([](const Node* n) -> const NodeReport& { return n->last; }));
  return std::ranges::all_of(order, [&](const Node* n) { return n->last.first_rank < 0 || n->last.job == job; });
}

void Cluster::assign_final_ranks() {
  const std::vector<Node*> order = in_final_order();
  if (!are_of_the_job_they_say(order)) {
    // Of the nodes that are not in the running job, none is what the others wait for.
    std::erase_if(nodes_, [&](const auto& entry) {
      const NodeReport& node = entry.second.last;
      if (node.first_rank < 0) registered_ -= node.workers;
      return node.first_rank < 0;
    });
    if (registered_ == (claimed_world_ > 0 ? claimed_world_ : options_.world)) {
      end({.exit_code = kExitOfPeers,
           .text = "the nodes that came back to the restarted scheduler contradict each other"});
    }
    return;
  }
  job_ = job_of(order | std::views::transform([](const Node* n) -> const NodeReport& { return n->last; }));
  if (name_ == 0) name_ = job_;
  std::map<std::string, std::pair<int, int>> groups;  // index, ranks
  int next = 0;
  for (Node* node : order) {
    auto& [index, size] = groups.try_emplace(group_of(node->last), static_cast<int>(groups.size()), 0).first->second;
    events_.push_back(fmt::format("{}: {} for now -> {}", name_of(node->last),
                                  ranks_text(node->first_rank, node->last.workers),
                                  ranks_text(next, node->last.workers)));
    node->first_rank = next;
    node->node_index = index;
    node->first_local = size;
    size += node->last.workers;
    next += node->last.workers;
  }
  for (Node* node : order) node->local_world = groups.at(group_of(node->last)).second;
  node_count_ = static_cast<int>(groups.size());
  store_address_ = order.front()->last.store_address;
  store_port_ = order.front()->last.store_port;
  world_now_ = next;
  phase_ = Phase::kRunning;
  ++version_;
  events_.push_back(fmt::format("the cluster is complete: {} ranks on {} node{}, which meet at {}:{}", world_now_,
                                node_count_, node_count_ == 1 ? "" : "s", store_address_, store_port_));
}

void Cluster::note_failure(const NodeReport& report, int64_t now_ms) {
  if (!report.ending.may_be_consequence) {
    end(report.ending);
  } else if (decide_at_ms_ < 0) {
    candidate_ = report.ending;
    decide_at_ms_ = now_ms + options_.settle_ms;
  }
}

void Cluster::end(Ending ending) {
  if (again_) return;
  if (may_start_again(ending)) {
    again_ = true;
    previous_ = std::move(ending);
    events_.push_back(
        fmt::format("the job starts again ({} of {}): {}", attempt_ + 1, options_.restarts, previous_.text));
    return;
  }
  ending_ = std::move(ending);
  phase_ = Phase::kOver;
  ++version_;
  events_.push_back(ending_.exit_code == 0
                        ? "the job is over: all ranks ended well"
                        : fmt::format("the job is over, exit code {}: {}", ending_.exit_code, ending_.text));
}

void Cluster::end_now(const Ending& ending) {
  if (phase_ != Phase::kOver) end(ending);
}

void Cluster::disconnected(const std::string& node_id, uint64_t instance, int64_t now_ms) {
  const auto found = nodes_.find(node_id);
  if (found == nodes_.end() || found->second.last.instance != instance) return;
  if (phase_ == Phase::kForming) {
    drop(found, "its connection ended");
  } else {
    found->second.away_since_ms = now_ms;
  }
}

bool Cluster::lost(const Node& node, int64_t now_ms) const {
  if (options_.silence_ms == 0 || node.gone) return false;
  return now_ms - node.heard_ms > options_.silence_ms ||
         (node.away_since_ms >= 0 && now_ms - node.away_since_ms > std::min(options_.silence_ms, kComeBack));
}

// Whether nobody will say why it failed.
bool Cluster::is_decided(int64_t now_ms) const {
  if (decide_at_ms_ < 0 || now_ms < decide_at_ms_) return false;
  const auto may_say = [](const auto& entry) {
    const Node& node = entry.second;
    return !node.gone && node.away_since_ms < 0 && node.last.state != NodeState::kEnded;
  };
  return std::ranges::none_of(nodes_, may_say) ||
         now_ms >= decide_at_ms_ + options_.most_settle_ms - options_.settle_ms;
}

void Cluster::stood_still(int64_t ms) {
  for (auto& [id, node] : nodes_) {
    node.heard_ms += ms;
    if (node.away_since_ms >= 0) node.away_since_ms += ms;
  }
}

void Cluster::tick(int64_t now_ms) {
  for (auto at = nodes_.begin(); at != nodes_.end();) {
    const auto next = std::next(at);
    Node& node = at->second;
    if (lost(node, now_ms)) {
      const std::string silent = fmt::format("has not been heard of for {}", seconds_text(now_ms - node.heard_ms));
      if (phase_ == Phase::kForming) {
        drop(at, "it " + silent);
      } else {
        node.gone = true;
        const std::string ranks = ranks_text(node.first_rank, node.last.workers);
        events_.push_back(fmt::format("{} {}", name_of(node.last), silent));
        if (phase_ == Phase::kRunning && node.last.state != NodeState::kEnded) {
          end({.exit_code = kExitOfPeers,
               .rank = node.first_rank,
               .text = fmt::format("{}, {}, {}", name_of(node.last), ranks, silent)});
        }
      }
    }
    at = next;
  }
  look_whether_complete(now_ms);
  if (phase_ == Phase::kForming && now_ms >= window_ends_ms_) {
    end({.exit_code = kExitOfPeers, .text = missing_text()});
  }
  if (phase_ == Phase::kRunning && is_decided(now_ms)) end(candidate_);
  if (again_) begin_again(attempt_ + 1, now_ms);
}

// "waiting for 2 of 8 ranks when the window of 30 s closed: node 0 has 4 of 4, node 1 has 2 of 4".
std::string Cluster::missing_text() const {
  const int of_each = options_.min_world == options_.world && options_.nodes > 0 && options_.world % options_.nodes == 0
                          ? options_.world / options_.nodes
                          : 0;
  const std::string expected = of_each > 0 ? fmt::format(" of {}", of_each) : "";
  std::map<std::tuple<int, std::string>, int> groups;  // by node rank, then host
  for (const auto& [id, node] : nodes_) {
    groups[{node.last.node_rank, node.last.node_rank >= 0 ? "" : node.last.host}] += node.last.workers;
  }
  std::string text = fmt::format(
      "waiting for {} of {}{} ranks when the window of {} closed", options_.min_world - registered_,
      options_.min_world < options_.world ? "at least " : "", options_.min_world, seconds_text(options_.window_ms));
  std::string separator = ": ";
  const auto add = [&](const std::string& what) { text += std::exchange(separator, ", ") + what; };
  size_t shown = 0;
  for (const auto& [key, count] : groups) {
    const auto& [rank, host] = key;
    if (++shown > 16) continue;
    add(rank >= 0 ? fmt::format("node {} has {}{}", rank, count, expected)
                  : fmt::format("{} has {}{}", host, count, expected));
  }
  if (shown > 16) add(fmt::format("and {} more nodes", shown - 16));
  size_t named = 0;
  const bool by_rank = std::ranges::all_of(groups, [](const auto& entry) { return std::get<0>(entry.first) >= 0; });
  for (int rank = 0; by_rank && !groups.empty() && rank < options_.nodes && named < 8; ++rank) {
    if (groups.contains({rank, ""})) continue;
    add(fmt::format("node {} did not come", rank));
    ++named;
  }
  if (groups.empty()) add("nobody came");
  if (other_secrets_ > 0) {
    text += fmt::format(
        "; {} connection{} refused because the job's secret was not proven: has every node the same --secret-file?",
        other_secrets_, other_secrets_ == 1 ? " was" : "s were");
  }
  return text;
}

ClusterView Cluster::view_of(const std::string& node_id) const {
  if (!nodes_.contains(node_id)) return view_of_earlier();
  ClusterView view{.version = version_,
                   .phase = phase_,
                   .attempt = attempt_,
                   .restarts = options_.restarts,
                   .world = phase_ == Phase::kForming ? 0 : world_now_,
                   .job = job_,
                   .registered = registered_,
                   .nodes = node_count_,
                   .store_address = store_address_,
                   .store_port = store_port_,
                   .interrupt = interrupt_,
                   .beat_ms = beat_ms(options_.silence_ms),
                   .name = name_};
  if (phase_ == Phase::kOver) view.ending = ending_;
  const Node& node = nodes_.at(node_id);
  view.first_rank = node.first_rank;
  view.node_index = node.node_index;
  view.first_local = node.first_local;
  view.local_world = node.local_world;
  return view;
}

bool Cluster::everyone_knows() const {
  return phase_ == Phase::kOver && std::ranges::all_of(nodes_, [&](const auto& entry) {
           const Node& node = entry.second;
           const bool has_ended = node.last.state == NodeState::kEnded;
           if (node.away_since_ms >= 0) return node.gone || has_ended;
           return has_ended && node.last.seen >= version_;  // one that is silent may wake up and read what it was sent
         });
}

std::vector<std::string> Cluster::take_events() {
  return std::exchange(events_, {});
}

}  // namespace trireme::launch
