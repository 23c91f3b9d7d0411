// A model of one's own, trained on all ranks of the job. Alone it is one rank; `trireme launch -n 2
// build/release/examples/example_02_train` makes it two.
#include <fmt/core.h>

#include "trireme/trireme.h"

namespace tr = trireme;

struct Mlp : tr::nn::Module {
  tr::nn::Linear up{784, 64}, down{64, 10};
  tr::Tensor forward(const tr::Tensor& x) override {
    return down(tr::relu(up(tr::reshape(x, tr::Shape{x.size(0), 784}))));
  }
};

int main(int argc, char** argv) {
  const auto job = tr::Job::init(argc, argv);  // finds its rank and world however it was launched
  Mlp net;
  tr::Trainer trainer{net, tr::cross_entropy, tr::AdamW{.lr = 1e-3}, {.step = {.accuracy = true}, .progress = false}};
  const auto digits = tr::data::split_fraction(
      tr::data::idx("examples/data/digits-images-idx3-ubyte.gz", "examples/data/digits-labels-idx1-ubyte.gz"), 0.1);
  const tr::FitResult result = trainer.fit(digits.train, {.epochs = 10, .batch = 48, .validation = digits.validation});
  if (job.rank() == 0) {
    fmt::print("{} steps; more than nine in ten held-out digits right: {}\n", result.step,
               result.accuracy > 0.9 ? "yes" : "no");
  }
  return result.exit_code();
}
