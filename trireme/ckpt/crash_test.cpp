// What is left of a save that is cut short: by a crash between any two operations on the disk, by a
// full disk, by a disk that may not be written, or by damage made on purpose.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/hash.h"
#include "trireme/base/rng.h"
#include "trireme/ckpt/checkpoint.h"

namespace trireme::ckpt::crash_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Carries out the first `limit` operations; from then on everything fails, as if the process were
// gone. A write that is cut leaves its first half. Keeps a list of what was done.
class FailingDisk final : public Disk {
 public:
  explicit FailingDisk(int limit) : limit_(limit) {}

  int create(const std::string& path) override {
    step("create", path);
    return Disk::create(path);
  }
  void write(int file, std::span<const std::byte> bytes, const std::string& path) override {
    if (static_cast<int>(done.size()) == limit_) Disk::write(file, bytes.first(bytes.size() / 2), path);
    step("write", path);
    Disk::write(file, bytes, path);
  }
  void sync(int, const std::string& path) override { step("sync", path); }
  void close(int file, const std::string& path) override {
    Disk::close(file, path);  // the system does that for a dead process
    step("close", path);
  }
  void rename(const std::string& from, const std::string& to) override {
    step("rename", to);
    Disk::rename(from, to);
  }
  void sync_directory(const std::string& path) override { step("sync_directory", path); }
  void make_directory(const std::string& path) override {
    step("make_directory", path);
    Disk::make_directory(path);
  }
  void symlink(const std::string& target, const std::string& path) override {
    step("symlink", path);
    Disk::symlink(target, path);
  }
  void remove(const std::string& path) override {
    step("remove", path);
    Disk::remove(path);
  }

  std::vector<std::string> done;

 private:
  void step(const std::string& what, const std::string& path) {
    if (static_cast<int>(done.size()) >= limit_) fail(ErrorKind::kIo, "the process is gone");
    done.push_back(what + " " + path);
  }
  int limit_;
};

constexpr int kNoLimit = 1 << 30;

struct Model {
  HostTensor w;
  HostTensor m;

  explicit Model(float value) : w({DType::kF32, {8}}), m({DType::kF32, {8}}) {
    std::ranges::fill(w.as<float>(), value);
    std::ranges::fill(m.as<float>(), -value);
  }
  std::vector<Piece> pieces() const {
    return {{"w", "param", {8}, {{0}, {8}}, w.view()}, {"m", "state", {8}, {{0}, {8}}, m.view()}};
  }
};

void save_model(const std::string& root, int64_t step, float value, Disk& on, int keep_last = 0) {
  const Model model(value);
  save(root, model.pieces(), {.step = step, .keep_last = keep_last}, {}, on);
}

// The newest checkpoint's value, which must be whole; its step.
int64_t check_latest(const std::string& root, float value_of_old, float value_of_new, int64_t new_step) {
  const Reader reader(root);
  reader.verify();
  const float expected = reader.step() == new_step ? value_of_new : value_of_old;
  EXPECT_EQ(reader.read("w").as<float>()[0], expected);
  EXPECT_EQ(reader.read("m").as<float>()[7], -expected);
  return reader.step();
}

TEST(Crash, AfterAnyOperationTheOldOrTheNewCheckpointIsWhole) {
  int old_seen = 0;
  int new_seen = 0;
  for (int limit = 0;; ++limit) {
    ASSERT_LT(limit, 500) << "the save never came to its end";
    const TempDirectory dir;
    FailingDisk good(kNoLimit);
    save_model(dir.path(), 1, 1.0F, good);
    save_model(dir.path(), 2, 2.0F, good);
    FailingDisk failing(limit);
    bool is_whole = true;
    try {
      save_model(dir.path(), 3, 3.0F, failing, 1);  // prunes 1 and 2 in the end
    } catch (const Error&) {
      is_whole = false;
    }

    const int64_t step = check_latest(dir.path(), 2.0F, 3.0F, 3);
    ASSERT_TRUE(step == 3 || (step == 2 && !is_whole)) << "limit " << limit;
    (step == 3 ? new_seen : old_seen) += 1;
    // The next run saves the step after, and nothing of the torn one stays.
    save_model(dir.path(), 4, 4.0F, good, 1);
    ASSERT_EQ(check_latest(dir.path(), 0.0F, 4.0F, 4), 4);
    ASSERT_THAT(list_directory(dir.path()), ElementsAre("latest", "step-000004")) << "limit " << limit;
    if (static_cast<int>(failing.done.size()) < limit) break;  // it was not cut any more
  }
  EXPECT_GT(old_seen, 10);
  EXPECT_GT(new_seen, 10);
}

