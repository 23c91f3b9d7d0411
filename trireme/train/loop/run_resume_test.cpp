// What a run says as it begins of what it was asked and does not do, and what it does of the run that it goes on from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>

#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/data/source.h"
#include "trireme/nn/layers.h"
#include "trireme/ops/ops.h"
#include "trireme/train/loop/trainer.h"
#include "trireme/train/report/run_log.h"

namespace trireme::run_resume_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Images : nn::Module {
  nn::Linear head{28 * 28, 10, {.name = "head"}};
  Tensor forward(const Tensor& x) override { return head(reshape(x, {x.size(0), 28 * 28})); }
};

std::vector<std::string> said_of_layerwise(nn::Module& model, TrainerOptions how) {
  std::vector<std::string> lines;
  set_log_sink([&](std::string_view line) { lines.emplace_back(line); });
  how.progress = false;
  Trainer trainer(model, cross_entropy, Sgd{}, how);
  trainer.fit(data::synthetic_images({.samples = 8, .classes = 10}), {.steps = 1, .batch = 4});
  set_log_sink({});
  std::erase_if(lines, [&](const std::string& line) { return line.find("layerwise") == line.npos; });
  return lines;
}

TEST(RunBegins, where_the_compiler_cuts_the_model_the_log_says_once_that_layerwise_parameters_are_ignored) {
  Images model;
  EXPECT_THAT(said_of_layerwise(model, {.mode = Mode::kSemiAuto}), ElementsAre());
  EXPECT_THAT(
      said_of_layerwise(model, {.mode = Mode::kSemiAuto, .parallel = {.layerwise = {{"head.bias", kOwnPiece}}}}),
      ElementsAre(HasSubstr("layerwise parameters are ignored, the first 'head.bias'")));
  model.head.layerwise();
  EXPECT_THAT(
      said_of_layerwise(model, {.mode = Mode::kSemiAuto}),
      ElementsAre(HasSubstr("mode semi_auto_parallel: layerwise parameters are ignored, the first 'head.weight'")));
  EXPECT_THAT(said_of_layerwise(model, {.mode = Mode::kDataParallel}), ElementsAre());
}

// Calls a function before each read.
class Watched : public data::Source {
 public:
  Watched(data::SourcePtr inner, std::function<void()> before) : inner_(std::move(inner)), before_(std::move(before)) {}
  std::vector<data::FieldSpec> fields() const override { return inner_->fields(); }
  int64_t size() const override { return inner_->size(); }
  void read(int64_t sample, std::span<const View> out) const override {
    before_();
    inner_->read(sample, out);
  }

 private:
  data::SourcePtr inner_;
  std::function<void()> before_;
};

// Samples of which the first one that is read while it is armed asks the process to stop.
class Interrupting final : public Watched {
 public:
  explicit Interrupting(data::SourcePtr of)
      : Watched(std::move(of), [this] {
          if (armed.exchange(false)) ::raise(SIGINT);
        }) {}
  mutable std::atomic<bool> armed = false;
};

class Interrupted : public testing::Test {
 protected:
  std::shared_ptr<Interrupting> train_ =
      std::make_shared<Interrupting>(data::synthetic_images({.samples = 32, .classes = 10}));
  std::shared_ptr<Interrupting> held_out_ =
      std::make_shared<Interrupting>(data::synthetic_images({.samples = 8, .classes = 10}));
  TempDirectory folder_;

  // `armed`: is interrupted as that is read first.
  FitResult run(const std::string& name, FitOptions fit, const Interrupting* armed = nullptr) {
    Images model;
    TrainerOptions options{.step = {.accuracy = true}, .out = join_path(folder_.path(), name), .progress = false};
    options.on_start = [&](const Session&, const StartInfo&) {
      if (armed != nullptr) armed->armed = true;
    };
    fit.batch = 4;
    fit.validation = held_out_;
    return Trainer(model, cross_entropy, Sgd{}, options).fit(train_, fit);
  }
  // Of each validation, the step and the loss.
  std::vector<std::pair<int64_t, double>> validations(const std::string& name) {
    std::vector<std::pair<int64_t, double>> out;
    for (const RunRecord& record : read_run_log(folder_.path() + "/" + name + "/metrics.jsonl")) {
      for (const auto& [key, value] : record.values) {
        if (key == "val_loss") out.emplace_back(record.step, value);
      }
    }
    return out;
  }
};

