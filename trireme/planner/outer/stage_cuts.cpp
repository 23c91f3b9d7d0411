// Cuts of a chain of parts into stages, as stage_problem.h has them.
#include "trireme/planner/outer/stage_problem.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <span>

#include "trireme/base/error.h"
#include "trireme/planner/outer/interleaved_time.h"
#include "trireme/planner/outer/stage_sums.h"

namespace trireme {
namespace {

constexpr int64_t kNoStageLimit = std::numeric_limits<int64_t>::max();

int64_t divided_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

PartTotals totals_of(const StageProblem& problem) {
  PartTotals out;
  for (const PartPrice& part : problem.parts) out.add(part, 1);
  return out;
}

// Of crews with one stage each. It depends on the cut by its slowest crew at most.
int64_t fill_of(const PartTotals& totals, const PipelineShape& shape, int64_t slowest) {
  if (shape.waits_for_slowest) return std::max<int64_t>(0, totals.pass() - slowest);
  const int64_t sum = shape.idle_forward * totals.forward_pass + shape.idle_input * totals.input_pass +
                      shape.idle_weight * totals.weight_grad;
  return std::max<int64_t>(0, sum) / shape.stages();
}

// One way of all messages that are waited for, of which two are a crossing there and back.
int64_t crossings_of(const PipelineShape& shape, int64_t micro_batches, int64_t crossing) {
  const int64_t crews = shape.crews();
  return crossing * (shape.transfers * crews + shape.more_transfers * micro_batches) / (2 * crews);
}

// Of the slowest crew: its share of all parts, the longest part, or what the best cut leaves it.
int64_t least_pass_of_a_crew(const PartTotals& totals, const PipelineShape& shape) {
  return std::max(
      {totals.longest_pass, divided_up(totals.pass(), shape.crews()), least_slowest(totals.chain, shape.crews())});
}
int64_t least_once_of_a_crew(const PartTotals& totals, const PipelineShape& shape) {
  return std::max(totals.longest_once, divided_up(totals.once, shape.crews()));
}

// What a crew's stages, in their order, hold together at the fullest of its moments.
int64_t bytes_of_crew(std::span<const StageSum> stages, const std::vector<HeldMoment>& held) {
  int64_t persistent = 0, work = 0, most = 0;
  for (const StageSum& stage : stages) {
    persistent += stage.persistent;
    work = std::max(work, stage.work);
  }
  for (const HeldMoment& each : held) {
    int64_t now = 0;
    for (size_t chunk = 0; chunk < each.size(); ++chunk)
      now += each[chunk].whole * stages[chunk].kept + each[chunk].waiting * stages[chunk].waiting;
    most = std::max(most, now);
  }
  return persistent + most + work;
}

// The same on the host, or the disk.
int64_t bytes_of_crew_elsewhere(std::span<const StageSum> stages, const std::vector<HeldMoment>& held, Tier tier) {
  const auto once = tier == Tier::kHost ? &StageSum::host : &StageSum::disk;
  const auto each = tier == Tier::kHost ? &StageSum::kept_host : &StageSum::kept_disk;
  int64_t out = 0, most = 0, kept = 0;
  for (const StageSum& stage : stages) {
    out += stage.*once;
    kept += stage.*each;
  }
  if (kept == 0) return out;
  for (const HeldMoment& moment : held) {
    int64_t now = 0;
    for (size_t chunk = 0; chunk < moment.size(); ++chunk) now += moment[chunk].all() * (stages[chunk].*each);
    most = std::max(most, now);
  }
  return out + most;
}

// Of a cut, the stages of each crew in turn.
class CrewStages {
 public:
  CrewStages(const StageSums& sums, const std::vector<int64_t>& begins, size_t crews)
      : sums_(sums), begins_(begins), crews_(crews) {}

  std::span<const StageSum> of(size_t crew) {
    stages_.clear();
    for (size_t stage = crew; stage < begins_.size(); stage += crews_) {
      const size_t end = stage + 1 < begins_.size() ? static_cast<size_t>(begins_[stage + 1]) : sums_.parts();
      stages_.push_back(sums_.of(static_cast<size_t>(begins_[stage]), end));
    }
    return stages_;
  }