TEST(Crash, WhileAStepIsSavedAgainOneOfTheTwoIsWhole) {
  for (int limit = 0;; ++limit) {
    ASSERT_LT(limit, 500) << "the save never came to its end";
    const TempDirectory dir;
    FailingDisk good(kNoLimit);
    save_model(dir.path(), 3, 2.0F, good);
    FailingDisk failing(limit);
    try {
      save_model(dir.path(), 3, 3.0F, failing);
    } catch (const Error&) {
      ASSERT_LT(limit, 499);
    }
    const Reader reader(dir.path());
    reader.verify();
    const float value = reader.read("w").as<float>()[0];
    ASSERT_TRUE(value == 2.0F || value == 3.0F);
    ASSERT_EQ(reader.read("m").as<float>()[0], -value);
    if (static_cast<int>(failing.done.size()) < limit) {
      EXPECT_EQ(value, 3.0F);
      break;
    }
  }
}

// What a power failure may undo is what was not yet synced: so every file is synced before it gets
// its name, its name before COMMIT is begun, and COMMIT before anything older is removed.
TEST(Crash, TheOrderOfOperationsSurvivesAPowerFailure) {
  const TempDirectory dir;
  FailingDisk good(kNoLimit);
  save_model(dir.path(), 1, 1.0F, good);
  FailingDisk disk(kNoLimit);
  save_model(dir.path(), 2, 2.0F, disk, 1);
  const std::string step = dir / "step-000002";
  const auto at = [&](const std::string& operation, size_t from = 0) {
    const auto found = std::find(disk.done.begin() + static_cast<std::ptrdiff_t>(from), disk.done.end(), operation);
    EXPECT_NE(found, disk.done.end()) << operation;
    return static_cast<size_t>(found - disk.done.begin());
  };

  for (const std::string name : {"data-00000.safetensors", "index.json", "COMMIT"}) {
    const std::string path = join_path(step, name);
    EXPECT_LT(at("write " + path), at("sync " + path)) << name;
    EXPECT_LT(at("sync " + path), at("rename " + path)) << name;
    EXPECT_LT(at("rename " + path), at("sync_directory " + step, at("rename " + path))) << name;
  }
  const auto begun = std::ranges::find_if(
      disk.done, [&](const std::string& operation) { return operation.starts_with("create " + step + "/COMMIT."); });
  ASSERT_NE(begun, disk.done.end());
  const auto commit = static_cast<size_t>(begun - disk.done.begin());
  EXPECT_LT(at("sync_directory " + dir.path()), commit);
  EXPECT_LT(at("sync_directory " + step, at("rename " + step + "/index.json")), commit);
  const size_t removal = at("remove " + (dir / "step-000001/COMMIT"));
  EXPECT_LT(at("sync_directory " + step, at("rename " + step + "/COMMIT")), removal);
  EXPECT_LT(at("sync_directory " + (dir / "step-000001"), removal),
            at("remove " + (dir / "step-000001/data-00000.safetensors")));
}

TEST(Crash, AFullDiskLeavesTheEarlierCheckpointAndNoTraces) {
  const TempDirectory dir;
  if (::mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=256k") != 0) {
    GTEST_SKIP() << "[skip: no right to mount a small file system]";
  }
  Disk& real = disk();
  save_model(dir.path(), 1, 1.0F, real);
  const HostTensor big({DType::kF32, {1 << 20}});
  const Piece piece{"w", "param", big.shape(), Box::whole(big.shape()), big.view()};
  std::string text;
  try {
    save(dir.path(), {&piece, 1}, {.step = 2});
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kIo);
    text = e.text();
  }
  const auto names = list_directory(dir.path());
  const int64_t step = check_latest(dir.path(), 1.0F, 0.0F, 2);
  ::umount(dir.path().c_str());

  EXPECT_THAT(text, HasSubstr("cannot write 4194432 bytes to"));
  EXPECT_THAT(text, HasSubstr("are free; free space there or choose another directory"));
  EXPECT_THAT(names, ElementsAre("latest", "step-000001"));
  EXPECT_EQ(step, 1);
}

