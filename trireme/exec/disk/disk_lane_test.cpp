#include "trireme/exec/disk/disk_lane.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <random>

#include "trireme/base/error.h"
#include "trireme/exec/disk/blocks.h"
#include "trireme/exec/disk/swap_file.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::disk_lane_test {
namespace {

using testing::HasSubstr;

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
      : file_("", bytes), lane_(file_.file(), cpu_device(), make_io) {
    lane_.reserve(1);
  }
  int file() const { return file_.file(); }
  const DiskLane& lane() const { return lane_; }
  void carry(bool stores, const HostTensor& value, DiskValue& at) {
    const HostTensor staging({DType::kU8, {staged_by_disk(at.bytes)}});
    const DiskTransfer transfer{.stores = stores, .value = value.view(), .at = &at, .staging = staging.view().raw()};
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

TEST_P(EveryWay, what_is_stored_comes_back_whatever_its_size) {
  Stored disk(GetParam() ? BlockIoMaker(by_threads) : BlockIoMaker(block_io));
  if (GetParam()) EXPECT_EQ(disk.lane().way(), "threads");
  int64_t offset = 0;
  std::deque<DiskValue> places;
  std::vector<HostTensor> values;
  for (const int64_t bytes : {int64_t{1}, kSectorBytes - 1, kSectorBytes, kBlockBytes, kBlockBytes + 1,
                              kBlocksUnderWay * kBlockBytes, 6 * kBlockBytes + 12345}) {
    values.push_back(random_bytes(bytes, static_cast<uint32_t>(bytes)));
    disk.carry(true, values.back(), places.emplace_back(DiskValue{.name = "v", .offset = offset, .bytes = bytes}));
    offset += bytes_on_disk(bytes);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const HostTensor come(values[i].type());
    disk.carry(false, come, places[i]);
    EXPECT_TRUE(are_equal(come, values[i])) << places[i].bytes;
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, EveryWay, testing::Bool(),
                         [](const auto& about) { return about.param ? "threads" : "best"; });

TEST(DiskLane, bytes_that_were_changed_name_the_value_and_end_the_run) {
  Stored disk;
  const HostTensor value = random_bytes(3 * kBlockBytes, 1), come(value.type());
  DiskValue at{.name = "h.0.w.m", .offset = kBlockBytes, .bytes = 3 * kBlockBytes};
  disk.carry(true, value, at);
  const HostTensor older = random_bytes(2 * kSectorBytes, 2);
  const auto address = reinterpret_cast<uintptr_t>(older.view().data);
  const auto aligned = (address + kSectorBytes - 1) / kSectorBytes * kSectorBytes;
  ASSERT_EQ(::pwrite(disk.file(), reinterpret_cast<void*>(aligned), kSectorBytes, 2 * kBlockBytes), kSectorBytes);
  const std::string text = disk_error([&] { disk.carry(false, come, at); });
  EXPECT_THAT(text, HasSubstr("'h.0.w.m' was changed on the disk: bytes 1048576 to 1572863 of the tier's file"));
  EXPECT_THAT(text, HasSubstr(std::string(to_string(ErrorKind::kCorrupt))));
  EXPECT_EQ(disk_error([&] { disk.carry(true, value, at); }), text) << "nothing is begun after an error";
}

TEST(DiskLane, what_was_never_written_is_not_read) {
  Stored disk;
  DiskValue at{.name = "w", .offset = 0, .bytes = 100};
  EXPECT_THAT(disk_error([&] { disk.carry(false, random_bytes(100, 1), at); }),
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
    DiskValue at{.name = "wte.v", .offset = 0, .bytes = value.view().bytes()};
    return disk_error([&] { disk.carry(true, value, at); });
  };
  EXPECT_THAT(stored(-ENOSPC), HasSubstr("cannot write 'wte.v' to the tier 'disk': No space left on device; free "
                                         "space there or choose another directory"));
  EXPECT_THAT(stored(-EIO), HasSubstr("cannot write 'wte.v' to the tier 'disk': Input/output error"));
  EXPECT_THAT(stored(0), HasSubstr("its file ends too early"));
  Stored disk(answering(9, -EIO));
  DiskValue at{.name = "wte.v", .offset = 0, .bytes = value.view().bytes()};
  disk.carry(true, value, at);
  EXPECT_THAT(disk_error([&] { disk.carry(false, value, at); }),
              HasSubstr("cannot read 'wte.v' from the tier 'disk': Input/output error"));
}

TEST(DiskLane, what_the_system_does_in_part_or_wants_again_is_done_whole) {
  const HostTensor value = random_bytes(5 * kBlockBytes + 77, 3), come(value.type());
  for (const int64_t answer : {int64_t{3 * kSectorBytes}, int64_t{-EAGAIN}, int64_t{-EINTR}}) {
    Stored disk(answering(answer > 0 ? 1 << 20 : 2, answer));
    DiskValue at{.name = "w", .offset = kSectorBytes, .bytes = value.view().bytes()};
    disk.carry(true, value, at);
    disk.carry(false, come, at);
    EXPECT_TRUE(are_equal(come, value)) << answer;
  }
}

}  // namespace
}  // namespace trireme::disk_lane_test
