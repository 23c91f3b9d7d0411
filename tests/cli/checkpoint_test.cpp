// trireme checkpoint, on what `trireme train` saved, and weights that go from one program to another.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "tests/cli/program.h"
#include "tests/worst.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/ckpt/safetensors.h"
#include "trireme/tensor/convert.h"

namespace trireme::cli::checkpoint_test {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

class CheckpointTest : public GptTest {
 protected:
  Outcome checkpoint(const Words& more) {
    Words words{"checkpoint"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  void flip_a_byte(const std::string& name) const {
    std::fstream file(path(name), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-5, std::ios::end);
    const auto byte = static_cast<char>(file.get());
    file.seekp(-5, std::ios::end);
    file.put(static_cast<char>(byte ^ 1));
  }
};

TEST_F(CheckpointTest, ListAndShowSayWhatARunSaved) {
  write_gpt();
  expect_trains("run", {"-n", "2", "--zero", "1", "--set", "parallel.zero_threshold_kb=0", "--set", "train.steps=4",
                        "--set", "train.save_every=2"});
  const Outcome listed = checkpoint({"list", "run"});
  EXPECT_EQ(listed.code, 0) << listed.err;
  EXPECT_THAT(
      listed.out,
      ContainsRegex("run/checkpoints\n  step-000002  20.*UTC  .*KiB  2 ranks, .*\n  step-000004  .*  newest\n"));
  const Outcome shown = checkpoint({"show", "run"});
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out,
              AllOf(HasSubstr("checkpoint  run/checkpoints/step-000004\n"), ContainsRegex("step        4, written 20"),
                    ContainsRegex("job         .*: gpt on text\n"), ContainsRegex("saved by    2 ranks, .*; 2 files, "),
                    ContainsRegex("parameters  16 tensors, [0-9]+ values, .*KiB \\(f32\\)\n"),
                    ContainsRegex("optimizer   32 tensors, .*: m, v\n")));
  const Outcome tensors = checkpoint({"show", "run/checkpoints/step-000002", "--tensors"});
  EXPECT_THAT(tensors.out,
              AllOf(ContainsRegex("  ln_f\\.bias +f32\\[16\\] +parameter  data-0000[01]\\.safetensors\n"),
                    ContainsRegex("  wte\\.weight\\.m +f32\\[256,16\\] +state +\\[0:128,0:16\\] data-0000")));
  const Outcome json = checkpoint({"show", "run", "--tensors", "--json"});
  EXPECT_EQ(number_in(json.out, "step"), 4);
  EXPECT_EQ(number_in(json.out, "ranks"), 2);
  EXPECT_THAT(json.out, HasSubstr("\"name\":\"wte.weight.m\",\"role\":\"state\",\"dtype\":\"f32\",\"shape\":[256,16]"));
  // Its configuration is a job's file.
  const Outcome config = checkpoint({"show", "run", "--config"});
  write("again.toml", config.out);
  EXPECT_EQ(run({"explain", "again.toml", "--stage", "graph"}).code, 0);
}

TEST_F(CheckpointTest, VerifyFindsTheDamagedOneAndChecksTheOthers) {
  write_gpt();
  expect_trains("run", {"--set", "train.steps=4", "--set", "train.save_every=2"});
  const Outcome whole = checkpoint({"verify", "run"});
  EXPECT_EQ(whole.code, 0);
  EXPECT_THAT(
      whole.out,
      ContainsRegex("run/checkpoints/step-000002: whole, .* read\nrun/checkpoints/step-000004: whole, .* read\n"));
  flip_a_byte("run/checkpoints/step-000002/data-00000.safetensors");
  const Outcome damaged = checkpoint({"verify", "run"});
  EXPECT_EQ(damaged.code, 3);
  EXPECT_THAT(
      damaged.out,
      ContainsRegex("step-000002: damaged: .*has checksum .* instead of .*\nrun/checkpoints/step-000004: whole"));
  EXPECT_EQ(checkpoint({"verify", "run/checkpoints/step-000004"}).code, 0);
  EXPECT_EQ(checkpoint({"verify", "run/checkpoints/step-000002"}).code, 3);
  std::filesystem::remove(path("run/checkpoints/step-000004/COMMIT"));
  EXPECT_THAT(checkpoint({"verify", "run"}).out, HasSubstr("COMMIT"));
}

// The same job cut otherwise gives the same tensors, of the optimizer too; another seed does not.
TEST_F(CheckpointTest, DiffComparesWholeTensorsWhateverCutThem) {
  write_gpt("numerics = \"invariant\"\n");
  expect_trains("one");
  expect_trains("two", {"-n", "2", "--tp", "2"});
  expect_trains("other", {"--set", "train.seed=7"});
  const Outcome same = checkpoint({"diff", "one", "two", "--state"});
  EXPECT_EQ(same.code, 0) << same.out << same.err;
  EXPECT_EQ(same.out, "48 tensors equal, 0 not\n");
  const Outcome others = checkpoint({"diff", "one", "other", "--only", "wte.*,ln_f.bias"});
  EXPECT_EQ(others.code, 1);
  EXPECT_THAT(
      others.out,
      ContainsRegex("wte\\.weight  [0-9]+ of 4096 elements differ, by [0-9.e-]+ at most, [0-9.e+-]+ of the largest\n"));
  EXPECT_THAT(checkpoint({"diff", "one", "other", "--only", "wte.*", "--json"}).out, HasSubstr("\"only_first\":[],"));
  EXPECT_THAT(error_line(checkpoint({"diff", "one", "nowhere"})), HasSubstr("there is no checkpoint 'nowhere'"));
}

// As from another program, whose names have a prefix, in several files of bf16 numbers: the values begin a run, on
// ranks that cut them.
TEST_F(CheckpointTest, WeightsGoToAnotherProgramAndComeBack) {
  write_gpt();
  expect_trains("run");
  const Outcome out =
      checkpoint({"export", "run", "theirs", "--dtype", "bf16", "--max-file", "4KiB", "--rename", "*=transformer.*"});
  ASSERT_EQ(out.code, 0) << out.err;
  EXPECT_THAT(out.out,
              AllOf(ContainsRegex(
                        "^16 tensors, .*KiB, of checkpoint 'run/checkpoints/step-000006':\n  theirs/model-00001-of-0"),
                    HasSubstr("  theirs/model.safetensors.index.json\n")));
  EXPECT_THAT(error_line(checkpoint({"export", "run", "theirs"})),
              HasSubstr("'theirs' exists already; name another place, or add --force"));
  EXPECT_THAT(error_line(checkpoint({"export", "run", "run/checkpoints", "--force"})), HasSubstr("holds checkpoints"));

  const Outcome refused = train("again", {"--init-from", "theirs"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("'theirs' is of another model: 16 are missing there"));
  ASSERT_EQ(checkpoint({"export", "theirs", "ours.safetensors", "--rename", "transformer.*=*"}).code, 0);
  const Outcome again = train("again", {"-n", "2", "--tp", "2", "--init-from", "ours.safetensors", "--set",
                                        "train.lr=1e-30", "--set", "train.steps=1"});
  ASSERT_EQ(again.code, 0) << again.err;
  const ckpt::Reader first(path("run/checkpoints")), second(path("again/checkpoints"));
  for (const std::string& name : first.names()) {
    if (first.is_state_of_parameter(name)) continue;
    const HostTensor trained = first.read(name), begun = second.read(name);
    HostTensor rounded(TensorType{DType::kBF16, trained.shape()}), expected(trained.type());
    convert(trained.view(), rounded.view());
    convert(rounded.view(), expected.view());
    EXPECT_LT(testing_support::worst_difference(expected.as<float>(), begun.as<float>()), 1e-20) << name;
  }
}

// Not of the learning rate, which a loss that is no number would be blamed on. One rank has the piece.
TEST_F(CheckpointTest, WeightsThatAreNoNumbersBeginNoRunAndAreNamed) {
  write_gpt();
  expect_trains("run", {"--set", "train.steps=1"});
  ASSERT_EQ(checkpoint({"export", "run", "good.safetensors"}).code, 0);
  const ckpt::TensorFile good = ckpt::read_safetensors(path("good.safetensors"));
  const auto write_with = [&](float value) {
    std::vector<ckpt::NamedView> tensors;
    for (const ckpt::NamedTensor& tensor : good.tensors) {
      tensors.push_back({tensor.name, tensor.data.view()});
      if (tensor.name == "h.0.mlp.c_fc.weight") tensor.data.view().as<float>().back() = value;
    }
    ckpt::write_safetensors(path("bad.safetensors"), tensors);
  };
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    write_with(value);
    for (const Words& more : {Words{}, Words{"-n", "2", "--tp", "2"}}) {
      Words words{"--init-from", "bad.safetensors"};
      words.insert(words.end(), more.begin(), more.end());
      const Outcome refused = train("again", words);
      EXPECT_EQ(refused.code, 2);
      EXPECT_THAT(refused.err, HasSubstr("has NaN or infinite values in h.0.mlp.c_fc.weight, from which no"));
    }
  }
  expect_trains("again", {"--init-from", "bad.safetensors", "--init-except", "h.0.mlp.c_fc.*"});
}

TEST_F(CheckpointTest, WhatCannotBeDoneIsSaid) {
  write_gpt();
  expect_trains("run", {"--set", "train.steps=1"});
  EXPECT_THAT(error_line(checkpoint({"list", "nowhere"})),
              HasSubstr("there is no directory 'nowhere'; name a run's folder"));
  EXPECT_THAT(error_line(checkpoint({"verify", "gpt.toml"})), HasSubstr("'gpt.toml' is a file"));
  EXPECT_THAT(error_line(checkpoint({"show", "gpt.toml"})),
              HasSubstr("neither a folder of checkpoints nor published weights"));
  EXPECT_THAT(error_line(checkpoint({"export", "run", "w.safetensors", "--max-file", "5 apples"})),
              HasSubstr("is no number of bytes"));
  EXPECT_THAT(error_line(checkpoint({"export", "run", "w.safetensors", "--max-file", "5GB"})),
              HasSubstr("name a folder to write several"));
  EXPECT_THAT(error_line(checkpoint({"export", "run", "w.safetensors", "--only", "wte.wieght"})),
              HasSubstr("Did you mean 'wte.weight'?"));
  EXPECT_THAT(
      error_line(checkpoint({"export", "run", "gone/w.safetensors"})),
      HasSubstr("checkpoint export: there is no directory 'gone'; make it, or name a file in one that there is"));
  for (const char* flag : {"--json", "--tensors"}) {
    EXPECT_THAT(error_line(checkpoint({"show", "run", "--config", flag})),
                HasSubstr(std::string("as its file would be, so ") + flag + " would do nothing; leave one out"));
  }
  EXPECT_FALSE(std::filesystem::exists(path("w.safetensors")));
  ASSERT_EQ(checkpoint({"export", "run", "w.safetensors"}).code, 0);
  EXPECT_THAT(error_line(checkpoint({"show", "w.safetensors", "--config"})), HasSubstr("it has no configuration"));
  EXPECT_THAT(checkpoint({"show", "w.safetensors"}).out, HasSubstr("tensors     16 tensors, "));
}

}  // namespace
}  // namespace trireme::cli::checkpoint_test
