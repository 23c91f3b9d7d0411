#include "trireme/launch/cluster/scheduler.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <fstream>
#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/launch/cluster/address.h"
#include "trireme/launch/cluster/gate.h"
#include "trireme/launch/cluster/grpc_impl.h"
#include "trireme/launch/cluster/handshake.h"
#include "trireme/launch/cluster/message.h"
#include "trireme/launch/supervise/descriptors.h"

namespace trireme::launch {
namespace {

constexpr size_t kOfEachRank =
    2;  // descriptors, where each is a node: its connection, and that by which it comes again
constexpr std::chrono::milliseconds kTurn{20};                // between looks at what time ends
constexpr std::chrono::milliseconds kIdleConnection{60'000};  // of a connection without a stream, proven or not
constexpr std::chrono::milliseconds kStood{1'000};            // between two turns: the scheduler itself was stopped

enum class Step { kAccept, kRead, kWrite, kFinish };

struct Call;
struct Event {
  Call* call = nullptr;
  Step step = Step::kAccept;
};

// One agent's stream. gRPC names the events to come by their addresses, so a call stays until none is due.
struct Call {
  explicit Call(const comm::Secret& secret) : handshake(secret) {}

  grpc::GenericServerContext context;
  grpc::GenericServerAsyncReaderWriter stream{&context};
  std::array<Event, 4> events{
      {{this, Step::kAccept}, {this, Step::kRead}, {this, Step::kWrite}, {this, Step::kFinish}}};
  grpc::ByteBuffer in;
  int due = 0;  // events
  bool accepted = false;
  bool writing = false;
  bool finishing = false;
  bool finished = false;
  std::optional<grpc::Status> last_words;  // when what is being written has gone
  ServerHandshake handshake;
  std::optional<Deadline> prove_by;    // while it has not, and is in proving_
  std::optional<Seals> seals;          // once it has
  std::string to_send;                 // of the handshake
  std::optional<ClusterView> to_tell;  // only the newest matters
  std::string node_id;
  uint64_t instance = 0;
  std::list<Call>::iterator self;  // in calls_

  Event* event(Step step) {
    ++due;
    return &events[static_cast<size_t>(step)];
  }
};

// What happens to the job, in this process's log and in a file.
class JobLog {
 public:
  explicit JobLog(const std::string& path) {
    if (path.empty()) return;
    file_.open(path, std::ios::app);
    if (!file_) fail(ErrorKind::kIo, "scheduler: cannot write the log '{}'", path);
  }
  void write(const std::string& line) {
    TRIREME_LOG(kInfo, "launch", "scheduler: {}", line);
    if (file_.is_open()) file_ << time_of_day() << ' ' << line << std::endl;
  }

 private:
  std::ofstream file_;
};

std::shared_ptr<grpc::ServerCredentials> credentials_of(const std::optional<TlsTexts>& tls) {
  if (!tls) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = tls->authority;
  options.pem_key_cert_pairs.push_back({tls->key, tls->certificate});
  return grpc::SslServerCredentials(options);
}

}  // namespace

class Scheduler::Loop {
 public:
  explicit Loop(SchedulerOptions options)
      : options_(std::move(options)), log_(options_.log_path), cluster_(options_.cluster, now_ms()) {
    quiet_grpc();
    listen();
    log_.write(fmt::format("waiting at {} for {} rank{}", host_port_text(options_.address, port()),
                           options_.cluster.world, options_.cluster.world == 1 ? "" : "s"));
    accept();
    thread_ = std::thread([this] { run(); });
    gate_->open([this](int socket) {
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
      connection.fd = socket;
      acceptor_->HandleNewConnection(&connection);
    });
  }

  ~Loop() {
    gate_->close();
    {
      const std::lock_guard lock(posting_);
      stopping_ = true;
    }
    server_->Shutdown(std::chrono::system_clock::now());  // the loop takes the last events meanwhile
    queue_->Shutdown();
    thread_.join();
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  uint16_t port() const { return gate_->port(); }
  Counts counts() const {
    const std::lock_guard lock(mutex_);
    Counts counts = counts_;
    counts.unproven = gate_->ended();
    return counts;
  }
  bool is_done() const {
    const std::lock_guard lock(mutex_);
    return done_.has_value();
  }
  Ending wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_.has_value(); });
    return *done_;
  }
  void end(const Ending& ending) {
    const std::lock_guard lock(mutex_);
    asked_to_end_ = ending;
  }

 private:
  static int64_t now_ms() { return static_cast<int64_t>(now_s() * 1e3); }

