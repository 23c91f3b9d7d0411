// Planning for many ranks: the parts of the model are priced, and the outer search finds the best of all ways by these
// tables. Nothing of the job's size is compiled.
#pragma once

#include <algorithm>

#include "trireme/train/plan/exact/nearest_fit.h"
#include "trireme/train/plan/exact/way_tables.h"
#include "trireme/train/plan/plan_text.h"

namespace trireme {

struct ExactWay {
  OuterWay outer;
  std::vector<int64_t> begins;  // the first part of each stage
  CutPrice price;
  std::vector<int64_t> crew_bytes;              // of a rank of each, on the device
  StageProblem problem;                         // its tables
  std::vector<int64_t> host_bytes, disk_bytes;  // of a rank of each crew, beside the device

  std::vector<std::string> keys(const ModelParts& parts) const;
  std::vector<int64_t> layers_of_stages(const ModelParts& parts) const;
};

struct ExactPlan {
  std::string graph;  // hash of the training step
  Machine machine;
  int64_t memory_bytes = 0;
  ModelParts parts;
  OuterLedger ledger;
  std::vector<ExactWay> best;
  // Of other kinds than these, where they were asked for: the best of each, by time. Where nothing fits, those that may
  // fit although their tables say that they do not.
  std::vector<ExactWay> others;
  bool is_proven = true;                   // else the search was stopped (PlanRequest::most_jobs)
  int64_t least_ps = 0;                    // no way takes less by the tables
  double flops = 0, peak_flops_per_s = 0;  // of the step; of all ranks
  int64_t bound_ps = 0;                    // the arithmetic alone
  int64_t jobs_compiled = 0;               // of one block, to price parts
  int64_t tables_reused = 0;               // of parts, which PlanRequest::tables had
  std::string first_refusal;
  ExactSetting setting;
  CertifiedTables asked;              // what the result follows from
  std::optional<NearestFit> nearest;  // where nothing fits

  // The best ones and then the others.
  const ExactWay& way(size_t which) const { return which < best.size() ? best[which] : others.at(which - best.size()); }
  size_t ways() const { return best.size() + others.size(); }
  bool fits_by_tables(const ExactWay& way) const { return std::ranges::max(way.crew_bytes) <= memory_bytes; }
};

// What a search over tables found, with everything that is shown about each way.
std::vector<ExactWay> exact_ways(WayTables& tables, const OuterWays& ways, OuterResult found);

// Up to so many ranks what a plan shows is compiled where nobody asks for it, and beside it what no table knows.
inline constexpr int64_t kMostRanksOfBestCompiled = 32;
// How much is compiled for so few ranks beside what is shown and other cuts: so many passes of a block by a
// micro-batch, of ways that tables know, and of others. It takes a second or two.
inline constexpr int64_t kMostPassesOfOthers = 3000, kMostPassesBeside = 3000;
// By its tables, a way that takes up to this many times as long as the best is worth compiling.
inline constexpr double kWorthCompiling = 1.75;

// Throws as plan_job, and as parts_of.
ExactPlan plan_exact(const PlanRequest& request);

// As a plan's file counts ways: what a bound rules out is needless.
PlanLedger ledger_of(const OuterLedger& of);
// The file that `train --plan` reads, for one of the plan's ways (ExactPlan::way). `compiled`: what the way took when
// it was compiled.
PlanFile plan_file(const ExactPlan& plan, int64_t ranks, size_t chosen = 0, const WayCost* compiled = nullptr);

// A way as flags, with its data parallel ranks; and the items of its step, which add up to it: over all parts, as an
// average of the stages, and over all micro-batches.
std::string way_text(const ExactWay& way);
std::vector<std::pair<std::string, int64_t>> step_items(const ExactWay& way);
// Itemised, with the bound that is proven over the tables.
std::string exact_text(const ExactPlan& plan, int64_t ranks, int64_t tokens_per_step, std::string_view unit);

}  // namespace trireme
