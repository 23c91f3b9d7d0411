#include "trireme/planner/outer/stage_problem.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "trireme/base/error.h"

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

// It does not depend on the cut.
int64_t fill_of(const PartTotals& totals, const PipelineShape& shape) {
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
  return std::max({totals.longest_pass, divided_up(totals.pass(), shape.crews()),
                   least_slowest(totals.chain, shape.crews(), shape.chunks)});
}
int64_t least_once_of_a_crew(const PartTotals& totals, const PipelineShape& shape) {
  return std::max(totals.longest_once, divided_up(totals.once, shape.crews()));
}

// One stage, part by part.
struct StageSum {
  int64_t pass = 0, once = 0, persistent = 0, kept = 0, waiting = 0, work = 0, host = 0, disk = 0;
  int64_t kept_host = 0, kept_disk = 0;  // of each micro-batch
  void add(const PartPrice& part) {
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
  StageSum with(const PartPrice& part) const {
    StageSum out = *this;
    out.add(part);
    return out;
  }
  // Of a crew that has this stage alone.
  bool fits_elsewhere(const StageProblem& problem, const std::vector<HeldMoment>& held) const {
    if ((kept_host | kept_disk) == 0) return host <= problem.host && disk <= problem.disk;
    int64_t most = 0;  // micro-batches
    for (const HeldMoment& each : held) most = std::max(most, each.front().all());
    return host + most * kept_host <= problem.host && disk + most * kept_disk <= problem.disk;
  }
  // Of a crew that has this stage alone.
  int64_t bytes(const std::vector<HeldMoment>& held) const {
    int64_t most = 0;
    for (const HeldMoment& each : held)
      most = std::max(most, each.front().whole * kept + each.front().waiting * waiting);
    return persistent + most + work;
  }
};

std::vector<StageSum> sums_of_stages(const StageProblem& problem, const std::vector<int64_t>& begins) {
  std::vector<StageSum> out(begins.size());
  for (size_t stage = 0; stage < begins.size(); ++stage) {
    const auto end =
        static_cast<size_t>(stage + 1 < begins.size() ? begins[stage + 1] : static_cast<int64_t>(problem.parts.size()));
    for (auto i = static_cast<size_t>(begins[stage]); i < end; ++i) out[stage].add(problem.parts[i]);
  }
  return out;
}

// What a crew's stages hold together at the fullest of its moments.
int64_t bytes_of_crew(const std::vector<StageSum>& stages, size_t crew, size_t crews,
                      const std::vector<HeldMoment>& held) {
  int64_t persistent = 0, work = 0, most = 0;
  for (size_t stage = crew; stage < stages.size(); stage += crews) {
    persistent += stages[stage].persistent;
    work = std::max(work, stages[stage].work);
  }
  for (const HeldMoment& each : held) {
    int64_t now = 0;
    for (size_t chunk = 0; chunk < each.size(); ++chunk) {
      const StageSum& stage = stages[crew + chunk * crews];
      now += each[chunk].whole * stage.kept + each[chunk].waiting * stage.waiting;
    }
    most = std::max(most, now);
  }
  return persistent + most + work;
}

// The same on the host, or the disk.
int64_t bytes_of_crew_elsewhere(const std::vector<StageSum>& stages, size_t crew, size_t crews,
                                const std::vector<HeldMoment>& held, Tier tier) {
  const auto once = tier == Tier::kHost ? &StageSum::host : &StageSum::disk;
  const auto each = tier == Tier::kHost ? &StageSum::kept_host : &StageSum::kept_disk;
  int64_t out = 0, most = 0;
  for (size_t stage = crew; stage < stages.size(); stage += crews) out += stages[stage].*once;
  for (const HeldMoment& moment : held) {
    int64_t now = 0;
    for (size_t chunk = 0; chunk < moment.size(); ++chunk)
      now += moment[chunk].all() * (stages[crew + chunk * crews].*each);
    most = std::max(most, now);
  }
  return out + most;
}

// Whether there is a cut whose stages take no more than so much: by how many parts so many stages can have, for each
// number of stages. The longest first stage is not always right: what it leaves may be too large for the second, which
// keeps more micro-batches than the third.
class WithinCaps {
 public:
  explicit WithinCaps(const StageProblem& problem) : problem_(problem) {}

