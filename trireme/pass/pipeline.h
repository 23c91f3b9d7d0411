// The passes over a partitioned program, in the order they run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/keys.h"
#include "trireme/ir/program.h"
#include "trireme/pass/step_times.h"

namespace trireme {

// Where the buckets of all-reduces end (fuse_all_reduce.cpp).
struct FuseAllReduceOptions {
  int64_t bucket_bytes = 0;  // a bucket is closed when the next member would make it larger; 0: by the model
  std::vector<int64_t> bucket_ends =
      {};  // instead: how many gradients, counted in each type and group, stand before each cut
  Rates rates = {};
};

// What the backward pass does not find kept, but computes again (recompute.cpp).
struct Recompute {
  bool rows = false;   // activation functions and norms
  int64_t blocks = 0;  // modules that have a number, "h.0": so many, from 0 on; -1: all of them
  // For a module, "h.*", or its ops of a name, "h.*/matmul"; the last that matches counts.
  struct Rule {
    std::string pattern;
    bool again = true;  // false: kept, whatever else says
    friend bool operator==(const Rule&, const Rule&) = default;
  };
  std::vector<Rule> rules = {};
  bool communication = true;  // false: what collectives make is kept

  bool is_asked_for() const { return rows || blocks != 0 || !rules.empty(); }
};

struct PassOptions {
  FuseAllReduceOptions all_reduce = {};
  Recompute recompute = {};           // the pass runs if any is asked for
  int64_t loss_pieces = 1;            // loss_in_pieces runs with another number alone
  std::vector<std::string> disabled;  // names of passes to leave out
  std::string stop_after;             // the last pass to run; "" runs all
  std::string dump_dir;               // writes NNN_<pass>.program after each pass that changed something
  std::string dump_name;              // stands before the names of these files
};

// The section [train].
std::vector<Key> keys_of(PassOptions& options);

// Each is the record at the end of its file, in the namespace `pass`, and a line of pass_list.def
// (docs/howto/add_a_pass.md).
struct Pass {
  std::string_view name;
  std::string_view doc;
  bool (*asked_for)(const PassOptions&) = nullptr;  // whether it runs; null: always
  Program (*run)(Program, const PassOptions&);      // what it does not change is not copied
};

// In the order they run.
const std::vector<const Pass*>& passes();
const Pass& find_pass(std::string_view name);  // throws kNotFound for a name that is no pass

// Runs them, each timed and logged, and verified after. Throws kNotFound for a name that is no pass, kInternal when a
// pass breaks the program.
Program run_passes(Program program, const PassOptions& options = {});

}  // namespace trireme
