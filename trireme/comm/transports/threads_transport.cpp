#include "trireme/comm/transports/threads_transport.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/comm/algorithms/backends.h"
#include "trireme/comm/copy.h"
#include "trireme/comm/engine/block_pool.h"
#include "trireme/comm/shm/pages.h"
#include "trireme/comm/stores/memory_store.h"

namespace trireme::comm {
namespace {

constexpr size_t kCopiedWhenSent = 1024;  // bytes up to which a message is copied when sent
constexpr size_t kMessagesUnderWay = 64;  // messages under way for which there is room from the start

// A message between its send and the end of its copy. The receiver copies straight from the
// sender's buffer, so a sender that gives up must first take the message back: whoever moves it out
// of kOffered owns it.
struct Envelope {
  enum State : int { kOffered, kTaken, kDone, kWithdrawn };
  explicit Envelope(BlockPool* pool) : copy(pool) {}

  int from = 0;
  int channel = 0;
  uint32_t tag = 0;
  const std::byte* data = nullptr;
  size_t bytes = 0;
  std::pmr::vector<std::byte> copy;  // of a small one
  std::atomic<int> state{kOffered};
};

// What other threads leave for a rank.
class Mailbox {
 public:
  Mailbox() { arrived_.reserve(kMessagesUnderWay); }
  void put(std::shared_ptr<Envelope> envelope) {
    {
      const std::lock_guard lock(mutex_);
      arrived_.push_back(std::move(envelope));
      filled_.store(true, std::memory_order_release);
    }
    ring();
  }
  bool take(std::vector<std::shared_ptr<Envelope>>& out) {
    if (!filled_.load(std::memory_order_acquire)) return false;
    const std::lock_guard lock(mutex_);
    out.swap(arrived_);
    filled_.store(false, std::memory_order_relaxed);
    return !out.empty();
  }
  void ring() {
    {
      const std::lock_guard lock(mutex_);
      rung_ = true;
    }
    bell_.notify_all();
  }
  void wait(std::chrono::microseconds limit) {
    std::unique_lock lock(mutex_);
    bell_.wait_for(lock, limit, [&] { return rung_; });
    rung_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable bell_;
  std::vector<std::shared_ptr<Envelope>> arrived_;
  std::atomic<bool> filled_{false};
  bool rung_ = false;
};

// What the threads share.
struct Hub {
  explicit Hub(int size) : pools(static_cast<size_t>(size)), mailboxes(static_cast<size_t>(size)) {}
  std::deque<BlockPool> pools;  // by rank, of the envelopes that it sends
  std::deque<Mailbox> mailboxes;
  std::mutex mutex;
  std::map<std::pair<std::vector<int>, int>, int> channels;
};

class ThreadsTransport final : public Transport {
 public:
  ThreadsTransport(int rank, std::shared_ptr<Hub> hub)
      : rank_(rank),
        hub_(std::move(hub)),
        mailbox_(hub_->mailboxes[static_cast<size_t>(rank)]),
        pool_(hub_->pools[static_cast<size_t>(rank)]) {
    arrived_.reserve(kMessagesUnderWay);
    unexpected_.reserve(kMessagesUnderWay);
    expected_.reserve(kMessagesUnderWay);
    sent_.reserve(kMessagesUnderWay);
  }

  std::string_view name() const override { return "threads"; }
  bool is_in_memory() const override { return true; }
  std::string describe(int peer) const override { return fmt::format("thread {}", peer); }

  int open(const std::vector<int>& world_ranks, int number) override {
    const std::lock_guard lock(hub_->mutex);
    return hub_->channels.emplace(std::pair(world_ranks, number), static_cast<int>(hub_->channels.size()) + 1)
        .first->second;
  }

  void start_send(Transfer& transfer) override {
    auto envelope = std::allocate_shared<Envelope>(std::pmr::polymorphic_allocator<Envelope>(&pool_), &pool_);
    envelope->from = rank_;
    envelope->channel = transfer.channel;
    envelope->tag = transfer.tag;
    envelope->bytes = transfer.bytes;
    if (transfer.bytes <= kCopiedWhenSent) {
      envelope->copy.assign(transfer.data, transfer.data + transfer.bytes);
      envelope->data = envelope->copy.data();
      transfer.state = Transfer::State::kDone;
    } else {
      envelope->data = transfer.data;
      transfer.state = Transfer::State::kPending;
      sent_.push_back({envelope, &transfer});
    }
    hub_->mailboxes[static_cast<size_t>(transfer.peer)].put(std::move(envelope));
  }