TEST(Crash, ADiskThatFillsUpWhileWritingLeavesTheEarlierCheckpoint) {
  // Another program takes the space after we looked: the write itself fails.
  class FullDisk final : public Disk {
   public:
    void write(int, std::span<const std::byte>, const std::string& path) override {
      fail(ErrorKind::kIo, "cannot write '{}': No space left on device", path);
    }
  };
  const TempDirectory dir;
  FailingDisk good(kNoLimit);
  save_model(dir.path(), 1, 1.0F, good);
  FullDisk full;

  EXPECT_THROW(save_model(dir.path(), 2, 2.0F, full), Error);

  EXPECT_EQ(check_latest(dir.path(), 1.0F, 2.0F, 2), 1);
  EXPECT_THAT(list_directory(dir.path()), ElementsAre("latest", "step-000001"));
}

TEST(Crash, APlaceThatCannotBeWrittenIsNamed) {
  const TempDirectory dir;
  atomic_write(dir / "file", "x");
  try {
    save_model(dir / "file/run", 1, 1.0F, disk());
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kIo);
    EXPECT_EQ(e.text(), fmt::format("cannot make the directory '{}': Not a directory", dir / "file/run"));
  }
}

std::string index_of_small() {
  Manifest manifest;
  manifest.meta = {{"k", "v"}};
  manifest.files["data-00000.safetensors"] = {64 + 32, 64, 7};
  manifest.tensors["w"] = {{DType::kF32, {2, 4}},
                           "param",
                           {{"data-00000.safetensors", "w@[0:1,0:4]", {{0, 0}, {1, 4}}, {1}},
                            {"data-00000.safetensors", "w@[1:2,0:4]", {{1, 0}, {1, 4}}, {2}}}};
  return print_index(manifest);
}

std::string index_error(const std::string& text, ErrorKind kind = ErrorKind::kCorrupt) {
  try {
    parse_index(text, "index", true);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    return e.text();
  }
  return "no error";
}

TEST(Index, ReadsWhatItPrints) {
  const std::string text = index_of_small();
  EXPECT_EQ(print_index(parse_index(text, "index", true)), text);
}

TEST(Index, ValuesThatCannotBeRightAreRefused) {
  const std::string good = index_of_small();
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string bad = good;
    const size_t at = bad.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return bad.replace(at, from.size(), to);
  };

  EXPECT_EQ(index_error(with("trireme.checkpoint", "other")), "index has format 'other', not 'trireme.checkpoint'");
  EXPECT_EQ(index_error(with("\"version\": 1", "\"version\": 2"), ErrorKind::kUnsupported),
            "index has version 2; this program reads version 1");
  EXPECT_EQ(index_error(with("\"step\": 0", "\"step\": -1")), "index step is -1, not an integer from 0 to 2^63 - 1");
  EXPECT_EQ(index_error(with("\"step\"", "\"stop\"")), "index has no 'step'");
  EXPECT_EQ(index_error(with("\"block_bytes\": 1048576", "\"block_bytes\": 0")),
            "index block_bytes is 0, not from 1 to 2^30");
  EXPECT_EQ(index_error(with("\"data-00000.safetensors\"", "\"../data\"")),
            "index: '../data' is not a plain file name");
  EXPECT_EQ(index_error(with("\"file\": \"data-00000.safetensors\"", "\"file\": \"b\"")),
            "index tensor 'w' chunk 0 lies in 'b', which is not among the files");
  EXPECT_EQ(index_error(with("\"header_bytes\": 64", "\"header_bytes\": 97")),
            "index file 'data-00000.safetensors' has 96 bytes but a header of 97");
  EXPECT_EQ(index_error(with("\"header_crc32c\": 7", "\"header_crc32c\": 4294967296")),
            "index file 'data-00000.safetensors' header_crc32c is 4294967296, not a 32-bit checksum");
  EXPECT_EQ(index_error(with("\"f32\"", "\"f31\"")), "index tensor 'w' has elements of unknown type 'f31'");
  EXPECT_EQ(index_error("[1]"), "index is array, not an object");
  EXPECT_THAT(index_error("{"), HasSubstr("index: not valid JSON"));
  Manifest hole = parse_index(good, "index", true);
  hole.tensors["w"].chunks.pop_back();
  EXPECT_EQ(index_error(print_index(hole)), "index tensor 'w' f32[2,4]: its chunks hold 4 of 8 elements");
  Manifest overlap = parse_index(good, "index", true);
  overlap.tensors["w"].chunks[1].box = {{0, 0}, {1, 4}};
  EXPECT_EQ(index_error(print_index(overlap)), "index tensor 'w' f32[2,4]: chunks [0:1,0:4] and [0:1,0:4] overlap");
  Manifest outside = parse_index(good, "index", true);
  outside.tensors["w"].chunks[1].box.start = {2, 0};
  EXPECT_EQ(index_error(print_index(outside)),
            "index tensor 'w' chunk 1 starts at [2,0] with size [1,4], which is not inside f32[2,4]");
  Manifest crcs = parse_index(good, "index", true);
  crcs.tensors["w"].chunks[1].crc32c.push_back(1);
  EXPECT_EQ(index_error(print_index(crcs)), "index tensor 'w' chunk 1 has 2 checksums; its size asks for 1");
}

