// What a person gets wrong, and what disks do to files: one line that says what, the values and the cure, the exit code
// of its kind, and no process left.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <cstdint>
#include <filesystem>

#include "tests/cli/program.h"
#include "trireme/ckpt/checkpoint.h"

namespace trireme::cli::bad_input_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr int kCaller = 2;
constexpr int kMachine = 3;

class BadInputTest : public CliTest {
 protected:
  void expect_error(const Words& words, int code, const testing::Matcher<std::string>& text) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_THAT(error_line(outcome), text);
    EXPECT_THAT(left_over(), IsEmpty());
    last_ = outcome;
  }
  // A key of another kind than the file's.
  void expect_set_of(const std::string& kinds, const std::string& set, const testing::Matcher<std::string>& text) {
    write("other.toml", kinds + "\n[train]\nsteps = 1\n");
    expect_error({"train", "other.toml", "--quiet", "--set", set}, kCaller, text);
  }
  void expect_set(const std::string& set, const testing::Matcher<std::string>& text) {
    expect_error({"train", "gpt.toml", "--quiet", "--set", set}, kCaller, text);
  }
  void replace(const std::string& file, const std::string& from, const std::string& to) const {
    std::string text = read(path(file));
    ASSERT_NE(text.find(from), std::string::npos);
    write(file, text.replace(text.find(from), from.size(), to));
  }
  Outcome last_;
};

// What C's own conversion takes for another number.
TEST_F(BadInputTest, NumbersOfFlagsThatOthersWouldBeTakenFor) {
  write_gpt();
  expect_error(
      {"explain", "gpt.toml", "--steps", "99999999999999999999"}, kCaller,
      "explain: --steps: 99999999999999999999; it must be at most 9223372036854775807. See `trireme help explain`.");
  expect_error({"train", "gpt.toml", "--batch", "010"}, kCaller,
               "train: --batch: '010' begins with 0; write it in decimal, without. See `trireme help train`.");
  expect_error({"train", "gpt.toml", "--batch", "0x10"}, kCaller, HasSubstr("'0x10' begins with 0"));
  expect_error({"generate", "run", "--prompt", "a", "--seed", "-1"}, kCaller,
               "generate: --seed: -1; it must be 0 or more. See `trireme help generate`.");
  expect_error({"generate", "run", "--prompt", "a", "--seed", "18446744073709551616"}, kCaller,
               HasSubstr("--seed: 18446744073709551616; it must be at most 18446744073709551615. See"));
  for (const Words& two_63 : {Words{"--seed", "9223372036854775808"}, {"--set", "train.seed=9223372036854775808"}}) {
    expect_error({"explain", "gpt.toml", two_63[0], two_63[1]}, kCaller,
                 HasSubstr("it must be at most 9223372036854775807"));
  }
  expect_error({"calibrate", "-n", "65536"}, kCaller,
               HasSubstr("calibrate: 65536 ranks take 800 MiB each and this host"));
  expect_error({"calibrate", "--out", "gone/machine.toml"}, kCaller, HasSubstr("there is no directory 'gone'"));
}

TEST_F(BadInputTest, AConfigurationThatIsMissingOrWrittenWrong) {
  expect_error({"train", "gone.toml"}, kCaller,
               "configuration: there is no file 'gone.toml'; name a TOML file like those in examples/");
  expect_error({"train", "."}, kCaller, "configuration: '.' is a directory; name a TOML file like those in examples/");
  expect_error({"generate", "gone", "--prompt", "a"}, kCaller,
               "there is no checkpoint 'gone'; name the directory of a run, of its checkpoints, or one of them");
  write("open.toml", "name = \"x\n[model]\nkind = \"gpt\"\n");
  expect_error({"train", "open.toml"}, kCaller,
               "open.toml:1:8: the string that begins here is not closed; end it with \" on this line");
  write("twice.toml", "[train]\nsteps = 1\nsteps = 2\n");
  expect_error({"explain", "twice.toml"}, kCaller,
               "twice.toml:3:1: the key 'steps' of [train] stands twice, first in line 2; keep one");
  write_gpt();
  expect_error({"explain", "gpt.toml", "--recompute", "100000"}, kCaller,
               HasSubstr("the model has at most 1 block in a row, up to 'h.0'"));
  replace("gpt.toml", "width", "widht");
  expect_error({"train", "gpt.toml"}, kCaller, "gpt.toml:5: no key 'model.widht'. Did you mean 'model.width'?");
  write_gpt();
  replace("gpt.toml", "batch = 4", "batch = \"4\"");
  expect_error({"train", "gpt.toml", "-n", "2"}, kCaller,
               "gpt.toml:15: 'train.batch' must be a whole number; found the string '4'");
  write_gpt();
  replace("gpt.toml", "lr = 0.01", "lr = ");
  expect_error({"train", "gpt.toml"}, kCaller, StartsWith("gpt.toml:16:"));
}

