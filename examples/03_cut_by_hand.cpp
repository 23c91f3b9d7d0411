// A model cut by hand: every rank has some rows of the first weight and the same columns of the second, and the sum
// over ranks stands in the model's code. Alone it is the whole model; `trireme launch -n 2 ./03_cut_by_hand` makes it
// two halves.
#include <fmt/core.h>

#include "trireme/trireme.h"

namespace tr = trireme;

struct Halves : tr::nn::Module {
  explicit Halves(const tr::Mesh& mesh)
      : ways(mesh.devices()),
        tp(tr::over_axes(mesh, "tp")),
        up(784, 64 / ways, {.name = "up", .init_std = 0.03}),
        down(64 / ways, 10, {.name = "down", .bias = false, .init_std = 0.1}) {
    up.layerwise("[tp, -]");    // of the whole weight [64,784] and bias [64] each rank has some rows
    down.layerwise("[-, tp]");  // of the whole weight [10,64] some columns
  }
  tr::Tensor forward(const tr::Tensor& x) override {
    const tr::Tensor h = tr::relu(up(tr::reshape(x, tr::Shape{x.size(0), 784})));
    const tr::Tensor part = down(h);
    return tr::all_reduce({&part, 1}, tp)[0];
  }
  int64_t ways;
  tr::CollectiveAttrs tp;
  tr::nn::Linear up, down;
};

int main(int argc, char** argv) {
  const auto job = tr::Job::init(argc, argv);
  const tr::Mesh mesh({{"dp", 1}, {"tp", job.size()}});
  Halves net(mesh);
  tr::Trainer trainer{net,
                      tr::cross_entropy,
                      tr::AdamW{.lr = 1e-3},
                      {.step = {.accuracy = true},
                       .mode = tr::Mode::kHybrid,
                       .progress = false,
                       .parallel = {.mesh = tr::to_string(mesh)}}};
  const auto digits = tr::data::split_fraction(tr::data::synthetic_images({.samples = 2000}), 0.1);
  const tr::FitResult result = trainer.fit(digits.train, {.epochs = 2, .batch = 50, .validation = digits.validation});
  if (job.rank() == 0) {
    fmt::print("{} steps; more than nine in ten held-out images right: {}\n", result.step,
               result.accuracy > 0.9 ? "yes" : "no");
  }
  return result.exit_code();
}
