#include "trireme/exec/disk/disk_lane.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <random>

#include "trireme/base/disk_wait.h"
#include "trireme/base/error.h"
#include "trireme/exec/disk/blocks.h"
#include "trireme/exec/disk/swap_file.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::disk_lane_test {
namespace {

using testing::HasSubstr;

constexpr int64_t kBlockBytes = DiskBlocks().bytes, kBlocksUnderWay = DiskBlocks().under_way;

HostTensor random_bytes(int64_t bytes, uint32_t seed) {
  HostTensor out({DType::kU8, {bytes}});
  std::minstd_rand random(seed);
  for (uint8_t& each : out.as<uint8_t>()) each = static_cast<uint8_t>(random() >> 8);
  return out;
}

bool are_equal(const HostTensor& a, const HostTensor& b) {
  return std::ranges::equal(a.view().raw(), b.view().raw());
}

template <class Call>
std::string disk_error(Call&& call) {
  try {
    call();
  } catch (const Error& e) {
    return fmt::format("{}: {}", to_string(e.kind()), e.text());
  }
  return "";
}

// A file, and a lane that stores and loads in it.
class Stored {
 public:
  explicit Stored(const BlockIoMaker& make_io = block_io, int64_t bytes = 8 << 20)
      : file_("", bytes), lane_(file_.file(), cpu_device(), {}, make_io) {
    lane_.reserve(1);
  }
  int file() const { return file_.file(); }
  const DiskLane& lane() const { return lane_; }
  void transfer(bool stores, const HostTensor& value, DiskValue& at, int64_t begin = 0) {
    const HostTensor staging({DType::kU8, {staged_by_disk(value.view().bytes(), {})}});
    const DiskTransfer transfer{
        .stores = stores, .value = value.view(), .at = &at, .begin = begin, .staging = staging.view().raw()};
    lane_.wait(lane_.put(transfer));
  }

