// A pipeline: the model's code says which module is of which stage. Alone all stages are on one rank; `trireme launch
// -n 2 build/release/examples/example_04_pipeline` gives each rank one of them.
#include <fmt/core.h>

#include "trireme/trireme.h"

namespace tr = trireme;

struct Net : tr::nn::Module {
  Net() {
    first.pipeline_stage(0);
    second.pipeline_stage(1);
    head.pipeline_stage(1);
  }
  tr::Tensor forward(const tr::Tensor& x) override {
    const tr::Tensor h = tr::relu(first(tr::reshape(x, tr::Shape{x.size(0), 784})));
    return head(tr::relu(second(h)));
  }
  tr::nn::Linear first{784, 64, {.name = "first"}}, second{64, 64, {.name = "second"}}, head{64, 10, {.name = "head"}};
};

int main(int argc, char** argv) {
  const auto job = tr::Job::init(argc, argv);
  const int64_t crews = job.size() % 2 == 0 ? 2 : 1;  // equal parts of the ranks, each with one stage or more
  Net net;
  tr::TrainerOptions options{.step = {.accuracy = true}, .mode = tr::Mode::kSemiAuto, .progress = false};
  options.parallel.pipeline.crews = crews;
  options.parallel.pipeline.schedule = "1f1b";
  options.parallel.accumulation = 5;  // micro-batches of a step's batch
  tr::Trainer trainer{net, tr::cross_entropy, tr::AdamW{.lr = 1e-3}, options};
  const auto images = tr::data::split_fraction(tr::data::synthetic_images({.samples = 2000}), 0.1);
  const tr::FitResult result = trainer.fit(images.train, {.epochs = 2, .batch = 50, .validation = images.validation});
  if (job.rank() == 0) {
    fmt::print("{} steps; more than nine in ten held-out images right: {}\n", result.step,
               result.accuracy > 0.9 ? "yes" : "no");
  }
  return result.exit_code();
}
