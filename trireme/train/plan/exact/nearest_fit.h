// What to change when an exact plan finds that nothing fits: the least memory with which something does, and the
// nearest numbers of ranks and batches. Each follows from the tables of the model's parts, and planning with such a
// change finds a way.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/train/plan/exact/crew_kinds.h"
#include "trireme/train/plan/exact/way_tables.h"

namespace trireme {

struct NearestFit {
  OuterWay way;                 // the one whose fullest rank takes the fewest bytes, cut so that it does
  std::vector<int64_t> begins;  // of its stages
  int64_t bytes = 0;            // 0: the search was stopped before it was known
  ByteKinds kinds;              // of the fullest rank; they add up to it

  struct Change {
    int64_t to = 0;
    OuterWay way;  // that fits then
    int64_t bytes = 0;
  };
  // Twice as many ranks, or four times, and so on up to what the machine has (kMostRankDoublings times if it has no
  // limit); half the batch, a quarter and so on. For each, the first that fits; nothing: none does.
  std::optional<Change> ranks, batch;
  int64_t most_ranks = 0;  // that were looked at
  bool has_tiers = false;  // beside the device, which were looked at as well
  bool is_joined = false;  // StepFigures::is_joined: not all ways were looked at
  // Else the search for these was stopped (PlanRequest::most_jobs).
  bool knows_ranks = true, knows_batch = true;
};

inline constexpr int kMostRankDoublings = 10;

// For tables whose search found nothing in `ways`, those of `ranks` ranks. Nothing if no way fits the model, the batch
// and the ranks at all. It compiles about `most_jobs` jobs at most; 0: as many as it takes.
std::optional<NearestFit> nearest_fit(WayTables& tables, const ExactSetting& setting, const OuterWays& ways,
                                      int64_t ranks, const WayTables::OnProgress& tell = {}, int64_t most_jobs = 0);

// Lines that say it.
std::string nearest_fit_text(const NearestFit& fit, int64_t memory_bytes);

}  // namespace trireme
