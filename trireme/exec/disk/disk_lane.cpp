#include "trireme/exec/disk/disk_lane.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "trireme/base/disk_wait.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/hash.h"
#include "trireme/exec/disk/blocks.h"

namespace trireme {

DiskValue::DiskValue(std::string value_name, int64_t at_offset, int64_t size, const std::vector<int64_t>& cuts,
                     int64_t block_bytes)
    : name(std::move(value_name)), offset(at_offset), bytes(size) {
  for (size_t i = 0; i <= cuts.size(); ++i) {
    const int64_t begin = i == 0 ? 0 : cuts[i - 1], end = i < cuts.size() ? cuts[i] : bytes;
    invariant(begin % kSectorBytes == 0 && begin <= end, "'{}' of {} bytes is cut at {}", name, bytes, begin);
    for (int64_t at = begin; at < end; at += block_bytes) blocks.push_back(at);
  }
  sums.assign(blocks.size(), std::nullopt);
  blocks.push_back(bytes);
}

// One transfer: its blocks go through slots of the staging.
class DiskLane::Blocks {
 public:
  Blocks(const DiskTransfer& transfer, BlockIo& io, DeviceStream& copies, const DiskBlocks& how)
      : transfer_(transfer), io_(io), copies_(copies) {
    const auto address = reinterpret_cast<uintptr_t>(transfer.staging.data());
    const auto skipped =
        static_cast<size_t>(bytes_on_disk(static_cast<int64_t>(address)) - static_cast<int64_t>(address));
    staging_ = transfer.staging.subspan(skipped);
    const std::vector<int64_t>& blocks = transfer.at->blocks;
    const int64_t bytes = transfer.value.bytes();
    first_ = std::ranges::lower_bound(blocks, transfer.begin) - blocks.begin();
    count_ = std::ranges::lower_bound(blocks, transfer.begin + bytes) - blocks.begin() - first_;
    invariant(static_cast<int64_t>(transfer.staging.size()) >= staged_by_disk(bytes, how) &&
                  (bytes == 0 || (std::ranges::binary_search(blocks, transfer.begin) &&
                                  std::ranges::binary_search(blocks, transfer.begin + bytes))),
              "{} bytes from {} on of '{}', which are {}, are transferred in {} bytes of staging", bytes,
              transfer.begin, transfer.at->name, transfer.at->bytes, transfer.staging.size());
    make_slots(how.under_way);
  }
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;
  // The system writes into the staging, and reads it, until a request has ended.
  ~Blocks() {
    for (; under_way_ > 0; --under_way_) io_.end();
  }

  void store() {
    for (int64_t block = 0; block < count_; ++block) {
      const int64_t slot = block < slot_count_ ? block : end_one();
      const std::span<std::byte> bytes = slot_bytes(slot, block);
      const View part = part_of(block);
      copy(part, {bytes.data(), part.type});
      std::ranges::fill(bytes.subspan(static_cast<size_t>(part.bytes())), std::byte{0});
      sum_of(block) = hash64(bytes);
      begin(slot, block);
    }
    while (under_way_ > 0) end_one();
  }

  void load() {
    const DiskValue& at = *transfer_.at;
    int64_t next = 0;
    for (; next < std::min(count_, slot_count_); ++next) begin(next, next);
    while (under_way_ > 0) {
      const int64_t slot = end_one();
      const int64_t block = slots_[static_cast<size_t>(slot)].block;
      const std::span<const std::byte> bytes = slot_bytes(slot, block);
      invariant(sum_of(block).has_value(), "'{}' is read from the disk before it was written there", at.name);
      if (hash64(bytes) != *sum_of(block))
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

  // As many as blocks, where these all have room; else as many of the longest as have.
  void make_slots(int64_t most) {
    int64_t all = 0;
    for (int64_t block = 0; block < count_; ++block) {
      if (block < most) slot_begins_[static_cast<size_t>(block)] = all;
      all += bytes_on_disk(bytes_of(block));
      slot_bytes_ = std::max(slot_bytes_, bytes_on_disk(bytes_of(block)));
    }
    slot_count_ = count_;
    if (count_ <= most) return;
    slot_count_ = std::min<int64_t>(most, static_cast<int64_t>(staging_.size()) / slot_bytes_);
    for (int64_t slot = 0; slot < slot_count_; ++slot) slot_begins_[static_cast<size_t>(slot)] = slot * slot_bytes_;
  }

  int64_t begin_of(int64_t block) const { return transfer_.at->blocks[static_cast<size_t>(first_ + block)]; }
  int64_t bytes_of(int64_t block) const { return begin_of(block + 1) - begin_of(block); }
  std::optional<uint64_t>& sum_of(int64_t block) const {
    return transfer_.at->sums[static_cast<size_t>(first_ + block)];
  }
  int64_t offset_of(int64_t block) const { return transfer_.at->offset + begin_of(block); }
  View part_of(int64_t block) const {
    return {transfer_.value.data + (begin_of(block) - transfer_.begin),
            {DType::kU8, {bytes_of(block)}},
            transfer_.value.memory};
  }
  std::span<std::byte> slot_bytes(int64_t slot, int64_t block) const {
    return staging_.subspan(static_cast<size_t>(slot_begins_[static_cast<size_t>(slot)]),
                            static_cast<size_t>(bytes_on_disk(bytes_of(block))));
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
      const BlockEnd end = ended();
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

  // However long the disk takes: a rank that waits for it does not hang.
  BlockEnd ended() {
    const DiskWait waits;
    return io_.end();
  }

  [[noreturn]] void fail_transfer(int64_t result) const {
    const bool stores = transfer_.stores;
    const auto code = static_cast<int>(-result);
    fail(ErrorKind::kIo, "cannot {} '{}' {} the tier 'disk': {}{}", stores ? "write" : "read", transfer_.at->name,
         stores ? "to" : "from",
         code == 0 ? "its file ends too early"
         : stores  ? why_not_written(code)
                   : std::strerror(code),
         code == EIO ? "; use another disk (--disk) and go on from a checkpoint (--resume)" : "");
  }

  const DiskTransfer& transfer_;
  BlockIo& io_;
  DeviceStream& copies_;
  int64_t first_ = 0, count_ = 0;  // blocks of the value
  std::span<std::byte> staging_;
  std::array<Slot, kMostBlocksUnderWay> slots_;
  std::array<int64_t, kMostBlocksUnderWay> slot_begins_{};
  int64_t slot_count_ = 0, slot_bytes_ = 0;
  int under_way_ = 0;
};

DiskLane::DiskLane(int file, Device& device, const DiskBlocks& blocks, const BlockIoMaker& make_io)
    : blocks_(blocks),
      copies_(device.stream()),
      io_(make_io(file, static_cast<int>(blocks.under_way))),
      queue_([this](const DiskTransfer& transfer) { do_transfer(transfer); }) {}

void DiskLane::do_transfer(const DiskTransfer& transfer) {
  if (transfer.after != nullptr) copies_->wait(*transfer.after);
  // The disk writes into the staging by itself, beside the stream: what the device still copies from there comes first.
  if (!transfer.stores) copies_->synchronize();
  Blocks blocks(transfer, *io_, *copies_, blocks_);
  if (transfer.stores) {
    blocks.store();
  } else {
    blocks.load();
  }
}

}  // namespace trireme