TEST_F(BadInputTest, ValuesThatCannotBe) {
  write_gpt();
  expect_set("train.bacth=4", "--set: no key 'train.bacth'. Did you mean 'train.batch'?");
  expect_set("train.batch=four", "--set: 'train.batch' must be a whole number; found 'four'");
  expect_set("train.batch", "--set 'train.batch': it must be key=value, like train.lr=0.001");
  expect_set("train.dtype=f16",
             "configuration: train.dtype = 'f16'; it must be one of 'f32' or 'bf16'. Did you mean "
             "'bf16'?");
  expect_error({"train", "gpt.toml", "--dtype", "f64"}, kCaller,
               HasSubstr("configuration: train.dtype = 'f64'; it must be one of 'f32' or 'bf16'"));
  expect_set("model.layers=0", "configuration: model.layers = 0; it must be 1 or more");
  expect_set("model.width=-4", "configuration: model.width = -4; it must be 1 or more");
  expect_set("model.heads=3",
             "configuration: model.width = 16 is not divisible by model.heads = 3; use a width that is a "
             "multiple of the heads");
  expect_set("model.vocabulary=100", "configuration: model.vocabulary = 100; text is read as bytes and needs 256");
  expect_set("model.dropout=1", "configuration: model.dropout = 1; it must be from 0 to below 1");
  expect_set("train.beta1=2", "configuration: train.beta1 = 2; it must be from 0 to below 1");
  expect_set("train.lr=0", "configuration: train.lr = 0; it must be above 0");
  expect_set("model.layers=1000000000", "configuration: model.layers = 1000000000; it must be at most 100000");
}

TEST_F(BadInputTest, ValuesTooLargeOrNoNumbers) {
  write_gpt();
  for (const char* key :
       {"model.width", "model.heads", "model.vocabulary", "data.seq", "train.batch", "model.experts"}) {
    expect_set(fmt::format("{}=9223372036854775807", key),
               fmt::format("configuration: {} = 9223372036854775807; it must be at most 2147483647", key));
  }
  expect_set_of("[model]\nkind = 'mlp'\n[data]\nkind = 'synthetic'", "model.hidden=[4294967296]",
                "configuration: model.hidden = 4294967296; it must be at most 2147483647");
  expect_set_of("[data]\nkind = 'synthetic'", "data.image=[2147483647, 2147483647, 2147483647]",
                "configuration: data.image: its sizes make 9.9e+27 elements; they must make at most 2147483647");
  expect_set("model.width=2000000000",
             HasSubstr("configuration: the model 'gpt' has at least 4.8e+19 parameters, 1788139"));
  expect_set("train.steps=9223372036854775807", HasSubstr("fit: 9223372036854775807 steps or 0 epochs of "));
  expect_set("train.lr=inf",
             "configuration: train.lr = inf, train.final_ratio = 0.1: "
             "the learning rates that they make must be above 0 and at most 3.4e+38 (f32)");
  expect_set("train.lr=1e39",
             "configuration: train.lr = 1e+39, train.final_ratio = 0.1: "
             "the learning rates that they make must be above 0 and at most 3.4e+38 (f32)");
  expect_set("train.lr=1e-60",
             "configuration: train.lr = 1e-60, train.final_ratio = 0.1: "
             "the learning rates that they make must be above 0 and at most 3.4e+38 (f32)");
  expect_set("train.lr=nan", "configuration: train.lr = nan; it must be above 0");
  expect_set("train.clip=inf", "configuration: train.clip = inf; it must be a number that f32 holds");
  expect_set("train.weight_decay=1e40",
             "configuration: train.weight_decay = 1e+40; it must be a number that f32 holds");
  expect_set("train.final_ratio=nan", "configuration: train.final_ratio = nan; it must be 0 or more");
  expect_set("train.beta2=0.9999999999",
             "configuration: train.beta2 = 0.9999999999; it must be from 0 to below 1, also in f32");
  expect_set("train.clip=-1", "configuration: train.clip = -1; it must be 0 or more");
  expect_set("train.steps=-5", "configuration: train.steps = -5; it must be 0 or more");
  expect_set_of("[model]\nkind = 'lenet'\n[data]\nkind = 'idx'\nimages = 'i'\nlabels = 'l'", "data.std=0",
                "configuration: data.std = 0; pixels are divided by it: it must be above 0, within what f32 holds");
  expect_set_of("[model]\nkind = 'lenet'\n[data]\nkind = 'idx'\nimages = 'i'\nlabels = 'l'", "data.std=1e-60",
                "configuration: data.std = 1e-60; pixels are divided by it: it must be above 0, within what f32 holds");
  expect_set_of("[model]\nkind = 'lenet'\n[data]\nkind = 'idx'\nimages = 'i'\nlabels = 'l'", "data.mean=inf",
                "configuration: data.mean = inf; it must be a number that f32 holds");
  expect_set("parallel.gradient_accumulation_steps=5000",
             "configuration: parallel.gradient_accumulation_steps = 5000; it must be from 1 to 4096");
  expect_set("data.seq=100000",
             "text: 'text.txt' holds 8000 bytes in 1 files; a sample of 100000 tokens and its next one "
             "needs 100001");
}

