// The flags that cut a built-in model by its ready-made strategy, and its batch, shared by the commands that train,
// time and explain.
#pragma once

#include "cli/key_flags.h"

namespace trireme {
struct JobConfig;
}

namespace trireme::cli {

// Of --recompute.
const char* recompute_help();

void add_parallel_flags(CLI::App& command, KeyFlags& flags);

// Flags that cut the model ask for the mode in which the compiler does, where the configuration has the usual one. A
// mode in which the model is not cut, or cuts itself, stays, and is refused beside them (train/job/strategies).
void ask_for_mode(const KeyFlags& flags, JobConfig& config);

}  // namespace trireme::cli