// The validation of step 1 asks for the end, which step 2 finds before its own.
TEST_F(Interrupted, the_validation_that_was_due_comes_first_of_the_run_that_goes_on) {
  run("whole", {.steps = 4, .eval_every = 1});
  const FitResult stopped = run("stopped", {.steps = 4, .eval_every = 1}, held_out_.get());
  EXPECT_TRUE(stopped.interrupted);
  EXPECT_EQ(stopped.step, 2);
  EXPECT_EQ(validations("stopped").size(), 1U);
  run("stopped", {.steps = 4, .eval_every = 1, .resume = true});
  EXPECT_EQ(validations("stopped"), validations("whole"));
}

TEST_F(Interrupted, one_that_was_not_due_does_not) {
  run("stopped", {.steps = 6, .eval_every = 2}, held_out_.get());
  run("stopped", {.steps = 6, .eval_every = 2, .resume = true});
  std::vector<int64_t> steps;
  for (const auto& [step, loss] : validations("stopped")) steps.push_back(step);
  EXPECT_THAT(steps, ElementsAre(2, 4, 6));
}

TEST_F(Interrupted, the_validation_that_was_due_can_be_the_last) {
  FitOptions fit{.steps = 8, .eval_every = 1, .patience = 1, .min_improvement = 1e9};
  EXPECT_EQ(run("whole", fit).step, 2);
  EXPECT_TRUE(run("stopped", fit, held_out_.get()).interrupted);
  fit.resume = true;
  for (int i = 0; i < 2; ++i) {  // the second finds what the first has found
    const FitResult end = run("stopped", fit);
    EXPECT_EQ(end.step, 2);
    EXPECT_TRUE(end.stopped_early);
    EXPECT_TRUE(end.nothing_left);
  }
  EXPECT_EQ(validations("stopped"), validations("whole"));
}

TEST_F(Interrupted, before_any_validation_nothing_is_said_of_one) {
  const auto report = [](const FitResult& of) { return read_file(of.report); };
  const FitResult whole = run("whole", {.steps = 4});
  EXPECT_TRUE(std::isfinite(whole.validation_loss) && std::isfinite(whole.accuracy));
  EXPECT_THAT(report(whole), testing::AllOf(HasSubstr("Validation loss"), HasSubstr("Accuracy")));
  const FitResult stopped = run("stopped", {.steps = 4, .eval_every = 1}, train_.get());
  EXPECT_TRUE(stopped.interrupted);
  EXPECT_TRUE(std::isnan(stopped.validation_loss) && std::isnan(stopped.accuracy));
  EXPECT_THAT(report(stopped), testing::Not(testing::AnyOf(HasSubstr("Validation loss"), HasSubstr("Accuracy"))));
}

// As on a disk that is full when the trace ends, after two steps. A validation comes between them.
TEST(Run, goes_on_where_its_trace_cannot_be_written) {
  Images model;
  const std::string place = testing::TempDir() + "run_trace_" + std::to_string(::getpid());
  std::vector<std::string> lines;
  set_log_sink([&](std::string_view line) { lines.emplace_back(line); });
  const auto fit = [&](bool is_full) {
    bool began = false;
    const auto images = data::synthetic_images({.samples = 8, .classes = 10});
    const auto held_out = std::make_shared<Watched>(images, [&] {
      if (is_full && began) std::filesystem::create_directories(place + "/in_the_way");
    });
    const TrainerOptions how{
        .progress = false, .trace = place, .trace_steps = 1, .on_start = [&](const Session&, const StartInfo&) {
          began = true;
        }};
    Trainer trainer(model, cross_entropy, Sgd{}, how);
    return trainer.fit(images, {.steps = 4, .batch = 4, .validation = held_out, .eval_every = 1});
  };
  const FitResult written = fit(false);
  EXPECT_EQ(written.trace, place);
  std::filesystem::remove(place);
  const FitResult result = fit(true);
  set_log_sink({});
  std::filesystem::remove_all(place);
  EXPECT_EQ(result.step, 4);
  EXPECT_EQ(result.loss, written.loss);
  EXPECT_EQ(result.trace, "");
  EXPECT_THAT(lines, testing::Contains(HasSubstr("no trace is written: ")));
}

}  // namespace
}  // namespace trireme::run_resume_test
