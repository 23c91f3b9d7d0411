// A ResNet over ranks: batch norms take the statistics of the whole batch, however it is cut, so it trains as on one
// device (contracts 4.3); running statistics are kept, the same on all ranks, and evaluation reads them.
#include <gtest/gtest.h>

#include <mutex>

#include "tests/multi/loss_curve.h"
#include "trireme/nn/models/resnet.h"
#include "trireme/train/step/graphs/hand_cut.h"

namespace trireme::resnet_test {
namespace {

using namespace testing_support;

constexpr int64_t kImages = 8;
constexpr int64_t kSize = 32;

std::vector<BatchField> images() {
  return {{"x", {DType::kF32, {kImages, kSize, kSize, 3}}}, {"y", {DType::kI32, {kImages}}}};
}

struct Graphs {
  Graph step, evaluation;
};

Graphs resnet(DType compute = DType::kF32) {
  nn::ResNet model({.blocks = {1, 1}, .width = 4, .classes = 10});
  const ModelFn call = [&](const Tensor& x) { return model(x); };
  const StepOptions options{.name = "resnet", .compute = compute};
  return {training_step(call, class_loss(), images(), Sgd{.momentum = 0.9, .weight_decay = 1e-4}, options),
          evaluation(call, class_loss(), images(), options)};
}

struct Outcome {
  Curve curve;
  double evaluated = 0;
};

Outcome run(const Graphs& graphs, const Parallel& parallel, comm::World* world) {
  Session session(graphs.step, graphs.evaluation, {.world = world, .seed = 5, .compile = {.parallel = parallel}});
  session.initialise();
  Outcome out;
  note_start(session.step(), out.curve);
  for (int64_t step = 1; step <= kSteps; ++step) {
    out.curve.losses.push_back(train_step(session, step, 0.05F));
    const bool whole = parallel.optimizer.level == 0;  // else ranks have slices of the state
    if (world && whole) require_equal_bits(session, *world, step);
  }
  note_end(session.step(), out.curve);
  fill_batch(session.evaluation(), "x", 1);
  fill_batch(session.evaluation(), "y", 1);
  session.evaluation().run();
  out.evaluated = session.evaluation().output("loss").as<float>()[0];
  return out;
}

std::vector<Outcome> run_on(int ranks, const Graphs& graphs, const Parallel& parallel) {
  std::vector<Outcome> out(static_cast<size_t>(ranks));
  std::mutex mutex;
  comm::spawn_ranks(ranks, "threads", [&](comm::World& world) {
    Outcome mine = run(graphs, parallel, &world);
    const std::lock_guard lock(mutex);
    out[static_cast<size_t>(world.rank())] = std::move(mine);
  });
  return out;
}

// Sums of a channel run over the positions of all images.
const double kShare = rounding_share(kImages * kSize * kSize / 4.0);

void expect_as_one(int ranks, const Parallel& parallel) {
  const Graphs graphs = resnet();
  const Outcome whole = run(graphs, {}, nullptr);
  EXPECT_EQ(let_pass(whole.curve, kShare), "");
  for (const Outcome& rank : run_on(ranks, graphs, parallel)) {
    EXPECT_EQ(difference_of(rank.curve, whole.curve, kShare), "");
    EXPECT_NEAR(rank.evaluated, whole.evaluated, kShare * whole.evaluated);
  }
}

TEST(ResNet, contracts_4_3_two_data_parallel_ranks_train_as_one) {
  expect_as_one(2, {});
}

// Statistics are those of all micro-batches, too.
TEST(ResNet, micro_batches_train_as_the_whole_batch) {
  expect_as_one(2, {.accumulation = 2});
}

TEST(ResNet, contracts_4_3_tiles_of_images_on_four_ranks_train_as_one) {
  expect_as_one(4, {.mesh = "dp=2,th=2", .dataset = "[dp, th, -, -]"});
}

TEST(ResNet, contracts_4_3_optimizer_parallel_ranks_train_as_one) {
  expect_as_one(2, {.optimizer = {.level = 2, .threshold_kb = 0}});
}

// Cut by hand, a rank takes the statistics of its own images; the running ones are the mean of the ranks'.
TEST(ResNet, contracts_3_3_running_statistics_of_a_model_that_is_cut_by_hand_are_the_same_on_all_ranks) {
  const Parallel by_hand{.by_hand = true};
  std::vector<BatchField> batch = images();
  const HandCut cut = cut_by_hand(by_hand, 2, batch);
  nn::ResNet model({.blocks = {1}, .width = 4, .classes = 10});
  const Graph graph = training_step([&](const Tensor& x) { return model(x); }, class_loss(), batch,
                                    Sgd{.momentum = 0.9}, {.name = "resnet"}, cut);
  comm::spawn_ranks(2, "threads", [&](comm::World& world) {
    Session session(graph, std::nullopt, {.world = &world, .seed = 5, .compile = {.parallel = by_hand}});
    session.initialise();
    for (int64_t step = 1; step <= kSteps; ++step) {
      train_step(session, step, 0.05F);
      require_equal_bits(session, world, step);
    }
    EXPECT_NE(session.step().input("bn1.running_var").as<float>()[0], 1);
  });
}

// In evaluation the result of an image does not depend on the others beside it: it is that of the running statistics.
TEST(ResNet, evaluation_reads_the_running_statistics) {
  const Graphs graphs = resnet();
  Session session(graphs.step, graphs.evaluation, {.seed = 5});
  session.initialise();
  const auto evaluated = [&] {
    fill_batch(session.evaluation(), "x", 1);
    fill_batch(session.evaluation(), "y", 1);
    session.evaluation().run();
    return session.evaluation().output("loss").as<float>()[0];
  };
  const float before = evaluated();
  EXPECT_EQ(evaluated(), before);
  for (float& var : session.step().input("bn1.running_var").as<float>()) {
    EXPECT_EQ(var, 1);  // as it starts
    var = 4;
  }
  EXPECT_NE(evaluated(), before);
}

TEST(ResNet, running_statistics_are_no_parameters) {
  const Graphs graphs = resnet();
  const Session session(graphs.step, std::nullopt, {});
  int64_t statistics = 0;
  for (const PlanInput& input : session.persistent()) {
    if (!input.name.ends_with(".running_mean") && !input.name.ends_with(".running_var")) continue;
    EXPECT_EQ(input.role, Role::kState) << input.name;
    ++statistics;
  }
  EXPECT_EQ(statistics, 2 * (1 + 2 * 4));  // the stem's, and four in each block
}

// The loss in bf16 is within bf16's rounding of that in f32, step by step.
TEST(ResNet, trains_in_bf16) {
  const Outcome f32 = run(resnet(), {}, nullptr);
  const Outcome bf16 = run(resnet(DType::kBF16), {}, nullptr);
  for (size_t i = 0; i < f32.curve.losses.size(); ++i) {
    EXPECT_NE(bf16.curve.losses[i], f32.curve.losses[i]);
    EXPECT_NEAR(bf16.curve.losses[i], f32.curve.losses[i], 0.05 * f32.curve.losses[i]) << "step " << i + 1;
  }
}

}  // namespace
}  // namespace trireme::resnet_test
