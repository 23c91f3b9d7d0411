// Run by mpirun: training over MPI against training on one device. Exits with 1 and says why on an
// error.
#include <cstdio>
#include <exception>

#include "tests/multi/loss_curve.h"

namespace {

using namespace trireme;
using namespace trireme::testing_support;

void check_training(comm::World& world, const Graph& graph) {
  const Curve whole = train_curve(graph, nullptr);
  const std::string difference = difference_of(train_curve(graph, &world), whole, rounding_share(graph));
  require(difference.empty(), "rank {} of {}, {}: {}", world.rank(), world.size(), graph.name(), difference);
}

}  // namespace

int main() {
  try {
    const auto world = comm::connect({.transport = "mpi"});
    require(world->transport() == "mpi", "the transport is '{}'", world->transport());
    check_training(*world, mlp_step(Sgd{.momentum = 0.9}));
    check_training(*world, gpt_step(Sgd{.momentum = 0.9}));
    world->all().barrier().wait();
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
