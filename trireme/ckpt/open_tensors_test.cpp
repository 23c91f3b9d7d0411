#include "trireme/ckpt/open_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/file.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/ckpt/checkpoints_for_tests.h"
#include "trireme/ckpt/safetensors.h"

namespace trireme::ckpt::open_tensors_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

void save_step(const std::string& root, int64_t step, const HostTensor& data) {
  QuickDisk quick;
  save(root,
       std::vector<Piece>{{.name = "w", .whole = data.shape(), .box = Box::whole(data.shape()), .data = data.view()}},
       {.step = step}, {}, quick);
}

TEST(OpenTensors, IsWhatThePathNames) {
  const TempDirectory dir;
  const HostTensor data = filled({DType::kF32, {4}}, 1), other = filled({DType::kF32, {4}}, 2);
  save_step(dir / "run/checkpoints", 1, other);
  save_step(dir / "run/checkpoints", 2, data);
  for (const char* path : {"run", "run/checkpoints", "run/checkpoints/step-000002"}) {
    const auto source = open_tensors(dir / path);
    EXPECT_EQ(source->text(), "checkpoint '" + (dir / "run/checkpoints/step-000002") + "'");
    EXPECT_TRUE(is_equal(source->read("w"), data));
  }
  write_safetensors(dir / "weights.safetensors", std::vector<NamedView>{{"w", other.view()}});
  disk().make_directory(dir / "folder");
  write_safetensors(dir / "folder/model.safetensors", std::vector<NamedView>{{"w", other.view()}});
  for (const char* path : {"weights.safetensors", "folder", "folder/model.safetensors"}) {
    const auto source = open_tensors(dir / path);
    EXPECT_EQ(source->text(), "'" + (dir / path) + "'");
    EXPECT_TRUE(is_equal(source->read("w"), other));
  }
}

TEST(OpenTensors, WhatIsNoneIsRefusedByItsName) {
  const TempDirectory dir;
  atomic_write(dir / "notes.txt", "x");
  disk().make_directory(dir / "empty");
  EXPECT_THAT(caught([&] { open_tensors(dir / "none"); }).text, HasSubstr("there is no checkpoint '"));
  EXPECT_THAT(caught([&] { open_tensors(dir / "notes.txt"); }).text,
              HasSubstr("neither a folder of checkpoints nor published weights"));
  EXPECT_THAT(caught([&] { open_tensors(dir / "empty"); }).text, HasSubstr("holds no complete checkpoint"));
}

TEST(TensorSource, ATypeIsTheSameOrOneThatIsConverted) {
  const TempDirectory dir;
  save_step(dir.path(), 1, filled({DType::kF32, {4}}, 1));
  const Reader reader(dir.path());
  using Types = TensorSource::Types;
  EXPECT_NO_THROW(reader.require_type("w", {DType::kF32, {4}}));
  EXPECT_NO_THROW(reader.require_type("w", {DType::kBF16, {4}}, Types::kConvertible));
  EXPECT_THAT(caught([&] {
                reader.require_type("w", {DType::kBF16, {4}});
              }).text,
              HasSubstr("is f32[4] in checkpoint '"));
  EXPECT_THAT(caught([&] {
                reader.require_type("w", {DType::kBF16, {5}}, Types::kConvertible);
              }).text,
              HasSubstr("but bf16[5] in the model"));
  EXPECT_THAT(caught([&] {
                reader.require_type("w", {DType::kI32, {4}}, Types::kConvertible);
              }).text,
              HasSubstr("but i32[4] in the model"));
}

}  // namespace
}  // namespace trireme::ckpt::open_tensors_test
