#include "trireme/launch/cluster/agent.h"

#include <poll.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/flags.h"
#include "trireme/base/hash.h"
#include "trireme/base/log.h"
#include "trireme/comm/stores/tcp_store.h"
#include "trireme/launch/cluster/address.h"
#include "trireme/launch/cluster/link.h"
#include "trireme/launch/cluster/scheduler.h"
#include "trireme/launch/start/host_address.h"
#include "trireme/launch/start/secret.h"
#include "trireme/launch/supervise/descriptors.h"
#include "trireme/launch/supervise/log_echo.h"
#include "trireme/launch/supervise/log_folder.h"
#include "trireme/launch/supervise/outcome.h"
#include "trireme/launch/supervise/signals.h"
#include "trireme/launch/supervise/team.h"
#include "trireme/launch/supervise/worker_start.h"

namespace trireme::launch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSayWaiting{3'000};       // then what is waited for is said, and again ten times as late
constexpr milliseconds kWaitForVerdict{10'000};  // of a scheduler that does not answer

uint64_t draw() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

void check(const NodeOptions& o) {
  check(o.local);
  require(o.nodes >= 0 && o.nodes <= 65'536, "launch: --nnodes {}; it must be 1 to 65536", o.nodes);
  require(o.nodes == 0 || o.node_rank < o.nodes, "launch: --node-rank {} of --nnodes {}; node ranks go from 0 to {}",
          o.node_rank, o.nodes, o.nodes - 1);
  require(o.nodes == 1 || !o.master.empty(),
          "launch: --master is missing; give HOST:PORT of the node that runs the scheduler, the same on every node");
  require(o.world > 0 || o.nodes > 0,
          "launch: --world is missing; give the job's number of ranks, or its number of nodes by --nnodes");
  require(o.world == 0 || o.world >= o.local.ranks, "launch: -n {} ranks on this node, but the job's --world is {}",
          o.local.ranks, o.world);
  require(o.min_nodes >= 0 && o.min_nodes <= o.nodes,
          "launch: --nnodes {}:{}; the first must be 1 or more and not above the second", o.min_nodes, o.nodes);
  require(o.window.count() >= 1, "launch: --window {}; it must be 1 second or more", o.window.count());
}

comm::Secret secret_of(const NodeOptions& options) {
  const bool given = !options.secret_file.empty() || flag_text("TRIREME_SECRET_FILE") || flag_text("TRIREME_SECRET");
  return options.nodes == 1 && !given ? comm::random_secret() : cluster_secret(options.secret_file);
}

// Says what is being waited for, less and less often.
class Patience {
 public:
  void say(const std::string& what) {
    if (!next_.passed()) return;
    TRIREME_LOG(kWarn, "launch", "{}", what);
    span_ *= 10;
    next_ = Deadline(span_);
  }

 private:
  milliseconds span_ = kSayWaiting;
  Deadline next_{span_};
};

class Agent {
 public:
  explicit Agent(const NodeOptions& options) : options_(options), secret_(secret_of(options)), secret_file_(secret_) {
    if (options.tls.on()) tls_ = read_tls(options.tls);
    const std::string master = options.master.empty() ? "127.0.0.1" : options.master;
    const HostPort at = parse_host_port(master, options.master.empty() ? 0 : kDefaultPort, "launch: --master");
    host_ = at.host;
    address_ = options.nodes == 1 ? resolve(at.host) : address_for_others(at.host, "launch: --master");
    port_ = at.port;
    if (!options.local.log_dir.empty() || options.local.ranks > 1) logs_.emplace(options.local.log_dir);
    serve_scheduler();
  }

  LaunchResult run() {
    for (;;) {
      begin();
      const LaunchResult result = run_once();
      if (!starts_again()) {
        link_.reset();  // what is to be told goes out first
        if (scheduler_) scheduler_->wait();
        if (logs_ && result.exit_code != 0) logs_->keep();
        return result;
      }
      TRIREME_LOG(kWarn, "launch", "the job starts again ({} of {}): {}", view_.attempt, view_.restarts,
                  view_.ending.text.substr(0, view_.ending.text.find('\n')));
      options_.local.restarts = view_.restarts;
    }
  }

 private:
  bool starts_again() const {
    return view_.again && view_.refused.empty() && !interrupted_ && !(team_ && team_->interrupted() != 0);
  }

  // What each start has anew.
  void begin() {
    team_.reset();
    link_.reset();
    const int attempt = view_.attempt;
    const uint64_t name = view_.name;
    view_ = {};
    connected_ = true;
    failures_ = 0;
    report_ = {};
    report_.attempt = attempt;
    report_.name = name;
    const std::string own = options_.address.empty() ? address_towards(address_, port_) : resolve(options_.address);
    store_ = std::make_unique<comm::TcpStoreServer>(comm::TcpStoreServerOptions{.address = own, .secret = secret_});
    fill_report();
    link_ = std::make_unique<SchedulerLink>(LinkOptions{.host = host_,
                                                        .address = address_,
                                                        .port = port_,
                                                        .secret = secret_,
                                                        .tls = tls_,
                                                        .silence = silence_of_link()},
                                            report_);
    team_.emplace(options_.local.grace, options_.silence);
  }

  LaunchResult run_once() {
    if (const int signal = join()) {
      const std::string text = fmt::format("interrupted by SIG{} before the ranks were started", sigabbrev_np(signal));
      if (scheduler_) scheduler_->end({.exit_code = 128 + signal, .interrupt = signal, .text = text});
      interrupted_ = true;
      return {.exit_code = 128 + signal, .report = text + "\n"};
    }
    if (view_.phase == Phase::kOver) return result_of({});
    const LaunchResult local = result_of_ranks();
    report_.state = NodeState::kEnded;
    report_.ending = ending_of(local);
    if (report_.interrupt == 0)
      report_.interrupt = report_.ending.interrupt;  // sent to a rank here: the others learn of it
    link_->tell(report_);
    wait_for_verdict();
    return result_of(local);
  }

  // A node that cannot start its ranks says why, as one whose ranks fail: the others wait for them.
  LaunchResult result_of_ranks() {
    try {
      start();
      work();
      return outcome_of(team_->workers(), team_->interrupted(), options_.local.tail_lines);
    } catch (const Error& e) {
      team_.emplace(options_.local.grace, options_.silence);  // which ends those that have been started
      const std::string text = fmt::format("node {} ({}): {}", view_.node_index, report_.host, e.text());
      return {.exit_code = exit_code(e.kind()), .cause = text, .report = text + "\n"};
    }
  }

  // As long as the scheduler waits for this node.
  milliseconds silence_of_link() const {
    return options_.silence.count() == 0 ? milliseconds(10'000) : std::max(options_.silence, milliseconds(1'000));
  }
  std::string scheduler_name() const { return "the scheduler at " + host_port_text(host_, port_); }

  void serve_scheduler() {
    const bool own = is_own_address(address_);
    if (options_.nodes == 0 || options_.node_rank > 0 || (options_.node_rank < 0 && !own)) return;
    require(own,
            "launch: node rank 0 runs the scheduler, but --master '{}' ({}) is not an address of this host; give one "
            "of its "
            "addresses to all nodes, or this node another --node-rank",
            host_, address_);
    SchedulerOptions options{.cluster = {.world = report_world(),
                                         .min_world = report_min_world(),
                                         .nodes = options_.min_nodes == 0 ? options_.nodes : 0,
                                         .restarts = options_.local.restarts,
                                         .last_call_ms = options_.last_call.count(),
                                         .window_ms = milliseconds(options_.window).count(),
                                         .silence_ms = options_.silence.count()},
                             .secret = secret_,
                             .address = address_,
                             .port = port_,
                             .tls = tls_};
    if (!options_.local.log_dir.empty()) options.log_path = logs_->path() + "/scheduler.log";
    try {
      scheduler_ = std::make_unique<Scheduler>(options);
      port_ = scheduler_->port();
    } catch (const Error&) {
      // Without node ranks the first agent of this host serves it, and the others find it there.
      const bool taken = port_ != 0 && !trouble_listening(address_, port_).empty();
      if (options_.node_rank >= 0 || options_.nodes == 1 || !taken) throw;
    }
  }

  int report_world() const { return options_.world > 0 ? options_.world : options_.nodes * options_.local.ranks; }

  int report_min_world() const {
    return options_.min_world > 0 ? options_.min_world : options_.min_nodes * options_.local.ranks;  // 0: all
  }

  void fill_report() {
    report_.instance = draw();
    report_.node_rank = options_.node_rank;
    report_.nodes = options_.min_nodes == 0 ? options_.nodes : 0;
    report_.world = report_world();
    report_.min_world = report_min_world();
    report_.workers = options_.local.ranks;
    report_.host = own_host_name();
    std::string boot;  // of /proc, whose files have no size
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
    report_.machine = hash64(boot);
    report_.node_id = !options_.node_id.empty() ? options_.node_id
                      : options_.node_rank >= 0 && options_.nodes > 0
                          ? fmt::format("node{}", options_.node_rank)
                          : fmt::format("{}-{:08x}", report_.host, report_.instance & 0xffffffff);
    report_.store_address = store_->address();
    report_.store_port = store_->port();
  }

  // The signal that came instead of the job, or 0 when the ranks are final or the job is over.
  int join() {
    const Deadline patience(options_.window + milliseconds(5'000));
    Patience waiting;
    for (;;) {
      pollfd polled[] = {{link_->fd(), POLLIN, 0}, {signals_.fd(), POLLIN, 0}};
      poll(polled, 2, 100);
      if (const int signal = signals_.next_to_end()) return signal;
      const SchedulerLink::News news = link_->news();
      if (news.hopeless) {
        fail(ErrorKind::kInvalidArgument, "launch: cannot join {}: {}", scheduler_name(), news.trouble);
      }
      if (news.view) {
        view_ = *news.view;
        require(view_.refused.empty() || view_.phase == Phase::kOver, "launch: {} has no place for this node: {}",
                scheduler_name(), view_.refused);
        if (view_.phase != Phase::kForming) return 0;
      }
      if (news.connected && news.view) {
        waiting.say(fmt::format("waiting for all nodes: {} of {} ranks have come", view_.registered, report_.world));
      } else if (patience.passed()) {
        fail(ErrorKind::kTimeout,
             "launch: cannot reach {} within {} s ({}); is node 0, or 'trireme scheduler', running?", scheduler_name(),
             options_.window.count(), news.trouble);
      } else if (!news.trouble.empty()) {
        waiting.say(fmt::format("waiting for {}, which does not answer yet ({})", scheduler_name(), news.trouble));
      }
    }
  }

  void start() {
    report_.job = view_.job;
    report_.name = view_.name;
    report_.first_rank = view_.first_rank;
    report_.running_world = view_.world;
    report_.state = NodeState::kRunning;
    link_->tell(report_);
    if (view_.first_rank != 0) store_.reset();
    TRIREME_LOG(kInfo, "launch", "node {} of {}: starting ranks {} to {} of {}  store={}:{}", view_.node_index,
                view_.nodes, view_.first_rank, view_.first_rank + options_.local.ranks - 1, view_.world,
                view_.store_address, view_.store_port);
    for (int i = 0; i < options_.local.ranks; ++i) {
      const int rank = view_.first_rank + i;
      WorkerStart start = worker_start(options_.local, {.rank = rank,
                                                        .world = view_.world,
                                                        .local_rank = view_.first_local + i,
                                                        .local_world = view_.local_world,
                                                        .node = view_.node_index,
                                                        .attempt = report_.attempt,
                                                        .job = fmt::format("{:016x}", view_.name),
                                                        .store_address = view_.store_address,
                                                        .store_port = view_.store_port,
                                                        .secret_file = secret_file_.path()});
      const bool on_terminal = rank == 0 && (options_.terminal || options_.local.log_dir.empty());
      if (logs_ && !on_terminal) start.log_path = logs_->file(rank, report_.attempt);
      team_->start(start);
    }
  }

  void work() {
    LogEcho echo(options_.local, team_->workers());
    team_->run(signals_, {.wake = link_->fd(), .on_turn = [&] {
                            echo.turn();
                            hear();
                            say();
                          }});
  }

  // What the scheduler has to say while the workers run.
  void hear() {
    const SchedulerLink::News news = link_->news();
    if (news.view) view_ = *news.view;
    if (view_.interrupt != 0 && team_->interrupted() == 0) team_->interrupt(view_.interrupt);
    if (view_.refused.empty() && view_.phase == Phase::kOver && view_.ending.exit_code != 0) {
      view_.ending.interrupt != 0 ? team_->end() : team_->end_because(view_.ending.text);
    }
    if (!std::exchange(refused_, !view_.refused.empty()) && refused_) {
      TRIREME_LOG(kWarn, "launch", "{} no longer knows this job ({}); the job goes on", scheduler_name(),
                  view_.refused);
    }
    look_whether_cut_off(news);
    if (news.connected != connected_) {
      connected_ = news.connected;
      if (connected_) {
        TRIREME_LOG(kWarn, "launch", "{} is back", scheduler_name());
      } else {
        TRIREME_LOG(kWarn, "launch", "{} has gone ({}); the job goes on, and it is tried again", scheduler_name(),
                    news.trouble);
      }
    }
  }

  // A scheduler that died leaves its host's answer that nobody listens there, and the ranks go on. Without any answer,
  // and with ranks that wait for others as long, it is this node that is cut off from them; they count it as lost.
  void look_whether_cut_off(const SchedulerLink::News& news) {
    if (options_.silence.count() == 0 || news.connected || news.host_answers) return;
    const double silence_s = std::chrono::duration<double>(options_.silence).count();
    const double now = now_s();
    for (const Worker& worker : team_->workers()) {
      const double since_s = worker.page->page().waiting_since.load();
      if (worker.running && (since_s == 0 || now - since_s < silence_s)) return;
    }
    cut_off_ = true;
    team_->end_because(
        fmt::format("node {} ({}) is cut off: {} has not answered for {} s, and all ranks here have waited for "
                    "others as long",
                    view_.node_index, report_.host, scheduler_name(), silence_s));
  }

  // What the scheduler is to know of it.
  void say() {
    bool changed = false;
    if (report_.interrupt == 0 && team_->interrupted() != 0) {
      report_.interrupt = team_->interrupted();
      changed = true;
    }
    const auto failures = std::ranges::count_if(team_->workers(), failed);
    if (failures != failures_) {
      failures_ = failures;
      const LaunchResult so_far = outcome_of(team_->workers(), team_->interrupted(), 0);
      if (so_far.failed_rank >= 0) {
        report_.state = NodeState::kFailed;
        report_.ending = ending_of(so_far);
        changed = true;
      }
    }
    if (changed) link_->tell(report_);
  }

  static Ending ending_of(const LaunchResult& result) {
    const bool interrupted = result.failed_rank < 0 && result.interrupted;
    return {.exit_code = std::clamp(result.exit_code, 0, 255),
            .rank = result.failed_rank,
            .interrupt = interrupted ? result.exit_code - 128 : 0,
            .may_be_consequence = result.may_be_consequence,
            .text = result.cause};
  }

  void wait_for_verdict() {
    std::optional<Deadline> alone;
    Patience waiting;
    for (;;) {
      const SchedulerLink::News news = link_->news();
      if (news.view) view_ = *news.view;
      if (view_.phase == Phase::kOver || !view_.refused.empty()) return;
      if (news.connected) alone.reset();
      if (!news.connected && !alone) alone.emplace(kWaitForVerdict);
      if (cut_off_ || (alone && alone->passed())) {
        TRIREME_LOG(kWarn, "launch", "{} does not answer ({}); how the other nodes ended is not known",
                    scheduler_name(), news.trouble);
        return;
      }
      if (signals_.next_to_end() != 0) return;
      if (!alone) waiting.say("the ranks of this node have ended; waiting for the other nodes");
      pollfd polled[] = {{link_->fd(), POLLIN, 0}, {signals_.fd(), POLLIN, 0}};
      poll(polled, 2, 100);
    }
  }

  // The job's ending as this node's terminal shows it.
  LaunchResult result_of(LaunchResult local) const {
    const Ending& job = view_.ending;
    if (refused_) return local;  // by a scheduler of something else
    if (view_.phase != Phase::kOver || job.exit_code == 0 || job.interrupt != 0) {
      return local.exit_code != 0 || job.exit_code == 0
                 ? local
                 : LaunchResult{.exit_code = job.exit_code, .report = job.text + "\n"};
    }
    if (local.failed_rank >= 0 && local.failed_rank == job.rank && local.cause == job.text) return local;
    LaunchResult result{.exit_code = job.exit_code, .failed_rank = std::max(job.rank, 0), .report = job.text + "\n"};
    if (local.failed_rank >= 0) {
      result.report += fmt::format("  then on this node {}\n", local.cause.substr(0, local.cause.find('\n')));
    } else if (!team_->workers().empty()) {
      result.report += fmt::format("  the launcher ended the {} rank{} of this node\n", options_.local.ranks,
                                   options_.local.ranks == 1 ? "" : "s");
    }
    return result;
  }

  NodeOptions options_;
  Signals signals_;  // before any thread
  comm::Secret secret_;
  SecretFile secret_file_;
  std::optional<TlsTexts> tls_;
  std::string host_;
  std::string address_;
  uint16_t port_ = 0;
  std::optional<LogFolder> logs_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<comm::TcpStoreServer> store_;
  NodeReport report_;
  std::unique_ptr<SchedulerLink> link_;
  ClusterView view_;
  bool connected_ = true;
  bool refused_ = false;  // while it works
  bool cut_off_ = false;  // from the scheduler and the other nodes
  int64_t failures_ = 0;
  bool interrupted_ = false;  // before the ranks were started
  std::optional<Team> team_;  // ends before what its workers need
};

}  // namespace

comm::Secret cluster_secret(const std::string& secret_file) {
  if (!secret_file.empty()) return read_secret(secret_file, "--secret-file");
  if (const auto file = flag_text("TRIREME_SECRET_FILE")) return read_secret(*file, "TRIREME_SECRET_FILE");
  const auto text = flag_text("TRIREME_SECRET");
  require(text.has_value(),
          "a job on several nodes needs a secret that all of them share; make one with 'trireme launch --make-secret "
          "job.secret', "
          "copy the file to every node, and give --secret-file job.secret");
  return comm::secret_from_hex(*text);
}

LaunchResult launch_node(const NodeOptions& options) {
  check(options);
  make_room_for_descriptors(options.local.ranks);
  return Agent(options).run();
}

}  // namespace trireme::launch
