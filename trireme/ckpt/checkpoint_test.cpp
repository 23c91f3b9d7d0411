#include "trireme/ckpt/checkpoint.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "trireme/ckpt/checkpoints_for_tests.h"
#include "trireme/ckpt/safetensors.h"

namespace trireme::ckpt::checkpoint_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

std::vector<Piece> whole_pieces(const std::vector<std::pair<std::string, HostTensor>>& tensors) {
  std::vector<Piece> out;
  for (const auto& [name, tensor] : tensors) {
    out.push_back({name, "param", tensor.shape(), Box::whole(tensor.shape()), tensor.view()});
  }
  return out;
}

std::vector<std::pair<std::string, HostTensor>> small_model() {
  std::vector<std::pair<std::string, HostTensor>> out;
  out.emplace_back("w", filled({DType::kF32, {4, 6}}, 1));
  out.emplace_back("b", filled({DType::kBF16, {5}}, 2));
  out.emplace_back("scale", filled({DType::kF64, {}}, 3));
  return out;
}

std::string save_small(const std::string& root, int64_t step, int keep_last = 0) {
  QuickDisk quick;
  const auto model = small_model();
  return save(root, whole_pieces(model), {.step = step, .keep_last = keep_last}, {}, quick).path;
}

TEST(Checkpoint, WhatIsSavedIsRead) {
  const TempDirectory dir;
  const auto model = small_model();
  auto pieces = whole_pieces(model);
  pieces[1].role = "state";

  const Saved saved = save(dir / "run", pieces,
                           {.step = 123,
                            .seed = ~uint64_t{0},
                            .mesh = "dp=2,tp=2",
                            .data_position = 4096,
                            .meta = {{"model", "mlp"}, {"loss_scale", "65536"}}});
  const Reader reader(saved.path);

  EXPECT_EQ(saved.path, dir / "run/step-000123");
  EXPECT_THAT(saved.notes, ElementsAre());
  EXPECT_EQ(reader.step(), 123);
  EXPECT_EQ(reader.seed(), ~uint64_t{0});
  EXPECT_EQ(reader.world(), 1);
  EXPECT_EQ(reader.mesh(), "dp=2,tp=2");
  EXPECT_EQ(reader.data_position(), 4096);
  EXPECT_EQ(reader.meta().at("loss_scale"), "65536");
  EXPECT_THAT(reader.names(), ElementsAre("b", "scale", "w"));
  EXPECT_EQ(reader.info("b").role, "state");
  EXPECT_EQ(reader.info("w").type, (TensorType{DType::kF32, {4, 6}}));
  for (const auto& [name, tensor] : model) EXPECT_TRUE(is_equal(reader.read(name), tensor)) << name;
  reader.verify();
}

TEST(Checkpoint, TheDataFileIsAPlainSafetensorsFile) {
  const TempDirectory dir;
  const std::string path = save_small(dir.path(), 1);

  const Weights weights = Weights::open(path);

  EXPECT_TRUE(is_equal(weights.read("w"), small_model()[0].second));
}

TEST(Checkpoint, IsReadThroughItsRootItsDirectoryAndTheLatestLink) {
  const TempDirectory dir;
  save_small(dir.path(), 9);
  save_small(dir.path(), 10);

  EXPECT_EQ(Reader(dir.path()).step(), 10);
  EXPECT_EQ(Reader(dir / "latest").step(), 10);
  EXPECT_EQ(Reader(dir / "step-000009").step(), 9);
  EXPECT_EQ(find_latest(dir.path())->path, dir / "step-000010");
}

TEST(Checkpoint, ReadingRowsReadsTheirBlocksAndNoOthers) {
  const TempDirectory dir;
  const HostTensor whole = filled({DType::kF32, {64, 65536}}, 6);  // 16 MiB, 4 rows a block
  QuickDisk quick;
  const Piece piece{"w", "param", whole.shape(), Box::whole(whole.shape()), whole.view()};
  save(dir.path(), {&piece, 1}, {.step = 1}, {}, quick);
  const Reader reader(dir.path());
  const Box box{{30, 0}, {8, 65536}};  // rows 30 to 37 lie in 3 blocks
  const HostTensor got({DType::kF32, box.size});

  reader.read("w", box, got.view());

  EXPECT_TRUE(is_equal(got, part_of(whole, box)));
  EXPECT_EQ(reader.bytes_read(), 3 * kBlockBytes);
}

