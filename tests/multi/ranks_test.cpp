// Any number of ranks over any transport trains as one device does.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "tests/multi/training_support.h"
#include "trireme/train/checkpointing.h"

namespace trireme {
namespace {

using namespace testing_support;

constexpr int kSteps = 5;
constexpr float kRate = 0.2F;

struct Curve {
  std::vector<float> losses;
  std::vector<float> parameters;
};

Curve train(const Graph& graph, comm::World* world) {
  Session session(graph, std::nullopt, {.world = world, .seed = 5});
  session.initialise();
  Curve out;
  for (int step = 1; step <= kSteps; ++step) {
    out.losses.push_back(train_step(session, step, kRate));
    if (!world) continue;
    const std::vector<std::string> hashes =
        gather_texts(*world, fmt::format("{:016x}", state_hash(session)));
    for (const std::string& other : hashes)
      EXPECT_EQ(other, hashes[0]) << "ranks differ after step " << step;
  }
  for (const PlanInput& input : session.persistent()) {
    if (input.role != Role::kParameter) continue;
    const auto values = session.step().input(input.name).as<float>();
    out.parameters.insert(out.parameters.end(), values.begin(), values.end());
  }
  return out;
}

// A rank's share changes only the order in which the terms of a step's sums over the batch are
// added: at most one unit of rounding for each term and step, of values no larger than the loss.
double bound_of(const Graph& graph, float loss) {
  const double terms = static_cast<double>(graph.type(graph.input("y").value).elements());
  return kSteps * terms * 0x1p-24 * static_cast<double>(loss);
}

struct RanksCase {
  std::string transport;
  int ranks;
};

class Ranks : public testing::TestWithParam<RanksCase> {
 protected:
  void expect_like_one_device(const Graph& graph) {
    const Curve whole = train(graph, nullptr);
    const double bound = bound_of(graph, whole.losses[0]);
    float smallest = whole.losses[0];
    for (const float loss : whole.losses) smallest = std::min(smallest, loss);
    float largest = whole.losses[0];
    for (const float loss : whole.losses) largest = std::max(largest, loss);
    EXPECT_GT(largest - smallest, 20 * bound) << "the curve is too flat to tell anything";

    std::mutex mutex;
    std::vector<Curve> curves;
    comm::spawn_ranks(GetParam().ranks, GetParam().transport, [&](comm::World& world) {
      Curve curve = train(graph, &world);
      const std::lock_guard lock(mutex);
      curves.push_back(std::move(curve));
    });
    ASSERT_EQ(curves.size(), static_cast<size_t>(GetParam().ranks));
    for (const Curve& curve : curves) {
      for (size_t i = 0; i < whole.losses.size(); ++i)
        EXPECT_NEAR(curve.losses[i], whole.losses[i], bound) << i;
      ASSERT_EQ(curve.parameters.size(), whole.parameters.size());
      double worst = 0;
      for (size_t i = 0; i < whole.parameters.size(); ++i) {
        worst = std::max(worst,
                         std::fabs(static_cast<double>(curve.parameters[i] - whole.parameters[i])));
      }
      EXPECT_LE(worst, bound);
    }
  }
};

TEST_P(Ranks, train_a_perceptron_as_one_device_does) {
  expect_like_one_device(mlp_step(Sgd{.momentum = 0.9}));
}

TEST_P(Ranks, train_a_language_model_as_one_device_does) {
  expect_like_one_device(gpt_step(Sgd{.momentum = 0.9}));
}

std::vector<RanksCase> all_cases() {
  std::vector<RanksCase> out;
  for (const std::string& transport : comm::transports_of_threads()) {
    for (const int ranks : {1, 2, 3, 4, 8}) out.push_back({transport, ranks});
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Transports, Ranks, testing::ValuesIn(all_cases()), [](const auto& about) {
  return fmt::format("{}_{}", about.param.transport, about.param.ranks);
});

TEST(DataParallel, a_gradient_is_of_the_mean_over_the_global_batch_whatever_the_ranks) {
  // One plain step with rate 1 and no clipping moves each parameter by its gradient.
  nn::Mlp mlp({12, 16, 10});
  const Graph graph = training_step(mlp_model(mlp), class_loss(), mlp_batch(), Sgd{.lr = 1});
  const auto moved = [&](comm::World* world) {
    Session session(graph, std::nullopt, {.world = world, .seed = 5});
    session.initialise();
    const auto weight = session.step().input("layers.1.weight").as<float>();
    const std::vector<float> before(weight.begin(), weight.end());
    train_step(session, 1, 1.0F);
    std::vector<float> out;
    for (size_t i = 0; i < before.size(); ++i) out.push_back(before[i] - weight[i]);
    return out;
  };
  const std::vector<float> one = moved(nullptr);
  float largest = 0;
  for (const float x : one) largest = std::max(largest, std::fabs(x));
  ASSERT_GT(largest, 1e-3F);
  comm::spawn_ranks(4, "threads", [&](comm::World& world) {
    const std::vector<float> four = moved(&world);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(four[i], one[i], 24 * 0x1p-23F);
  });
}

TEST(DataParallel, the_loss_of_ten_classes_starts_near_its_logarithm_and_falls) {
  std::mutex mutex;
  std::vector<float> losses;
  comm::spawn_ranks(8, "threads", [&](comm::World& world) {
    Session session(mlp_step(Sgd{.lr = 0.01}, 32), std::nullopt, {.world = &world, .seed = 1});
    session.initialise();
    std::vector<float> mine;
    for (int i = 0; i < 20; ++i)
      mine.push_back(train_step(session, 1, 0.1F));  // the same batch each time
    const std::lock_guard lock(mutex);
    losses = mine;
  });
  EXPECT_NEAR(losses.front(), std::log(10.0), 0.3);
  for (size_t i = 1; i < losses.size(); ++i) EXPECT_LT(losses[i], losses[i - 1]) << i;
}

}  // namespace
}  // namespace trireme
