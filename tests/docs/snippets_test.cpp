// C++ of the documents that is part of no example: what they show must stand here, compile and do what they say.
#include <gtest/gtest.h>

#include "trireme/trireme.h"

namespace tr = trireme;

namespace {

struct UpAndDown : tr::nn::Module {
  tr::nn::Linear up{8, 16}, down{16, 4};
  tr::Tensor forward(const tr::Tensor& x) override { return down(tr::relu(up(x))); }
};

TEST(Snippets, AModelAsksForItsOwnCuts) {
  UpAndDown net;
  // clang-format off
net.up.shard({{2, 1}, {4, 1}});                  // numbers of parts of each operand
net.down.shard("[dp, tp], [-, tp] -> [dp, -]");  // or layouts
tr::Trainer trainer{net, tr::cross_entropy, tr::AdamW{}, {.mode = tr::Mode::kSemiAuto, .parallel = {.mesh = "dp=2,tp=4"}}};
  // clang-format on
  const tr::Graph step =
      tr::training_step([&](const tr::Tensor& x) { return net(x); },
                        [](const tr::Tensor& y, const tr::Tensor& t) { return tr::cross_entropy(y, t); },
                        {{"x", {tr::DType::kF32, {8, 8}}}, {"t", {tr::DType::kI32, {8}}}}, tr::AdamW{}, {});
  const tr::Strategy strategy = tr::semi_auto(step, 8, {.mesh = "dp=2,tp=4"});
  const std::string text = tr::to_string(step, strategy);
  EXPECT_NE(text.find("f32[16,8] [tp, -]"), std::string::npos) << text;
  EXPECT_NE(text.find("f32[4,16] [-, tp]"), std::string::npos) << text;
}

}  // namespace