TEST(Checkpoint, EveryDamagedByteIsFound) {
  const TempDirectory dir;
  const std::string path = save_small(dir.path(), 5);
  int64_t flips = 0;
  for (const std::string& name : list_directory(path)) {
    const std::string file_path = join_path(path, name);
    const std::string good = read_file(file_path);
    const int file = ::open(file_path.c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_GE(file, 0);
    for (size_t at = 0; at < good.size(); ++at) {
      for (const char flip : {'\x01', '\x80', '\x20'}) {
        const char bad = static_cast<char>(good[at] ^ flip);
        ASSERT_EQ(::pwrite(file, &bad, 1, static_cast<off_t>(at)), 1);
        const Caught e = caught([&] { Reader(path).verify(); });
        ASSERT_EQ(e.kind, ErrorKind::kCorrupt) << name << " byte " << at << ": " << e.text;
        ASSERT_THAT(e.text, HasSubstr(path));
        ++flips;
      }
      ASSERT_EQ(::pwrite(file, &good[at], 1, static_cast<off_t>(at)), 1);
    }
    ::close(file);
  }
  EXPECT_GT(flips, 3000);
  Reader(path).verify();
}

TEST(Checkpoint, DamageNamesFileTensorChunkAndBlock) {
  const TempDirectory dir;
  const std::string path = save_small(dir.path(), 5);
  std::string data = read_file(path + "/data-00000.safetensors");
  data.back() = static_cast<char>(data.back() ^ 1);  // the bf16 tensor is the narrowest and so the last
  atomic_write(path + "/data-00000.safetensors", data);
  const Reader reader(path);

  const Caught e = caught([&] { reader.read("b"); });

  EXPECT_EQ(e.kind, ErrorKind::kCorrupt);
  EXPECT_THAT(e.text, testing::StartsWith(fmt::format("checkpoint '{}': tensor 'b', chunk 'b' of "
                                                      "'data-00000.safetensors': block 0 has checksum ",
                                                      path)));
  EXPECT_TRUE(is_equal(reader.read("w"), small_model()[0].second));  // the others are still good
}

TEST(Checkpoint, FilesCutAtAnyLengthAreRefusedWithBothSizes) {
  const TempDirectory dir;
  const std::string path = save_small(dir.path(), 5);
  for (const std::string& name : list_directory(path)) {
    const std::string good = read_file(join_path(path, name));
    for (size_t size = good.size(); size-- > 0;) {
      ASSERT_EQ(::truncate(join_path(path, name).c_str(), static_cast<off_t>(size)), 0);
      const Caught e = caught([&] { Reader reader(path); });
      ASSERT_EQ(e.kind, ErrorKind::kCorrupt) << name << " " << size << ": " << e.text;
      if (name == kCommitName) continue;
      ASSERT_EQ(e.text, fmt::format("checkpoint '{}': '{}' has {} bytes instead of {}", path, name, size, good.size()));
    }
    atomic_write(join_path(path, name), good);
  }
}

TEST(Checkpoint, AMissingFileIsNamed) {
  const TempDirectory dir;
  const std::string path = save_small(dir.path(), 5);
  disk().remove(path + "/data-00000.safetensors");

  EXPECT_EQ(caught([&] { Reader reader(path); }).text,
            fmt::format("checkpoint '{}': 'data-00000.safetensors' is missing", path));
}

TEST(Checkpoint, IncompleteOnesAreSkippedAndNamed) {
  const TempDirectory dir;
  save_small(dir.path(), 1);
  const std::string torn = save_small(dir.path(), 2);
  const std::string damaged = save_small(dir.path(), 3);
  disk().remove(torn + "/COMMIT");
  atomic_write(damaged + "/index.json", "{}");
  disk().make_directory(dir / "something else");

  const Reader reader(dir.path());

  EXPECT_EQ(reader.step(), 1);
  EXPECT_THAT(reader.notes(), ElementsAre(fmt::format("'{}' is not a complete checkpoint: it has no COMMIT", torn),
                                          HasSubstr("'index.json' has 2 bytes instead of")));
  EXPECT_THAT(list_checkpoints(dir.path()).complete, SizeIs(1));
}

TEST(Checkpoint, ARootWithoutACompleteCheckpointSaysSo) {
  const TempDirectory dir;
  const Caught missing = caught([&] { Reader reader(dir / "none"); });
  const Caught empty = caught([&] { Reader reader(dir.path()); });
  disk().make_directory(dir / "step-000001");
  const Caught torn = caught([&] { Reader reader(dir.path()); });

  EXPECT_EQ(missing.kind, ErrorKind::kNotFound);
  EXPECT_EQ(missing.text,
            fmt::format("there is no checkpoint '{}'; name the directory of a run, of its checkpoints, or one of them",
                        dir / "none"));
  EXPECT_EQ(empty.text, fmt::format("'{}' holds no complete checkpoint", dir.path()));
  EXPECT_EQ(torn.text,
            fmt::format("'{}' holds no complete checkpoint; '{}' is not a complete checkpoint: it has no COMMIT",
                        dir.path(), dir / "step-000001"));
  EXPECT_FALSE(find_latest(dir / "none").has_value());
}

TEST(Checkpoint, AskingForWhatIsNotThereSaysWhatIs) {
  const TempDirectory dir;
  const Reader reader(save_small(dir.path(), 5));

  const Caught name = caught([&] { reader.info("scales"); });
  EXPECT_EQ(name.kind, ErrorKind::kNotFound);
  EXPECT_EQ(name.text,
            fmt::format("checkpoint '{}' holds no tensor 'scales' among its 3. Did you mean 'scale'?", reader.path()));
  EXPECT_EQ(caught([&] {
              reader.require_type("w", {DType::kF32, {8, 6}});
            }).text,
            fmt::format("tensor 'w' is f32[4,6] in checkpoint '{}' but f32[8,6] in the model; they must be equal",
                        reader.path()));
  const HostTensor small({DType::kF32, {2, 2}});
  EXPECT_EQ(caught([&] {
              reader.read("w", {{3, 0}, {2, 2}}, small.view());
            }).text,
            "tensor 'w': box [3:5,0:2] is not inside f32[4,6]");
  EXPECT_EQ(caught([&] {
              reader.read("w", {{0, 0}, {2, 3}}, small.view());
            }).text,
            "tensor 'w': box [0:2,0:3] of f32[4,6] does not fit a view of f32[2,2]");
  reader.require_type("w", {DType::kF32, {4, 6}});
}

TEST(Checkpoint, OnlyTheLastFewAreKept) {
  const TempDirectory dir;
  for (int64_t step = 1; step <= 5; ++step) save_small(dir.path(), step * 10, 2);

  EXPECT_THAT(list_directory(dir.path()), ElementsAre("latest", "step-000040", "step-000050"));
}

TEST(Checkpoint, SavingAStepAgainReplacesItOnlyOnceTheNewOneIsWhole) {
  const TempDirectory dir;
  const std::string first = save_small(dir.path(), 7);
  const std::string second = save_small(dir.path(), 7);
  const std::string third = save_small(dir.path(), 7);

  EXPECT_EQ(first, dir / "step-000007");
  EXPECT_EQ(second, dir / "step-000007.1");
  EXPECT_EQ(third, dir / "step-000007.2");
  EXPECT_THAT(list_directory(dir.path()), ElementsAre("latest", "step-000007.2"));
  EXPECT_EQ(Reader(dir / "latest").step(), 7);
}

TEST(Checkpoint, LeftoversOfAKilledSaveAreTidiedByTheNext) {
  const TempDirectory dir;
  disk().make_directory(dir / "step-000003");
  atomic_write(dir / "step-000003/data-00000.safetensors", "half");
  disk().make_directory(dir / "step-000004");
  atomic_write(dir / "step-000004/data-00001.safetensors.tmp", "half");
  save_small(dir.path(), 4);

  EXPECT_THAT(list_directory(dir.path()), ElementsAre("latest", "step-000004"));
  EXPECT_THAT(list_directory(dir / "step-000004"), ElementsAre("COMMIT", "data-00000.safetensors", "index.json"));
}

TEST(Checkpoint, CallsThatCannotBeRightAreRefused) {
  const TempDirectory dir;
  const HostTensor w = filled({DType::kF32, {4}}, 1);
  const auto text_of = [&](const Piece& piece, const SaveInfo& info = {}, const Peers& peers = {}) {
    return caught([&] { save(dir.path(), {&piece, 1}, info, peers); }).text;
  };

  EXPECT_EQ(text_of({"w", "param", {3}, {{0}, {4}}, w.view()}), "piece [0:4] of 'w' is not inside [3]");
  EXPECT_EQ(text_of({"w", "param", {8}, {{0}, {2}}, w.view()}), "piece [0:2] of 'w' has data of f32[4]");
  EXPECT_EQ(text_of({"w", "param", {4}, {{0}, {4}}, w.view()}, {.step = -1}),
            "step -1 and data position 0 must not be negative");
  EXPECT_EQ(text_of({"w", "param", {4}, {{0}, {4}}, w.view()}, {}, {.rank = 2, .world = 2}), "rank 2 of a world of 2");
  EXPECT_EQ(text_of({"w", "param", {4}, {{0}, {4}}, w.view()}, {}, {.rank = 1, .world = 2}),
            "a world of 2 needs an all_gather");
  EXPECT_EQ(text_of({"\xff", "param", {4}, {{0}, {4}}, w.view()}), "a tensor name or metadata text is not valid UTF-8");
}

TEST(Checkpoint, WritersOfReplicasAreBalancedByBytes) {
  const std::vector<Replicas> boxes = {{10, {0, 1, 2}}, {100, {0, 1, 2}}, {60, {0, 1, 2}}, {50, {0, 2}}, {5, {0}}};

  EXPECT_EQ(assign_writers(boxes, 3), (std::vector<int>{2, 0, 1, 2, 0}));
  EXPECT_EQ(caught([&] { assign_writers(std::vector<Replicas>{{1, {}}}, 3); }).text, "box 0 has no rank that holds it");
  EXPECT_EQ(caught([&] {
              assign_writers(std::vector<Replicas>{{1, {3}}}, 3);
            }).text,
            "box 0 is held by rank 3 of a world of 3");
}

}  // namespace
}  // namespace trireme::ckpt::checkpoint_test
