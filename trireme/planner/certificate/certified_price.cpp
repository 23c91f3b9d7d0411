#include "trireme/planner/certificate/certified_price.h"

#include <algorithm>

#include "trireme/planner/certificate/certificate_fields_impl.h"
#include "trireme/planner/certificate/certified_passes.h"
#include "trireme/planner/certificate/exact_numbers_impl.h"

namespace trireme {
CertifiedPrice::CertifiedPrice(const CertifiedWay& way, const CertifiedTable& table,
                               const std::vector<CertifiedRun>& runs, const CertifiedRoom& room)
    : way_(way),
      of_one_stage_(certified_of_one_stage(way, table)),
      table_(of_one_stage_ ? *of_one_stage_ : table),
      runs_(runs),
      room_(room),
      parts_(2) {
  for (const CertifiedRun& run : runs) parts_ = exact_sum(parts_, run.blocks);
}

template <class Value>
int64_t CertifiedPrice::of_all(Value value) const {
  int64_t out = exact_sum(value(table_.parts.front()), value(table_.parts.back()));
  for (const CertifiedRun& run : runs_)
    out = exact_sum(out, exact_product(value(table_.parts[static_cast<size_t>(run.kind) + 1]), run.blocks));
  return out;
}

// The slowest crew takes its share of all parts, or the longest part.
template <class Value>
int64_t CertifiedPrice::share_of_crew(Value value, int64_t more) const {
  int64_t out = exact_sum(exact_sum(of_all(value), more), way_.pp - 1) / way_.pp;
  for (const CertifiedPart& part : table_.parts) out = std::max(out, value(part));
  return out;
}

// 1F1B's stage s has run pp - s forward passes when its first gradient comes. A crew of zb-h1, which puts off weight
// gradients, has those of s micro-batches to do as well, and of one more when it has just put off one. One of zb-h2
// runs as far ahead again, and puts off up to two more.
int64_t CertifiedPrice::most_of_stage(int64_t stage, int64_t of_whole, int64_t of_put_off) const {
  const int64_t whole = way_.pp - stage;
  const auto of = [&](int64_t in_flight, int64_t put_off) {
    return exact_sum(exact_product(of_whole, in_flight), exact_product(of_put_off, put_off));
  };
  if (way_.schedule == WaySchedule::kZbH1) return std::max(of(whole, stage), of(whole - 1, stage + 1));
  if (way_.schedule == WaySchedule::kZbH2) {
    const int64_t ahead = 2 * whole - 1, more = std::min<int64_t>(ahead, 2);
    return std::max(of(ahead, 2 * stage), of(ahead - more, 2 * stage + more));
  }
  return of(whole, 0);
}

int64_t CertifiedPrice::bytes_of_stage(int64_t stage, const Sum& sum) const {
  return exact_sum(sum.persistent, exact_sum(most_of_stage(stage, sum.kept, sum.waiting), sum.work));
}

// What is elsewhere of a micro-batch stays there until its weight gradients are done.
bool CertifiedPrice::has_room_beside(int64_t stage, const Sum& sum) const {
  const auto all_of = [&](int64_t once, int64_t kept) {
    return kept == 0 ? once : exact_sum(once, most_of_stage(stage, kept, kept));
  };
  return all_of(sum.host, sum.kept_host) <= room_.host && all_of(sum.disk, sum.kept_disk) <= room_.disk;
}

bool CertifiedPrice::has_room_beside(int64_t crew, const std::vector<Sum>& stages) const {
  if (way_.virtual_stages == 1) return has_room_beside(crew, stages[static_cast<size_t>(crew)]);
  int64_t host = most_of_crew(crew, stages, &Sum::kept_host), disk = most_of_crew(crew, stages, &Sum::kept_disk);
  for (auto stage = static_cast<size_t>(crew); stage < stages.size(); stage += static_cast<size_t>(way_.pp)) {
    host = exact_sum(host, stages[stage].host);
    disk = exact_sum(disk, stages[stage].disk);
  }
  return host <= room_.host && disk <= room_.disk;
}

// Micro-batches go through a crew's stages pp at a time, forward from the first on, back from the last on. A crew runs
// so many forward passes ahead, and from then on a backward and a forward pass in turn; what it keeps is the same every
// pp micro-batches.
int64_t CertifiedPrice::most_of_crew(int64_t crew, const std::vector<Sum>& stages, int64_t Sum::*of_each) const {
  const int64_t turns = way_.pp * way_.virtual_stages;
  const int64_t later = way_.pp - 1 - crew;
  const int64_t ahead =
      (way_.virtual_stages - 1) * way_.pp + (way_.schedule == WaySchedule::kInterleaved ? 2 * later + 1 : later + 1);
  const auto kept_in = [&](int64_t turn) {
    return stages[static_cast<size_t>(crew + turn % turns / way_.pp * way_.pp)].*of_each;
  };
  int64_t kept = 0;
  // The stage is the same up to the next multiple of pp, so that what is kept grows evenly, and is most at an end.
  const auto left = [&](int64_t turn) { return way_.pp - turn % way_.pp; };
  for (int64_t forward = 0, next = 0; forward < ahead; forward = next) {
    next = std::min(ahead, forward + left(forward));
    kept = exact_sum(kept, exact_product(kept_in(forward), next - forward));
  }
  int64_t most = kept;
  for (int64_t turn = 0, next = 0; turn < turns; turn = next) {
    next = turn + std::min(left(turn), left(ahead + turn));
    kept = exact_sum(kept, exact_product(kept_in(ahead + turn) - kept_in(turns - 1 - turn), next - turn));
    most = std::max(most, kept);
  }
  return most;
}

int64_t CertifiedPrice::bytes_of_crew(int64_t crew, const std::vector<Sum>& stages) const {
  int64_t persistent = 0, work = 0;
  for (auto stage = static_cast<size_t>(crew); stage < stages.size(); stage += static_cast<size_t>(way_.pp)) {
    persistent = exact_sum(persistent, stages[stage].persistent);
    work = std::max(work, stages[stage].work);
  }
  return exact_sum(persistent, exact_sum(most_of_crew(crew, stages, &Sum::kept), work));
}

// What the pipeline idles: pp - 1 times a stage's forward pass and its input gradients; and weight gradients on top,
// which zb-h1 has idle crews compute instead. With zb-h2 they run forward passes while they wait for gradients. Of
// several stages a crew each is shorter by so much.
int64_t CertifiedPrice::idle(int64_t weight_grads) const {
  const int64_t waited = way_.schedule == WaySchedule::kZbH2
                             ? of_all(certified_forward_of)
                             : exact_sum(of_all(certified_forward_of), of_all(certified_backward_of));
  int64_t sum = exact_sum(waited, weight_grads);
  if (way_.schedule == WaySchedule::kZbH1) sum = exact_sum(waited, -weight_grads);
  if (way_.schedule == WaySchedule::kZbH2) sum = waited;
  return std::max<int64_t>(0, exact_product(sum, way_.pp - 1)) / exact_product(way_.pp, way_.virtual_stages);
}

// 1F1B waits for the slowest crew alone: all crews take what they take once, and it the rest.
int64_t CertifiedPrice::fill(int64_t slowest) const {
  if (way_.schedule == WaySchedule::k1F1B) return std::max<int64_t>(0, of_all(certified_pass_of) - slowest);
  return idle(of_all([](const CertifiedPart& part) { return part.weight_grad; }));
}

// Messages that are waited for, of which two are a crossing there and back. Filling and emptying takes one from stage
// to stage and one back; crews of zb-h2 have weight gradients left while these come back. While a pipeline is full a
// crew that runs as few micro-batches ahead as can be waits for each result to go to the next crew and for its gradient
// to come back, pp - 1 such pairs in turn for every pp micro-batches. One that runs ahead as far again waits for none,
// nor does one that computes weight gradients meanwhile, which starts later by one such pair for each crew.
int64_t CertifiedPrice::crossings() const {
  if (way_.pp == 1) return 0;
  const int64_t next = way_.pp - 1;
  int64_t once = exact_product(2, exact_product(way_.pp, way_.virtual_stages) - 1), more = 0;
  if (way_.schedule == WaySchedule::k1F1B) {
    once = 2 * (next - 1);
    more = 2 * next;
  } else if (way_.schedule == WaySchedule::kZbH1) {
    once = 4 * next;
  } else if (way_.schedule == WaySchedule::kZbH2) {
    once = next;
  } else if (way_.schedule == WaySchedule::kInterleavedDelayed) {
    once = 2 * (next + way_.virtual_stages - 2);
    more = exact_product(2 * next, way_.virtual_stages);
  }
  const int64_t all = exact_sum(exact_product(once, way_.pp), exact_product(more, way_.micro_batches));
  return exact_product(table_.crossing, all) / (2 * way_.pp);
}

int64_t CertifiedPrice::step_of(int64_t slowest, int64_t once) const {
  return exact_sum(exact_sum(exact_product(slowest, way_.micro_batches), fill(slowest)), exact_sum(crossings(), once));
}

// Of the parts before each, and of all.
void CertifiedPrice::add_up() const {
  sums_.reserve(static_cast<size_t>(parts_) + 1);
  sums_.emplace_back();
  const auto add = [&](const CertifiedPart& part, int64_t times) {
    const Sum each{.pass = certified_pass_of(part),
                   .forward = certified_forward_of(part),
                   .once = certified_once_of(part),
                   .persistent = exact_sum(exact_sum(part.persistent, part.held), part.gradients),
                   .kept = part.kept,
                   .waiting = part.waiting,
                   .host = part.host,
                   .disk = part.disk,
                   .kept_host = part.kept_host,
                   .kept_disk = part.kept_disk};
    for (const auto field : kSums) exact_sum(sums_.back().*field, exact_product(each.*field, times));
    for (int64_t i = 0; i < times; ++i) {  // none is beyond the last, which is exact
      const Sum& before = sums_.back();
      sums_.push_back({.pass = before.pass + each.pass,
                       .forward = before.forward + each.forward,
                       .once = before.once + each.once,
                       .persistent = before.persistent + each.persistent,
                       .kept = before.kept + each.kept,
                       .waiting = before.waiting + each.waiting,
                       .host = before.host + each.host,
                       .disk = before.disk + each.disk,
                       .kept_host = before.kept_host + each.kept_host,
                       .kept_disk = before.kept_disk + each.kept_disk});
    }
  };
  add(table_.parts.front(), 1);
  for (const CertifiedRun& run : runs_) add(table_.parts[static_cast<size_t>(run.kind) + 1], run.blocks);
  add(table_.parts.back(), 1);
}

CertifiedPrice::Sum CertifiedPrice::sum_of(int64_t begin, int64_t end) const {
  if (sums_.empty()) add_up();
  const Sum &before = sums_[static_cast<size_t>(begin)], &all = sums_[static_cast<size_t>(end)];
  Sum out{.pass = all.pass - before.pass,
          .forward = all.forward - before.forward,
          .once = all.once - before.once,
          .persistent = all.persistent - before.persistent,
          .kept = all.kept - before.kept,
          .waiting = all.waiting - before.waiting,
          .host = all.host - before.host,
          .disk = all.disk - before.disk,
          .kept_host = all.kept_host - before.kept_host,
          .kept_disk = all.kept_disk - before.kept_disk};
  if (begin == 0) out.work = table_.parts.front().work;
  if (end == parts_) out.work = std::max(out.work, table_.parts.back().work);
  int64_t at = 1;  // the run's first block
  for (const CertifiedRun& run : runs_) {
    const int64_t after = at + run.blocks;
    if (std::max(begin, at) < std::min(end, after))
      out.work = std::max(out.work, table_.parts[static_cast<size_t>(run.kind) + 1].work);
    at = after;
  }
  return out;
}

std::vector<CertifiedPrice::Sum> CertifiedPrice::stages_of(const std::vector<int64_t>& begins) const {
  std::vector<Sum> out;
  for (size_t stage = 0; stage < begins.size(); ++stage)
    out.push_back(sum_of(begins[stage], stage + 1 < begins.size() ? begins[stage + 1] : parts_));
  return out;
}

int64_t CertifiedPrice::bytes_of(int64_t crew, const std::vector<Sum>& stages) const {
  return way_.virtual_stages == 1 ? bytes_of_stage(crew, stages[static_cast<size_t>(crew)])
                                  : bytes_of_crew(crew, stages);
}

// Crew by crew: the first one often has no room already.
bool CertifiedPrice::crews_fit(const std::vector<Sum>& stages) const {
  for (int64_t crew = 0; crew < way_.pp; ++crew) {
    if (bytes_of(crew, stages) > room_.device || !has_room_beside(crew, stages)) return false;
  }
  return true;
}

std::vector<CertifiedStage> CertifiedPrice::passes_of(const std::vector<Sum>& stages) {
  std::vector<CertifiedStage> out;
  out.reserve(stages.size());
  for (const Sum& stage : stages) out.push_back({.forward = stage.forward, .backward = stage.pass - stage.forward});
  return out;
}

CertifiedPrice::Cut CertifiedPrice::cut_of(const std::vector<Sum>& stages) const {
  Cut out;
  int64_t slowest = 0, once = 0;
  for (int64_t crew = 0; crew < way_.pp; ++crew) {
    int64_t pass = 0, at_end = 0;
    for (auto stage = static_cast<size_t>(crew); stage < stages.size(); stage += static_cast<size_t>(way_.pp)) {
      pass = exact_sum(pass, stages[stage].pass);
      at_end = exact_sum(at_end, stages[stage].once);
    }
    out.has_room_beside = out.has_room_beside && has_room_beside(crew, stages);
    slowest = std::max(slowest, pass);
    once = std::max(once, at_end);
    out.crew_bytes.push_back(bytes_of(crew, stages));
  }
  out.step_ps = way_.virtual_stages == 1
                    ? step_of(slowest, once)
                    : exact_sum(certified_interleaved_ps(way_, passes_of(stages), table_.crossing), once);
  return out;
}

CertifiedPrice::Cut CertifiedPrice::of_cut(const std::vector<int64_t>& begins) const {
  require(static_cast<int64_t>(begins.size()) == way_.pp * way_.virtual_stages && begins.front() == 0,
          "certificate: the best way has {} stages, and the certificate lists {}, the first from part {} on",
          way_.pp * way_.virtual_stages, begins.size(), begins.front());
  for (size_t stage = 0; stage < begins.size(); ++stage) {
    const int64_t end = stage + 1 < begins.size() ? begins[stage + 1] : parts_;
    require(begins[stage] < end,
            "certificate: stage {} of the best way is empty: it begins at part {} and ends before part {}", stage,
            begins[stage], end);
  }
  if (way_.virtual_stages > 1) {
    const auto even = even_cuts_of_parts();
    require(std::ranges::find(even, begins) != even.end(),
            "certificate: the stages of the best way, {} of each crew, are not of even length", way_.virtual_stages);
  }
  return cut_of(stages_of(begins));
}

bool CertifiedPrice::every_cut_exceeds(int64_t limit) const {
  const int64_t once = share_of_crew(certified_once_of);
  if (way_.virtual_stages > 1) {
    return every_even_cut_exceeds(limit, once, [&](const std::vector<int64_t>& begins) {
      const auto stages = passes_of(stages_of(begins));
      return certified_interleaved_ps(way_, stages, table_.crossing) > limit - once;
    });
  }
  return every_slowest_exceeds(limit, [&](int64_t slowest) { return step_of(slowest, once); });
}

int64_t CertifiedPrice::share_of_passes() const {
  return of_all(certified_pass_of) / way_.pp;
}

// Longer weight gradients fill idle crews. As long as all stages have room below the slowest one they cost nothing; so
// that much of them is taken to be there. What is more makes the slowest stage longer: d of it by d / pp for each of at
// least pp micro-batches, and fills (pp - 1) * d / pp.
bool CertifiedPrice::longer_passes_exceed(int64_t limit, int64_t more) const {
  if (way_.virtual_stages > 1) {
    const auto more_is_not_known = [](const std::vector<int64_t>&) { return false; };
    return every_even_cut_exceeds(limit, share_of_crew(certified_once_of, more), more_is_not_known);
  }
  const int64_t others = exact_sum(of_all(certified_forward_of), of_all(certified_backward_of));
  const int64_t beside = exact_sum(crossings(), share_of_crew(certified_once_of, more));
  return every_slowest_exceeds(limit, [&](int64_t slowest) {
    const bool fills = way_.schedule == WaySchedule::kZbH1;
    const int64_t waits = fills ? idle(exact_sum(exact_product(slowest, way_.pp), -others)) : fill(slowest);
    return exact_sum(exact_sum(exact_product(slowest, way_.micro_batches), waits), beside);
  });
}

template <class StepOf>
bool CertifiedPrice::every_slowest_exceeds(int64_t limit, StepOf step_of) const {
  int64_t low = share_of_crew(certified_pass_of);
  if (step_of(low) > limit) return true;
  if (way_.pp == 1 || limit > kCertifiedMost) return false;
  int64_t high = std::max(low, limit / way_.micro_batches);  // a step of more takes longer
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (step_of(middle) <= limit) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return some_crew_takes_more(low);
}

// Of a way that has fewer parts than stages nothing more is known than a crew's share.
template <class Exceeds>
bool CertifiedPrice::every_even_cut_exceeds(int64_t limit, int64_t once, Exceeds exceeds) const {
  const int64_t share = exact_product(share_of_crew(certified_pass_of), way_.micro_batches);
  if (exact_sum(share, once) > limit) return true;
  if (parts_ < way_.pp * way_.virtual_stages) return false;
  std::vector<int64_t> before{0}, passes;  // of the parts before each; of stages
  const auto add = [&](const CertifiedPart& part, int64_t times) {
    const int64_t pass = certified_pass_of(part);
    for (int64_t i = 0; i < times; ++i) before.push_back(before.back() + pass);  // all of them were added exactly
  };
  before.reserve(static_cast<size_t>(parts_) + 1);
  add(table_.parts.front(), 1);
  for (const CertifiedRun& run : runs_) add(table_.parts[static_cast<size_t>(run.kind) + 1], run.blocks);
  add(table_.parts.back(), 1);
  return std::ranges::all_of(even_cuts_of_parts(), [&](const std::vector<int64_t>& begins) {
    passes.clear();
    for (size_t stage = 0; stage < begins.size(); ++stage) {
      const int64_t end = stage + 1 < begins.size() ? begins[stage + 1] : parts_;
      passes.push_back(before[static_cast<size_t>(end)] - before[static_cast<size_t>(begins[stage])]);
    }
    return certified_interleaved_takes_more(way_, passes, table_.crossing, limit - once) || exceeds(begins);
  });
}

// Of every cut: where not even stages that are as long as they may be, each from where the one before ends, reach the
// last part.
bool CertifiedPrice::some_crew_takes_more(int64_t pass) const {
  if (parts_ < way_.pp) return false;
  if (sums_.empty()) add_up();
  auto end = sums_.begin();
  for (int64_t stage = 0; stage < way_.pp; ++stage) {
    const int64_t most = exact_sum(end->pass, pass);
    end = std::upper_bound(end, sums_.end(), most, [](int64_t of, const Sum& sum) { return of < sum.pass; });
    if (end == sums_.end()) return false;
    --end;
  }
  return true;
}

// As many parts in each stage, or one more: the usual answer, and a quick one.
bool CertifiedPrice::even_cut_fits() const {
  for (int64_t stage = 0; stage < way_.pp; ++stage) {
    const int64_t begin = stage * parts_ / way_.pp, end = (stage + 1) * parts_ / way_.pp;
    if (!stage_fits(stage, sum_of(begin, end))) return false;
  }
  return true;
}

bool CertifiedPrice::stage_fits(int64_t stage, const Sum& sum) const {
  return bytes_of_stage(stage, sum) <= room_.device && has_room_beside(stage, sum);
}

bool CertifiedPrice::fits() const {
  if (parts_ < way_.pp) return false;
  if (way_.virtual_stages > 1) {
    return std::ranges::any_of(even_cuts_of_parts(),
                               [&](const std::vector<int64_t>& begins) { return crews_fit(stages_of(begins)); });
  }
  if (even_cut_fits()) return true;
  std::vector<char> ends(static_cast<size_t>(parts_) + 1, 0);  // where the stages so far can end
  ends[0] = 1;
  for (int64_t stage = 0; stage < way_.pp; ++stage) {
    std::vector<char> next(ends.size(), 0);
    int64_t reached = stage;  // a later begin has room for as many parts or more
    for (int64_t begin = stage; begin < parts_; ++begin) {
      if (ends[static_cast<size_t>(begin)] == 0) continue;
      for (int64_t end = std::max(reached, begin) + 1; end <= parts_; ++end) {
        if (!stage_fits(stage, sum_of(begin, end))) break;
        next[static_cast<size_t>(end)] = 1;
        reached = end;
      }
    }
    ends = std::move(next);
  }
  return ends.back() != 0;
}

// Sums of neighbours' updates and sums of gradients, each once.
std::vector<int64_t> CertifiedPrice::onces_of_stages() const {
  std::vector<int64_t> out;
  for (int64_t begin = 0; begin < parts_; ++begin) {
    for (int64_t end = begin + 1; end <= parts_; ++end) out.push_back(sum_of(begin, end).once);
  }
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// The least that the slowest stage can take, within these limits of every stage: stage by stage, by where each ends.
std::optional<int64_t> CertifiedPrice::least_slowest(int64_t most_pass, int64_t most_once) const {
  constexpr int64_t kNone = -1;
  if (parts_ < way_.pp) return std::nullopt;
  std::vector<int64_t> least(static_cast<size_t>(parts_) + 1, kNone);
  least[0] = 0;
  for (int64_t stage = 0; stage < way_.pp; ++stage) {
    std::vector<int64_t> next(least.size(), kNone);
    const int64_t last_end = parts_ - (way_.pp - 1 - stage);
    for (int64_t begin = stage; begin < last_end; ++begin) {
      const int64_t so_far = least[static_cast<size_t>(begin)];
      if (so_far == kNone) continue;
      for (int64_t end = begin + 1; end <= last_end; ++end) {
        const Sum sum = sum_of(begin, end);
        if (sum.pass > most_pass || sum.once > most_once || !stage_fits(stage, sum)) break;  // nor do longer stages
        int64_t& to = next[static_cast<size_t>(end)];
        const int64_t slowest = std::max(so_far, sum.pass);
        if (to == kNone || slowest < to) to = slowest;
      }
    }
    least = std::move(next);
  }
  if (least.back() == kNone) return std::nullopt;
  return least.back();
}

std::optional<int64_t> CertifiedPrice::least_even_cut_below(int64_t limit) const {
  int64_t least = limit;
  for (const std::vector<int64_t>& begins : even_cuts_of_parts()) {
    const std::vector<Sum> stages = stages_of(begins);
    if (crews_fit(stages)) least = std::min(least, cut_of(stages).step_ps);
  }
  if (least >= limit) return std::nullopt;
  return least;
}

// A lower limit on what is done once makes the slowest stage no faster. So of limits whose slowest stages take as long
// at both ends the lowest is the best, and the rest is halved.
std::optional<int64_t> CertifiedPrice::least_below(int64_t limit) const {
  if (way_.virtual_stages > 1) return least_even_cut_below(limit);
  const std::vector<int64_t> onces = onces_of_stages();
  int64_t least = limit;
  const int64_t beside = step_of(0, 0);
  if (beside >= limit) return std::nullopt;
  const int64_t of_slowest = way_.micro_batches - (way_.schedule == WaySchedule::k1F1B ? 1 : 0);
  const int64_t most_pass = of_slowest == 0 ? limit : (limit - 1 - beside) / of_slowest;
  struct OnceRange {
    size_t low, high;
    int64_t at_high;
  };
  std::vector<OnceRange> open;
  const auto look_at = [&](size_t low, size_t high) {
    const auto slowest = least_slowest(most_pass, onces[high]);
    if (slowest) open.push_back({low, high, *slowest});
  };
  look_at(0, onces.size() - 1);
  while (!open.empty()) {
    const auto [low, high, at_high] = open.back();
    open.pop_back();
    least = std::min(least, step_of(at_high, onces[high]));
    if (low == high || step_of(at_high, onces[low]) >= least) continue;
    const size_t middle = low + (high - low) / 2;
    open.push_back({middle + 1, high, at_high});
    look_at(low, middle);
  }
  if (least >= limit) return std::nullopt;
  return least;
}

}  // namespace trireme
