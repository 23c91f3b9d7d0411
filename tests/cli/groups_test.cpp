// Parameter groups, frozen parameters and warm starts, by the program from start to end.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include "tests/cli/program.h"
#include "tests/worst.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/train/report/run_log.h"

namespace trireme::cli::groups_test {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

class GroupsTest : public GptTest {
 protected:
  std::vector<double> losses(const std::string& run) const {
    std::vector<double> out;
    for (const RunRecord& record : read_run_log(path(run + "/metrics.jsonl"))) {
      for (const auto& [key, value] : record.values) {
        if (key == "loss") out.push_back(value);
      }
    }
    return out;
  }

  // Of the newest checkpoints, the largest difference of a tensor that both have.
  double difference(const std::string& a, const std::string& b, const std::string& name) const {
    const HostTensor x = ckpt::Reader(path(a + "/checkpoints")).read(name);
    const HostTensor y = ckpt::Reader(path(b + "/checkpoints")).read(name);
    EXPECT_EQ(x.type(), y.type()) << name;
    return testing_support::worst_difference(x.as<float>(), y.as<float>());
  }

  bool has(const std::string& run, const std::string& name) const {
    return ckpt::Reader(path(run + "/checkpoints")).has(name);
  }
};

const char* const kMomentum = "optimizer = \"sgd\"\nmomentum = 0.9\nweight_decay = 0.1\n";
const char* const kGroups =
    "groups = [\"*.bias = weight_decay 0\", \"h.0.* = frozen\", \"h.0.ln_2.* = trained\", \"ln_f.* = lr_scale 0.5\"]\n";
const char* const kLower = "groups = [\"wte.* = frozen\", \"wpe.* = frozen\", \"h.0.* = frozen\"]\n";

// Losses of f32 by some hundreds of terms in other orders, which momentum passes on.
TEST_F(GroupsTest, GroupsTrainAlikeHoweverTheJobIsCut) {
  write_gpt(std::string(kMomentum) + kGroups);
  const Words two_layers{"--set", "model.layers=2"};
  const auto with = [&](Words more) {
    more.insert(more.end(), two_layers.begin(), two_layers.end());
    return more;
  };
  expect_trains("one", two_layers);
  const std::vector<double> one = losses("one");
  ASSERT_THAT(one, SizeIs(6));
  const std::pair<std::string, Words> ways[] = {
      {"zero", {"-n", "2", "--zero", "3", "--set", "parallel.zero_threshold_kb=0"}},
      {"pp", {"-n", "2", "--pp", "2", "--micro-batches", "2"}},
      {"tp", {"-n", "2", "--tp", "2"}}};
  for (const auto& [name, flags] : ways) {
    expect_trains(name, with(flags));
    const std::vector<double> found = losses(name);
    ASSERT_THAT(found, SizeIs(6)) << name;
    for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(found[i], one[i], 1e-4) << name << ", step " << i + 1;
    EXPECT_FALSE(has(name, "h.0.attn.c_attn.weight.velocity")) << name;
    EXPECT_TRUE(has(name, "h.0.ln_2.weight.velocity")) << name;
    EXPECT_EQ(difference("one", name, "h.0.attn.c_attn.weight"), 0) << name;
    EXPECT_LT(difference("one", name, "h.0.ln_2.bias"), 1e-4) << name;
  }
  expect_trains("short", with({"--set", "train.steps=2"}));
  EXPECT_EQ(difference("one", "short", "h.0.attn.c_attn.weight"), 0);
  EXPECT_GT(difference("one", "short", "h.0.ln_2.bias"), 0);
}

// The first crew has nothing to train, so it computes forward alone.
TEST_F(GroupsTest, AStageOfAPipelineMayBeFrozen) {
  write_gpt(std::string(kMomentum) + kLower);
  const Words two{"--set", "model.layers=2", "--set", "model.dropout=0"};
  const auto with = [&](Words more) {
    more.insert(more.end(), two.begin(), two.end());
    return more;
  };
  expect_trains("one", two);
  expect_trains("pp", with({"-n", "2", "--pp", "2", "--micro-batches", "2"}));
  const std::vector<double> one = losses("one"), pp = losses("pp");
  ASSERT_EQ(one.size(), pp.size());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(pp[i], one[i], 1e-4) << "step " << i + 1;
  const Outcome memory = run({"explain", "gpt.toml", "--stage", "memory", "--set", "model.layers=2"});
  EXPECT_THAT(memory.out, ContainsRegex("parameters frozen: 14 parameters \\([0-9,]+ values\\); the others: 14 par"));
  EXPECT_THAT(memory.out, AllOf(HasSubstr("h.1.ln_1.bias.velocity"), Not(HasSubstr("h.0.ln_1.bias.velocity"))));
}

TEST_F(GroupsTest, ARunGoesOnWithOtherGroupsAndIsToldWhatTheyNeed) {
  write_gpt(kMomentum);
  expect_trains("run", {"--set", "train.steps=2", "--set", "train.groups=[\"h.* = frozen\"]"});
  const Outcome more = train("run", {"--resume"});
  EXPECT_EQ(more.code, 2);
  EXPECT_THAT(more.err, HasSubstr("the parameter was frozen when the checkpoint was made; freeze it again "
                                  "(train.groups), or start a new run with its values by train.init_from"));
  const Outcome fewer = train(
      "run", {"--resume", "--set", "train.groups=[\"h.* = frozen\", \"wpe.* = frozen\", \"wte.* = lr_scale 2\"]"});
  EXPECT_EQ(fewer.code, 0) << fewer.err;
  EXPECT_THAT(fewer.err, HasSubstr("train.groups = ["));
  EXPECT_THAT(fewer.err, HasSubstr("1 tensor of the optimizer in"));
}

TEST_F(GroupsTest, AWarmStartTakesParametersByNameAtAnyLayout) {
  write_gpt();
  expect_trains("first", {"-n", "2", "--zero", "1", "--set", "parallel.zero_threshold_kb=0", "--merged-save"});
  // Steps of 1e-30 move no value that is not as small itself.
  const Words still{"--set", "train.lr=1e-30", "--set", "train.steps=1", "--set", "train.seed=7", "--init-from"};
  const std::pair<std::string, Words> ways[] = {
      {"one", {"first"}},
      {"tp", {"first/checkpoints", "-n", "2", "--tp", "2"}},
      {"merged", {"first/model.safetensors", "-n", "2", "--tp", "2"}},
      {"sgd", {"first/checkpoints/step-000006", "--set", "train.optimizer=sgd"}}};
  for (const auto& [name, flags] : ways) {
    Words words = still;
    words.insert(words.end(), flags.begin(), flags.end());
    expect_trains(name, words);
    const ckpt::Reader reader(path(name + "/checkpoints"));
    EXPECT_EQ(reader.step(), 1);
    int compared = 0;
    for (const std::string& tensor : reader.names()) {
      if (reader.info(tensor).role != "param") continue;
      EXPECT_LT(difference("first", name, tensor), 1e-20) << name << ": " << tensor;
      ++compared;
    }
    EXPECT_EQ(compared, 16);
  }
}

TEST_F(GroupsTest, AWarmStartFromAnotherModelIsRefusedUnlessTheDifferencesAreNamed) {
  write_gpt();
  expect_trains("first", {"--set", "train.steps=1"});
  const auto from_first = [&](Words more) {
    more.insert(more.end(), {"--init-from", "first", "--set", "train.steps=1", "--set", "train.lr=1e-30"});
    return train("second", more);
  };
  EXPECT_THAT(error_line(from_first({"--set", "model.layers=2"})),
              AllOf(HasSubstr("train.init_from: checkpoint 'first/checkpoints/step-000001' is of another model: 12 are "
                              "missing there (h.1.ln_1.weight, h.1.ln_1.bias,"),
                    HasSubstr("train.init_except = [\"head.*\"]")));
  EXPECT_THAT(error_line(from_first({"--set", "model.layers=2", "--set", "data.seq=8"})),
              HasSubstr("1 have another shape (wpe.weight: f32[16,16] there, f32[8,16] here)"));
  EXPECT_THAT(error_line(from_first({"--init-except", "head.*"})), HasSubstr("'head.*' names nothing of the model"));
  EXPECT_THAT(error_line(from_first({"--init-except", "*"})), HasSubstr("leaves nothing to take"));
  const Outcome named =
      from_first({"--set", "model.layers=2", "--set", "data.seq=8", "--init-except", "h.1.*,wpe.weight"});
  EXPECT_EQ(named.code, 0) << named.err;
  EXPECT_THAT(named.err, HasSubstr("15 tensors begin as in checkpoint 'first/checkpoints/step-000001'; anew: "
                                   "wpe.weight, h.1.ln_1.weight"));
  EXPECT_LT(difference("first", "second", "wte.weight"), 1e-20);

  const Outcome back = train("third", {"--init-from", "second", "--set", "data.seq=8"});
  EXPECT_THAT(error_line(back), HasSubstr("12 are not of this model (h.1.attn.c_attn.bias,"));
  const Outcome less = train("third", {"--init-from", "second", "--set", "data.seq=8", "--init-except", "h.1.*"});
  EXPECT_EQ(less.code, 0) << less.err;
  EXPECT_THAT(less.err, HasSubstr("left out: h.1.attn.c_attn.bias"));
}

TEST_F(GroupsTest, AWarmStartFromNothingIsRefusedBeforeRanksStart) {
  write_gpt();
  const Outcome none = train("run", {"--init-from", "nowhere", "-n", "2"});
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, AllOf(HasSubstr("nowhere"), HasSubstr("train.init_from (--init-from) names 'nowhere'")));
  EXPECT_THAT(error_line(train("run", {"--init-except", "h.*"})), HasSubstr("train.init_except"));
}

}  // namespace
}  // namespace trireme::cli::groups_test
