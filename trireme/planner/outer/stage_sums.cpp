#include "trireme/planner/outer/stage_sums.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme {
namespace {

void require_in_range(double all) {
  require(all < 0x1p61,
          "the parts of a stage take more than 2 EiB, or 26 days, by their prices; take a smaller batch (train.batch "
          "counts samples, not tokens)");
}

}  // namespace

void StageSum::add(const PartPrice& part) {
  pass += part.pass();
  once += part.once();
  persistent += part.persistent + part.held + part.gradients;
  kept += part.kept;
  waiting += part.waiting;
  work = std::max(work, part.work);
  host += part.host;
  disk += part.disk;
  kept_host += part.kept_host;
  kept_disk += part.kept_disk;
}

int64_t StageSum::bytes(const std::vector<HeldMoment>& held) const {
  int64_t most = 0;
  for (const HeldMoment& each : held) most = std::max(most, each.front().whole * kept + each.front().waiting * waiting);
  return persistent + most + work;
}

bool StageSum::fits_elsewhere(const std::vector<HeldMoment>& held, const RankRoom& room) const {
  if ((kept_host | kept_disk) == 0) return host <= room.host && disk <= room.disk;
  int64_t most = 0;  // micro-batches
  for (const HeldMoment& each : held) most = std::max(most, each.front().all());
  return host + most * kept_host <= room.host && disk + most * kept_disk <= room.disk;
}

StageSums::StageSums(const std::vector<PartPrice>& parts) : before_(1) {
  before_.reserve(parts.size() + 1);
  for (const PartPrice& part : parts) add(part, 1);
}

void StageSums::add(const PartPrice& part, int64_t count) {
  StageSum each;
  each.add(part);
  const auto copies = static_cast<double>(count);
  passes_ += copies * static_cast<double>(each.pass);
  onces_ += copies * static_cast<double>(each.once);
  bytes_ += copies * (static_cast<double>(each.persistent) + static_cast<double>(each.work));
  in_flight_ += copies * static_cast<double>(std::max(each.kept, each.waiting));
  elsewhere_ += copies * (static_cast<double>(each.host) + static_cast<double>(each.disk));
  kept_elsewhere_ += copies * (static_cast<double>(each.kept_host) + static_cast<double>(each.kept_disk));
  require_in_range(std::max({passes_, onces_, bytes_, in_flight_, elsewhere_, kept_elsewhere_}));
  for (int64_t i = 0; i < count; ++i) {
    const StageSum& last = before_.back();
    before_.push_back({.pass = last.pass + each.pass,
                       .once = last.once + each.once,
                       .persistent = last.persistent + each.persistent,
                       .kept = last.kept + each.kept,
                       .waiting = last.waiting + each.waiting,
                       .host = last.host + each.host,
                       .disk = last.disk + each.disk,
                       .kept_host = last.kept_host + each.kept_host,
                       .kept_disk = last.kept_disk + each.kept_disk});
  }
  if (works_.empty() || works_.back().work != part.work) works_.push_back({.work = part.work});
  works_.back().end = parts();
}

void StageSums::check_bytes(int64_t most_held) const {
  const auto held = static_cast<double>(most_held);
  require_in_range(std::max(bytes_ + in_flight_ * held, elsewhere_ + kept_elsewhere_ * held));
}

StageSum StageSums::of(size_t begin, size_t end) const {
  const StageSum &first = before_[begin], &last = before_[end];
  StageSum out{.pass = last.pass - first.pass,
               .once = last.once - first.once,
               .persistent = last.persistent - first.persistent,
               .kept = last.kept - first.kept,
               .waiting = last.waiting - first.waiting,
               .host = last.host - first.host,
               .disk = last.disk - first.disk,
               .kept_host = last.kept_host - first.kept_host,
               .kept_disk = last.kept_disk - first.kept_disk};
  size_t at = 0;  // the run's first part
  for (const WorkRun& run : works_) {
    if (at >= end) break;
    if (run.end > begin) out.work = std::max(out.work, run.work);
    at = run.end;
  }
  return out;
}

std::optional<std::vector<int64_t>> CutsWithin::cut(int64_t slowest, int64_t once) const {
  const size_t parts = sums_.parts(), stages = shape_.held.size();
  // Where the last of so many stages begins, if they end with the part before this one: the first that there is; -1:
  // they cannot.
  std::vector<std::vector<int64_t>> begin_of(stages + 1, std::vector<int64_t>(parts + 1, -1));
  begin_of[0][0] = 0;
  for (size_t stage = 0; stage < stages; ++stage) {
    const std::vector<int64_t>& before = begin_of[stage];
    const auto is_within = [&](size_t begin, size_t end) {
      const StageSum sum = sums_.of(begin, end);
      return sum.pass <= slowest && sum.once <= once && fits(stage, sum);
    };
    size_t begin = stage;
    for (size_t end = stage + 1; end <= parts; ++end) {
      while (begin < end && (before[begin] < 0 || !is_within(begin, end))) ++begin;
      if (begin < end) begin_of[stage + 1][end] = static_cast<int64_t>(begin);
    }
  }
  if (begin_of[stages][parts] < 0) return std::nullopt;
  std::vector<int64_t> begins(stages);
  for (size_t stage = stages, end = parts; stage-- > 0; end = static_cast<size_t>(begins[stage]))
    begins[stage] = begin_of[stage + 1][end];
  return begins;
}

bool CutsWithin::any() const {
  const size_t parts = sums_.parts(), stages = shape_.held.size();
  if (parts < stages) return false;
  if (even_one_fits()) return true;
  if (!longest_reach_the_end()) return false;
  std::vector<char> ends(parts + 1, 0), next(parts + 1);  // where the stages so far can end
  ends[0] = 1;
  for (size_t stage = 0; stage < stages; ++stage) {
    std::ranges::fill(next, 0);
    size_t begin = stage;
    for (size_t end = stage + 1; end <= parts; ++end) {
      while (begin < end && (ends[begin] == 0 || !fits(stage, sums_.of(begin, end)))) ++begin;
      if (begin < end) next[end] = 1;
    }
    ends.swap(next);
  }
  return ends[parts] != 0;
}

bool CutsWithin::fits(size_t stage, const StageSum& sum) const {
  const std::vector<HeldMoment>& held = shape_.held[stage];
  return sum.bytes(held) <= room_.device && sum.fits_elsewhere(held, room_);
}

// As many parts in each stage, or one more: the usual answer, and a quick one.
bool CutsWithin::even_one_fits() const {
  const size_t parts = sums_.parts(), stages = shape_.held.size();
  for (size_t stage = 0; stage < stages; ++stage) {
    if (!fits(stage, sums_.of(stage * parts / stages, (stage + 1) * parts / stages))) return false;
  }
  return true;
}

// No stages end farther than those of which each has all that fit from where the ones before end at most; where it has
// none, those of others may be there already.
bool CutsWithin::longest_reach_the_end() const {
  const size_t parts = sums_.parts();
  size_t reached = 0;
  for (size_t stage = 0; stage < shape_.held.size() && reached < parts; ++stage) {
    const size_t begin = reached;
    while (reached < parts && fits(stage, sums_.of(begin, reached + 1))) ++reached;
  }
  return reached == parts;
}

}  // namespace trireme
