// C++ of the documents that is part of no example: what they show must stand here, compile and do what they say.
#include <gtest/gtest.h>

#include <filesystem>

#include "trireme/base/file.h"
#include "trireme/trireme.h"

namespace docs::snippets_test {

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

TEST(Snippets, AModelFreezesAPartOfItselfAndHasGroups) {
  UpAndDown net;
  // clang-format off
net.up.freeze();  // all of it; freeze("bias") would be its bias alone
tr::Trainer trainer{net, tr::cross_entropy, tr::AdamW{}, {.step = {.groups = {"*.bias = weight_decay 0"}}}};
  // clang-format on
  tr::StepOptions options;
  options.groups = {"*.bias = weight_decay 0"};
  const tr::Graph step =
      tr::training_step([&](const tr::Tensor& x) { return net(x); },
                        [](const tr::Tensor& y, const tr::Tensor& t) { return tr::cross_entropy(y, t); },
                        {{"x", {tr::DType::kF32, {8, 8}}}, {"t", {tr::DType::kI32, {8}}}}, tr::AdamW{}, options);
  EXPECT_EQ(tr::nn::describe_groups(step, options.groups),
            "frozen: 2 parameters (144 values); weight_decay 0: 1 parameter (4 values); the others: 1 parameter (64 "
            "values)");
}

// What a program has of its job.
struct JobOfTwo {
  tr::comm::World* world_of_rank;
  tr::ThreadPool& threads;
  tr::comm::World* world() const { return world_of_rank; }
  tr::ThreadPool& pool() const { return threads; }
};

TEST(Snippets, ATrainedModelPredictsOnRanksThatShareIt) {
  const tr::TempDirectory folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  UpAndDown trained;
  trained.up.shard("[dp, -], [tp, -]");
  const auto loss = [](const tr::Tensor& y, const tr::Tensor& t) { return tr::cross_entropy(y, t); };
  tr::Trainer trainer{trained, loss, tr::AdamW{}, {.out = "runs/mine", .progress = false}};
  trainer.fit(tr::data::synthetic_images({.samples = 32, .image = {8}, .classes = 4}), {.steps = 1, .batch = 16});
  tr::comm::spawn_ranks(2, "threads", [&](tr::comm::World& world) {
    tr::ThreadPool pool(1);
    const JobOfTwo job{&world, pool};
    UpAndDown net;
    net.up.shard("[dp, -], [tp, -]");
    const tr::HostTensor x(tr::TensorType{tr::DType::kF32, {16, 8}}), y(tr::TensorType{tr::DType::kI32, {16}});
    // clang-format off
const tr::ckpt::Reader checkpoint("runs/mine/checkpoints");
tr::Predictor predictor([&](const tr::Tensor& in) { return net(in); },
                        {{"x", {tr::DType::kF32, {16, 8}}}, {"y", {tr::DType::kI32, {16}}}}, checkpoint,
                        {.mode = tr::Mode::kSemiAuto, .parallel = {.mesh = "dp=1,tp=2"}}, job.world(), &job.pool());
predictor.run(std::vector<tr::View>{x.view(), y.view()});  // of y, which this model does not read, the type alone counts
const tr::HostPiece classes = predictor.prediction();
    // clang-format on
    EXPECT_EQ(classes.view.type.shape, (tr::Shape{16, 4}));
  });
  std::filesystem::current_path(before);
}

// clang-format off
struct Bought : tr::nn::Module {
  tr::nn::Linear numbers{3, 8};
  tr::nn::Embedding ids{39, 8};
  tr::nn::Linear bought{8, 2}, spent{8, 1};
  tr::nn::Fields forward_batch(const tr::nn::Fields& batch) override {
    const tr::Tensor of_ids = tr::reduce_sum(ids(batch["ids"]), {1});
    const tr::Tensor h = tr::relu(tr::add(numbers(batch["dense"]), of_ids));
    return {{"bought", bought(h)}, {"spent", spent(h)}};
  }
};

tr::Tensor two_targets(const tr::nn::Fields& predicted, const tr::nn::Fields& batch) {
  const tr::Tensor wrong = tr::cross_entropy(predicted["bought"], batch["bought"]);
  return tr::add(tr::mean(wrong), tr::mean(tr::square(tr::sub(predicted["spent"], batch["spent"]))));
}
// clang-format on

TEST(Snippets, AModelOfSeveralFieldsHasALossOfTwoTargets) {
  const tr::data::SourcePtr visits = tr::data::synthetic_fields({.samples = 32,
                                                                 .fields = {{"dense", tr::DType::kF32, {3}},
                                                                            {"ids", tr::DType::kI32, {2}, 39},
                                                                            {"spent", tr::DType::kF32, {1}},
                                                                            {"bought", tr::DType::kI32, {}, 2}}});
  // clang-format off
Bought net;
tr::Trainer trainer{net, two_targets, tr::AdamW{}, {.step = {.accuracy = true}, .progress = false}};
const tr::FitResult result = trainer.fit(visits, {.steps = 5, .batch = 8, .validation = visits});
  // clang-format on
  EXPECT_EQ(result.step, 5);
  EXPECT_GT(result.accuracy, 0);
  EXPECT_LT(result.accuracy, 1);
}

}  // namespace
}  // namespace docs::snippets_test