  void receive(Transfer& transfer) override {
    transfer.state = Transfer::State::kPending;
    const auto found = std::find_if(unexpected_.begin(), unexpected_.end(),
                                    [&](const auto& envelope) { return matches(*envelope, transfer); });
    if (found == unexpected_.end()) {
      expected_.push_back(&transfer);
      return;
    }
    const std::shared_ptr<Envelope> envelope = *found;
    unexpected_.erase(found);
    deliver(*envelope, transfer);
  }

  bool progress() override {
    bool moved = false;
    if (mailbox_.take(arrived_)) {
      moved = true;
      for (const auto& envelope : arrived_) accept(envelope);
      arrived_.clear();
    }
    std::erase_if(sent_, [&](const Sent& sent) {
      if (sent.envelope->state.load(std::memory_order_acquire) != Envelope::kDone) return false;
      sent.transfer->state = Transfer::State::kDone;
      moved = true;
      return true;
    });
    return moved;
  }

  void rest(std::chrono::microseconds limit) override { mailbox_.wait(limit); }
  void wake() override { mailbox_.ring(); }
  void find_lost(std::vector<int>&) override {}  // threads end in good order or not at all

  void stop(bool) override {
    for (const Sent& sent : sent_) {
      int offered = Envelope::kOffered;
      if (sent.envelope->state.compare_exchange_strong(offered, Envelope::kWithdrawn)) continue;
      while (sent.envelope->state.load(std::memory_order_acquire) == Envelope::kTaken) {
        std::this_thread::yield();
      }
    }
    sent_.clear();
    expected_.clear();
  }

  std::span<std::byte> allocate(size_t bytes) override { return memory_.add(bytes); }

 private:
  struct Sent {
    std::shared_ptr<Envelope> envelope;
    Transfer* transfer;
  };

  static bool matches(const Envelope& envelope, const Transfer& transfer) {
    return envelope.from == transfer.peer && envelope.channel == transfer.channel && envelope.tag == transfer.tag;
  }

  void accept(const std::shared_ptr<Envelope>& envelope) {
    const auto found = std::find_if(expected_.begin(), expected_.end(),
                                    [&](const Transfer* transfer) { return matches(*envelope, *transfer); });
    if (found == expected_.end()) {
      unexpected_.push_back(envelope);
      return;
    }
    Transfer& transfer = **found;
    expected_.erase(found);
    deliver(*envelope, transfer);
  }

  void deliver(Envelope& envelope, Transfer& transfer) {
    int offered = Envelope::kOffered;
    // One that was withdrawn leaves the receiver waiting, until it hears that the sender gave up.
    if (!envelope.state.compare_exchange_strong(offered, Envelope::kTaken)) return;
    if (envelope.bytes != transfer.bytes) {
      transfer.problem = fmt::format("sent {} bytes where {} were expected", envelope.bytes, transfer.bytes);
      transfer.wrong_size = true;
      transfer.state = Transfer::State::kFailed;
    } else {
      copy_bytes(transfer.data, envelope.data, envelope.bytes, envelope.bytes);
      transfer.state = Transfer::State::kDone;
    }
    took(transfer);
    envelope.state.store(Envelope::kDone, std::memory_order_release);
    if (envelope.bytes > kCopiedWhenSent) hub_->mailboxes[static_cast<size_t>(envelope.from)].ring();
  }

  int rank_;
  std::shared_ptr<Hub> hub_;
  Mailbox& mailbox_;
  BlockPool& pool_;
  std::vector<std::shared_ptr<Envelope>> arrived_;
  std::vector<std::shared_ptr<Envelope>> unexpected_;  // in the order they came
  std::vector<Transfer*> expected_;                    // in the order they were asked for
  std::vector<Sent> sent_;
  PrivatePages memory_;
};

}  // namespace

std::unique_ptr<Transport> threads_transport(const WorldOptions& options) {
  auto* store = dynamic_cast<MemoryStore*>(options.store.get());
  require(store != nullptr,
          "the threads transport needs a store from memory_store(), which the threads share; ranks "
          "that are "
          "processes use 'shm', 'ucx' or 'mpi'");
  const int size = options.size;
  auto hub = std::static_pointer_cast<Hub>(
      store->object(options.job + "/threads", [size] { return std::make_shared<Hub>(size); }));
  require(static_cast<int>(hub->mailboxes.size()) == size, "the threads transport of job '{}' has {} ranks, not {}",
          options.job, hub->mailboxes.size(), size);
  return std::make_unique<ThreadsTransport>(options.rank, std::move(hub));
}

Backend threads_backend(const WorldOptions& options) {
  return message_backend(threads_transport(options));
}

}  // namespace trireme::comm