  std::optional<std::vector<int64_t>> cut(int64_t slowest, int64_t once) const {
    const size_t parts = problem_.parts.size(), stages = problem_.shape.held.size();
    // Where the last of so many stages begins, if they end with the part before this one; -1: they cannot.
    std::vector<std::vector<int64_t>> begin_of(stages + 1, std::vector<int64_t>(parts + 1, -1));
    begin_of[0][0] = 0;
    for (size_t stage = 0; stage < stages; ++stage) {
      for (size_t begin = 0; begin < parts; ++begin) {
        if (begin_of[stage][begin] >= 0) extend(stage, begin, slowest, once, begin_of[stage + 1]);
      }
    }
    if (begin_of[stages][parts] < 0) return std::nullopt;
    std::vector<int64_t> begins(stages);
    for (size_t stage = stages, end = parts; stage-- > 0; end = static_cast<size_t>(begins[stage]))
      begins[stage] = begin_of[stage + 1][end];
    return begins;
  }

  // Whether there is one whatever they take, by where each stage can end.
  bool any_fits() const {
    const size_t parts = problem_.parts.size(), stages = problem_.shape.held.size();
    std::vector<char> ends(parts + 1, 0), next;
    ends[0] = 1;
    for (size_t stage = 0; stage < stages; ++stage) {
      next.assign(parts + 1, 0);
      size_t reached = stage;  // from a later part on a stage has room up to there at least
      for (size_t begin = stage; begin < parts && reached < parts; ++begin) {
        if (ends[begin] == 0) continue;
        StageSum sum;
        for (size_t i = begin; i < parts && fits(stage, sum.with(problem_.parts[i])); ++i) {
          sum.add(problem_.parts[i]);
          next[i + 1] = 1;
          reached = std::max(reached, i + 1);
        }
      }
      ends.swap(next);
    }
    return ends[parts] != 0;
  }

 private:
  bool fits(size_t stage, const StageSum& sum) const {
    const std::vector<HeldMoment>& held = problem_.shape.held[stage];
    return sum.bytes(held) <= problem_.memory && sum.fits_elsewhere(problem_, held);
  }
  void extend(size_t stage, size_t begin, int64_t slowest, int64_t once, std::vector<int64_t>& begin_of) const {
    StageSum sum;
    for (size_t i = begin; i < problem_.parts.size(); ++i) {
      sum.add(problem_.parts[i]);
      if (sum.pass > slowest || sum.once > once || !fits(stage, sum)) return;
      if (begin_of[i + 1] < 0) begin_of[i + 1] = static_cast<int64_t>(begin);
    }
  }

