// The tests of this folder and of tests/hosts, with --kills=N, --hellos=N, --nodes=N, --on-node=N and --seed=N.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>

#include "tests/program_arguments.h"
#include "tests/reliability/sizes.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::signal(SIGINT, SIG_DFL);  // a shell ignores it in what runs in the background, and jobs would inherit that
  trireme::cli::Sizes& sizes = trireme::cli::sizes;
  for (int i = 1; i < argc; ++i) {
    using trireme::number_after;
    if (!number_after(argv[i], "--kills=", sizes.kills) && !number_after(argv[i], "--hellos=", sizes.hellos) &&
        !number_after(argv[i], "--nodes=", sizes.nodes) && !number_after(argv[i], "--on-node=", sizes.on_node) &&
        !number_after(argv[i], "--seed=", sizes.seed)) {
      std::fprintf(stderr,
                   "reliability_test: '%s' is none of --kills=N, --hellos=N, --nodes=N, --on-node=N and --seed=N\n",
                   argv[i]);
      return 2;
    }
  }
  return RUN_ALL_TESTS();
}
