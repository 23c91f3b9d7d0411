// Run by mpirun: the cases of tests/equivalence that are drawn for MPI and for so many ranks, against one device. Exits
// with 1 and prints the case on a difference or an error.
//
//   mpi_equivalence                       those of the first 2,000 cases of equivalence_test
//   mpi_equivalence --cases=N --seed=S    those of N others
//
// Where those hold fewer than five for so many ranks, the cases behind them are drawn until five have run.
#include <cstdio>
#include <exception>
#include <string>

#include "tests/equivalence/run.h"

namespace {

using namespace trireme;
using namespace trireme::equivalence;

// Rank 0's text, on all ranks.
std::string from_rank_0(comm::World& world, const std::string& text) {
  auto size = static_cast<int64_t>(text.size());
  world.all().broadcast({reinterpret_cast<std::byte*>(&size), {DType::kI64, {1}}}, 0).wait();
  std::string out = text;
  out.resize(static_cast<size_t>(size));
  world.all().broadcast({reinterpret_cast<std::byte*>(out.data()), {DType::kU8, {size}}}, 0).wait();
  return out;
}

// Rank 0 draws; the text of the next case from this seed on, or "".
std::string next_case(comm::World& world, uint32_t& seed, uint32_t end) {
  std::string text;
  for (; world.rank() == 0 && text.empty() && seed < end; ++seed) {
    const Case test = random_case(seed);
    if (test.transport == "mpi" && without_micro_batches(test.strategy.mesh).devices() * test.crews == world.size())
      text = to_string(test);
  }
  return from_rank_0(world, text.empty() ? " " : text);
}

constexpr int kLeast = 5;

struct Ran {
  int cases;       // that agree
  uint32_t drawn;  // of how many; of rank 0
};

Ran run_all(comm::World& world, uint32_t first, uint32_t count) {
  uint32_t seed = first;
  int cases = 0;
  const auto next = [&] { return next_case(world, seed, first + (cases < kLeast ? 10 * count : count)); };
  for (std::string text = next(); text != " "; text = next()) {
    const Case test = parse_case(text);
    std::string found;
    try {
      found = run_case_over(world, test).text;
    } catch (const std::exception& e) {
      found = e.what();
    }
    require(found.empty(), "rank {} of {}: {}\n{}", world.rank(), world.size(), found, text);
    ++cases;
  }
  return {cases, seed - first};
}

}  // namespace

int main(int argc, char** argv) {
  uint32_t cases = 2000;
  uint32_t seed = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.starts_with("--cases=")) cases = static_cast<uint32_t>(std::stoul(arg.substr(8)));
    if (arg.starts_with("--seed=")) seed = static_cast<uint32_t>(std::stoul(arg.substr(7)));
  }
  try {
    const auto world = comm::connect({.transport = "mpi"});
    require(world->transport() == "mpi", "the transport is '{}'", world->transport());
    const auto [agree, drawn] = run_all(*world, seed, cases);
    require(agree > 0, "none of {} cases from seed {} is drawn for MPI and {} ranks", 10 * cases, seed, world->size());
    if (world->rank() == 0)
      std::printf("%d of %u cases from seed %u ran over MPI on %d ranks and agree\n", agree, drawn, seed,
                  world->size());
    world->all().barrier().wait();
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