TEST_F(BadInputTest, RanksThatCannotBe) {
  write_gpt();
  expect_error({"train", "gpt.toml", "-n", "0"}, kCaller,
               "train: -n 0: it must be a number from 1, or two joined by a colon, as in 2:4");
  expect_error({"train", "gpt.toml", "-n", "3"}, kCaller,
               "train: a batch of 4 samples does not divide over 3 ranks; use --set train.batch=3 or 6, or another -n");
  expect_error({"train", "gpt.toml", "-n", "8"}, kCaller,
               "train: a batch of 4 samples does not divide over 8 ranks; use --set train.batch=8, or another -n");
  expect_error(
      {"train", "gpt.toml", "-n", "2", "--gradient-accumulation-steps", "4"}, kCaller,
      "train: a batch of 4 samples does not divide over 2 ranks x 4 micro-batches; use --set train.batch=8, other "
      "--micro-batches, or another -n");
  expect_error(
      {"train", "gpt.toml", "--set", "parallel.gradient_accumulation_steps=3"}, kCaller,
      "train: a batch of 4 samples does not divide over 1 rank x 3 micro-batches; use --set train.batch=3 or 6, other "
      "--micro-batches, or another -n");
  expect_error({"train", "gpt.toml", "-n", "2", "--set", "parallel.mode=semi_auto_parallel", "--set",
                "parallel.mesh=dp=2,micro_batch=4"},
               kCaller, HasSubstr("does not divide over 2 ranks x 4 micro-batches"));
  expect_error({"train", "gpt.toml", "-n", "4", "--pp", "4", "--micro-batches", "3"}, kCaller,
               HasSubstr("with 3 micro-batches for 4 crews the pipeline would never be full"));
  expect_error({"train", "gpt.toml", "--threads", "-1"}, kCaller, HasSubstr("--threads"));
  expect_error({"train", "gpt.toml", "--out", ""}, kCaller, "train: --out is empty; name a folder");
  EXPECT_FALSE(fs::exists(path("runs")));  // nothing is written before the words are understood
}

TEST_F(BadInputTest, MoreRanksOrALargerBatchThanThereAreSamples) {
  write_mlp();
  expect_error({"train", "mlp.toml", "--set", "data.samples=4", "--set", "data.validation=0", "-n", "8"}, kCaller,
               HasSubstr("the training set has 4 samples and the batch 8; use a batch of at most 4"));
  EXPECT_THAT(last_.err, HasSubstr("the same"));
  expect_error({"train", "mlp.toml", "--set", "train.batch=64"}, kCaller,
               AllOf(HasSubstr("48 to train on and 16 held out"), HasSubstr("too few for a batch of 64"),
                     HasSubstr("use a smaller train.batch")));
}

