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

// What transfers share: the disk, of which so many blocks may be under way, and the stream of copies.
struct DiskShare {
  BlockIo& io;
  DeviceStream& copies;
  int64_t most = 0;
  int64_t under_way = 0;
};

// One transfer: its blocks go through slots of its staging. Requests have the numbers of slots from `tag` on.
class DiskLane::Blocks {
 public:
  Blocks(const DiskTransfer& transfer, DiskShare& disk, const DiskBlocks& how, uint64_t tag)
      : transfer_(transfer), disk_(disk), tag_(tag) {
    if (transfer.after != nullptr) disk.copies.wait(*transfer.after);
    // The disk writes into the staging by itself, beside the stream: what the device still copies from there comes
    // first.
    if (!transfer.stores) disk.copies.synchronize();
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

  const DiskTransfer& transfer() const { return transfer_; }
  bool has_begun_all() const { return next_ == count_; }
  bool has_ended() const { return ended_ == count_; }

  // As many blocks as there are slots for, and as the disk takes.
  void begin_more() {
    while (next_ < count_ && free_count_ > 0 && disk_.under_way < disk_.most) {
      const int64_t slot = each_has_its_own_ ? next_ : free_[static_cast<size_t>(free_count_ - 1)];
      --free_count_;
      slots_[static_cast<size_t>(slot)] = {next_, 0};
      if (transfer_.stores) put_in(slot, next_);
      ++next_;
      go_on(slot);
    }
  }

  // What the disk answers for one of the slots: it goes on with the rest of its block, or the block has been carried.
  void answered(int64_t slot, int64_t result) {
    Slot& of = slots_[static_cast<size_t>(slot)];
    const bool again = result == -EINTR || result == -EAGAIN;
    if (result <= 0 && !again) fail_transfer(result);
    if (!again) of.done += result;
    if (of.done < static_cast<int64_t>(slot_bytes(slot, of.block).size())) return go_on(slot);
    if (!transfer_.stores) take_out(slot, of.block);
    if (!each_has_its_own_) free_[static_cast<size_t>(free_count_++)] = slot;
    ++ended_;
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
    each_has_its_own_ = count_ <= most;
    free_count_ = count_;
    if (each_has_its_own_) return;
    free_count_ = std::min<int64_t>(most, static_cast<int64_t>(staging_.size()) / slot_bytes_);
    for (int64_t slot = 0; slot < free_count_; ++slot) {
      slot_begins_[static_cast<size_t>(slot)] = slot * slot_bytes_;
      free_[static_cast<size_t>(slot)] = slot;
    }
  }

  void put_in(int64_t slot, int64_t block) {
    const std::span<std::byte> bytes = slot_bytes(slot, block);
    const View part = part_of(block);
    copy(part, {bytes.data(), part.type});
    std::ranges::fill(bytes.subspan(static_cast<size_t>(part.bytes())), std::byte{0});
    sum_of(block) = hash64(bytes);
  }

  void take_out(int64_t slot, int64_t block) {
    const DiskValue& at = *transfer_.at;
    const std::span<const std::byte> bytes = slot_bytes(slot, block);
    invariant(sum_of(block).has_value(), "'{}' is read from the disk before it was written there", at.name);
    if (hash64(bytes) != *sum_of(block))
      fail(ErrorKind::kCorrupt,
           "'{}' was changed on the disk: bytes {} to {} of the tier's file are not those that were written; the run "
           "cannot go on, use another disk (--disk) and go on from a checkpoint (--resume)",
           at.name, offset_of(block), offset_of(block) + static_cast<int64_t>(bytes.size()) - 1);
    const View part = part_of(block);
    copy({const_cast<std::byte*>(bytes.data()), part.type}, part);
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
    disk_.copies.copy(from, to);
    disk_.copies.synchronize();
  }

  void go_on(int64_t slot) {
    const Slot& of = slots_[static_cast<size_t>(slot)];
    disk_.io.begin({.writes = transfer_.stores,
                    .offset = offset_of(of.block) + of.done,
                    .bytes = slot_bytes(slot, of.block).subspan(static_cast<size_t>(of.done)),
                    .tag = tag_ + static_cast<uint64_t>(slot)});
    ++disk_.under_way;
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
  DiskShare& disk_;
  uint64_t tag_;
  int64_t first_ = 0, count_ = 0;  // blocks of the value
  int64_t next_ = 0, ended_ = 0;   // how many of them were begun, and have been carried
  std::span<std::byte> staging_;
  std::array<Slot, kMostBlocksUnderWay> slots_;
  std::array<int64_t, kMostBlocksUnderWay> slot_begins_{}, free_{};
  int64_t free_count_ = 0, slot_bytes_ = 0;
  bool each_has_its_own_ = false;  // slot, by the block's number
};

// The transfer whose turn it is, and the one after it.
class DiskLane::Flights {
 public:
  Flights(int file, Device& device, const DiskBlocks& how, const BlockIoMaker& make_io)
      : how_(how),
        copies_(device.stream()),
        io_(make_io(file, static_cast<int>(how.under_way))),
        disk_{*io_, *copies_, how.under_way} {}
  Flights(const Flights&) = delete;
  Flights& operator=(const Flights&) = delete;
  ~Flights() { drain(); }

  std::string_view way() const { return io_->name(); }

  void carry(const DiskTransfer& transfer, WorkQueue<DiskTransfer>& queue) {
    try {
      Blocks& now = of_turn(transfer);
      for (now.begin_more(); !now.has_ended(); now.begin_more()) {
        if (now.has_begun_all()) begin_next(queue);
        take_answer(now);
      }
    } catch (...) {
      drain();  // the system writes into staging, and reads it, until a request has ended
      throw;
    }
    flights_[turn_].blocks.reset();
    turn_ = 1 - turn_;
  }

 private:
  struct Flight {
    std::optional<Blocks> blocks;
    std::exception_ptr error;  // of blocks that were begun before its turn
  };

  static constexpr uint64_t tag_of(size_t flight) { return flight * kMostBlocksUnderWay; }

  void begin(size_t flight, const DiskTransfer& transfer) {
    flights_[flight].blocks.emplace(transfer, disk_, how_, tag_of(flight));
  }

  Blocks& of_turn(const DiskTransfer& transfer) {
    Flight& of = flights_[turn_];
    if (of.error) std::rethrow_exception(of.error);
    if (!of.blocks) begin(turn_, transfer);
    invariant(&of.blocks->transfer() == &transfer, "a transfer was begun before its turn, which is another's");
    return *of.blocks;
  }

  // Errors are said when its turn comes: they are not those of the transfer before it.
  void begin_next(WorkQueue<DiskTransfer>& queue) {
    if (disk_.under_way == disk_.most) return;
    Flight& next = flights_[1 - turn_];
    if (next.error) return;
    try {
      if (!next.blocks) {
        const DiskTransfer* const transfer = queue.following();
        if (transfer == nullptr) return;
        begin(1 - turn_, *transfer);
      }
      next.blocks->begin_more();
    } catch (...) {
      next.error = std::current_exception();
    }
  }

  void take_answer(Blocks& now) {
    const BlockEnd end = ended();
    --disk_.under_way;
    const auto flight = static_cast<size_t>(end.tag / kMostBlocksUnderWay);
    const auto slot = static_cast<int64_t>(end.tag % kMostBlocksUnderWay);
    if (flight == turn_) return now.answered(slot, end.result);
    Flight& next = flights_[flight];
    if (next.error) return;
    try {
      next.blocks->answered(slot, end.result);
    } catch (...) {
      next.error = std::current_exception();
    }
  }

  // However long the disk takes: a rank that waits for it does not hang.
  BlockEnd ended() {
    const DiskWait waits;
    return io_->end();
  }

  void drain() {
    for (; disk_.under_way > 0; --disk_.under_way) io_->end();
  }

  DiskBlocks how_;
  std::unique_ptr<DeviceStream> copies_;
  std::unique_ptr<BlockIo> io_;
  DiskShare disk_;
  std::array<Flight, 2> flights_;
  size_t turn_ = 0;
};

DiskLane::DiskLane(int file, Device& device, const DiskBlocks& blocks, const BlockIoMaker& make_io)
    : flights_(std::make_unique<Flights>(file, device, blocks, make_io)),
      queue_([this](const DiskTransfer& transfer) { flights_->carry(transfer, queue_); }) {}

DiskLane::~DiskLane() = default;

std::string_view DiskLane::way() const {
  return flights_->way();
}

}  // namespace trireme
