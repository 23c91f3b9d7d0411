// Every kind of model through the stages of a pipeline, by the program from start to end.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "tests/cli/program.h"
#include "trireme/nn/model_spec.h"
#include "trireme/train/report/run_log.h"

namespace trireme::cli::stages_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::UnorderedElementsAreArray;

struct Kind {
  std::string name;
  std::vector<std::string> keys;  // that make it small
  std::string schedule = "1f1b";
};

const std::vector<std::string> kText{"model.layers=2", "model.width=16", "model.heads=4", "data.seq=8"};

std::vector<Kind> kinds() {
  const auto text = [](const std::string& name, const std::vector<std::string>& more = {}) {
    Kind out{name, kText};
    out.keys.insert(out.keys.end(), more.begin(), more.end());
    return out;
  };
  return {text("gpt"),
          text("llama"),
          text("deepseek", {"model.experts=0"}),
          text("bert"),
          text("bert_classifier", {"model.classes=4"}),
          text("t5"),
          {"mlp", {"model.hidden=[16,12]"}},
          {"lenet", {}},
          {"resnet", {"model.blocks=[1,1]", "model.stem=4", "model.classes=4", "data.image=[16,16,3]"}, "gpipe"},
          {"vit", {"model.layers=2", "model.width=16", "model.heads=4", "model.patch=4", "data.image=[8,8,3]"}},
          {"wide_deep", {"model.vocabulary=30", "model.width=4", "model.hidden=[16,8]", "data.seq=4"}}};
}

class StagesTest : public CliTest {
 protected:
  Outcome train(const std::string& out, const Kind& kind, const Words& more) {
    write("job.toml",
          "name = \"staged\"\n[data]\nkind = \"synthetic\"\nsamples = 64\nvalidation = 0.25\n[train]\nsteps = 3\nbatch "
          "= 8\noptimizer = \"sgd\"\nlr = 0.05\neval_every = 2\n");
    Words words{"train", "job.toml", "--quiet", "--out", out, "--set", "model.kind=" + kind.name};
    for (const std::string& key : kind.keys) words.insert(words.end(), {"--set", key});
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }

  // What is judged of the steps, by name: the losses, and those of what is held out.
  std::map<std::string, std::vector<double>> judged(const std::string& of) const {
    std::map<std::string, std::vector<double>> out;
    for (const RunRecord& record : read_run_log(path(of + "/metrics.jsonl"))) {
      for (const auto& [key, value] : record.values) {
        if (key.find("loss") != std::string::npos || key.find("accuracy") != std::string::npos || key == "grad_norm")
          out[key].push_back(value);
      }
    }
    return out;
  }
};

// Losses are means of at most 64 terms of f32, of some hundreds of terms each, in other orders.
TEST_F(StagesTest, EveryKindOfModelTrainsAndIsJudgedInStagesAsOnOneRank) {
  std::vector<std::string> names;
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    names.push_back(kind.name);
    const Outcome one = train(kind.name + "_one", kind, {});
    const Outcome two =
        train(kind.name + "_two", kind, {"-n", "2", "--pp", "2", "--micro-batches", "2", "--schedule", kind.schedule});
    ASSERT_EQ(one.code, 0) << one.err;
    ASSERT_EQ(two.code, 0) << two.err;
    const auto whole = judged(kind.name + "_one"), staged = judged(kind.name + "_two");
    ASSERT_GE(whole.size(), 2U);
    ASSERT_EQ(whole.size(), staged.size());
    for (const auto& [name, values] : whole) {
      ASSERT_EQ(staged.at(name).size(), values.size()) << name;
      for (size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(staged.at(name)[i], values[i], 1e-4 * std::max(values[i], 1.0)) << name << " " << i;
    }
  }
  EXPECT_THAT(names, UnorderedElementsAreArray(nn::model_kinds()));
}

TEST_F(StagesTest, BatchNormIsRefusedByTheSchedulesThatItCannotRunBy) {
  const std::vector<Kind> all = kinds();
  const Kind& resnet = *std::ranges::find(all, "resnet", &Kind::name);
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    const Outcome refused =
        train("refused", resnet, {"-n", "2", "--pp", "2", "--micro-batches", "2", "--schedule", schedule});
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(error_line(refused), AllOf(HasSubstr("works on all micro-batches at once"), HasSubstr(schedule),
                                           HasSubstr("use the schedule gpipe")));
  }
}

}  // namespace
}  // namespace trireme::cli::stages_test
