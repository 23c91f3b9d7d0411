// Random parts and shapes of pipelines, and the least over all cuts found by plain loops, for tests.
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <utility>

#include "trireme/planner/outer/stage_problem.h"

namespace trireme::outer_search_test {

class RandomTables {
 public:
  explicit RandomTables(uint64_t seed) : random_(seed) {}

  int64_t number(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }

  PartPrice part() {
    PartPrice out;
    for (const auto field : {&PartPrice::forward, &PartPrice::input_grad, &PartPrice::weight_grad, &PartPrice::again,
                             &PartPrice::moving_forward, &PartPrice::moving_backward, &PartPrice::update,
                             &PartPrice::sync, &PartPrice::persistent, &PartPrice::held, &PartPrice::gradients,
                             &PartPrice::kept, &PartPrice::waiting, &PartPrice::work})
      out.*field = number(0, 3) == 0 ? 0 : number(0, 9);
    if (number(0, 2) == 0) put_elsewhere(out);
    if (number(0, 2) == 0) keep_elsewhere(out);
    return out;
  }
  // What is kept.
  void keep_elsewhere(PartPrice& part) {
    for (const auto field : {&PartPrice::leaving, &PartPrice::returning, &PartPrice::kept_host, &PartPrice::kept_disk})
      part.*field = number(0, 1) == 0 ? 0 : number(0, 25);
  }
  // Some of the state.
  void put_elsewhere(PartPrice& part) {
    for (const auto field :
         {&PartPrice::coming, &PartPrice::going, &PartPrice::updating, &PartPrice::host, &PartPrice::disk})
      part.*field = number(0, 1) == 0 ? 0 : number(0, 9);
  }

  StageProblem problem() {
    StageProblem out{.micro_batches = number(1, 6),
                     .crossing = number(0, 5),
                     .memory = number(5, 150),
                     .host = number(5, 60),
                     .disk = number(5, 60)};
    const int64_t parts = number(1, 7), crews = number(1, 4);
    for (int64_t i = 0; i < parts; ++i) out.parts.push_back(number(0, 2) > 0 && i > 0 ? out.parts.back() : part());
    out.shape = {.idle_forward = number(0, 4), .idle_input = number(0, 4), .idle_weight = number(-4, 4)};
    if (number(0, 2) == 0) out.shape = {.idle_weight = 1, .waits_for_slowest = true};
    out.shape.transfers = crews > 1 ? number(0, 6) : 0;
    out.shape.more_transfers = crews > 1 ? number(0, 6) : 0;
    if (crews > 1 && number(0, 3) == 0) {
      const int64_t chunks = number(2, 3), more = number(1, 2);
      out.shape = {.chunks = chunks};
      for (int64_t crew = 0; crew < crews; ++crew)
        out.shape.ahead.push_back((chunks - 1) * crews + 1 + more * (crews - 1 - crew));
      out.micro_batches = crews * number(1, 5);
    }
    for (int64_t crew = 0; crew < crews; ++crew) out.shape.held.push_back(moments(out.shape.chunks));
    return out;
  }

  std::vector<HeldMoment> moments(int64_t chunks) {
    std::vector<HeldMoment> out(static_cast<size_t>(number(1, 2)));
    for (size_t i = 0; i < out.size(); ++i) {
      for (int64_t chunk = 0; chunk < chunks; ++chunk)
        out[i].push_back({.whole = number(1, 4), .waiting = i == 0 ? 0 : number(1, 3)});
    }
    return out;
  }

