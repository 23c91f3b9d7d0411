#include "trireme/exec/disk/disk_lane.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/hash.h"
#include "trireme/exec/disk/blocks.h"

namespace trireme {

// One transfer: its blocks go through slots of the staging.
class DiskLane::Blocks {
 public:
  Blocks(const DiskTransfer& transfer, BlockIo& io, DeviceStream& copies)
      : transfer_(transfer), io_(io), copies_(copies), count_(blocks_of(transfer.at->bytes)) {
    const auto address = reinterpret_cast<uintptr_t>(transfer.staging.data());
    const auto skipped =
        static_cast<size_t>(bytes_on_disk(static_cast<int64_t>(address)) - static_cast<int64_t>(address));
    staging_ = transfer.staging.subspan(skipped);
    invariant(static_cast<int64_t>(transfer.staging.size()) >= staged_by_disk(transfer.at->bytes) &&
                  transfer.value.bytes() == transfer.at->bytes,
              "{} bytes of '{}', which are {}, are carried in {} bytes of staging", transfer.value.bytes(),
              transfer.at->name, transfer.at->bytes, transfer.staging.size());
  }
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;
  // The system writes into the staging, and reads it, until a request has ended.
  ~Blocks() {
    for (; under_way_ > 0; --under_way_) io_.end();
  }

  void store() {
    DiskValue& at = *transfer_.at;
    at.sums.resize(static_cast<size_t>(count_));
    for (int64_t block = 0; block < count_; ++block) {
      const int64_t slot = block < kBlocksUnderWay ? block : end_one();
      const std::span<std::byte> bytes = slot_bytes(slot, block);
      const View part = part_of(block);
      copy(part, {bytes.data(), part.type});
      std::ranges::fill(bytes.subspan(static_cast<size_t>(part.bytes())), std::byte{0});
      at.sums[static_cast<size_t>(block)] = hash64(bytes);
      begin(slot, block);
    }
    while (under_way_ > 0) end_one();
  }

  void load() {
    const DiskValue& at = *transfer_.at;
    invariant(!at.sums.empty() || count_ == 0, "'{}' is read from the disk before it was written there", at.name);
    int64_t next = 0;
    for (; next < std::min(count_, kBlocksUnderWay); ++next) begin(next, next);
    while (under_way_ > 0) {
      const int64_t slot = end_one();
      const int64_t block = slots_[static_cast<size_t>(slot)].block;
      const std::span<const std::byte> bytes = slot_bytes(slot, block);
      if (hash64(bytes) != at.sums[static_cast<size_t>(block)])
        fail(ErrorKind::kCorrupt,
             "'{}' was changed on the disk: bytes {} to {} of the tier's file are not those that were written; the run "
             "cannot go on, use another disk (--disk) and go on from a checkpoint (--resume)",
             at.name, offset_of(block), offset_of(block) + static_cast<int64_t>(bytes.size()) - 1);
      const View part = part_of(block);
      copy({const_cast<std::byte*>(bytes.data()), part.type}, part);
      if (next < count_) begin(slot, next++);
    }
  }

 private:
  struct Slot {
    int64_t block = 0;
    int64_t done = 0;  // bytes of it
  };

  int64_t offset_of(int64_t block) const { return transfer_.at->offset + block * kBlockBytes; }
  View part_of(int64_t block) const {
    const int64_t begin = block * kBlockBytes;
    return {transfer_.value.data + begin,
            {DType::kU8, {std::min(kBlockBytes, transfer_.at->bytes - begin)}},
            transfer_.value.memory};
  }
  std::span<std::byte> slot_bytes(int64_t slot, int64_t block) const {
    return staging_.subspan(static_cast<size_t>(slot * kBlockBytes),
                            static_cast<size_t>(bytes_on_disk(part_of(block).bytes())));
  }

  void copy(const View& from, const View& to) {
    copies_.copy(from, to);
    copies_.synchronize();
  }

  void begin(int64_t slot, int64_t block) {
    slots_[static_cast<size_t>(slot)] = {block, 0};
    go_on(slot);
  }

  void go_on(int64_t slot) {
    const Slot& of = slots_[static_cast<size_t>(slot)];
    io_.begin({.writes = transfer_.stores,
               .offset = offset_of(of.block) + of.done,
               .bytes = slot_bytes(slot, of.block).subspan(static_cast<size_t>(of.done)),
               .tag = static_cast<uint64_t>(slot)});
    ++under_way_;
  }

  // The slot of a block that has been carried whole.
  int64_t end_one() {
    for (;;) {
      const BlockEnd end = io_.end();
      --under_way_;
      const auto slot = static_cast<int64_t>(end.tag);
      Slot& of = slots_[static_cast<size_t>(slot)];
      const bool again = end.result == -EINTR || end.result == -EAGAIN;
      if (end.result <= 0 && !again) fail_transfer(end.result);
      if (!again) of.done += end.result;
      if (of.done == static_cast<int64_t>(slot_bytes(slot, of.block).size())) return slot;
      go_on(slot);
    }
  }

  [[noreturn]] void fail_transfer(int64_t result) const {
    const bool stores = transfer_.stores;
    fail(ErrorKind::kIo, "cannot {} '{}' {} the tier 'disk': {}", stores ? "write" : "read", transfer_.at->name,
         stores ? "to" : "from",
         result == 0 ? "its file ends too early"
         : stores    ? why_not_written(static_cast<int>(-result))
                     : std::strerror(static_cast<int>(-result)));
  }

  const DiskTransfer& transfer_;
  BlockIo& io_;
  DeviceStream& copies_;
  int64_t count_;
  std::span<std::byte> staging_;
  std::array<Slot, kBlocksUnderWay> slots_;
  int under_way_ = 0;
};

DiskLane::DiskLane(int file, Device& device, const BlockIoMaker& make_io)
    : copies_(device.stream()), io_(make_io(file, static_cast<int>(kBlocksUnderWay))) {
  thread_ = std::thread([this] { run(); });
}

DiskLane::~DiskLane() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void DiskLane::reserve(size_t transfers) {
  const std::lock_guard lock(mutex_);
  invariant(put_ == done_, "room for transfers is made while some are under way");
  ring_.resize(std::max(ring_.size(), transfers));
}

uint64_t DiskLane::put(const DiskTransfer& transfer) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
    invariant(put_ - done_ < ring_.size(), "{} transfers are under way, and there is room for {}", put_ - done_,
              ring_.size());
    ring_[put_ % ring_.size()] = &transfer;
    number = ++put_;
  }
  changed_.notify_all();
  return number;
}

void DiskLane::wait(uint64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= number || error_; });
  if (error_) std::rethrow_exception(error_);
}

void DiskLane::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || (done_ < put_ && !error_); });
    if (ends_) return;
    const DiskTransfer& next = *ring_[done_ % ring_.size()];
    lock.unlock();
    std::exception_ptr error;
    try {
      carry(next);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error) {
      error_ = error;
    } else {
      ++done_;
    }
    changed_.notify_all();
  }
}

void DiskLane::carry(const DiskTransfer& transfer) {
  if (transfer.after != nullptr) copies_->wait(*transfer.after);
  // The disk writes into the staging by itself, beside the stream: what the device still copies from there comes first.
  if (!transfer.stores) copies_->synchronize();
  Blocks blocks(transfer, *io_, *copies_);
  if (transfer.stores) {
    blocks.store();
  } else {
    blocks.load();
  }
}

}  // namespace trireme