TEST_F(BadInputTest, WhatHasNoEffectIsRefusedOrSaid) {
  write_gpt();
  expect_error({"train", "gpt.toml", "--set", "train.momentum=0.5"}, kCaller,
               "configuration: train.momentum = 0.5 has no effect with train.optimizer = 'adamw'; leave it out, or at "
               "its default of 0.9");
  for (const char* command : {"explain", "train"}) {
    const Outcome cut = run({command, "gpt.toml", "--sp", "--cp-algorithm", "ring", "--set", "train.steps=1"});
    EXPECT_EQ(cut.code, 0) << cut.err;
    EXPECT_THAT(cut.err, HasSubstr("configuration: parallel.sp = true has no effect with parallel.tp = 1; leave it "
                                   "out, or at its default of false\n"));
    EXPECT_THAT(cut.err, HasSubstr("parallel.cp_algorithm = 'ring' has no effect with parallel.cp = 1"));
  }
  expect_error({"bench", "step", "--model", "lenet", "--layers", "3"}, kCaller,
               HasSubstr("model.layers = 3 has no effect with model.kind = 'lenet'"));
  expect_error({"train", "gpt.toml", "--ep", "2", "-n", "2"}, kCaller,
               HasSubstr("parallel.ep = 2 ranks share the experts of a mixture, and the model has none"));
  expect_error({"train", "gpt.toml", "--tp", "8", "-n", "4"}, kCaller,
               HasSubstr("is 8 ranks, and the job has 4; start 8, or cut less"));
  const Outcome outcome = run({"train", "gpt.toml", "--quiet", "--set", "train.steps=2", "--set", "train.warmup=5",
                               "--set", "data.validation=0", "--set", "train.eval_every=1"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err,
              HasSubstr("the learning rate rises for 5 steps and the run ends after 2: it gets to 0.4 times the peak"));
  EXPECT_THAT(outcome.err, HasSubstr("nothing is held out, so nothing is validated"));
}

TEST_F(BadInputTest, TextThatIsMissingOrTooShort) {
  write_gpt();
  fs::remove(path("text.txt"));
  for (const char* ranks : {"1", "2"}) {
    expect_error({"train", "gpt.toml", "-n", ranks}, kCaller,
                 HasSubstr("configuration: data.paths: there is no 'text.txt'"));
    EXPECT_THAT(last_.err, HasSubstr("  while reading data.paths of the configuration\n"));
  }
  write("text.txt", "too short");
  expect_error({"train", "gpt.toml"}, kCaller,
               "text: 'text.txt' holds 9 bytes in 1 files; a sample of 16 tokens and its next one needs 17");
}

// IDX files: 64 images and labels, and the ways in which they break.
std::string big_endian(uint32_t value) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>((value >> shift) & 0xff);
  return out;
}

std::string images_of(uint32_t claimed, uint32_t held) {
  std::string out = big_endian(0x803) + big_endian(claimed) + big_endian(28) + big_endian(28);
  for (uint32_t i = 0; i < held * 784; ++i) out += static_cast<char>((i * 2654435761U) >> 24);
  return out;
}

std::string labels_of(uint32_t count, uint32_t classes) {
  std::string out = big_endian(0x801) + big_endian(count);
  for (uint32_t i = 0; i < count; ++i) out += static_cast<char>(i % classes);
  return out;
}

TEST_F(BadInputTest, ImageFilesThatLieOrEndTooSoon) {
  write("idx.toml",
        "[model]\nkind = \"mlp\"\nhidden = [8]\n[data]\nkind = \"idx\"\nimages = \"images\"\nlabels = \"labels\"\n"
        "[train]\nepochs = 1\nbatch = 4\n");
  write("images", images_of(64, 64));
  write("labels", labels_of(64, 10));
  ASSERT_EQ(run({"train", "idx.toml", "--out", "good"}).code, 0);
  ASSERT_EQ(std::system(fmt::format("gzip -k '{}'", path("images")).c_str()), 0);
  ASSERT_EQ(run({"train", "idx.toml", "--out", "good", "--set", "data.images=images.gz"}).code, 0);

  const std::string gzip = read(path("images.gz"));
  write("short.gz", gzip.substr(0, gzip.size() / 2));
  write("lie", images_of(1000, 64));
  write("huge", big_endian(0x803) + std::string(12, '\xff') + "few");
  write("text", "this is not a file of images");
  const auto expect_images = [&](const std::string& file, int code, const std::string& text) {
    expect_error({"train", "idx.toml", "--out", "bad", "--set", "data.images=" + file}, code, HasSubstr(text));
    EXPECT_THAT(last_.err, HasSubstr("  while reading data.images and data.labels of the configuration"));
  };
  expect_images("short.gz", kMachine, "'short.gz' is cut short: its gzip data ends after");
  expect_images("lie", kMachine, "'lie' claims [1000,28,28] and so 784000 bytes of data, but holds 50176");
  expect_images("huge", kMachine, "'huge' claims a shape of [4294967295,4294967295]");
  expect_images("text", kMachine, "'text' is not an IDX file");
  expect_images("gone", kCaller, "configuration: data.images: there is no 'gone'");

  write("few", labels_of(60, 10));
  expect_error({"train", "idx.toml", "--out", "bad", "--set", "data.labels=few"}, kMachine,
               HasSubstr("holds 64 images but 'few' 60 labels"));
  write("many", labels_of(64, 40));
  expect_error(
      {"train", "idx.toml", "--out", "bad", "--quiet", "--set", "data.labels=many"}, kCaller,
      HasSubstr("'many': sample 10 has label 10, and the model has 10 classes, of labels 0 to 9; give it 11 or more"));
}