 private:
  std::mt19937_64 random_;
};

// Whether stages differ by one of the parts that count, in the order in which rounding down has them.
inline bool is_even(const std::vector<int64_t>& begins, int64_t parts) {
  const auto stages = static_cast<int64_t>(begins.size());
  for (const int64_t counted : {parts, parts - 1, parts - 2}) {
    for (int64_t uncounted_before = 0; uncounted_before <= std::min<int64_t>(1, parts - counted); ++uncounted_before) {
      if (counted < stages || parts - counted - uncounted_before > 1) continue;
      bool is = true;
      for (int64_t stage = 1; stage < stages; ++stage)
        is = is && begins[static_cast<size_t>(stage)] == uncounted_before + stage * counted / stages;
      if (is) return true;
    }
  }
  return false;
}

// When the last pass of several stages a crew ends, by what each takes forward and back: the passes of each crew in
// their order, each begun at once where what it needs has ended. In halves of a ps.
inline int64_t end_of_interleaved(const StageProblem& problem, const std::vector<int64_t>& forward,
                                  const std::vector<int64_t>& backward) {
  const int64_t crews = problem.shape.crews(), chunks = problem.shape.chunks, all = problem.micro_batches * chunks;
  std::map<std::pair<int64_t, int64_t>, int64_t> ends;  // of a stage's micro-batch: those that go back from `stages` on
  std::vector<int64_t> end(static_cast<size_t>(crews), 0), done(end);
  const int64_t stages = crews * chunks;
  for (int64_t left = 2 * all * crews; left > 0;) {
    for (int64_t crew = 0; crew < crews; ++crew) {
      const auto own = static_cast<size_t>(crew);
      if (done[own] == 2 * all) continue;
      const int64_t ahead = std::min(all, problem.shape.ahead[own]), after = done[own] - ahead;
      const bool is_forward = after < 0 || (after % 2 == 1 && after < 2 * (all - ahead));
      const int64_t number = after < 0                    ? done[own]
                             : after >= 2 * (all - ahead) ? done[own] - all
                             : is_forward                 ? ahead + after / 2
                                                          : after / 2;
      const int64_t turn = number % stages / crews, micro_batch = number / stages * crews + number % crews;
      const int64_t stage = (is_forward ? turn : chunks - 1 - turn) * crews + crew;
      const int64_t at = is_forward ? stage : 2 * stages - 1 - stage;  // on the micro-batch's way
      const auto needed = ends.find({at - 1, micro_batch});
      if (at > 0 && needed == ends.end()) continue;
      const int64_t message = at == stages ? 0 : problem.crossing;  // the last stage goes back at once
      const int64_t takes = (is_forward ? forward : backward)[static_cast<size_t>(stage)];
      end[own] = std::max(end[own], at > 0 ? needed->second + message : 0) + 2 * takes;
      ends[{at, micro_batch}] = end[own];
      ++done[own];
      --left;
    }
  }
  return std::ranges::max(end);
}

// What passes take of one stage a crew; `fill`: of all stages as many as the shape idles, and `pass`: of each crew.
inline int64_t time_of_passes(const StageProblem& problem, int64_t fill, const std::vector<int64_t>& pass) {
  const auto crews = static_cast<int64_t>(pass.size());
  const int64_t transfers = problem.shape.transfers * crews + problem.shape.more_transfers * problem.micro_batches;
  const int64_t slowest = std::ranges::max(pass);
  int64_t filled = std::max<int64_t>(fill, 0) / problem.shape.stages();
  if (problem.shape.waits_for_slowest) {
    filled = -slowest;
    for (const int64_t each : pass) filled += each;
  }
  return problem.micro_batches * slowest + filled + problem.crossing * transfers / (2 * crews);
}

// Of all cuts the least total, with nothing but loops; -1: none fits.
inline int64_t least_of_all_cuts(const StageProblem& problem) {
  const auto parts = static_cast<int64_t>(problem.parts.size());
  const int64_t stages = problem.shape.stages();
  const auto crews = static_cast<size_t>(problem.shape.crews()), chunks = static_cast<size_t>(problem.shape.chunks);
  int64_t least = -1;
  for (int64_t mask = 0; mask < int64_t{1} << (parts - 1); ++mask) {  // bit i: a stage begins with part i + 1
    if (__builtin_popcountll(static_cast<uint64_t>(mask)) != stages - 1) continue;
    std::vector<int64_t> begins{0};
    int64_t fill = 0;
    std::vector<int64_t> pass(crews), once(crews), held(crews), work(crews), host(crews), disk(crews);
    std::vector<int64_t> forwards(crews * chunks), backwards(crews * chunks);  // of stages
    std::vector<std::vector<int64_t>> kept(crews, std::vector<int64_t>(chunks)), waiting = kept, kept_host = kept,
                                                                                 kept_disk = kept;
    for (int64_t i = 0; i < parts; ++i) {
      const PartPrice& p = problem.parts[static_cast<size_t>(i)];
      const size_t stage = begins.size() - 1, crew = stage % crews, chunk = stage / crews;
      const int64_t forward = std::max(p.forward + p.moving_forward + p.leaving / 8, p.leaving);
      const int64_t input = std::max(p.input_grad + p.again + p.moving_backward + p.returning / 8, p.returning);
      pass[crew] += forward + input + p.weight_grad;
      forwards[stage] += forward;
      backwards[stage] += input + p.weight_grad;
      once[crew] += p.update + p.sync + std::max(std::max(p.coming, p.going), p.updating);
      host[crew] += p.host;
      disk[crew] += p.disk;
      held[crew] += p.persistent + p.held + p.gradients;
      kept[crew][chunk] += p.kept;
      waiting[crew][chunk] += p.waiting;
      kept_host[crew][chunk] += p.kept_host;
      kept_disk[crew][chunk] += p.kept_disk;
      work[crew] = std::max(work[crew], p.work);
      fill += problem.shape.idle_forward * forward + problem.shape.idle_input * input +
              problem.shape.idle_weight * p.weight_grad;
      if (i + 1 < parts && (mask >> i & 1) != 0) begins.push_back(i + 1);
    }
    if (chunks > 1 && !is_even(begins, parts)) continue;
    bool fits = true;
    for (size_t crew = 0; crew < crews; ++crew) {
      for (const HeldMoment& moment : problem.shape.held[crew]) {
        int64_t bytes = held[crew] + work[crew], on_host = host[crew], on_disk = disk[crew];
        for (size_t chunk = 0; chunk < chunks; ++chunk) {
          const int64_t whole = moment[chunk].whole, waits = moment[chunk].waiting;
          bytes += kept[crew][chunk] * whole + waiting[crew][chunk] * waits;
          on_host += kept_host[crew][chunk] * (whole + waits);
          on_disk += kept_disk[crew][chunk] * (whole + waits);
        }
        fits = fits && bytes <= problem.memory && on_host <= problem.host && on_disk <= problem.disk;
      }
    }
    int64_t total = time_of_passes(problem, fill, pass);
    if (chunks > 1) total = end_of_interleaved(problem, forwards, backwards) / 2;
    total += std::ranges::max(once);
    if (fits && (least < 0 || total < least)) least = total;
  }
  return least;
}

}  // namespace trireme::outer_search_test
