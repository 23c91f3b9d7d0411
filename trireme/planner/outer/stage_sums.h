// What a stage takes and holds, given its first and last part in the chain, and which cuts into stages are within given
// limits. Whatever fits in a stage also fits with fewer parts, so as the end of a stage moves on, its earliest possible
// beginning moves the same way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "trireme/planner/outer/stage_problem.h"

namespace trireme {

struct StageSum {
  int64_t pass = 0, once = 0;  // ps; of a micro-batch, and of a step
  int64_t persistent = 0;      // bytes whatever is in flight: with held weights and gradients
  int64_t kept = 0, waiting = 0;
  int64_t work = 0;  // of the part that has the most
  int64_t host = 0, disk = 0;
  int64_t kept_host = 0, kept_disk = 0;  // of each micro-batch that is held, whatever of it is

  void add(const PartPrice& part);
  // The bytes of a crew that has only this stage.
  int64_t bytes(const std::vector<HeldMoment>& held) const;
  bool fits_elsewhere(const std::vector<HeldMoment>& held, const RankRoom& room) const;
};

class StageSums {
 public:
  StageSums() : before_(1) {}
  explicit StageSums(const std::vector<PartPrice>& parts);
  // Appends `count` equal parts. Throws kInvalidArgument if all parts together take more bytes than check_bytes allows
  // any rank, or as much time.
  void add(const PartPrice& part, int64_t count);

  size_t parts() const { return before_.size() - 1; }
  // Of the parts from `begin` up to but not `end`.
  StageSum of(size_t begin, size_t end) const;

  // Throws kInvalidArgument if a rank may hold 2^61 bytes or more under a schedule whose crews hold at most so many
  // micro-batches.
  void check_bytes(int64_t most_held) const;

 private:
  struct WorkRun {
    size_t end = 0;  // the part after those that have it
    int64_t work = 0;
  };
  std::vector<StageSum> before_;  // of the parts before each; without work
  std::vector<WorkRun> works_;
  double passes_ = 0, onces_ = 0, bytes_ = 0, in_flight_ = 0;  // of all parts, however large
  double elsewhere_ = 0, kept_elsewhere_ = 0;
};

// Cuts of these parts into one stage for each crew.
class CutsWithin {
 public:
  // All of them must outlive this.
  CutsWithin(const StageSums& sums, const PipelineShape& shape, const RankRoom& room)
      : sums_(sums), shape_(shape), room_(room) {}

  // One that fits and whose stages take no more than so much, for a micro-batch and once a step: by how many parts so
  // many stages can have, for each number of stages. The longest first stage is not always right: what it leaves may be
  // too large for the second, which keeps more micro-batches than the third.
  std::optional<std::vector<int64_t>> cut(int64_t slowest, int64_t once) const;
  // Whether one fits, whatever it takes.
  bool any() const;

 private:
  bool fits(size_t stage, const StageSum& sum) const;
  bool even_one_fits() const;
  bool longest_reach_the_end() const;

  const StageSums& sums_;
  const PipelineShape& shape_;
  const RankRoom& room_;
};

}  // namespace trireme
