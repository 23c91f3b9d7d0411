// A model written for one device, seen as the graph of one training step and as the program that
// each of two ranks runs.
#include <fmt/core.h>

#include "trireme/trireme.h"

namespace tr = trireme;

struct Line : tr::nn::Module {
  tr::nn::Linear slope{3, 1};
  tr::Tensor forward(const tr::Tensor& x) override { return slope(x); }
};

int main() {
  Line line;
  const tr::Graph step = tr::training_step(
      [&](const tr::Tensor& x) { return line(x); },
      [](const tr::Tensor& y, const tr::Tensor& target) { return tr::mse(y, target); },
      {{"x", {tr::DType::kF32, {8, 3}}}, {"target", {tr::DType::kF32, {8, 1}}}}, tr::Sgd{.lr = 0.1}, {.name = "line"});
  fmt::print("The step on whole tensors:\n{}\n", tr::to_string(step));

  const tr::Program program = tr::partition(step, tr::data_parallel(step, 2));
  fmt::print("What each of two ranks runs:\n{}", tr::to_string(program));
  return 0;
}
