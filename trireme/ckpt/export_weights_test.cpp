#include "trireme/ckpt/export_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "trireme/ckpt/checkpoint.h"
#include "trireme/ckpt/checkpoints_for_tests.h"
#include "trireme/tensor/convert.h"

namespace trireme::ckpt::export_weights_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

// A parameter in two boxes, its moments, and a buffer of a module.
std::string save_one(const std::string& root) {
  std::vector<HostTensor> halves;
  std::vector<Piece> pieces;
  for (int64_t half = 0; half < 2; ++half) {
    halves.emplace_back(TensorType{DType::kF32, {2, 3}});
    for (float& x : halves.back().view().as<float>()) x = static_cast<float>(half + 7);
    pieces.push_back(
        {.name = "fc.weight", .whole = {4, 3}, .box = {{2 * half, 0}, {2, 3}}, .data = halves.back().view()});
  }
  const HostTensor other({DType::kF32, {4, 3}});
  const HostTensor mean({DType::kF32, {5}});
  pieces.push_back(
      {.name = "fc.weight.m", .role = "state", .whole = {4, 3}, .box = Box::whole({4, 3}), .data = other.view()});
  pieces.push_back(
      {.name = "bn.running_mean", .role = "state", .whole = {5}, .box = Box::whole({5}), .data = mean.view()});
  QuickDisk quick;
  return save(root, pieces, {.step = 7, .meta = {{"name", "small"}, {"config", "x = 1"}}}, {}, quick).path;
}

std::vector<std::string> names_of(const TensorFile& file) {
  std::vector<std::string> out;
  for (const NamedTensor& tensor : file.tensors) out.push_back(tensor.name);
  return out;
}

TEST(Export, OfACheckpointHasParametersAndBuffersWholeAndNoMoments) {
  const TempDirectory dir;
  const Reader reader(save_one(dir.path()));
  const Exported written = export_weights(reader, dir / "model.safetensors", {.metadata = metadata_of(reader)});
  EXPECT_THAT(written.files, ElementsAre(dir / "model.safetensors"));
  EXPECT_EQ(written.tensors, 2);
  EXPECT_EQ(written.bytes, 4 * (12 + 5));
  const TensorFile file = read_safetensors(dir / "model.safetensors");
  EXPECT_THAT(names_of(file), ElementsAre("bn.running_mean", "fc.weight"));
  EXPECT_THAT(file.tensors[1].data.view().as<float>(), ElementsAre(7, 7, 7, 7, 7, 7, 8, 8, 8, 8, 8, 8));
  EXPECT_THAT(file.metadata, ElementsAre(Pair("format", "pt"), Pair("name", "small"), Pair("trireme_step", "7")));
}

TEST(Export, WithStateHasAllAndTheFileKnowsItForState) {
  const TempDirectory dir;
  const Reader reader(save_one(dir.path()));
  export_weights(reader, dir / "all.safetensors", {.selection = {.state = true}});
  const Weights all = Weights::open(dir / "all.safetensors");
  EXPECT_THAT(all.names(), ElementsAre("bn.running_mean", "fc.weight", "fc.weight.m"));
  EXPECT_TRUE(all.is_state_of_parameter("fc.weight.m"));
  EXPECT_FALSE(all.is_state_of_parameter("bn.running_mean"));
  EXPECT_FALSE(all.is_state_of_parameter("fc.weight"));
}

