#include "trireme/comm/shm/shm_transport.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

#include "trireme/base/error.h"
#include "trireme/comm/copy.h"
#include "trireme/comm/engine/roster.h"

namespace trireme::comm {
namespace {

constexpr size_t kEager = 4096;  // bytes up to which a message goes with its frame
constexpr uint64_t kControlKey = 1;
constexpr uint64_t kAllocateKey = uint64_t{1} << 32;
constexpr uint64_t kChannelKey = uint64_t{2} << 32;

void futex_wait(std::atomic<uint32_t>& word, uint32_t value, std::chrono::microseconds limit) {
  timespec time{};
  time.tv_sec = limit.count() / 1'000'000;
  time.tv_nsec = (limit.count() % 1'000'000) * 1000;
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

// A rank that is about to sleep says so, looks once more, and sleeps unless the count has moved
// since. A peer stores, then looks whether the rank sleeps: one of the two sees the other. That
// holds because these stores and looks, those of RingBuffer and of ShmGroup::Block::phase too, are
// sequentially consistent.
struct ShmTransport::Doorbell {
  alignas(64) std::atomic<uint32_t> asleep;
  alignas(64) std::atomic<uint32_t> count;

  void ring() {
    count.fetch_add(1);
    futex_wake(count);
  }
};

ShmTransport::ShmTransport(const WorldOptions& options) : options_(options), mesh_(options) {
  pool_.reserve(kEager);
  std::vector<int> everyone(static_cast<size_t>(options.size));
  for (int i = 0; i < options.size; ++i) {
    everyone[static_cast<size_t>(i)] = i;
    pairs_.emplace_back(&pool_);
  }
  mesh_.exchange_segments(everyone, kControlKey,
                          sizeof(Doorbell) + sizeof(RingBuffer) * static_cast<size_t>(options.size),
                          [&](std::vector<Segment> segments) { controls_ = std::move(segments); });
}

ShmTransport::Doorbell& ShmTransport::doorbell(int of) const {
  return *reinterpret_cast<Doorbell*>(controls_[static_cast<size_t>(of)].memory().data());
}

RingBuffer& ShmTransport::ring(int from, int to) const {
  std::byte* const rings = controls_[static_cast<size_t>(from)].memory().data() + sizeof(Doorbell);
  return reinterpret_cast<RingBuffer*>(rings)[to];
}

std::string ShmTransport::describe(int peer) const {
  return fmt::format("pid {}", mesh_.pid(peer));
}

int ShmTransport::open(const std::vector<int>& world_ranks, int number) {
  return agree_on_channel(options_, world_ranks, number);
}

void ShmTransport::notify(std::span<const int> peers) {
  for (const int peer : peers) {
    Doorbell& bell = doorbell(peer);
    if (bell.asleep.load() != 0) bell.ring();
  }
}

void ShmTransport::wake() {
  doorbell(options_.rank).ring();
}

void ShmTransport::arm() {
  Doorbell& bell = doorbell(options_.rank);
  heard_ = bell.count.load();
  bell.asleep.store(1);
}

void ShmTransport::disarm() {
  doorbell(options_.rank).asleep.store(0);
}

void ShmTransport::rest(std::chrono::microseconds limit) {
  futex_wait(doorbell(options_.rank).count, heard_, limit);
  disarm();
}

std::span<std::byte> ShmTransport::allocate(size_t bytes) {
  const std::lock_guard lock(collective_);
  const size_t index = allocation_count_.load();
  require(index < kMaxAllocations, "allocate: a world has at most {} segments; ask for fewer, larger ones",
          kMaxAllocations);
  std::vector<int> everyone(static_cast<size_t>(options_.size));
  for (int i = 0; i < options_.size; ++i) everyone[static_cast<size_t>(i)] = i;
  mesh_.exchange_segments(everyone, kAllocateKey + index, bytes, [&](std::vector<Segment> segments) {
    allocations_[index].of = std::move(segments);
    allocation_count_.store(index + 1, std::memory_order_release);
  });
  return {allocations_[index].of[static_cast<size_t>(options_.rank)].memory().data(), bytes};
}

std::vector<Segment> ShmTransport::share(const std::vector<int>& members, int channel, size_t bytes) {
  const std::lock_guard lock(collective_);
  std::vector<Segment> out;
  mesh_.exchange_segments(members, kChannelKey + static_cast<uint64_t>(channel), bytes,
                          [&](std::vector<Segment> segments) { out = std::move(segments); });
  return out;
}

std::optional<ShmTransport::Location> ShmTransport::locate(const std::byte* data, size_t bytes) const {
  const size_t count = allocation_count_.load(std::memory_order_acquire);
  for (size_t i = 0; i < count; ++i) {
    const std::span<std::byte> memory = allocations_[i].of[static_cast<size_t>(options_.rank)].memory();
    if (data >= memory.data() && data + bytes <= memory.data() + memory.size()) {
      return Location{static_cast<int>(i), static_cast<uint64_t>(data - memory.data())};
    }
  }
  return std::nullopt;
}

std::byte* ShmTransport::reach(int peer, Location location, size_t bytes) const {
  const size_t count = allocation_count_.load(std::memory_order_acquire);
  if (location.segment < 0 || static_cast<size_t>(location.segment) >= count) return nullptr;
  const std::span<std::byte> memory =
      allocations_[static_cast<size_t>(location.segment)].of[static_cast<size_t>(peer)].memory();
  if (location.offset > memory.size() || bytes > memory.size() - location.offset) return nullptr;
  return memory.data() + location.offset;
}

// Messages. A small one travels with its frame. A large one is offered first; when the receiver has
// a place for it, it either copies it from the sender's shared memory and says so, or accepts the
// offer, and the bytes follow through the ring as there is room. The ring is always emptied, so no
// message can block another. A message is sent when it is in the ring: what is there arrives although this rank ends.
void ShmTransport::start_send(Transfer& transfer) {
  Frame frame;
  frame.tag = transfer.tag;
  frame.channel = transfer.channel;
  frame.message_bytes = transfer.bytes;
  if (transfer.bytes <= kEager) {
    frame.payload_bytes = transfer.bytes;
    transfer.state = Transfer::State::kPending;
    pairs_[static_cast<size_t>(transfer.peer)].outgoing.push_back({frame, &transfer});
    flush(transfer.peer);
    return;
  }
  frame.kind = Frame::Kind::kOffer;
  frame.id = next_id_++;
  if (const auto place = locate(transfer.data, transfer.bytes)) {
    frame.segment = place->segment;
    frame.offset = place->offset;
  }
  transfer.state = Transfer::State::kPending;
  pairs_[static_cast<size_t>(transfer.peer)].offered.emplace(frame.id, &transfer);
  queue(transfer.peer, frame);
}

// Into the ring, or after what waits for room there.
void ShmTransport::queue(int peer, const Frame& frame) {
  pairs_[static_cast<size_t>(peer)].outgoing.push_back({frame});
  flush(peer);
}

bool ShmTransport::flush(int peer) {
  auto& outgoing = pairs_[static_cast<size_t>(peer)].outgoing;
  bool moved = false;
  while (!outgoing.empty() && push(peer, outgoing.front())) {
    moved = true;
    Outgoing& out = outgoing.front();
    if (out.transfer != nullptr) {
      if (out.sent < out.frame.message_bytes) continue;
      out.transfer->state = Transfer::State::kDone;
    }
    outgoing.pop_front();
  }
  if (moved) notify({&peer, 1});
  return moved;
}

bool ShmTransport::push(int peer, Outgoing& out) {
  RingBuffer& to = ring(options_.rank, peer);
  if (out.transfer == nullptr) return to.push(out.frame, nullptr);
  out.frame.payload_bytes = std::min<uint64_t>(out.frame.message_bytes - out.sent, RingBuffer::kMaxPayload);
  if (!to.push(out.frame, out.transfer->data + out.sent)) return false;
  out.sent += out.frame.payload_bytes;
  return true;
}

void ShmTransport::receive(Transfer& transfer) {
  transfer.state = Transfer::State::kPending;
  Pair& pair = pairs_[static_cast<size_t>(transfer.peer)];
  const auto found = std::find_if(pair.unexpected.begin(), pair.unexpected.end(), [&](const Unexpected& got) {
    return got.frame.tag == transfer.tag && got.frame.channel == transfer.channel;
  });
  if (found == pair.unexpected.end()) {
    pair.expected.push_back(&transfer);
    return;
  }
  const Unexpected got = std::move(*found);
  pair.unexpected.erase(found);
  deliver(transfer.peer, got.frame, got.payload.data(), transfer);
}

bool ShmTransport::progress() {
  bool moved = false;
  for (int peer = 0; peer < options_.size; ++peer) {
    RingBuffer& from = ring(peer, options_.rank);
    if (!from.empty()) {
      moved = true;
      do {
        const Frame frame = from.front();
        accept(peer, frame);
        from.drop(frame);
      } while (!from.empty());
      notify({&peer, 1});  // it may wait for room
    }
    if (!pairs_[static_cast<size_t>(peer)].outgoing.empty()) moved |= flush(peer);
  }
  return moved;
}

// Takes the frame at the front of the peer's ring.
void ShmTransport::accept(int peer, const Frame& frame) {
  Pair& pair = pairs_[static_cast<size_t>(peer)];
  switch (frame.kind) {
    case Frame::Kind::kBytes:
      return take_bytes(peer, frame);
    case Frame::Kind::kAccept:
    case Frame::Kind::kTaken: {
      const auto found = pair.offered.find(frame.id);
      if (found == pair.offered.end()) return;  // given up since
      Transfer& transfer = *found->second;
      pair.offered.erase(found);
      if (frame.kind == Frame::Kind::kTaken) {
        transfer.state = Transfer::State::kDone;
        return;
      }
      Frame bytes;
      bytes.kind = Frame::Kind::kBytes;
      bytes.id = frame.id;
      bytes.message_bytes = transfer.bytes;
      pair.outgoing.push_back({bytes, &transfer});
      flush(peer);
      return;
    }
    case Frame::Kind::kWhole:
    case Frame::Kind::kOffer:
      break;
  }
  const auto found = std::find_if(pair.expected.begin(), pair.expected.end(), [&](const Transfer* transfer) {
    return transfer->tag == frame.tag && transfer->channel == frame.channel;
  });
  if (found == pair.expected.end()) {
    pair.unexpected.push_back({frame, {frame.payload_bytes, std::byte{}, &pool_}});
    ring(peer, options_.rank).read_payload(frame, pair.unexpected.back().payload.data());
    return;
  }
  Transfer& transfer = **found;
  pair.expected.erase(found);
  deliver(peer, frame, nullptr, transfer);
}

// `payload` is null when it is still in the ring.
void ShmTransport::deliver(int peer, const Frame& frame, const std::byte* payload, Transfer& transfer) {
  Frame reply;
  reply.id = frame.id;
  reply.kind = Frame::Kind::kTaken;
  if (frame.message_bytes != transfer.bytes) {
    transfer.problem = fmt::format("sent {} bytes where {} were expected", frame.message_bytes, transfer.bytes);
    transfer.wrong_size = true;
    transfer.state = Transfer::State::kFailed;
  } else if (frame.kind == Frame::Kind::kWhole) {
    if (payload == nullptr) {
      ring(peer, options_.rank).read_payload(frame, transfer.data);
    } else if (transfer.bytes > 0) {
      std::memcpy(transfer.data, payload, transfer.bytes);
    }
    transfer.state = Transfer::State::kDone;
  } else if (frame.segment >= 0) {
    const std::byte* const from = reach(peer, {frame.segment, frame.offset}, transfer.bytes);
    if (from != nullptr) {
      copy_bytes(transfer.data, from, transfer.bytes, transfer.bytes);
      transfer.state = Transfer::State::kDone;
    } else {
      transfer.problem = fmt::format("offers {} bytes at {} of segment {}, which do not exist", transfer.bytes,
                                     frame.offset, frame.segment);
      transfer.state = Transfer::State::kFailed;
    }
  } else {
    pairs_[static_cast<size_t>(peer)].incoming[frame.id] = {&transfer, 0};
    reply.kind = Frame::Kind::kAccept;
  }
  if (transfer.state != Transfer::State::kPending) took(transfer);
  if (frame.kind == Frame::Kind::kOffer) queue(peer, reply);
}

void ShmTransport::take_bytes(int peer, const Frame& frame) {
  auto& incoming = pairs_[static_cast<size_t>(peer)].incoming;
  const auto found = incoming.find(frame.id);
  if (found == incoming.end()) return;  // given up since
  Transfer& transfer = *found->second.transfer;
  invariant(found->second.arrived + frame.payload_bytes <= transfer.bytes, "shm: {} bytes after {} of {}",
            frame.payload_bytes, found->second.arrived, transfer.bytes);
  ring(peer, options_.rank).read_payload(frame, transfer.data + found->second.arrived);
  found->second.arrived += frame.payload_bytes;
  if (found->second.arrived < transfer.bytes) return;
  transfer.state = Transfer::State::kDone;
  took(transfer);
  incoming.erase(found);
}

void ShmTransport::stop(bool) {
  for (Pair& pair : pairs_) pair = Pair(&pool_);
}

}  // namespace trireme::comm
