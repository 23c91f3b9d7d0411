#include "trireme/launch/cluster/link.h"

#include <grpcpp/alarm.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/launch/cluster/address.h"
#include "trireme/launch/cluster/grpc_impl.h"
#include "trireme/launch/cluster/handshake.h"
#include "trireme/launch/cluster/message.h"

namespace trireme::launch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kRetryLow{200};  // the pause before the next attempt is drawn between these
constexpr milliseconds kRetryHigh{500};
constexpr milliseconds kHandshake{5'000};
constexpr milliseconds kFirstBeat{500};    // until the scheduler says how often it wants to hear
constexpr milliseconds kLookInterval{20};  // at the heartbeat, and at what time ends

std::shared_ptr<grpc::Channel> channel_of(const LinkOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(static_cast<int>(kMaxMessage));
  const std::string target =
      (is_ipv6(options.address) ? "ipv6:" : "ipv4:") + host_port_text(options.address, options.port);
  if (!options.tls) return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
  arguments.SetSslTargetNameOverride(options.host);  // the name the user gave is the one the certificate must have
  return grpc::CreateCustomChannel(
      target, grpc::SslCredentials({options.tls->authority, options.tls->key, options.tls->certificate}), arguments);
}

}  // namespace

class SchedulerLink::Loop {
 public:
  Loop(LinkOptions options, const NodeReport& report) : options_(std::move(options)), report_(report) {
    quiet_grpc();
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_ < 0) fail(ErrorKind::kIo, "launch: cannot make an event descriptor ({})", std::strerror(errno));
    thread_ = std::thread([this] { run(); });
  }
  ~Loop() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      call_attempt();
    }
    changed_.notify_all();
    thread_.join();
    close(wake_);
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void tell(const NodeReport& report) {
    const std::lock_guard lock(mutex_);
    const uint64_t seen = report_.seen;
    report_ = report;
    report_.seen = seen;
    due_ = true;
    call_attempt();
  }
  News news() {
    uint64_t ignored = 0;
    (void)!read(wake_, &ignored, sizeof ignored);
    const std::lock_guard lock(mutex_);
    return news_;
  }
  int fd() const { return wake_; }

 private:
  // One connection's life, from its start to the end of its stream.
  struct Attempt {
    explicit Attempt(const LinkOptions& options) : handshake(options.secret), answer_by(options.silence) {}
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
    grpc::ByteBuffer in;
    grpc::Status status;
    ClientHandshake handshake;
    std::optional<Seals> seals;
    bool answered = false;
    bool writing = false;
    bool closing = false;
    bool finished = false;
    bool hopeless = false;
    std::string trouble;  // found on this side
    std::optional<Deadline> next_beat;
    Deadline answer_by;
  };
  enum Tag : intptr_t { kStart = 1, kRead, kWrite, kClose, kFinish, kCalled };
  static void* tag(Tag t) { return reinterpret_cast<void*>(t); }

  void run() {
    std::mt19937 random(std::random_device{}());
    while (!stopping()) {
      attempt();
      std::unique_lock lock(mutex_);
      const auto pause = kRetryLow + milliseconds(random() % static_cast<uint32_t>((kRetryHigh - kRetryLow).count()));
      changed_.wait_for(lock, pause, [&] { return stop_ || news_.hopeless; });
      if (news_.hopeless) return;
    }
  }

  bool stopping() const {
    const std::lock_guard lock(mutex_);
    return stop_;
  }

  void attempt() {
    grpc::CompletionQueue queue;
    Attempt a(options_);
    grpc::GenericStub stub(
        channel_of(options_));  // one for each attempt, so that a channel's own way of trying again is never asked
    a.stream = stub.PrepareCall(&a.context, kMethod, &queue);
    a.stream->StartCall(tag(kStart));
    listen_for_calls(&queue);
    const Deadline prove_by(kHandshake);
    Deadline close_by(milliseconds(1'000));
    while (!a.finished) {
      void* what = nullptr;
      bool ok = false;
      const auto until = std::chrono::system_clock::now() + kLookInterval;
      if (queue.AsyncNext(&what, &ok, until) == grpc::CompletionQueue::GOT_EVENT) {
        take(a, static_cast<Tag>(reinterpret_cast<intptr_t>(what)), ok);
      }
      if (a.seals && !a.finished) beat(a);
      if (!a.seals && prove_by.passed()) give_up(a, "it answers no handshake");
      if (a.answer_by.passed()) give_up(a, "it has not answered for " + duration_text(options_.silence.count() / 1e3));
      if (!stopping()) {
        close_by = Deadline(milliseconds(1'000));
      } else if (!a.seals || close_by.passed()) {
        a.context.TryCancel();
      } else if (!a.closing && !a.writing) {
        a.closing = true;
        a.stream->WritesDone(tag(kClose));
      }
    }
    listen_for_calls(nullptr);
    queue.Shutdown();
    void* rest = nullptr;
    bool ok = false;
    while (queue.Next(&rest, &ok)) {
    }
    note_end(a);
  }

  void take(Attempt& a, Tag what, bool ok) {
    switch (what) {
      case kStart:
        if (!ok) return a.stream->Finish(&a.status, tag(kFinish));
        return a.stream->Read(&a.in, tag(kRead));
      case kRead:
        if (!ok) return a.stream->Finish(&a.status, tag(kFinish));
        take_message(a, text_of(a.in));
        return a.stream->Read(&a.in, tag(kRead));
      case kWrite:
        a.writing = false;
        return;
      case kClose:
        return;
      case kFinish:
        a.finished = true;
        return;
      case kCalled: {
        const std::lock_guard lock(mutex_);
        called_ = false;
      }
    }
  }

  void listen_for_calls(grpc::CompletionQueue* queue) {
    const std::lock_guard lock(mutex_);
    queue_ = queue;
    called_ = false;
  }
  // Ends the attempt's wait for an event; with mutex_ held.
  void call_attempt() {
    if (queue_ == nullptr || called_) return;
    called_ = true;
    // At no time of day, which may be set meanwhile.
    call_.Set(queue_, gpr_inf_past(GPR_CLOCK_MONOTONIC), tag(kCalled));
  }

  void give_up(Attempt& a, const std::string& why, bool for_good = false) {
    if (a.trouble.empty()) a.trouble = why;
    a.hopeless = a.hopeless || for_good;
    a.context.TryCancel();
  }

  void take_message(Attempt& a, const std::string& message) {
    if (!a.trouble.empty()) return;
    if (!a.answered) {
      if (options_.tls) {
        const std::string why = why_revoked(*options_.tls, certificate_of(a.context.auth_context()));
        if (!why.empty()) return give_up(a, why, true);
      }
      const auto answer = a.handshake.answer(message);
      if (!answer) return give_up(a, "what listens there is not a scheduler of this version", true);
      a.answered = true;
      return write(a, *answer);
    }
    if (!a.seals) {
      a.seals = a.handshake.check(message);
      if (!a.seals) return give_up(a, "what listens there does not know the job's secret; is the address right?", true);
      const std::lock_guard lock(mutex_);
      due_ = true;
      news_.connected = true;
      news_.trouble.clear();
      wake();
      return;
    }
    const auto bytes = a.seals->open(message);
    if (!bytes) return give_up(a, "one of its messages is not sealed as the next of its connection");
    try {
      ClusterView view = decode_view(*bytes);
      const std::lock_guard lock(mutex_);
      if (view.version != report_.seen) due_ = true;
      report_.seen = view.version;
      news_.view = std::move(view);
      a.answer_by = Deadline(options_.silence);
      wake();
    } catch (const Error& e) {
      give_up(a, e.text());
    }
  }

  void write(Attempt& a, const std::string& bytes) {
    a.writing = true;
    a.stream->Write(buffer_of(bytes), tag(kWrite));
  }

  void beat(Attempt& a) {
    if (a.writing || a.closing) return;
    std::string bytes;
    milliseconds interval = kFirstBeat;
    {
      const std::lock_guard lock(mutex_);
      if (!due_ && a.next_beat && !a.next_beat->passed()) return;
      due_ = false;
      bytes = encode(report_);
      if (news_.view && news_.view->beat_ms > 0) interval = milliseconds(news_.view->beat_ms);
    }
    a.next_beat.emplace(interval);
    write(a, a.seals->seal(bytes));
  }

  void note_end(const Attempt& a) {
    const std::lock_guard lock(mutex_);
    news_.connected = false;
    news_.host_answers = a.status.error_message().find("Connection refused") != std::string::npos;
    const bool refused = a.status.error_code() == grpc::StatusCode::UNAUTHENTICATED;
    news_.trouble = !a.trouble.empty() ? a.trouble
                    : refused && a.status.error_message() == kAnotherSecret
                        ? "it has a different secret from this node's; give both the same --secret-file, or the same "
                          "TRIREME_SECRET_FILE or "
                          "TRIREME_SECRET"
                    : refused      ? "it says: " + a.status.error_message()
                    : a.answered   ? "it closed the connection"
                    : options_.tls ? a.status.error_message()  // has what is wrong with a certificate
                                   : "nobody answers there";
    news_.hopeless = refused || a.hopeless;
    wake();
  }

  void wake() {
    const uint64_t one = 1;
    (void)!::write(wake_, &one, sizeof one);
  }

  LinkOptions options_;
  int wake_ = -1;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  bool due_ = true;
  NodeReport report_;
  News news_;
  grpc::CompletionQueue* queue_ = nullptr;  // of the attempt that runs
  grpc::Alarm call_;                        // an event in it, by which other threads end its wait
  bool called_ = false;                     // and it has not taken that yet
  std::thread thread_;
};

SchedulerLink::SchedulerLink(const LinkOptions& options, const NodeReport& report)
    : loop_(std::make_unique<Loop>(options, report)) {}
SchedulerLink::~SchedulerLink() = default;
void SchedulerLink::tell(const NodeReport& report) {
  loop_->tell(report);
}
SchedulerLink::News SchedulerLink::news() const {
  return loop_->news();
}
int SchedulerLink::fd() const {
  return loop_->fd();
}

}  // namespace trireme::launch
