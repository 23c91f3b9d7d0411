// Planning a job: among all ways to cut it over ranks (ways.h), finds those with the shortest modelled step that fit in
// the ranks' memory. Each is compiled as training compiles it, so its bytes are those that training takes; its time is
// virtual time (exec/analysis/virtual_time.h).
#pragma once

#include <functional>
#include <optional>

#include "trireme/train/plan/ways/ways.h"
#include "trireme/train/step/compile/compile.h"

namespace trireme {

struct PricedTables;  // train/plan/parts/priced_tables.h

// How far the exact search is (planner/outer/outer_search.h).
struct ExactProgress {
  int64_t ways = 0, open = 0;
  int64_t bound_ps = 0;
  int64_t jobs_compiled = 0;
  bool is_nearest = false;  // nothing fits, and what would is looked for (train/plan/exact/nearest_fit.h)
};

// Where nobody says otherwise, PlanRequest::most_jobs.
inline constexpr int64_t kUsualMostJobs = 1000;

struct PlanRequest {
  JobConfig job;
  int64_t ranks = 1;
  int threads = 1;           // of a rank
  int64_t memory_bytes = 0;  // of a rank; 0: what the machine's file or this host says
  size_t top = 3;            // how many ways are kept
  // Of the exact search: how many ways of other pp, tp, cp, ep and dp than these, beside them. With any, for a few
  // ranks there are others as well, of other slices and recomputation (kMostPassesOfOthers).
  size_t other_cuts = 0;
  // Of a block that the exact search compiles before it is stopped, and again, where nothing fits, to find what would;
  // 0: until all is proven.
  int64_t most_jobs = 0;
  PricedTables* tables = nullptr;  // of the exact search: what is known before, which gets what it compiles
  std::function<bool(const Way&)> is_asked = {};              // of all ways only these; empty: all
  std::function<void(size_t number, size_t of)> on_way = {};  // before each of them; empty: nobody is told
  std::function<void(const ExactProgress&)> on_exact = {};    // the same of the exact search, before each question
};

// What one way takes. Times are in seconds, averages of the ranks where they differ.
struct WayCost {
  double step_s = 0;
  // What a rank's device computes in it: the model, its gradients, what is computed again for them, and the update.
  double forward_s = 0, backward_s = 0, again_s = 0, update_s = 0;
  double moving_s = 0;                      // collectives, messages and moves
  double host_s = 0;                        // what the host computes beside it
  double exposed_s = 0;                     // what of all these computing waits for
  double tiers_s = 0, tiers_exposed_s = 0;  // of the moves between the device, the host and the disk
  double host_exposed_s = 0;                // of what the host computes
  double waiting_s = 0;                     // for other ranks
  double flops = 0;                         // of all ranks, without what is computed again
  // Of each crew of a pipeline; of one without.
  struct Memory {
    int64_t arena = 0, persistent = 0;  // of the device
    std::vector<int64_t> kinds;         // at the fullest moment, by Holding
    int64_t host = 0, disk = 0;         // arenas beside it
    int64_t gaps() const;               // what is left of the arena
  };
  std::vector<Memory> memory;

  int64_t most_bytes() const;  // of a rank's device
  int64_t most_bytes_of(int64_t Memory::*arena) const;
};

struct PlannedWay {
  Way way;
  WayCost cost;
};

// What became of the ways. The counts after `ways` add up to it.
struct PlanLedger {
  int64_t ways = 0;
  int64_t do_not_divide = 0;  // the batch, the model or the schedule by so many ranks or micro-batches
  int64_t memory_least = 0;   // parameters and state alone, in as many pieces as the way makes of them, are too much
  // Ways that recompute although they fit without, or variants (ways.h) although the way with less is not too large.
  // For the exact search also: ways that a bound rules out or, if it was stopped, undecided ones.
  int64_t needless = 0;
  int64_t memory = 0;              // compiled; the arena is too much
  int64_t fit = 0;                 // compiled
  std::string first_refusal = {};  // of a way that does not divide
};

// What a rank may take beside its device's memory: what the machine's file, or parallel.host_memory and parallel.disk,
// say that there is; with parallel.device_memory on this host, the rank's part of the rest. 0 if there is none, or if
// the job itself says what lies elsewhere.
struct BesideBytes {
  int64_t host = 0, disk = 0;
  bool updates = false;  // may run on the host: its rates are known, or its memory is the device's
  // The places that exist, for state and updates, and for what is kept for the backward pass, in the order in which
  // they are tried.
  std::vector<UpdatePlace> places() const;
  std::vector<Tier> keeps() const;
};

struct JobPlan {
  std::string graph;  // hash of the training step
  Machine machine;    // by whose rates
  int64_t memory_bytes = 0;
  BesideBytes beside;
  PlanLedger ledger;
  std::vector<PlannedWay> best;        // by time; empty: none fits
  std::optional<PlannedWay> smallest;  // where none fits, the one that takes least more than there is (bytes_beyond)
  struct TooLarge {
    Way way;
    int64_t bytes = 0;  // of a rank; of those that were not compiled parameters and state alone
  };
  std::vector<TooLarge> too_large;
  std::vector<std::pair<Way, std::string>> refused;  // that do not divide, and why
  int64_t least_bytes = 0;  // of those too large by parameters and state alone, the fewest of these; 0: there are none
  double bound_s = 0;       // no way takes less: all ranks do the step's arithmetic all the time, as fast as they can
  double peak_flops_per_s = 0;  // of all ranks
};

// Of parameters and state alone.
struct KeptBytes {
  int64_t parameters = 0, state = 0;
};
KeptBytes kept_by(const Graph& graph);
// The bytes of a rank's device if everything that the way can cut is cut by all ranks that it has for it.
int64_t least_bytes(const Way& way, int64_t ranks, const KeptBytes& kept);

// The bytes that a rank has: those asked for, or those of the device, or its part of this host's; but no more than
// parallel.device_memory.
int64_t memory_of_rank(const PlanRequest& request, const Assembly& assembly);

BesideBytes bytes_beside(const PlanRequest& request, const Assembly& assembly);

// By how much a way exceeds what a rank has: of the device's memory, and of the host's memory and the disk if it says
// that something lies there. 0: it fits.
int64_t bytes_beyond(const Way& way, const WayCost& cost, int64_t memory_bytes, const BesideBytes& beside);

// The cost of a compiled step in virtual time; without `flops`.
WayCost cost_of(const Compiled& step);

// Throws what without_cuts and compile throw if the job itself is wrong.
JobPlan plan_job(const PlanRequest& request);
// The ways that it looks at.
std::vector<Way> ways_of(const PlanRequest& request);
// The training step of a way, as plan_job compiles it.
Compiled compile_way(const PlanRequest& request, const Way& way);
// What it takes; nothing if the compiler refuses it.
std::optional<WayCost> cost_of_way(const PlanRequest& request, const Way& way);

}  // namespace trireme