class DamagedCheckpointTest : public BadInputTest {
 protected:
  // A run of 6 steps on 2 ranks that keeps its checkpoints of steps 4 and 6.
  void SetUp() override {
    write_gpt("save_every = 2\n");
    ASSERT_EQ(run({"train", "gpt.toml", "--out", "run", "-n", "2", "--quiet"}).code, 0);
    ASSERT_TRUE(fs::exists(path("run/checkpoints/step-000004/COMMIT")));
  }
  const Words resume_{"train", "gpt.toml", "--out", "run", "--resume", "--quiet", "--set", "train.steps=8"};
  const std::string file_ = "run/checkpoints/step-000006/data-00000.safetensors";
};

TEST_F(DamagedCheckpointTest, AFlippedByteIsFoundAndARunGoesOnFromTheEarlierOne) {
  std::string bytes = read(path(file_));
  const size_t header = 8 + static_cast<unsigned char>(bytes[0]) + 256U * static_cast<unsigned char>(bytes[1]);
  for (size_t at = header; at < bytes.size(); at += 512) bytes[at] = static_cast<char>(bytes[at] ^ 1);
  write(file_, bytes);

  expect_error(
      {"generate", "run", "--prompt", "a"}, kMachine,
      AllOf(StartsWith("checkpoint 'run/checkpoints/step-000006': tensor '"), HasSubstr("the file is damaged")));
  fs::copy(path("run"), path("other"), fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  for (const auto& [out, ranks] : {std::pair{"run", "1"}, {"other", "2"}}) {
    const Outcome outcome = run({"train", "gpt.toml", "--out", out, "--resume", "--set", "train.steps=8", "-n", ranks});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("steps 5 to 8"));
    EXPECT_THAT(outcome.err, HasSubstr("checkpoints/step-000006': tensor '"));
    EXPECT_THAT(outcome.err, HasSubstr("step-000006' is now '"));
    EXPECT_TRUE(fs::exists(path(out + std::string("/checkpoints/step-000006.damaged"))));
    EXPECT_THAT(ckpt::list_checkpoints(path(out + std::string("/checkpoints"))).complete, testing::SizeIs(2))
        << "the damaged one is not counted";
    ckpt::Reader(path(out + std::string("/checkpoints"))).verify();
  }
}

TEST_F(DamagedCheckpointTest, WhenEveryOneIsDamagedAllAreNamed) {
  for (const char* step : {"4", "6"}) {
    const std::string file = fmt::format("run/checkpoints/step-00000{}/data-00001.safetensors", step);
    std::string bytes = read(path(file));
    for (size_t at = bytes.size() / 2; at < bytes.size(); ++at) bytes[at] = static_cast<char>(bytes[at] ^ 4);
    write(file, bytes);
  }
  expect_error(resume_, kMachine,
               "none of the checkpoints in 'run/checkpoints' can be read; start again without resuming");
  EXPECT_THAT(last_.err, AllOf(HasSubstr("  checkpoint 'run/checkpoints/step-000006': "),
                               HasSubstr("  checkpoint 'run/checkpoints/step-000004': ")));
}

TEST_F(DamagedCheckpointTest, ATruncatedFileIsPassedOverForTheEarlierOneAndSaid) {
  fs::resize_file(path(file_), 3000);
  const Outcome outcome = run(resume_);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("steps 5 to 8"));
  EXPECT_THAT(outcome.err, HasSubstr("'data-00000.safetensors' has 3000 bytes instead of"));
}

TEST_F(DamagedCheckpointTest, WhenNoneIsWholeItIsSaidWhy) {
  fs::resize_file(path(file_), 3000);
  fs::remove(path("run/checkpoints/step-000004/COMMIT"));
  expect_error(
      {"generate", "run", "--prompt", "a"}, kCaller,
      AllOf(StartsWith("'run/checkpoints' holds no complete checkpoint"), HasSubstr("has 3000 bytes instead of")));
  expect_error(resume_, kMachine, HasSubstr("there is no whole checkpoint in 'run/checkpoints'"));
  EXPECT_THAT(last_.err, HasSubstr("has 3000 bytes instead of"));
}

