#include "tests/reliability/many_agents.h"

#include <fmt/core.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <optional>
#include <string>
#include <utility>

#include "trireme/base/clock.h"
#include "trireme/launch/cluster/grpc_impl.h"
#include "trireme/launch/cluster/handshake.h"
#include "trireme/launch/cluster/message.h"

namespace trireme::cli {
namespace {

using namespace launch;

constexpr size_t kOnAConnection = 4;
constexpr int kAtOnce = 64;  // on their way to the proof; the scheduler ends the oldest of more than 128

}  // namespace

NodeReport node(int number, int world, int workers) {
  NodeReport report;
  report.node_id = std::to_string(number);
  report.instance = static_cast<uint64_t>(number) + 1;
  report.world = world;
  report.workers = workers;
  report.host = fmt::format("host{}", workers == 1 ? number / 8 : number);
  report.machine = static_cast<uint64_t>(workers == 1 ? number / 8 : number);
  report.store_address = "127.0.0.1";
  report.store_port = 4000;
  return report;
}

class ManyAgents::Loop {
 public:
  Loop(int count, int workers_each, uint16_t port, const comm::Secret& secret)
      : workers_each_(workers_each), port_(port), secret_(secret), agents_(static_cast<size_t>(count)) {
    quiet_grpc();
  }
  ~Loop() {
    for (Agent& agent : agents_) {
      if (agent.context) agent.context->TryCancel();
    }
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  std::vector<int> register_all(std::chrono::seconds limit) {
    const Deadline deadline(limit);
    size_t next = 0;
    while (ready_ < agents_.size() && !deadline.passed()) {
      while (pending_ < kAtOnce && next < agents_.size()) begin(next++);
      void* tag = nullptr;
      bool ok = false;
      const auto until = std::chrono::system_clock::now() + std::chrono::milliseconds(100);
      if (queue_.AsyncNext(&tag, &ok, until) != grpc::CompletionQueue::GOT_EVENT) continue;
      const auto number = reinterpret_cast<uintptr_t>(tag);
      take(number / 4, static_cast<Step>(number % 4), ok);
    }
    std::vector<int> out;
    for (const Agent& agent : agents_) out.push_back(agent.rank);
    return out;
  }
  int64_t retries() const { return retries_; }

 private:
  enum Step : uintptr_t { kStart, kRead, kWrite, kFinish };
  struct Agent {
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
    std::optional<ClientHandshake> handshake;
    std::optional<Seals> seals;
    grpc::ByteBuffer in;
    grpc::Status status;
    std::optional<std::string> next;  // to be written when the one before is: a stream takes one at a time
    bool is_writing = false, is_over = false;
    bool answered = false;
    int rank = -1;
  };
  static void* tag(size_t number, Step step) { return reinterpret_cast<void*>(4 * number + step); }

  void begin(size_t number) {
    Agent& agent = agents_[number];
    if (number / kOnAConnection >= stubs_.size()) {
      grpc::ChannelArguments arguments;
      arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // else all would share one connection
      stubs_.push_back(std::make_unique<grpc::GenericStub>(grpc::CreateCustomChannel(
          fmt::format("ipv4:127.0.0.1:{}", port_), grpc::InsecureChannelCredentials(), arguments)));
    }
    agent.context = std::make_unique<grpc::ClientContext>();
    agent.handshake.emplace(secret_);
    agent.seals.reset();
    agent.next.reset();
    agent.is_over = agent.answered = false;
    agent.stream = stubs_[number / kOnAConnection]->PrepareCall(agent.context.get(), kMethod, &queue_);
    agent.stream->StartCall(tag(number, kStart));
    ++pending_;
  }

  void take(size_t number, Step step, bool ok) {
    Agent& agent = agents_[number];
    if (step == kWrite) return take_written(number);  // the answer to it is what counts
    if (step == kFinish) {
      agent.is_over = true;
      return agent.is_writing ? void() : begin_again(number);
    }
    if (!ok) return agent.stream->Finish(&agent.status, tag(number, kFinish));
    if (step == kRead) take_message(number, launch::text_of(agent.in));
    if (agent.rank < 0) agent.stream->Read(&agent.in, tag(number, kRead));
  }

  void take_written(size_t number) {
    Agent& agent = agents_[number];
    agent.is_writing = false;
    if (agent.is_over) return begin_again(number);
    if (agent.next) write(number, *std::exchange(agent.next, std::nullopt));
  }

  void begin_again(size_t number) {
    if (!agents_[number].seals) --pending_;
    ++retries_;
    begin(number);
  }

  void take_message(size_t number, const std::string& message) {
    Agent& agent = agents_[number];
    if (!agent.answered) {
      agent.answered = true;
      return write(number, *agent.handshake->answer(message));
    }
    if (!agent.seals) {
      agent.seals = agent.handshake->check(message);
      --pending_;
      const int world = workers_each_ * static_cast<int>(agents_.size());
      return write(number, agent.seals->seal(encode(node(static_cast<int>(number), world, workers_each_))));
    }
    const ClusterView view = decode_view(*agent.seals->open(message));
    if (view.phase != Phase::kRunning) return;
    agent.rank = view.first_rank;
    ++ready_;
  }

  void write(size_t number, const std::string& bytes) {
    Agent& agent = agents_[number];
    if (agent.is_writing) {  // read before it is known that what it answers is written
      agent.next = bytes;
      return;
    }
    agent.is_writing = true;
    agent.stream->Write(buffer_of(bytes), tag(number, kWrite));
  }

  int workers_each_;
  uint16_t port_;
  comm::Secret secret_;
  grpc::CompletionQueue queue_;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
  std::vector<Agent> agents_;
  int pending_ = 0;  // have not proven the secret yet
  size_t ready_ = 0;
  int64_t retries_ = 0;
};

ManyAgents::ManyAgents(int count, int workers_each, uint16_t port, const comm::Secret& secret)
    : loop_(std::make_unique<Loop>(count, workers_each, port, secret)) {}
ManyAgents::~ManyAgents() = default;
std::vector<int> ManyAgents::register_all(std::chrono::seconds limit) {
  return loop_->register_all(limit);
}
int64_t ManyAgents::retries() const {
  return loop_->retries();
}

}  // namespace trireme::cli
