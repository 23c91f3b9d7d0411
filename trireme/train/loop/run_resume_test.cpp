// What a run says of what it was asked and does not do, as it begins or later.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>

#include "trireme/base/log.h"
#include "trireme/data/source.h"
#include "trireme/nn/layers.h"
#include "trireme/ops/ops.h"
#include "trireme/train/loop/trainer.h"

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