TEST_F(DamagedCheckpointTest, AnotherModelOptimizerSeedOrBatchIsRefused) {
  const auto expect_resume = [&](const std::string& set, const std::string& text) {
    Words words = resume_;
    words.insert(words.end(), {"--set", set});
    expect_error(words, kCaller, HasSubstr(text));
  };
  const auto expect_key = [&](const std::string& key, const std::string& then, const std::string& now) {
    expect_resume(
        key + "=" + now,
        fmt::format("checkpoint 'run/checkpoints/step-000006' was trained with {0} = {1}, and this run has {2}: it is "
                    "another job; go on with {0} = {1}, or start a new run",
                    key, then, now));
  };
  expect_key("model.width", "16", "32");
  expect_key("model.layers", "1", "2");
  expect_key("model.heads", "2", "4");  // the same parameters
  expect_resume("train.optimizer=adam",
                "was trained with train.optimizer = 'adamw', and this run has 'adam'");  // the same state
  expect_key("data.validation", "0.1", "0.2");
  expect_resume("train.seed=2", "was made with seed 1, this run has seed 2; go on with the same seed");
  expect_resume("train.batch=8", "after 6 steps, a batch of 4; this run's batch is 8");
  ckpt::Reader(path("run/checkpoints")).verify();
}

TEST_F(DamagedCheckpointTest, WhatElseHasChangedIsSaid) {
  const auto go_on = [&](const Words& more) {
    fs::remove_all(path("again"));
    fs::copy(path("run"), path("again"), fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    Words words{"train", "gpt.toml", "--out", "again", "--resume", "--quiet", "--set", "train.steps=7"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.err;
  };
  EXPECT_EQ(go_on({}), "");
  EXPECT_EQ(go_on({"-n", "2", "--zero", "1", "--set", "parallel.zero_threshold_kb=0", "--set", "train.keep=3"}), "");
  EXPECT_THAT(go_on({"--set", "train.lr=0.02"}),
              HasSubstr("going on from 'again/checkpoints/step-000006' with train.lr = 0.02, which was 0.01"));
  EXPECT_THAT(go_on({"--set", "model.dropout=0.2"}), HasSubstr("with model.dropout = 0.2, which was 0.1"));
  write("text.txt", read(path("text.txt")).substr(0, 7000) + std::string(1000, 'x'));
  EXPECT_THAT(go_on({}), AllOf(HasSubstr("with data of "), HasSubstr(", which were ")));
  write("other.txt", read(path("text.txt")));
  EXPECT_THAT(go_on({"--set", "data.paths=[\"other.txt\"]"}),
              HasSubstr("with data.paths = [ 'other.txt' ], which was [ 'text.txt' ]"));
}

TEST_F(BadInputTest, ResumingWhereThereIsNoRun) {
  write_gpt();
  expect_error(
      {"train", "gpt.toml", "--resume", "--out", "gone"}, kCaller,
      "train: --resume, but there is no checkpoint in 'gone/checkpoints'; leave --resume out, or name the run's "
      "folder with --out");
}

TEST_F(BadInputTest, AnOutputFolderThatCannotBeMade) {
  write_gpt();
  expect_error({"train", "gpt.toml", "--out", "text.txt/run"}, kMachine,
               AllOf(HasSubstr("cannot make the "), HasSubstr("text.txt/run"), HasSubstr("Not a directory")));
  expect_error({"train", "gpt.toml", "--out", "text.txt/run", "-n", "2"}, kMachine,
               AllOf(HasSubstr("cannot make the "), HasSubstr("text.txt/run"), HasSubstr("Not a directory")));
}

TEST_F(BadInputTest, ALossThatIsNoNumberEndsTheRun) {
  write_gpt();
  for (const char* ranks : {"1", "2"}) {
    expect_error({"train", "gpt.toml", "--quiet", "-n", ranks, "--out", "run", "--set", "train.lr=1e30", "--set",
                  "train.clip=0"},
                 kCaller,
                 AllOf(HasSubstr("the loss is "), HasSubstr("lower the learning rate (1e+30)"),
                       HasSubstr("and start again: no checkpoint is left after which a step was finite")));
    EXPECT_THAT(read(path("run/report.html")),
                AllOf(HasSubstr("; then it failed: "), HasSubstr("the loss is "), HasSubstr("</html>")));
  }
}

}  // namespace
}  // namespace trireme::cli::bad_input_test