  void listen() {
    raise_descriptor_limit(2 * options_.max_pending + kOfEachRank * static_cast<size_t>(options_.cluster.world));
    // TLS has as much time as the proof after it.
    gate_ = std::make_unique<Gate>(GateOptions{.address = options_.address,
                                               .port = options_.port,
                                               .prove_by = 2 * options_.handshake_deadline,
                                               .max_unproven = options_.max_pending});
    grpc::ServerBuilder builder;
    builder.RegisterAsyncGenericService(&service_);
    queue_ = builder.AddCompletionQueue();
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials_of(options_.tls));
    // gRPC has one bound for all messages, and reports need this one: before the proof as much may come, but what is
    // longer than kMaxUnproven is dropped unread (take_message).
    builder.SetMaxReceiveMessageSize(static_cast<int>(kMaxMessage));
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 4);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, static_cast<int>(kIdleConnection.count()));
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                               static_cast<int>(options_.handshake_deadline.count()));
    builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 4096);
    server_ = builder.BuildAndStart();
    if (!server_) fail(ErrorKind::kIo, "scheduler: gRPC cannot start a server; TRIREME_LOG=launch=debug says why");
  }

  void accept() {
    Call& call = calls_.emplace_back(options_.secret);
    call.self = std::prev(calls_.end());
    service_.RequestCall(&call.context, &call.stream, queue_.get(), queue_.get(), call.event(Step::kAccept));
  }

  void run() {
    for (;;) {
      void* tag = nullptr;
      bool ok = false;
      const auto until = std::chrono::system_clock::now() + kTurn;
      const auto status = queue_->AsyncNext(&tag, &ok, until);
      if (status == grpc::CompletionQueue::SHUTDOWN) return;
      const std::lock_guard lock(posting_);
      const int64_t now = now_ms();
      if (now - turned_ms_ > kStood.count()) cluster_.stood_still(now - turned_ms_);
      turned_ms_ = now;
      if (status == grpc::CompletionQueue::GOT_EVENT) {
        const Event event = *static_cast<Event*>(tag);
        --event.call->due;
        if (!stopping_) take(*event.call, event.step, ok);
        if (event.call->due == 0) {
          need_no_proof(*event.call);
          calls_.erase(event.call->self);
        }
      }
      if (!stopping_) turn();
    }
  }

  void take(Call& call, Step step, bool ok) {
    switch (step) {
      case Step::kAccept:
        if (!ok) return;  // the server is being ended
        accept();
        call.accepted = true;
        if (options_.tls) {
          const std::string why = why_revoked(*options_.tls, certificate_of(call.context.auth_context()));
          if (!why.empty()) return refuse(call, &Counts::refused, why);
        }
        if (call.context.method() != kMethod) return finish(call, grpc::StatusCode::UNIMPLEMENTED, "no such method");
        call.prove_by.emplace(options_.handshake_deadline);
        proving_.push_back(&call);
        if (proving_.size() > options_.max_pending) expire(*proving_.front());
        call.to_send = call.handshake.challenge();
        read(call);
        return write(call);
      case Step::kRead:
        if (!ok || call.finishing) return leave(call);
        return take_message(call, text_of(call.in));
      case Step::kWrite:
        call.writing = false;
        if (call.last_words) return finish(call, call.last_words->error_code(), call.last_words->error_message());
        if (ok) write(call);
        return;
      case Step::kFinish:
        return;
    }
  }

  void read(Call& call) {
    if (!call.finishing) call.stream.Read(&call.in, call.event(Step::kRead));
  }

  void write(Call& call) {
    if (call.writing || call.finishing) return;
    std::string bytes;
    if (!call.to_send.empty()) {
      bytes = std::exchange(call.to_send, {});
    } else if (call.to_tell && call.seals) {
      bytes = call.seals->seal(encode(*call.to_tell));
      call.to_tell.reset();
    } else {
      return;
    }
    call.writing = true;
    call.stream.Write(buffer_of(bytes), call.event(Step::kWrite));
  }

  void finish(Call& call, grpc::StatusCode code, const std::string& why) {
    need_no_proof(call);
    if (call.finished) return;
    call.finishing = true;
    if (call.writing) {  // one thing is sent at a time
      if (!call.last_words) call.last_words.emplace(code, why);
      return;
    }
    call.finished = true;
    call.stream.Finish(grpc::Status(code, why), call.event(Step::kFinish));
  }

  void leave(Call& call) {
    if (!call.seals && !call.finishing) count(&Counts::refused);
    // A node that came back by another connection is there.
    if (forget(call)) cluster_.disconnected(call.node_id, call.instance, now_ms());
    call.node_id.clear();
    finish(call, grpc::StatusCode::OK, "");
  }

  void belongs_to(Call& call, const std::string& node_id, uint64_t instance) {
    if (call.node_id == node_id && call.instance == instance) return;
    forget(call);
    call.node_id = node_id;
    call.instance = instance;
    ++calls_of_node_[{node_id, instance}];
  }

  // The call no longer counts as one of its node; true when it was the last.
  bool forget(const Call& call) {
    const auto found = calls_of_node_.find({call.node_id, call.instance});
    if (found == calls_of_node_.end() || --found->second > 0) return false;
    calls_of_node_.erase(found);
    return true;
  }

  void refuse(Call& call, int64_t Counts::*which, const std::string& why) {
    count(which);
    if (why == kAnotherSecret) cluster_.note_another_secret();
    // Again when there are twice as many: whoever knocks for long does not fill the log.
    if (const int64_t times = counts().*which; times >= say_refused_at_) {
      log_.write(fmt::format("refused a connection from {}: {} ({} so far)", call.context.peer(), why, times));
      say_refused_at_ = 2 * times;
    }
    finish(call, grpc::StatusCode::UNAUTHENTICATED, why);
  }

  void take_message(Call& call, const std::string& message) {
    if (!call.seals) {
      const auto outcome = message.size() <= kMaxUnproven ? call.handshake.check(message) : std::nullopt;
      if (!outcome) return refuse(call, &Counts::refused, kAnotherSecret);
      count(&Counts::admitted);
      need_no_proof(call);
      gate_->prove(call.context.peer());
      call.seals = outcome->seals;
      call.to_send = outcome->proof;
    } else {
      const auto bytes = call.seals->open(message);
      if (!bytes) return refuse(call, &Counts::refused, "a message is not sealed as the next of its connection");
      try {
        const NodeReport report = decode_report(*bytes);
        belongs_to(call, report.node_id, report.instance);
        call.to_tell = cluster_.report(report, now_ms());
      } catch (const Error& e) {
        return refuse(call, &Counts::broken, e.text());
      }
    }
    write(call);
    read(call);
  }

  void need_no_proof(Call& call) {
    if (call.prove_by) std::erase(proving_, &call);
    call.prove_by.reset();
  }

  void expire(Call& call) {
    count(&Counts::expired);
    need_no_proof(call);
    call.context.TryCancel();
  }

  void turn() {
    if (look_at_time_.passed()) {  // not after every event: it looks at all nodes
      look_at_time_ = Deadline(kTurn);
      while (!proving_.empty() && proving_.front()->prove_by->passed()) expire(*proving_.front());
      if (const int64_t times = gate_->ended(); times >= say_ended_at_) {
        log_.write(fmt::format(
            "ended a connection that did not prove the job's secret in time, or made room for newer ones ({} so far)",
            times));
        say_ended_at_ = 2 * times;
      }
      cluster_.tick(now_ms());
    }
    {
      const std::lock_guard lock(mutex_);
      if (asked_to_end_) cluster_.end_now(*std::exchange(asked_to_end_, std::nullopt));
    }
    if (cluster_.version() != told_) {
      told_ = cluster_.version();
      for (Call& call : calls_) {
        if (call.node_id.empty() || !cluster_.has(call.node_id)) continue;
        call.to_tell = cluster_.view_of(call.node_id);
        write(call);
      }
    }
    for (const std::string& event : cluster_.take_events()) log_.write(event);
    if (cluster_.phase() != Phase::kOver) return;
    if (!linger_) linger_.emplace(options_.linger);
    if (cluster_.everyone_knows() || linger_->passed()) {
      const std::lock_guard lock(mutex_);
      if (!done_) done_ = cluster_.ending();
      changed_.notify_all();
    }
  }

  void count(int64_t Counts::*which) {
    const std::lock_guard lock(mutex_);
    ++(counts_.*which);
  }

  SchedulerOptions options_;
  JobLog log_;
  Cluster cluster_;
  grpc::AsyncGenericService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<Gate> gate_;
  std::list<Call> calls_;
  std::map<std::pair<std::string, uint64_t>, int> calls_of_node_;  // by id and instance
  std::vector<Call*> proving_;  // those that have not proven the secret yet, the oldest first; max_pending at most
  Deadline look_at_time_{kTurn};
  int64_t turned_ms_ = now_ms();
  uint64_t told_ = 0;
  std::mutex posting_;  // held while the loop may ask gRPC for more, which it must not once the server is being ended
  bool stopping_ = false;
  std::optional<Deadline> linger_;
  int64_t say_refused_at_ = 1;
  int64_t say_ended_at_ = 1;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Ending> done_;
  std::optional<Ending> asked_to_end_;
  Counts counts_;
  std::thread thread_;
};

Scheduler::Scheduler(const SchedulerOptions& options) : loop_(std::make_unique<Loop>(options)) {}
Scheduler::~Scheduler() = default;
uint16_t Scheduler::port() const {
  return loop_->port();
}
void Scheduler::end(const Ending& ending) {
  loop_->end(ending);
}
Ending Scheduler::wait() {
  return loop_->wait();
}
bool Scheduler::is_done() const {
  return loop_->is_done();
}
Scheduler::Counts Scheduler::counts() const {
  return loop_->counts();
}

}  // namespace trireme::launch