 private:
  SwapFile file_;
  DiskLane lane_;
};

std::unique_ptr<BlockIo> by_threads(int file, int most) {
  return io_by_threads(file, most);
}

class EveryWay : public testing::TestWithParam<bool> {};

// Parts are carried by themselves and with others, in whatever order.
TEST_P(EveryWay, parts_of_a_value_go_and_come_alone_and_together) {
  Stored disk(GetParam() ? BlockIoMaker(by_threads) : BlockIoMaker(block_io));
  const int64_t bytes = 3 * kBlockBytes + 777;
  const std::vector<int64_t> begins{0, kSectorBytes, 3 * kSectorBytes, kBlockBytes + 5 * kSectorBytes, bytes};
  DiskValue at("w", kSectorBytes, bytes, {begins.begin() + 1, begins.end() - 1});
  HostTensor want = random_bytes(bytes, 1);
  disk.transfer(true, want, at);
  for (const size_t i : {size_t{2}, size_t{0}, size_t{3}}) {
    const HostTensor part = random_bytes(begins[i + 1] - begins[i], static_cast<uint32_t>(7 + i));
    disk.transfer(true, part, at, begins[i]);
    std::ranges::copy(part.view().raw(), want.view().raw().begin() + begins[i]);
  }
  HostTensor whole = random_bytes(bytes, 2);
  disk.transfer(false, whole, at);
  EXPECT_TRUE(are_equal(whole, want));
  for (size_t i = 0; i + 1 < begins.size(); ++i) {
    const HostTensor part = random_bytes(begins[i + 1] - begins[i], 3);
    disk.transfer(false, part, at, begins[i]);
    EXPECT_TRUE(std::ranges::equal(
        part.view().raw(),
        want.view().raw().subspan(static_cast<size_t>(begins[i]), static_cast<size_t>(part.view().bytes()))))
        << i;
  }
  EXPECT_THROW(disk.transfer(false, random_bytes(100, 4), at, 0), Error);  // the middle of a block
}

TEST_P(EveryWay, what_is_stored_comes_back_whatever_its_size) {
  Stored disk(GetParam() ? BlockIoMaker(by_threads) : BlockIoMaker(block_io));
  if (GetParam()) EXPECT_EQ(disk.lane().way(), "threads");
  int64_t offset = 0;
  std::deque<DiskValue> places;
  std::vector<HostTensor> values;
  for (const int64_t bytes : {int64_t{1}, kSectorBytes - 1, kSectorBytes, kBlockBytes, kBlockBytes + 1,
                              kBlocksUnderWay * kBlockBytes, 6 * kBlockBytes + 12345}) {
    values.push_back(random_bytes(bytes, static_cast<uint32_t>(bytes)));
    disk.transfer(true, values.back(), places.emplace_back("v", offset, bytes));
    offset += bytes_on_disk(bytes);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const HostTensor come(values[i].type());
    disk.transfer(false, come, places[i]);
    EXPECT_TRUE(are_equal(come, values[i])) << places[i].bytes;
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, EveryWay, testing::Bool(),
                         [](const auto& about) { return about.param ? "threads" : "best"; });

// Of values that are put in one after the other the next is begun before the last has ended.
TEST_P(EveryWay, values_in_a_row_go_and_come_as_they_are) {
  const SwapFile file("", 32 << 20);
  DiskLane lane(file.file(), cpu_device(), {}, GetParam() ? BlockIoMaker(by_threads) : BlockIoMaker(block_io));
  const std::vector<int64_t> sizes{3 * kBlockBytes + 5, 100,         kBlockBytes, 9 * kBlockBytes + 1, 1,
                                   2 * kBlockBytes,     kSectorBytes};
  constexpr size_t kTimes = 2;
  lane.reserve(kTimes * sizes.size());
  std::deque<DiskValue> places;
  std::deque<HostTensor> values, come, staging;
  int64_t offset = 0;
  for (size_t i = 0; i < kTimes * sizes.size(); ++i) {
    const int64_t bytes = sizes[i % sizes.size()];
    values.push_back(random_bytes(bytes, static_cast<uint32_t>(i + 1)));
    come.emplace_back(values.back().type());
    staging.emplace_back(TensorType{DType::kU8, {staged_by_disk(bytes, {})}});
    // Parts of other lengths than a block's, too.
    const std::vector<int64_t> cuts =
        bytes > 2 * kBlockBytes ? std::vector<int64_t>{kSectorBytes, kBlockBytes} : std::vector<int64_t>{};
    places.emplace_back(fmt::format("v{}", i), offset, bytes, cuts);
    offset += bytes_on_disk(bytes);
  }
  for (const bool stores : {true, false}) {
    std::deque<DiskTransfer> transfers;
    uint64_t last = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      transfers.push_back({.stores = stores,
                           .value = (stores ? values : come)[i].view(),
                           .at = &places[i],
                           .staging = staging[i].view().raw()});
      last = lane.put(transfers.back());
    }
    lane.wait(last);
  }
  for (size_t i = 0; i < values.size(); ++i) EXPECT_TRUE(are_equal(come[i], values[i])) << i;
}

TEST(DiskLane, bytes_that_were_changed_name_the_value_and_end_the_run) {
  Stored disk;
  const HostTensor value = random_bytes(3 * kBlockBytes, 1), come(value.type());
  DiskValue at("h.0.w.m", kBlockBytes, 3 * kBlockBytes);
  disk.transfer(true, value, at);
  const HostTensor older = random_bytes(2 * kSectorBytes, 2);
  const auto address = reinterpret_cast<uintptr_t>(older.view().data);
  const auto aligned = (address + kSectorBytes - 1) / kSectorBytes * kSectorBytes;
  ASSERT_EQ(::pwrite(disk.file(), reinterpret_cast<void*>(aligned), kSectorBytes, 2 * kBlockBytes), kSectorBytes);
  const std::string text = disk_error([&] { disk.transfer(false, come, at); });
  EXPECT_THAT(text, HasSubstr("'h.0.w.m' was changed on the disk: bytes 1048576 to 1572863 of the tier's file"));
  EXPECT_THAT(text, HasSubstr(std::string(to_string(ErrorKind::kCorrupt))));
  EXPECT_EQ(disk_error([&] { disk.transfer(true, value, at); }), text) << "nothing is begun after an error";
}

// Though its blocks were read before the value before it had come.
TEST(DiskLane, an_error_is_of_the_value_that_it_is_of) {
  const SwapFile file("", 8 << 20);
  DiskLane lane(file.file(), cpu_device());
  lane.reserve(2);
  const HostTensor value = random_bytes(3 * kBlockBytes, 1), come(value.type());
  const HostTensor staging({DType::kU8, {staged_by_disk(3 * kBlockBytes, {})}}), other(staging.type());
  DiskValue good("good", 0, 3 * kBlockBytes), bad("bad", 3 * kBlockBytes, 3 * kBlockBytes);
  lane.wait(
      lane.put(DiskTransfer{.stores = true, .value = value.view(), .at = &good, .staging = staging.view().raw()}));
  const DiskTransfer first{.value = come.view(), .at = &good, .staging = staging.view().raw()};
  const HostTensor never(value.type());
  const DiskTransfer second{.value = never.view(), .at = &bad, .staging = other.view().raw()};
  const uint64_t one = lane.put(first), two = lane.put(second);
  EXPECT_EQ(disk_error([&] { lane.wait(one); }), "");
  EXPECT_TRUE(are_equal(come, value));
  EXPECT_THAT(disk_error([&] { lane.wait(two); }),
              HasSubstr("'bad' is read from the disk before it was written there"));
}

TEST(DiskLane, what_was_never_written_is_not_read) {
  Stored disk;
  DiskValue at("w", 0, 100);
  EXPECT_THAT(disk_error([&] { disk.transfer(false, random_bytes(100, 1), at); }),
              HasSubstr("'w' is read from the disk before it was written there"));
}

// The system's answers as a test wants them: after a few good ones the next.
class Answers : public BlockIo {
 public:
  Answers(std::unique_ptr<BlockIo> real, int good, int64_t answer)
      : real_(std::move(real)), good_(good), answer_(answer) {}
  std::string_view name() const override { return "answers"; }
  void begin(const BlockRequest& request) override {
    if (--good_ < 0) {
      if (answer_ <= 0 && good_ < -3) return real_->begin(request);  // again: it works
      given_.push_back({request.tag, answer_});
      return;
    }
    BlockRequest part = request;
    if (answer_ > 0) part.bytes = part.bytes.first(std::min<size_t>(part.bytes.size(), static_cast<size_t>(answer_)));
    real_->begin(part);
  }
  BlockEnd end() override {
    if (given_.empty()) return real_->end();
    const BlockEnd out = given_.front();
    given_.pop_front();
    return out;
  }

