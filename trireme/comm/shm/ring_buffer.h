// RingBuffer: a queue of frames in shared memory from one rank to another; one writes, one reads. Either
// may sleep until the other stores, so the stores are sequentially consistent
// (ShmTransport::Doorbell).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "trireme/comm/copy.h"

namespace trireme::comm {

struct Frame {
  enum class Kind : uint32_t {
    kWhole,   // a small message with its bytes
    kOffer,   // a large message; its bytes are at `segment`, `offset` or come later
    kAccept,  // the receiver is ready for the bytes of the offer `id`
    kBytes,   // the next bytes of `id`
    kTaken,   // the receiver has copied the bytes of `id` from where they were
  };
  Kind kind = Kind::kWhole;
  uint32_t tag = 0;
  int32_t channel = 0;
  int32_t segment = -1;
  uint64_t id = 0;
  uint64_t message_bytes = 0;  // of the whole message
  uint64_t payload_bytes = 0;  // that follow this frame
  uint64_t offset = 0;
  uint64_t unused[2] = {};
};
static_assert(sizeof(Frame) == 64);

class RingBuffer {
 public:
  static constexpr size_t kCapacity = 128 << 10;
  static constexpr size_t kMaxPayload = 32 << 10;

  // False when there is no room now.
  bool push(const Frame& frame, const std::byte* payload) {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    const uint64_t needed = sizeof(Frame) + round_up(frame.payload_bytes);
    if (kCapacity - (head - tail_.load()) < needed) return false;
    std::memcpy(&bytes_[head % kCapacity], &frame, sizeof(Frame));
    copy_in(head + sizeof(Frame), payload, frame.payload_bytes);
    head_.store(head + needed);
    return true;
  }

  bool empty() const { return head_.load() == tail_.load(std::memory_order_relaxed); }

  // The oldest frame; read its payload and then drop it. Only when not empty.
  Frame front() const {
    Frame frame;
    std::memcpy(&frame, &bytes_[tail_.load(std::memory_order_relaxed) % kCapacity], sizeof(Frame));
    return frame;
  }
  void read_payload(const Frame& frame, std::byte* to) const {
    const size_t begin = (tail_.load(std::memory_order_relaxed) + sizeof(Frame)) % kCapacity;
    const size_t until_end = std::min<size_t>(frame.payload_bytes, kCapacity - begin);
    if (until_end > 0) copy_bytes(to, &bytes_[begin], until_end, kCapacity);
    if (frame.payload_bytes > until_end) copy_bytes(to + until_end, bytes_, frame.payload_bytes - until_end, kCapacity);
  }
  void drop(const Frame& frame) {
    tail_.store(tail_.load(std::memory_order_relaxed) + sizeof(Frame) + round_up(frame.payload_bytes));
  }

 private:
  static uint64_t round_up(uint64_t bytes) { return (bytes + sizeof(Frame) - 1) / sizeof(Frame) * sizeof(Frame); }
  void copy_in(uint64_t at, const std::byte* payload, size_t bytes) {
    const size_t begin = at % kCapacity;
    const size_t until_end = std::min<size_t>(bytes, kCapacity - begin);
    if (until_end > 0) hand_over(&bytes_[begin], payload, until_end);
    if (bytes > until_end) hand_over(bytes_, payload + until_end, bytes - until_end);
  }

  alignas(64) std::atomic<uint64_t> head_;  // bytes ever written; the writer's
  alignas(64) std::atomic<uint64_t> tail_;  // bytes ever read; the reader's
  alignas(64) std::byte bytes_[kCapacity];
};

}  // namespace trireme::comm