 private:
  const StageSums& sums_;
  const std::vector<int64_t>& begins_;
  size_t crews_;
  std::vector<StageSum> stages_;
};

// What stages can take: sums of neighbours, sorted, each once.
std::vector<int64_t> sums_of_runs(const StageSums& sums, int64_t StageSum::*value) {
  std::vector<int64_t> out;
  out.reserve(sums.parts() * (sums.parts() + 1) / 2);
  for (size_t begin = 0; begin < sums.parts(); ++begin) {
    for (size_t end = begin + 1; end <= sums.parts(); ++end) out.push_back(sums.of(begin, end).*value);
  }
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// A crew has all of its stages on the host and the disk.
bool fits_elsewhere(std::span<const StageSum> stages, const std::vector<HeldMoment>& held, const RankRoom& room) {
  return bytes_of_crew_elsewhere(stages, held, Tier::kHost) <= room.host &&
         bytes_of_crew_elsewhere(stages, held, Tier::kDisk) <= room.disk;
}

bool all_fit_elsewhere(const StageSums& sums, const std::vector<int64_t>& begins, const PipelineShape& shape,
                       const RankRoom& room) {
  CrewStages stages(sums, begins, shape.held.size());
  for (size_t crew = 0; crew < shape.held.size(); ++crew) {
    if (!fits_elsewhere(stages.of(crew), shape.held[crew], room)) return false;
  }
  return true;
}

// Crew by crew: the first one often has no room already.
bool stages_fit(const StageSums& sums, const std::vector<int64_t>& begins, const PipelineShape& shape,
                const RankRoom& room) {
  CrewStages stages(sums, begins, shape.held.size());
  for (size_t crew = 0; crew < shape.held.size(); ++crew) {
    const std::span<const StageSum> own = stages.of(crew);
    const std::vector<HeldMoment>& held = shape.held[crew];
    if (bytes_of_crew(own, held) > room.device || !fits_elsewhere(own, held, room)) return false;
  }
  return true;
}

std::vector<StagePass> passes_of_stages(const StageProblem& problem, const std::vector<int64_t>& begins) {
  std::vector<StagePass> out(begins.size());
  size_t stage = 0;
  for (size_t part = 0; part < problem.parts.size(); ++part) {
    if (stage + 1 < begins.size() && begins[stage + 1] == static_cast<int64_t>(part)) ++stage;
    const PartPrice& each = problem.parts[part];
    out[stage].forward += each.forward_pass();
    out[stage].backward += each.input_pass() + each.weight_grad;
  }
  return out;
}

void price_interleaved(const StageProblem& problem, const std::vector<int64_t>& begins, CutPrice& to) {
  const std::vector<StagePass> stages = passes_of_stages(problem, begins);
  const auto time = [&](int64_t crossing) {
    return interleaved_time(problem.shape, stages, problem.micro_batches, crossing);
  };
  const int64_t without = time(0);
  to.crossings = problem.crossing == 0 ? 0 : time(problem.crossing) - without;
  to.fill = without - problem.micro_batches * to.slowest;
}

// Of several stages a crew: a bound on the time of this cut's passes.
int64_t least_time_of(const StageProblem& problem, const std::vector<StagePass>& stages) {
  std::vector<int64_t> before{0};
  before.reserve(stages.size() + 1);
  for (const StagePass& stage : stages) before.push_back(before.back() + stage.forward + stage.backward);
  return least_interleaved_time(before, problem.shape, problem.micro_batches, problem.crossing);
}

// Of even cuts; where there is none, a bound.
int64_t least_even_time(const StageProblem& problem) {
  std::optional<int64_t> least;
  for (const auto& begins : even_cuts(static_cast<int64_t>(problem.parts.size()), problem.shape.stages())) {
    const std::vector<StagePass> stages = passes_of_stages(problem, begins);
    if (least && least_time_of(problem, stages) >= *least) continue;
    const int64_t time = interleaved_time(problem.shape, stages, problem.micro_batches, problem.crossing);
    if (!least || time < *least) least = time;
  }
  if (least) return *least;
  return least_of_even_cuts(totals_of(problem).chain, problem.shape, problem.micro_batches, problem.crossing);
}

std::optional<std::vector<int64_t>> best_even_cut(const StageProblem& problem) {
  std::optional<std::vector<int64_t>> best;
  CutPrice best_price;
  for (std::vector<int64_t>& begins : even_cuts(static_cast<int64_t>(problem.parts.size()), problem.shape.stages())) {
    if (!cut_fits(problem, begins)) continue;
    if (best && least_time_of(problem, passes_of_stages(problem, begins)) > best_price.total) continue;
    const CutPrice price = price_of_cut(problem, begins);
    if (best && std::pair(price.total, price.slowest) >= std::pair(best_price.total, best_price.slowest)) continue;
    best = std::move(begins);
    best_price = price;
  }
  return best;
}

}  // namespace

void PartTotals::add(const PartPrice& part, int64_t count) {
  forward_pass += count * part.forward_pass();
  input_pass += count * part.input_pass();
  weight_grad += count * part.weight_grad;
  once += count * part.once();
  longest_pass = std::max(longest_pass, part.pass());
  longest_once = std::max(longest_once, part.once());
  chain.push_back({.pass = part.pass(), .count = count, .forward = part.forward_pass()});
}

void take_off_tied(std::vector<PartPrice>& parts) {
  PartPrice &first = parts.front(), &last = parts.back();
  first.update -= first.tied_adding;
  last.moving_forward -= last.tied_forward;
  last.moving_backward -= last.tied_backward;
}

void in_one_stage(std::vector<PartPrice>& parts) {
  take_off_tied(parts);
  PartPrice &first = parts.front(), &last = parts.back();
  const int64_t before = first.input_pass();
  first.moving_backward += first.tied;
  first.sync -= first.input_pass() - before;  // where moves of what is kept hide it, it stays
  const int64_t of_last = std::min(first.tied_sums, last.gradients);
  last.gradients -= of_last;
  first.gradients -= std::min(first.tied_sums - of_last, first.gradients);
}

namespace {

// `bytes` of a stage.
void require_range(double passes, double once, double bytes, const PipelineShape& shape, int64_t micro_batches,
                   int64_t crossing) {
  constexpr double kMost = 0x1p61;
  const auto idle =
      static_cast<double>(std::abs(shape.idle_forward) + std::abs(shape.idle_input) + std::abs(shape.idle_weight));
  const auto crews = static_cast<double>(shape.crews()), count = static_cast<double>(micro_batches);
  const double transfers = shape.chunks > 1 ? crews * static_cast<double>(shape.chunks) * count
                                            : static_cast<double>(shape.transfers) * crews +
                                                  static_cast<double>(shape.more_transfers) * count;
  const double step = passes * (count + idle) + once + static_cast<double>(crossing) * transfers;
  require(step < kMost && bytes < kMost,
          "a step of {} micro-batches takes more than 26 days by the prices of its parts, or a stage more than 2 EiB; "
          "take a smaller batch (train.batch counts samples, not tokens)",
          micro_batches);
}

}  // namespace

int64_t most_held(const PipelineShape& shape) {
  int64_t most = 0;
  for (const auto& crew : shape.held) {
    for (const HeldMoment& moment : crew) {
      int64_t now = 0;
      for (const HeldMicroBatches& each : moment) now += each.all();
      most = std::max(most, now);
    }
  }
  return most;
}

void check_range(const StageProblem& problem) {
  const int64_t held = most_held(problem.shape);
  double passes = 0, once = 0, kept = 0, bytes = 0, elsewhere = 0, kept_elsewhere = 0;
  for (const PartPrice& part : problem.parts) {
    passes += static_cast<double>(part.pass());
    once += static_cast<double>(part.once());
    kept += static_cast<double>(std::max(part.kept, part.waiting));
    bytes += static_cast<double>(part.persistent) + static_cast<double>(part.held) +
             static_cast<double>(part.gradients) + static_cast<double>(part.work);
    elsewhere += static_cast<double>(part.host) + static_cast<double>(part.disk);
    kept_elsewhere += static_cast<double>(part.kept_host) + static_cast<double>(part.kept_disk);
  }
  const auto all = static_cast<double>(held);
  require_range(passes, once, std::max(bytes + kept * all, elsewhere + kept_elsewhere * all), problem.shape,
                problem.micro_batches, problem.crossing);
}

CutPrice price_of_cut(const StageProblem& problem, const std::vector<int64_t>& begins) {
  CutPrice out;
  const StageSums sums(problem.parts);
  const auto crews = static_cast<size_t>(problem.shape.crews());
  CrewStages stages(sums, begins, crews);
  for (size_t crew = 0; crew < crews; ++crew) {
    int64_t pass = 0, once = 0;
    for (const StageSum& stage : stages.of(crew)) {
      pass += stage.pass;
      once += stage.once;
    }
    out.slowest = std::max(out.slowest, pass);
    out.once = std::max(out.once, once);
  }
  if (problem.shape.chunks > 1) {
    price_interleaved(problem, begins, out);
  } else {
    out.fill = fill_of(totals_of(problem), problem.shape, out.slowest);
    out.crossings = crossings_of(problem.shape, problem.micro_batches, problem.crossing);
  }
  out.total = problem.micro_batches * out.slowest + out.fill + out.crossings + out.once;
  return out;
}

std::vector<int64_t> bytes_of_crews(const StageProblem& problem, const std::vector<int64_t>& begins) {
  const StageSums sums(problem.parts);
  const size_t crews = problem.shape.held.size();
  CrewStages stages(sums, begins, crews);
  std::vector<int64_t> out;
  for (size_t crew = 0; crew < crews; ++crew) out.push_back(bytes_of_crew(stages.of(crew), problem.shape.held[crew]));
  return out;
}

std::vector<int64_t> bytes_elsewhere(const StageProblem& problem, const std::vector<int64_t>& begins, Tier tier) {
  const StageSums sums(problem.parts);
  const size_t crews = problem.shape.held.size();
  CrewStages stages(sums, begins, crews);
  std::vector<int64_t> out;
  for (size_t crew = 0; crew < crews; ++crew)
    out.push_back(bytes_of_crew_elsewhere(stages.of(crew), problem.shape.held[crew], tier));
  return out;
}

bool cut_fits(const StageProblem& problem, const std::vector<int64_t>& begins) {
  return stages_fit(StageSums(problem.parts), begins, problem.shape, problem.room());
}

std::vector<std::vector<int64_t>> even_cuts(int64_t parts, int64_t stages) {
  std::vector<std::vector<int64_t>> out;
  for (const int64_t before : {1, 0}) {  // whether the first part counts
    for (const int64_t after : {1, 0}) {
      const int64_t count = parts - 2 + before + after;
      if (count < stages) continue;
      std::vector<int64_t> begins{0};
      for (int64_t stage = 1; stage < stages; ++stage) begins.push_back(stage * count / stages + 1 - before);
      if (std::ranges::find(out, begins) == out.end()) out.push_back(std::move(begins));
    }
  }
  return out;
}

int64_t bound_of_cuts(const StageProblem& problem) {
  const PartTotals totals = totals_of(problem);
  const PipelineShape& shape = problem.shape;
  if (shape.chunks > 1) return least_even_time(problem) + least_once_of_a_crew(totals, shape);
  const int64_t slowest = least_pass_of_a_crew(totals, shape);
  return problem.micro_batches * slowest + fill_of(totals, shape, slowest) +
         crossings_of(shape, problem.micro_batches, problem.crossing) + least_once_of_a_crew(totals, shape);
}

// Longer passes make the fill longer, but for weight gradients, which may fill idle crews: as many as leave the slowest
// stage as fast as it is here cost nothing. More of them make it slower, by more than they fill where there are as many
// micro-batches.
int64_t bound_of_longer_parts(const PartTotals& totals, const PipelineShape& shape, int64_t micro_batches,
                              int64_t crossing) {
  require_range(static_cast<double>(totals.pass()), static_cast<double>(totals.once), 0, shape, micro_batches,
                crossing);
  if (shape.chunks > 1) {
    return least_of_even_cuts(totals.chain, shape, micro_batches, crossing) + least_once_of_a_crew(totals, shape);
  }
  const int64_t slowest = least_pass_of_a_crew(totals, shape);
  int64_t fill = fill_of(totals, shape, slowest);
  if (shape.idle_weight < 0) {
    const int64_t others = totals.forward_pass + totals.input_pass;
    const int64_t idle = shape.idle_forward * totals.forward_pass + shape.idle_input * totals.input_pass +
                         shape.idle_weight * (shape.stages() * slowest - others);
    fill = -shape.idle_weight > micro_batches ? 0 : std::max<int64_t>(0, idle) / shape.stages();
  }
  return micro_batches * slowest + fill + crossings_of(shape, micro_batches, crossing) +
         least_once_of_a_crew(totals, shape);
}

int64_t bound_of_longer_parts(const StageProblem& problem) {
  return bound_of_longer_parts(totals_of(problem), problem.shape, problem.micro_batches, problem.crossing);
}

bool some_cut_fits(const StageSums& sums, const PipelineShape& shape, const RankRoom& room) {
  if (shape.chunks == 1) return some_cut_fits(sums, shape, room, {});
  return some_cut_fits(sums, shape, room, even_cuts(static_cast<int64_t>(sums.parts()), shape.stages()));
}

bool some_cut_fits(const StageSums& sums, const PipelineShape& shape, const RankRoom& room,
                   const std::vector<std::vector<int64_t>>& even) {
  if (static_cast<int64_t>(sums.parts()) < shape.stages()) return false;
  if (shape.chunks == 1) return CutsWithin(sums, shape, room).any();
  return std::ranges::any_of(even,
                             [&](const std::vector<int64_t>& begins) { return stages_fit(sums, begins, shape, room); });
}

bool some_cut_fits(const StageProblem& problem) {
  return some_cut_fits(StageSums(problem.parts), problem.shape, problem.room());
}

std::optional<int64_t> fewest_bytes_of_cuts(const StageProblem& problem) {
  const auto parts = static_cast<int64_t>(problem.parts.size());
  if (parts < problem.shape.stages()) return std::nullopt;
  const StageSums sums(problem.parts);
  RankRoom room = problem.room();
  std::optional<int64_t> fewest;
  for (const std::vector<int64_t>& begins : even_cuts(parts, problem.shape.stages())) {
    if (!all_fit_elsewhere(sums, begins, problem.shape, room)) continue;
    const int64_t bytes = std::ranges::max(bytes_of_crews(problem, begins));
    if (!fewest || bytes < *fewest) fewest = bytes;
  }
  if (problem.shape.chunks > 1) return fewest;
  if (!fewest) {
    room.device = kNoStageLimit;
    const auto cut = CutsWithin(sums, problem.shape, room).cut(kNoStageLimit, kNoStageLimit);
    if (!cut) return std::nullopt;
    fewest = std::ranges::max(bytes_of_crews(problem, *cut));
  }
  int64_t low = 0;  // no cut fits in it, but for one of no bytes
  while (low < *fewest) {
    room.device = low + (*fewest - low) / 2;
    if (some_cut_fits(sums, problem.shape, room)) {
      fewest = room.device;
    } else {
      low = room.device + 1;
    }
  }
  return fewest;
}

std::optional<std::vector<int64_t>> best_cut(const StageProblem& problem) {
  require(problem.shape.stages() >= 1 && problem.micro_batches >= 1, "a cut into {} stages of {} micro-batches",
          problem.shape.stages(), problem.micro_batches);
  if (static_cast<int64_t>(problem.parts.size()) < problem.shape.stages()) return std::nullopt;
  if (problem.shape.chunks > 1) return best_even_cut(problem);
  const StageSums sums(problem.parts);
  const RankRoom room = problem.room();
  const CutsWithin within(sums, problem.shape, room);
  const std::vector<int64_t> passes = sums_of_runs(sums, &StageSum::pass);
  const std::vector<int64_t> onces = sums_of_runs(sums, &StageSum::once);
  const int64_t of_slowest = problem.micro_batches - (problem.shape.waits_for_slowest ? 1 : 0);
  std::optional<std::vector<int64_t>> best;
  int64_t best_sum = 0;
  size_t low = 0;  // of passes: below it nothing fits whatever `once` is
  // The longer a stage may take once a step, the less it takes for a micro-batch.
  for (size_t o = onces.size(); o-- > 0;) {
    // Where no stage of this cap's is short enough for a micro-batch, none of a smaller one's is.
    const auto fits = [&](size_t pass) { return within.cut(passes[pass], onces[o]); };
    size_t first = low, end = passes.size();
    while (first < end) {
      const size_t middle = first + (end - first) / 2;
      if (fits(middle)) {
        end = middle;
      } else {
        first = middle + 1;
      }
    }
    if (first == passes.size()) break;
    low = first;
    const int64_t least = of_slowest * passes[first] + onces.front();
    if (best && least >= best_sum) break;
    const std::vector<int64_t> cut = *fits(first);
    const CutPrice price = price_of_cut(problem, cut);
    const int64_t sum = of_slowest * price.slowest + price.once;
    if (!best || sum < best_sum) {
      best = cut;
      best_sum = sum;
    }
    // What was found may be below the cap already.
    while (o > 0 && onces[o - 1] >= price.once) --o;
  }
  return best;
}

}  // namespace trireme