TEST(Index, UnknownNamesAreIgnoredWithinAVersion) {
  std::string text = index_of_small();
  text.insert(1, R"("later": {"x": [1, 2]},)");
  EXPECT_EQ(print_index(parse_index(text, "index", true)), index_of_small());
}

TEST(Index, TwentyThousandRandomMutationsOnlyEverGiveErrors) {
  const std::string good = index_of_small();
  int refused = 0;
  for (uint64_t round = 0; round < 20000; ++round) {
    std::string text = good;
    std::array<uint32_t, 8> r{};
    fill_random_bits({3, 3}, 0, round, r);
    for (size_t i = 0; i < 1 + r[0] % 3; ++i) {
      static constexpr std::string_view kLikely = "0123456789[]{}\",:-e. \\";
      text[r[i + 1] % text.size()] = kLikely[r[i + 4] % kLikely.size()];
    }
    try {
      parse_index(text, "index", true);
    } catch (const Error& e) {
      ASSERT_TRUE(e.kind() == ErrorKind::kCorrupt || e.kind() == ErrorKind::kUnsupported) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 5000);
}

TEST(Commit, ReadsWhatItPrintsAndNothingElse) {
  Commit commit{sha256_hex("x"), {{"index.json", 10}, {"data-00000.safetensors", 96}}};
  const std::string good = print_commit(commit);
  const Commit read = parse_commit(good, "COMMIT");

  EXPECT_EQ(read.index_sha256, commit.index_sha256);
  EXPECT_EQ(read.files, commit.files);
  for (size_t at = 0; at < good.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string bad = good;
      bad[at] = static_cast<char>(value);
      if (bad == good) continue;
      ASSERT_THROW(parse_commit(bad, "COMMIT"), Error) << at << " " << value;
    }
    ASSERT_THROW(parse_commit(good.substr(0, at), "COMMIT"), Error);
  }
  EXPECT_THROW(parse_commit(good + "\n", "COMMIT"), Error);
}

TEST(StepName, ReadsWhatItPrintsAndNothingElse) {
  EXPECT_EQ(to_string(StepName{123, 0}), "step-000123");
  EXPECT_EQ(to_string(StepName{12345678, 2}), "step-12345678.2");
  for (const StepName name : {StepName{0, 0}, StepName{999999, 1}, StepName{1000000, 12}}) {
    EXPECT_EQ(parse_step_name(to_string(name)), name);
  }
  for (const char* text :
       {"step-", "step-1", "step-000123.0", "step-000123.", "step-000123x", "step-0001234", "latest", "step--00001"}) {
    EXPECT_FALSE(parse_step_name(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace trireme::ckpt::crash_test
