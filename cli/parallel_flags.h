// The flags that cut a built-in model by its ready-made strategy, and its batch, shared by the commands that train,
// time and explain.
#pragma once

#include <string>
#include <vector>

#include "cli/key_flags.h"

namespace trireme::cli {

void add_parallel_flags(CLI::App& command, KeyFlags& flags);

// Flags that cut the model ask for the mode in which the compiler does: the overrides, with that before them.
std::vector<std::string> with_mode(const KeyFlags& flags);

}  // namespace trireme::cli
