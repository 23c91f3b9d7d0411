// Any number of ranks over any transport trains as one device does.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "tests/multi/loss_curve.h"

namespace trireme::ranks_test {
namespace {

using namespace testing_support;

struct RanksCase {
  std::string transport;
  int ranks;
};

class Ranks : public testing::TestWithParam<RanksCase> {
 protected:
  void expect_like_one_device(const Graph& graph) {
    const Curve whole = train_curve(graph, nullptr);
    const double share = rounding_share(graph);
    EXPECT_EQ(let_pass(whole, share), "");
    comm::spawn_ranks(GetParam().ranks, GetParam().transport, [&](comm::World& world) {
      EXPECT_EQ(difference_of(train_curve(graph, &world), whole, share), "") << world.rank();
    });
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
  ASSERT_GT(largest_of(one), 1e-3);
  comm::spawn_ranks(4, "threads", [&](comm::World& world) {
    const std::vector<float> four = moved(&world);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(four[i], one[i], 24 * 0x1p-23F);
  });
}

TEST(DataParallel, without_the_mean_a_gradient_is_as_many_times_larger_as_there_are_ranks) {
  nn::Mlp mlp({12, 16, 10});
  const auto gradient = [&](comm::World* world, double factor) {
    Session session(training_step(mlp_model(mlp), class_loss(), mlp_batch(), Sgd{.lr = 1}, {.gradient_scale = factor}),
                    std::nullopt, {.world = world, .seed = 5});
    session.initialise();
    const auto bias = session.step().input("layers.1.bias").as<float>();
    std::fill(bias.begin(), bias.end(), 0.0F);  // so that the step leaves minus the gradient there, to the bit
    train_step(session, 1, 1.0F);
    return std::vector<float>(bias.begin(), bias.end());
  };
  comm::spawn_ranks(4, "threads", [&](comm::World& world) {
    const std::vector<float> mean = gradient(&world, 1);
    const std::vector<float> sum = gradient(&world, 4);
    for (size_t i = 0; i < mean.size(); ++i) EXPECT_EQ(sum[i], 4 * mean[i]);
  });
}

TEST(DataParallel, ranks_of_different_seeds_start_with_the_first_ones_values) {
  const auto values = [](comm::World& world, uint64_t seed, bool broadcast, const std::string& name) {
    Session session(mlp_step(Sgd{}), std::nullopt, {.world = &world, .seed = seed, .parameter_broadcast = broadcast});
    session.initialise();
    const auto weight = session.step().input(name).as<float>();
    return std::vector<float>(weight.begin(), weight.end());
  };
  comm::spawn_ranks(4, "threads", [&](comm::World& world) {
    const auto own = static_cast<uint64_t>(world.rank() + 1);
    EXPECT_EQ(values(world, own, true, "layers.0.weight"), values(world, 1, false, "layers.0.weight"));
    if (world.rank() > 0) {
      EXPECT_NE(values(world, own, false, "layers.0.weight"), values(world, 1, false, "layers.0.weight"));
    } else {
      values(world, own, false, "layers.0.weight");  // making a session takes all ranks
      values(world, 1, false, "layers.0.weight");
    }
  });
}

TEST(DataParallel, the_loss_of_ten_classes_starts_near_its_logarithm_and_falls) {
  std::mutex mutex;
  std::vector<float> losses;
  comm::spawn_ranks(8, "threads", [&](comm::World& world) {
    Session session(mlp_step(Sgd{.lr = 0.01}, 32), std::nullopt, {.world = &world, .seed = 1});
    session.initialise();
    std::vector<float> mine;
    for (int i = 0; i < 20; ++i) mine.push_back(train_step(session, 1, 0.1F));  // the same batch each time
    const std::lock_guard lock(mutex);
    losses = mine;
  });
  EXPECT_NEAR(losses.front(), std::log(10.0), 0.3);
  for (size_t i = 1; i < losses.size(); ++i) EXPECT_LT(losses[i], losses[i - 1]) << i;
}

}  // namespace
}  // namespace trireme::ranks_test