  const StageProblem& problem_;
};

// What stages can take: sums of neighbours, sorted, each once.
template <class Value>
std::vector<int64_t> sums_of_runs(const std::vector<PartPrice>& parts, Value value) {
  std::vector<int64_t> out;
  for (size_t i = 0; i < parts.size(); ++i) {
    int64_t sum = 0;
    for (size_t j = i; j < parts.size(); ++j) out.push_back(sum += value(parts[j]));
  }
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace

namespace {

bool all_fit_elsewhere(const StageProblem& problem, const std::vector<StageSum>& stages) {
  const auto crews = static_cast<size_t>(problem.shape.crews());
  for (size_t crew = 0; crew < crews; ++crew) {
    const std::vector<HeldMoment>& held = problem.shape.held[crew];
    if (bytes_of_crew_elsewhere(stages, crew, crews, held, Tier::kHost) > problem.host ||
        bytes_of_crew_elsewhere(stages, crew, crews, held, Tier::kDisk) > problem.disk)
      return false;
  }
  return true;
}

std::optional<std::vector<int64_t>> best_even_cut(const StageProblem& problem) {
  std::optional<std::vector<int64_t>> best;
  CutPrice best_price;
  for (std::vector<int64_t>& begins : even_cuts(static_cast<int64_t>(problem.parts.size()), problem.shape.stages())) {
    if (!cut_fits(problem, begins)) continue;
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
  chain.push_back({part.pass(), count});
}

namespace {

// `bytes` of a stage.
void require_range(double passes, double once, double bytes, const PipelineShape& shape, int64_t micro_batches,
                   int64_t crossing) {
  constexpr double kMost = 0x1p61;
  const auto idle =
      static_cast<double>(std::abs(shape.idle_forward) + std::abs(shape.idle_input) + std::abs(shape.idle_weight));
  const auto crews = static_cast<double>(shape.crews()), count = static_cast<double>(micro_batches);
  const double transfers =
      static_cast<double>(shape.transfers) * crews + static_cast<double>(shape.more_transfers) * count;
  const double step = passes * (count + idle) + once + static_cast<double>(crossing) * transfers;
  require(step < kMost && bytes < kMost,
          "a step of {} micro-batches takes more than 26 days by the prices of its parts, or a stage more than 2 EiB; "
          "take a smaller batch (train.batch counts samples, not tokens)",
          micro_batches);
}

}  // namespace

void check_range(const StageProblem& problem) {
  int64_t held = 0;  // micro-batches
  for (const auto& crew : problem.shape.held) {
    for (const HeldMoment& moment : crew) {
      int64_t now = 0;
      for (const HeldMicroBatches& each : moment) now += each.all();
      held = std::max(held, now);
    }
  }
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
  CutPrice out{.fill = fill_of(totals_of(problem), problem.shape),
               .crossings = crossings_of(problem.shape, problem.micro_batches, problem.crossing)};
  const std::vector<StageSum> stages = sums_of_stages(problem, begins);
  const auto crews = static_cast<size_t>(problem.shape.crews());
  for (size_t crew = 0; crew < crews; ++crew) {
    int64_t pass = 0, once = 0;
    for (size_t stage = crew; stage < stages.size(); stage += crews) {
      pass += stages[stage].pass;
      once += stages[stage].once;
    }
    out.slowest = std::max(out.slowest, pass);
    out.once = std::max(out.once, once);
  }
  out.total = problem.micro_batches * out.slowest + out.fill + out.crossings + out.once;
  return out;
}

std::vector<int64_t> bytes_of_crews(const StageProblem& problem, const std::vector<int64_t>& begins) {
  const std::vector<StageSum> stages = sums_of_stages(problem, begins);
  const size_t crews = problem.shape.held.size();
  std::vector<int64_t> out;
  for (size_t crew = 0; crew < crews; ++crew)
    out.push_back(bytes_of_crew(stages, crew, crews, problem.shape.held[crew]));
  return out;
}

std::vector<int64_t> bytes_elsewhere(const StageProblem& problem, const std::vector<int64_t>& begins, Tier tier) {
  const std::vector<StageSum> stages = sums_of_stages(problem, begins);
  const size_t crews = problem.shape.held.size();
  std::vector<int64_t> out;
  for (size_t crew = 0; crew < crews; ++crew)
    out.push_back(bytes_of_crew_elsewhere(stages, crew, crews, problem.shape.held[crew], tier));
  return out;
}

bool cut_fits(const StageProblem& problem, const std::vector<int64_t>& begins) {
  const std::vector<StageSum> stages = sums_of_stages(problem, begins);
  const size_t crews = problem.shape.held.size();
  for (size_t crew = 0; crew < crews; ++crew) {
    if (bytes_of_crew(stages, crew, crews, problem.shape.held[crew]) > problem.memory) return false;
  }
  return all_fit_elsewhere(problem, stages);
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
  return problem.micro_batches * least_pass_of_a_crew(totals, shape) + fill_of(totals, shape) +
         crossings_of(shape, problem.micro_batches, problem.crossing) + least_once_of_a_crew(totals, shape);
}

// Longer passes make the fill longer, but for weight gradients, which may fill idle crews: as many as leave the slowest
// stage as fast as it is here cost nothing. More of them make it slower, by more than they fill where there are as many
// micro-batches.
int64_t bound_of_longer_parts(const PartTotals& totals, const PipelineShape& shape, int64_t micro_batches,
                              int64_t crossing) {
  require_range(static_cast<double>(totals.pass()), static_cast<double>(totals.once), 0, shape, micro_batches,
                crossing);
  const int64_t slowest = least_pass_of_a_crew(totals, shape);
  int64_t fill = fill_of(totals, shape);
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

bool some_cut_fits(const StageProblem& problem) {
  const auto parts = static_cast<int64_t>(problem.parts.size());
  if (parts < problem.shape.stages()) return false;
  if (problem.shape.chunks > 1) {
    return std::ranges::any_of(even_cuts(parts, problem.shape.stages()),
                               [&](const std::vector<int64_t>& begins) { return cut_fits(problem, begins); });
  }
  std::vector<int64_t> even;  // the usual answer, and a quick one
  for (int64_t stage = 0; stage < problem.shape.stages(); ++stage)
    even.push_back(stage * parts / problem.shape.stages());
  return cut_fits(problem, even) || WithinCaps(problem).any_fits();
}

std::optional<int64_t> fewest_bytes_of_cuts(const StageProblem& problem) {
  const auto parts = static_cast<int64_t>(problem.parts.size());
  if (parts < problem.shape.stages()) return std::nullopt;
  std::optional<int64_t> fewest;
  for (const std::vector<int64_t>& begins : even_cuts(parts, problem.shape.stages())) {
    if (!all_fit_elsewhere(problem, sums_of_stages(problem, begins))) continue;
    const int64_t bytes = std::ranges::max(bytes_of_crews(problem, begins));
    if (!fewest || bytes < *fewest) fewest = bytes;
  }
  if (problem.shape.chunks > 1) return fewest;
  StageProblem within = problem;
  if (!fewest) {
    within.memory = kNoStageLimit;
    const auto cut = WithinCaps(within).cut(kNoStageLimit, kNoStageLimit);
    if (!cut) return std::nullopt;
    fewest = std::ranges::max(bytes_of_crews(problem, *cut));
  }
  int64_t low = 0;  // no cut fits in it, but for one of no bytes
  while (low < *fewest) {
    within.memory = low + (*fewest - low) / 2;
    if (some_cut_fits(within)) {
      fewest = within.memory;
    } else {
      low = within.memory + 1;
    }
  }
  return fewest;
}

std::optional<std::vector<int64_t>> best_cut(const StageProblem& problem) {
  require(problem.shape.stages() >= 1 && problem.micro_batches >= 1, "a cut into {} stages of {} micro-batches",
          problem.shape.stages(), problem.micro_batches);
  if (static_cast<int64_t>(problem.parts.size()) < problem.shape.stages()) return std::nullopt;
  if (problem.shape.chunks > 1) return best_even_cut(problem);
  const WithinCaps within(problem);
  const std::vector<int64_t> passes = sums_of_runs(problem.parts, [](const PartPrice& p) { return p.pass(); });
  const std::vector<int64_t> onces = sums_of_runs(problem.parts, [](const PartPrice& p) { return p.once(); });
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
    const int64_t least = problem.micro_batches * passes[first] + onces.front();
    if (best && least >= best_sum) break;
    const std::vector<int64_t> cut = *fits(first);
    const CutPrice price = price_of_cut(problem, cut);
    const int64_t sum = problem.micro_batches * price.slowest + price.once;
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
