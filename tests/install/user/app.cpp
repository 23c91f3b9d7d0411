// A user's own program: a model, a source of samples, a trainer.
#include <fmt/core.h>
#include <trireme/trireme.h>

namespace tr = trireme;

struct Mlp : tr::nn::Module {
  tr::nn::Linear up{16, 32}, down{32, 4};
  tr::Tensor forward(const tr::Tensor& x) override { return down(tr::relu(up(x))); }
};

int main(int argc, char** argv) {
  const auto job = tr::Job::init(argc, argv);
  Mlp net;
  tr::Trainer trainer{net, tr::cross_entropy, tr::AdamW{.lr = 1e-2}, {.progress = false}};
  const auto images = tr::data::synthetic_images({.samples = 256, .image = {16}, .classes = 4});

  const tr::FitResult result = trainer.fit(images, {.steps = 20, .batch = 64});

  if (job.rank() == 0) fmt::print("ranks: {}, steps: {}, learnt: {}\n", job.size(), result.step, result.loss < 0.5);
  return 0;
}
