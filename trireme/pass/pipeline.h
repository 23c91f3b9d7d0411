// The passes over a partitioned program, in the order they run.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/ir/program.h"
#include "trireme/pass/fuse_all_reduce.h"

namespace trireme {

struct PassOptions {
  FuseAllReduceOptions all_reduce = {};
  bool recompute = false;             // recompute_rows does nothing without it
  int64_t loss_pieces = 1;            // loss_in_pieces does nothing with one
  std::vector<std::string> disabled;  // names of passes to leave out
  std::string stop_after;             // the last pass to run; "" runs all
  std::string dump_dir;               // writes NNN_<pass>.program after each pass that changed something
  std::string dump_name;              // stands before the names of these files
};

struct Pass {
  std::string_view name;
  std::string_view doc;
  Program (*run)(Program, const PassOptions&);  // what it does not change is not copied
};

const std::vector<Pass>& passes();

// Runs them, each timed and logged, and verified after. Throws kNotFound for a name that is no pass, kInternal when a
// pass breaks the program.
Program run_passes(Program program, const PassOptions& options = {});

}  // namespace trireme
