// The passes over a partitioned program, in the order they run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/keys.h"
#include "trireme/ir/program.h"
#include "trireme/parallel/asked/fusion.h"
#include "trireme/parallel/asked/home_rules.h"
#include "trireme/parallel/asked/op_homes.h"
#include "trireme/parallel/asked/op_names.h"
#include "trireme/parallel/asked/tier_ways.h"
#include "trireme/pass/pass_remark.h"
#include "trireme/pass/step_times.h"

namespace trireme {

// How the backward pass gets what the forward pass made: it is kept as it is; computed again (recompute.cpp); kept in
// slices, on ranks that have the same (slice_kept.cpp); or kept on the host or the disk (homes.cpp).
struct Recompute {
  bool rows = false;   // again: activation functions and norms
  int64_t blocks = 0;  // again: modules that have a number, "h.0": so many, from 0 on; -1: all of them
  // For a module, "h.*", or its ops of a name, "h.*/matmul"; the last that matches counts.
  struct Rule {
    // kMemory: in the device's, whatever else says; kHost, kDisk: in that tier (homes.cpp).
    enum class Keep { kAgain, kMemory, kSlice, kHost, kDisk };
    OpPattern pattern;
    Keep keep = Keep::kAgain;
    // Of a module that is computed again, as below.
    bool communication = true;
    bool optimizer_communication = true;
    bool slice = false;
    friend bool operator==(const Rule&, const Rule&) = default;
  };
  std::vector<Rule> rules = {};
  bool communication = true;            // false: what collectives make is kept
  bool optimizer_communication = true;  // false: gathered weights are kept from forward to backward (keep_gathered.cpp)
  bool slice = false;                   // what is kept is kept in slices
  int64_t fewest_bytes = 64 << 10;      // of a value that is worth it, of rows and slices
  // What is made once for several micro-batches is kept even if no forward pass comes after the first backward pass:
  // the program stands for one of more micro-batches.
  bool keeps_shared = false;

  bool is_asked_for() const { return rows || blocks != 0 || !rules.empty(); }
  bool keeps_gathered() const;
  bool slices() const;
  bool keeps_elsewhere() const;  // than in the device's memory
};
// What the model's code asks, and then these rules.
Recompute with_requests(const Graph& graph, Recompute options);

struct PassOptions {
  Fusion fusion = {};                // fuse_collectives.cpp
  Rates rates = {};                  // that fuse_collectives and early_updates go by
  Recompute recompute = {};          // the pass runs if any is asked for
  OnHost on_host = {};               // on_host.cpp runs if any is asked for
  std::vector<HomeRule> homes = {};  // homes.cpp runs if any is given, or ops run on the host
  TierWays tier_ways = {};           // how what has its home elsewhere comes and goes
  // fuse_rows: the result of a product from which on it becomes one with ops on its rows; a smaller one stays in the
  // cache.
  int64_t fused_product_bytes = 1 << 20;
  std::vector<DType> fused_products = {DType::kF32, DType::kBF16};  // of these types, as the device has it
  int64_t loss_pieces = 1;                                          // loss_in_pieces runs with another number alone
  std::vector<std::string> disabled;                                // names of passes to leave out
  std::string stop_after;                                           // the last pass to run; "" runs all
  bool verify = true;                          // the program after each pass; not where it is priced and never run
  std::string dump_dir;                        // writes NNN_<pass>.program after each pass that changed something
  std::string dump_name;                       // stands before the names of these files
  std::vector<PassRemark>* remarks = nullptr;  // where passes say what of what they were asked for they did not do
};

// The section [train].
std::vector<Key> keys_of(PassOptions& options);
void say(const PassOptions& options, PassRemark remark);

// Each is the record at the end of its file, in the namespace `pass`, and a line of pass_list.def
// (docs/howto/add_a_pass.md).
struct Pass {
  std::string_view name;
  std::string_view doc;
  bool (*asked_for)(const PassOptions&) = nullptr;  // whether it runs; null: always
  // It goes by what lies where. Under a budget it runs again for each choice of that
  // (train/step/compile/choose_homes.h).
  bool by_homes = false;
  Program (*run)(Program, const PassOptions&);  // what it does not change is not copied
};

// In the order they run.
const std::vector<const Pass*>& passes();
const Pass& find_pass(std::string_view name);  // throws kNotFound for a name that is no pass

// Runs them, each timed and logged, and verified after, if asked for. Throws kNotFound for a name that is no pass,
// kInternal when a pass breaks the program.
Program run_passes(Program program, const PassOptions& options = {});

}  // namespace trireme
