#include "trireme/ckpt/merged.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "trireme/base/file.h"
#include "trireme/ckpt/retention.h"
#include "trireme/ckpt/safetensors.h"

namespace trireme::ckpt::merged_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// A parameter in two boxes, its moments, and a buffer of a module.
std::string save_one(const std::string& root, int64_t step, const Keep& keep = {}) {
  std::vector<HostTensor> halves;
  std::vector<Piece> pieces;
  for (int64_t half = 0; half < 2; ++half) {
    halves.emplace_back(TensorType{DType::kF32, {2, 3}});
    for (float& x : halves.back().view().as<float>()) x = static_cast<float>(half + step);
    pieces.push_back(
        {.name = "fc.weight", .whole = {4, 3}, .box = {{2 * half, 0}, {2, 3}}, .data = halves.back().view()});
  }
  const HostTensor other({DType::kF32, {4, 3}});
  const HostTensor mean({DType::kF32, {5}});
  pieces.push_back(
      {.name = "fc.weight.m", .role = "state", .whole = {4, 3}, .box = Box::whole({4, 3}), .data = other.view()});
  pieces.push_back(
      {.name = "bn.running_mean", .role = "state", .whole = {5}, .box = Box::whole({5}), .data = mean.view()});
  return save(root, pieces,
              {.step = step,
               .meta = {{"name", "small"}, {"config", "x = 1"}},
               .keep_last = keep.last,
               .keep_steps = keep.steps})
      .path;
}

TEST(Merged, HasParametersAndBuffersWholeAndNoMoments) {
  const TempDirectory dir;
  save_one(dir.path(), 7);
  write_merged(Reader(dir.path()), dir / "model.safetensors");
  const TensorFile file = read_safetensors(dir / "model.safetensors");
  std::vector<std::string> names;
  for (const NamedTensor& tensor : file.tensors) names.push_back(tensor.name);
  EXPECT_THAT(names, ElementsAre("bn.running_mean", "fc.weight"));
  EXPECT_THAT(file.tensors[1].data.view().as<float>(), ElementsAre(7, 7, 7, 7, 7, 7, 8, 8, 8, 8, 8, 8));
  EXPECT_THAT(file.metadata, ElementsAre(testing::Pair("format", "pt"), testing::Pair("name", "small"),
                                         testing::Pair("trireme_step", "7")));
}

TEST(Merged, AFileIsReadAsACheckpointIs) {
  const TempDirectory dir;
  const Reader saved(save_one(dir.path(), 7));
  write_merged(saved, dir / "model.safetensors");
  const Reader merged(dir / "model.safetensors");
  EXPECT_THAT(merged.names(), ElementsAre("bn.running_mean", "fc.weight"));
  EXPECT_EQ(merged.path(), dir / "model.safetensors");
  HostTensor part(TensorType{DType::kF32, {2, 2}});
  merged.read("fc.weight", {{1, 1}, {2, 2}}, part.view());
  EXPECT_THAT(part.as<float>(), ElementsAre(7, 7, 8, 8));
  EXPECT_EQ(merged.bytes_read(), 12 * 4) << "one block has it all";
  merged.verify();
  EXPECT_THROW(merged.read("fc.weight.m"), Error);

  std::ofstream(dir / "cut.safetensors") << read_file(dir / "model.safetensors").substr(0, 100);
  EXPECT_THROW(Reader(dir / "cut.safetensors"), Error);
  EXPECT_THROW(Reader(dir / "none.safetensors"), Error);
}

std::vector<int64_t> steps_in(const std::string& root) {
  std::vector<int64_t> out;
  for (const Found& found : list_checkpoints(root).complete) out.push_back(found.step);
  return out;
}

TEST(Retention, WhatIsToStayStaysBesidesTheNewest) {
  const TempDirectory dir;
  for (const int64_t step : {1, 2, 3, 4, 5}) save_one(dir.path(), step, {.last = 2, .steps = {2}});
  EXPECT_THAT(steps_in(dir.path()), ElementsAre(2, 4, 5));
  EXPECT_THAT(prune(dir.path(), {.last = 1, .steps = {4}}), IsEmpty());
  EXPECT_THAT(steps_in(dir.path()), ElementsAre(4, 5));
  prune(dir.path(), {.last = 0});
  EXPECT_THAT(steps_in(dir.path()), ElementsAre(4, 5)) << "0 keeps all";
}

TEST(Retention, WhatIsSetAsideIsNeitherFoundNorCounted) {
  const TempDirectory dir;
  for (const int64_t step : {1, 2, 3}) save_one(dir.path(), step);
  EXPECT_EQ(set_aside(dir / "step-000003", "damaged"), dir / "step-000003.damaged");
  save_one(dir.path(), 3);
  EXPECT_EQ(set_aside(dir / "step-000003", "damaged"), dir / "step-000003.damaged2");
  EXPECT_THAT(steps_in(dir.path()), ElementsAre(1, 2));
  prune(dir.path(), {.last = 1});
  EXPECT_THAT(steps_in(dir.path()), ElementsAre(2));
  EXPECT_TRUE(is_file(dir / "step-000003.damaged2/COMMIT"));
}

}  // namespace
}  // namespace trireme::ckpt::merged_test
