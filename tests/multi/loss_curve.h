// The same few training steps on any number of ranks, and how far their results may lie apart.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "tests/multi/training_support.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::testing_support {

inline constexpr int kSteps = 5;

struct Curve {
  std::vector<float> losses;      // by step
  std::vector<float> parameters;  // after the last
};

// Throws unless all ranks hold the same bits of parameters and state.
inline void require_equal_bits(Session& session, comm::World& world, int64_t step) {
  for (const PlanInput& input : session.persistent()) {
    const View own = session.step().input(input.name);
    const HostTensor first(own.type);
    std::memcpy(first.view().data, own.data, static_cast<size_t>(own.bytes()));
    world.all().broadcast(first.view(), 0).wait();
    require(std::ranges::equal(first.view().raw(), own.raw()),
            "after step {} ranks {} and 0 hold different bits of '{}'", step, world.rank(),
            input.name);
  }
}

inline Curve train_curve(const Graph& graph, comm::World* world) {
  Session session(graph, std::nullopt, {.world = world, .seed = 5});
  session.initialise();
  Curve out;
  for (int64_t step = 1; step <= kSteps; ++step) {
    out.losses.push_back(train_step(session, step, 0.2F));
    if (world) require_equal_bits(session, *world, step);
  }
  for (const PlanInput& input : session.persistent()) {
    if (input.role != Role::kParameter) continue;
    const auto values = session.step().input(input.name).as<float>();
    out.parameters.insert(out.parameters.end(), values.begin(), values.end());
  }
  return out;
}

// The losses of the first rank, whose pieces are those of the strategy.
inline std::vector<float> train_losses(const Graph& graph, int ranks, const Parallel& parallel, int steps, float lr,
                                       const PassOptions& passes = {}) {
  std::vector<float> out;
  std::mutex mutex;
  comm::spawn_ranks(ranks, "threads", [&](comm::World& world) {
    Session session(graph, std::nullopt, {.world = &world, .seed = 5, .parallel = parallel, .passes = passes});
    session.initialise();
    std::vector<float> mine;
    for (int step = 1; step <= steps; ++step) mine.push_back(train_step(session, step, lr));
    const std::lock_guard lock(mutex);
    if (world.rank() == 0) out = mine;
  });
  return out;
}

// A rank's share changes only the order in which the terms of a step's sums over the batch are
// added: at most one unit of rounding for each term and step, of values no larger than the loss.
inline double rounding_bound(const Graph& graph, const Curve& whole) {
  const double terms = static_cast<double>(graph.type(graph.input("y").value).elements());
  return kSteps * terms * 0x1p-24 * static_cast<double>(whole.losses[0]);
}

// What is wrong with a curve that should be that of one device; "" when nothing is.
inline std::string difference_of(const Curve& curve, const Curve& whole, double bound) {
  const auto [lowest, highest] = std::minmax_element(whole.losses.begin(), whole.losses.end());
  if (*highest - *lowest < 20 * bound) return "the curve is too flat to tell anything";
  for (size_t i = 0; i < whole.losses.size(); ++i) {
    if (std::fabs(static_cast<double>(curve.losses[i]) - whole.losses[i]) <= bound) continue;
    return fmt::format("the loss of step {} is {}, not {} within {}", i + 1, curve.losses[i],
                       whole.losses[i], bound);
  }
  if (curve.parameters.size() != whole.parameters.size()) return "the parameters differ in number";
  for (size_t i = 0; i < whole.parameters.size(); ++i) {
    if (std::fabs(static_cast<double>(curve.parameters[i]) - whole.parameters[i]) <= bound)
      continue;
    return fmt::format("parameter {} is {}, not {} within {}", i, curve.parameters[i],
                       whole.parameters[i], bound);
  }
  return "";
}

}  // namespace trireme::testing_support