 private:
  std::unique_ptr<BlockIo> real_;
  int good_;
  int64_t answer_;
  std::deque<BlockEnd> given_;
};

BlockIoMaker answering(int good, int64_t answer) {
  return [=](int file, int most) { return std::make_unique<Answers>(io_by_threads(file, most), good, answer); };
}

TEST(DiskLane, errors_of_the_system_say_what_was_to_be_done_with_which_value) {
  const HostTensor value = random_bytes(9 * kBlockBytes, 1);
  const auto stored = [&](int64_t answer) {
    Stored disk(answering(6, answer));
    DiskValue at("wte.v", 0, value.view().bytes());
    return disk_error([&] { disk.transfer(true, value, at); });
  };
  EXPECT_THAT(stored(-ENOSPC), HasSubstr("cannot write 'wte.v' to the tier 'disk': No space left on device; free "
                                         "space there or choose another directory"));
  EXPECT_THAT(stored(-EIO), HasSubstr("cannot write 'wte.v' to the tier 'disk': Input/output error; use another disk"));
  EXPECT_THAT(stored(0), HasSubstr("its file ends too early"));
  Stored disk(answering(9, -EIO));
  DiskValue at("wte.v", 0, value.view().bytes());
  disk.transfer(true, value, at);
  EXPECT_THAT(
      disk_error([&] { disk.transfer(false, value, at); }),
      HasSubstr("cannot read 'wte.v' from the tier 'disk': Input/output error; use another disk (--disk) and go on"));
}

std::atomic<int> late_waits{0};

// A disk that does nothing until it is waited for, and then what it was asked for last.
class LateIo : public BlockIo {
 public:
  LateIo(int file, int most) : inner_(io_by_threads(file, most)) {}
  std::string_view name() const override { return "late"; }
  void begin(const BlockRequest& request) override { asked_.push_back(request); }
  BlockEnd end() override {
    EXPECT_EQ(late_waits, 1) << "whoever watches the process takes it for one that hangs";
    inner_->begin(asked_.back());
    asked_.pop_back();
    return inner_->end();
  }

 private:
  std::unique_ptr<BlockIo> inner_;
  std::vector<BlockRequest> asked_;
};

TEST(DiskLane, a_disk_that_is_late_and_answers_in_another_order_changes_no_byte) {
  count_disk_waits(late_waits);
  Stored disk([](int file, int most) { return std::make_unique<LateIo>(file, most); });
  const HostTensor value = random_bytes(9 * kBlockBytes + 5, 5), come(value.type());
  DiskValue at("w", kSectorBytes, value.view().bytes(), {kSectorBytes, 4 * kBlockBytes});
  disk.transfer(true, value, at);
  disk.transfer(false, come, at);
  EXPECT_TRUE(are_equal(come, value));
}

TEST(DiskLane, what_the_system_does_in_part_or_wants_again_is_done_whole) {
  const HostTensor value = random_bytes(5 * kBlockBytes + 77, 3), come(value.type());
  for (const int64_t answer : {int64_t{3 * kSectorBytes}, int64_t{-EAGAIN}, int64_t{-EINTR}}) {
    Stored disk(answering(answer > 0 ? 1 << 20 : 2, answer));
    DiskValue at("w", kSectorBytes, value.view().bytes());
    disk.transfer(true, value, at);
    disk.transfer(false, come, at);
    EXPECT_TRUE(are_equal(come, value)) << answer;
  }
}

}  // namespace
}  // namespace trireme::disk_lane_test
