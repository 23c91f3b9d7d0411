#include "trireme/train/loop/agree_on_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "trireme/base/error.h"

namespace trireme::agree_on_run_test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::SizeIs;

struct Asked {
  AdamW optimizer;
  TrainerOptions options;
  FitOptions fit{.steps = 4, .batch = 6};
  data::SyntheticImages data{.samples = 30, .image = {4, 3, 1}, .classes = 4};
};

// What each of three ranks is told where `change` is made on the last.
std::vector<std::string> told(const std::function<void(Asked&)>& change, const Asked& asked = {}) {
  std::mutex mutex;
  std::vector<std::string> out;
  comm::spawn_ranks(3, "threads", [&](comm::World& world) {
    Asked mine = asked;
    if (world.rank() == 2) change(mine);
    std::string said;
    try {
      agree_on_run(mine.optimizer, mine.options, *data::synthetic_images(mine.data), mine.fit, &world);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kInvalidArgument);
      said = e.text();
    }
    const std::lock_guard lock(mutex);
    out.push_back(said);
  });
  return out;
}

testing::Matcher<std::vector<std::string>> all_are_told(const std::string& here, const std::string& there) {
  return AllOf(SizeIs(3), Each(HasSubstr("the ranks were asked for different runs: '" + here + "' on rank 0, '" +
                                         there + "' on rank 2")));
}

TEST(AgreeOnRun, ranks_that_were_asked_for_the_same_pass) {
  EXPECT_THAT(told([](Asked&) {}), Each(""));
  EXPECT_THAT(told([](Asked& mine) {
                mine.options.tuning = "auto";
                mine.options.progress = false;
                mine.options.config_text = "[data]\npath = \"elsewhere\"";
              }),
              Each(""));
}

TEST(AgreeOnRun, what_no_plan_has_is_compared) {
  EXPECT_THAT(told([](Asked& mine) { mine.optimizer.lr = 0.5; }),
              all_are_told("the learning rate = 0.001", "the learning rate = 0.5"));
  EXPECT_THAT(told([](Asked& mine) { mine.options.step.seed = 9; }), all_are_told("train.seed = 1", "train.seed = 9"));
  EXPECT_THAT(told([](Asked& mine) { mine.options.schedule.warmup_steps = 2; }),
              all_are_told("train.warmup = 0", "train.warmup = 2"));
  EXPECT_THAT(told([](Asked& mine) { mine.fit.steps = 5; }), all_are_told("train.steps = 4", "train.steps = 5"));
  EXPECT_THAT(told([](Asked& mine) { mine.fit.save_every = 2; }),
              all_are_told("train.save_every = 0", "train.save_every = 2"));
  EXPECT_THAT(told([](Asked& mine) { mine.options.out = "run"; }),
              all_are_told("the folder of the run = not set", "the folder of the run = set"));
  EXPECT_THAT(told([](Asked& mine) { mine.fit.validation = data::synthetic_images(mine.data); }),
              Each(HasSubstr("'held out = nothing' on rank 0, 'held out = 30 samples, ")));
}

TEST(AgreeOnRun, ranks_have_the_same_samples) {
  const auto other_samples = [](Asked& mine) { mine.data.seed = 1; };
  EXPECT_THAT(told(other_samples), Each(HasSubstr("'the training data = 30 samples, image f32[4,3,1], label i32[]")));
  EXPECT_THAT(told(other_samples, {.options = {.mode = Mode::kHybrid}}), Each(""))
      << "a model that is cut by hand may give each rank samples of its own";
  EXPECT_THAT(told([](Asked& mine) { mine.data.samples = 31; }, {.options = {.mode = Mode::kHybrid}}),
              all_are_told("the training data = 30 samples", "the training data = 31 samples"));
}

}  // namespace
}  // namespace trireme::agree_on_run_test
