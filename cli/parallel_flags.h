// The flags that cut a built-in model by its ready-made strategy, and its batch, shared by the commands that train, time and explain.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace trireme::cli {

struct ParallelFlags {
  int64_t tp = 1, cp = 1, ep = 1;
  std::string cp_algorithm = "auto";
  bool sp = false, vocabulary = false;
  int64_t zero = 0;
  int64_t accumulation = 1;

  // Whether anything but optimizer parallelism is asked for.
  bool cuts_the_model() const { return tp > 1 || cp > 1 || ep > 1 || sp || vocabulary; }
  // As keys of the configuration, for what is not as it is by default.
  std::vector<std::string> overrides() const;
};

void add_parallel_flags(CLI::App& command, ParallelFlags& flags);

}  // namespace trireme::cli