// Weights of random types and shapes, divided at a random limit, come back as they were.
TEST(Export, SeveralFilesWithAnIndexAreReadAsOne) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    const TempDirectory dir;
    uint64_t drawn = 0;
    const auto random = [&](uint64_t below) { return random_bits({seed, 5}, drawn++, 0) % below; };
    std::vector<HostTensor> data;
    std::vector<NamedView> views;
    const DType types[] = {DType::kF32, DType::kBF16, DType::kI64, DType::kF16};
    for (uint64_t i = 0; i < 1 + random(9); ++i) {
      data.push_back(
          filled({types[random(4)], {static_cast<int64_t>(random(9)), static_cast<int64_t>(random(40))}}, i));
      views.push_back({fmt::format("t{}", i), data.back().view()});
    }
    write_safetensors(dir / "in.safetensors", views);
    const Weights in = Weights::open(dir / "in.safetensors");
    const auto limit = static_cast<int64_t>(1 + random(3000));
    std::vector<std::pair<int64_t, int64_t>> told;
    const auto tell = [&](int64_t bytes, int64_t of) { told.emplace_back(bytes, of); };
    const Exported written = export_weights(in, dir / "out", {.max_file_bytes = limit, .on_tensor = tell});
    EXPECT_EQ(told.size(), in.names().size());
    EXPECT_TRUE(std::ranges::is_sorted(told));
    EXPECT_EQ(told.back(), std::pair(written.bytes, written.bytes));
    const Weights out = Weights::open(dir / "out");
    ASSERT_EQ(out.names(), in.names());
    int64_t largest = 0;
    for (const std::string& name : in.names()) {
      EXPECT_TRUE(is_equal(in.read(name), out.read(name))) << name;
      largest = std::max(largest, in.type(name).bytes());
    }
    EXPECT_EQ(written.files.size(), list_directory(dir / "out").size());
    if (written.files.size() == 1) {
      EXPECT_EQ(written.files[0], dir / "out/model.safetensors");
      EXPECT_LE(written.bytes, std::max(limit, largest));
    } else {
      EXPECT_EQ(written.files[0],
                fmt::format("{}/out/model-00001-of-{:05}.safetensors", dir.path(), written.files.size() - 1));
      EXPECT_EQ(written.files.back(), dir / "out/model.safetensors.index.json");
      for (size_t i = 0; i + 1 < written.files.size(); ++i) {
        int64_t bytes = 0;
        for (const NamedTensor& tensor : read_safetensors(written.files[i]).tensors)
          bytes += tensor.data.type().bytes();
        EXPECT_LE(bytes, std::max(limit, largest)) << written.files[i];
      }
    }
  }
}

TEST(Export, AnEarlierExportOfMoreFilesLeavesNothingAndOtherFilesStay) {
  const TempDirectory dir;
  const Reader reader(save_one(dir / "checkpoints"));
  export_weights(reader, dir / "out", {.max_file_bytes = 1});
  atomic_write(dir / "out/tokenizer.json", "{}");
  EXPECT_THAT(list_directory(dir / "out"),
              ElementsAre("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                          "model.safetensors.index.json", "tokenizer.json"));
  export_weights(reader, dir / "out");
  EXPECT_THAT(list_directory(dir / "out"), ElementsAre("model.safetensors", "tokenizer.json"));
}

TEST(Export, AnotherTypeIsRoundedAndWhatItDoesNotReachIsCounted) {
  const TempDirectory dir;
  const HostTensor x =
      HostTensor::of<float>({3}, std::vector<float>{1.0F / 3, 7e4F, std::numeric_limits<float>::infinity()});
  const HostTensor ids = HostTensor::of<int64_t>({2}, std::vector<int64_t>{1, -2});
  write_safetensors(dir / "in.safetensors", std::vector<NamedView>{{"x", x.view()}, {"ids", ids.view()}});
  const Weights in = Weights::open(dir / "in.safetensors");
  const Exported half = export_weights(in, dir / "half.safetensors", {.dtype = DType::kF16});
  EXPECT_THAT(half.overflowed, ElementsAre(Pair("x", 1)));
  const Weights out = Weights::open(dir / "half.safetensors");
  EXPECT_EQ(out.type("x"), (TensorType{DType::kF16, {3}}));
  EXPECT_TRUE(is_equal(out.read("ids"), ids)) << "integers stay";
  const HostTensor back(x.type());
  convert(out.read("x").view(), back.view());
  EXPECT_EQ(back.as<float>()[0], from_f16(to_f16(1.0F / 3)));
  EXPECT_THAT(export_weights(in, dir / "bf16.safetensors", {.dtype = DType::kBF16}).overflowed, ElementsAre());
}

TEST(Export, ASingleFileHasNoLimit) {
  const TempDirectory dir;
  const Reader reader(save_one(dir / "checkpoints"));
  EXPECT_THAT(caught([&] { export_weights(reader, dir / "out.safetensors", {.max_file_bytes = 100}); }).text,
              HasSubstr("is one file, so its size has no limit; name a folder"));
}

}  // namespace
}  // namespace trireme::ckpt::export_weights_test
