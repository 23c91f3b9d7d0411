#include "trireme/train/plan/exact/way_tables.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <tuple>

#include "trireme/planner/outer/pipeline_shape.h"
#include "trireme/planner/outer/stage_sums.h"

namespace trireme {
namespace {

// A way by its number. The one that was asked about last is often the next one again.
class LastWay {
 public:
  explicit LastWay(const OuterWays& ways) : ways_(ways) {}
  const OuterWay& operator()(size_t number) {
    if (!number_ || *number_ != number) way_ = ways_.at(number);
    number_ = number;
    return way_;
  }

 private:
  const OuterWays& ways_;
  std::optional<size_t> number_;
  OuterWay way_;
};

// What questions about time go by, where slices of state are the same whether they are of gradients or of weights as
// well: ways that differ in nothing else have the same answer.
OuterWay as_timed(OuterWay way) {
  way.inner.zero = std::min<int64_t>(way.inner.zero, 2);
  return way;
}
// The same where what is computed again and what is kept elsewhere do not count either.
OuterWay as_timed_with_all_kept(const OuterWay& way) {
  OuterWay out = as_timed(way);
  out.inner = all_kept(out.inner);
  return out;
}

// Ways that are asked about one after the other often have the same answer.
class LastAnswer {
 public:
  // `like`: what the answer goes by.
  template <class Ask>
  const OuterAnswer& of(const OuterWay& like, Ask&& ask) {
    if (!like_ || *like_ != like) {
      answer_ = ask();
      like_ = like;
    }
    return answer_;
  }

 private:
  std::optional<OuterWay> like_;
  OuterAnswer answer_;
};

std::vector<size_t> all_ways(const OuterWays& ways) {
  std::vector<size_t> out;
  for (size_t i = 0; i < ways.size(); ++i) {
    if (ways.has(i)) out.push_back(i);
  }
  return out;
}

// Of the ways without a pipeline that have the same cuts and places, the one that recomputes and slices the most.
std::vector<size_t> ways_with_most_measures(const OuterWays& ways) {
  const auto measures = [](const InnerWay& of) {
    const auto again = std::ranges::find(kWayRecompute, of.recompute) - kWayRecompute.begin();
    return std::tuple(again, of.kept_slices, of.zero, of.sp, of.vocabulary);
  };
  std::map<InnerWay, size_t> found;
  for (const size_t i : all_ways(ways)) {
    InnerWay cut = ways.at(i).inner;
    const auto own = measures(cut);
    cut.recompute = WayRecompute::kNone;
    cut.kept_slices = cut.sp = cut.vocabulary = false;
    cut.zero = 0;
    const auto [known, is_new] = found.emplace(std::move(cut), i);
    if (!is_new && own > measures(ways.at(known->second).inner)) known->second = i;
  }
  std::vector<size_t> out;
  for (const auto& [cut, way] : found) out.push_back(way);
  return out;
}

}  // namespace

WayTables::WayTables(const ExactSetting& setting, int threads, PricedTables* known)
    : setting_(setting),
      pricer_(setting.job, setting.parts, setting.figures, threads, known),
      chain_(setting.parts.chain()),
      runs_(setting.parts.runs()) {}

std::optional<StageProblem> WayTables::problem_of(const OuterWay& way) {
  const std::optional<PartPrices>& own = prices(way.inner);
  if (!own) return std::nullopt;
  return problem_with(way, *own);
}

OuterAnswer WayTables::answer(const OuterWay& way, const InnerWay& known, Asked asked) {
  const std::optional<PartPrices>& table = alone(known);
  if (!table) {
    const bool is_own = known == alone_of(way.inner);
    return {.kind = is_own ? OuterAnswer::Kind::kRefused : OuterAnswer::Kind::kBound};
  }
  if (asked == Asked::kMemory) {
    const bool fits = may_fit(way, least_of(*table, known, way.inner, setting_.figures));
    return {.kind = fits ? OuterAnswer::Kind::kBound : OuterAnswer::Kind::kTooLarge};
  }
  const LeastPartOf of = least_part_of(known, way.inner, setting_.figures).for_times();
  const std::tuple key(&*table, of.rows, of.rows_of_table, of.is_own, of.state_elsewhere, of.update_elsewhere);
  auto least = least_times_.find(key);
  if (least == least_times_.end()) {
    const PartPrices times = least_of(*table, of);
    least = least_times_.emplace(key, LeastTimes{totals_of(times), times.crossing}).first;
  }
  return {.bound_ps = bound_by(least->second, way)};
}

// Experts are no slower in fewer pieces, so that without ep it says nothing of what these compute; that takes no less
// than the arithmetic, and collectives come on top.
OuterAnswer WayTables::answer_by_fewer_axes(const OuterWay& way, const std::optional<InnerWay>& known) {
  if (!known) return {};
  const std::optional<PartPrices>& of_fewer = alone(*known);
  if (!of_fewer) return {};
  const bool has_more_ep = way.inner.ep != known->ep;
  const std::tuple key(&*of_fewer, way.inner.rows, way.inner.tp, way.inner.cp, has_more_ep);
  auto least = least_times_by_fewer_axes_.find(key);
  if (least == least_times_by_fewer_axes_.end()) {
    const PartPrices times = least_by_fewer_axes(*of_fewer, *known, way.inner);
    least = least_times_by_fewer_axes_.emplace(key, LeastTimes{totals_of(times), times.crossing}).first;
  }
  const int64_t bound = bound_by(least->second, way);
  if (!has_more_ep) return {.bound_ps = bound};
  const int64_t computed = arithmetic_ps(way, setting_.figures);
  return {.bound_ps = std::max(bound, computed + way.micro_batches * (least->second.totals.pass() / way.pp))};
}

OuterAnswer WayTables::answer_by_kept(const OuterWay& way) {
  const std::optional<InnerWay> known = by_kept_without_ep(way.inner);
  if (!known) return {};
  const InnerWay none = all_kept(with_most_rows(way.inner));
  const std::optional<PartPrices>&of_none = alone(none), &of_kept = alone(*known);
  if (!of_none || !of_kept) return {};
  const std::tuple key(&*of_none, &*of_kept, way.inner.rows);
  auto least = least_times_of_kept_.find(key);
  if (least == least_times_of_kept_.end()) {
    PartPrices times = least_of(*of_none, none, way.inner, setting_.figures);
    raise_kept_moves(times, *of_kept, *known, way.inner);
    least = least_times_of_kept_.emplace(key, LeastTimes{totals_of(times), times.crossing}).first;
  }
  return {.bound_ps = bound_by(least->second, way)};
}

OuterAnswer WayTables::answer_by_few_ranks(const OuterWay& way) {
  const auto few = with_few_ranks(way.inner);
  if (!few) return {};
  const InnerWay own = alone_of(way.inner);
  const std::optional<PartPrices>&moved = prices(*few), &of_own = alone(own);
  if (!moved || !of_own) return {};
  PartPrices least = least_of(*of_own, own, way.inner, setting_.figures), of_few = *moved;
  if (way.pp == 1) take_off_tied(of_few.parts);
  raise_moved(least, of_few);
  return {.bound_ps = bound_of_longer_parts(way, least)};
}

OuterAnswer WayTables::answer_by_parts(const OuterWay& way, const InnerWay& known, Sums sums) {
  const std::optional<PartPrices>*summed = nullptr, *unsummed = nullptr;
  if (sums != Sums::kNone) {
    std::optional<InnerWay> without = without_slices(way.inner);
    if (!without) return {};
    if (sums == Sums::kOfFew) without = with_fewest_sums(*without).value_or(*without);
    summed = &prices(*without);
    unsummed = &alone(alone_of(*without));
  }
  const std::optional<PartPrices>& of_known = alone(known);
  if (!of_known || (summed && (!*summed || !*unsummed))) return {};
  const bool of_blocks = known.vocabulary != way.inner.vocabulary;
  const std::tuple key(&*of_known, summed ? &**summed : nullptr, way.inner.rows, summed && way.inner.zero > 1,
                       of_blocks);
  auto least = least_times_of_parts_.find(key);
  if (least == least_times_of_parts_.end()) {
    PartPrices times = least_of(*of_known, known, way.inner, setting_.figures);
    if (of_blocks) times.parts.front() = times.parts.back() = {};
    if (summed) {
      const PartPrices unexchanged = times;
      raise_exchanged(times, {unexchanged, **summed, **unsummed}, way.inner.zero);
    }
    least = least_times_of_parts_.emplace(key, LeastTimes{totals_of(times), times.crossing}).first;
  }
  return {.bound_ps = bound_by(least->second, way)};
}

void WayTables::learn(const OuterWay& way, const StageProblem& problem, WayGuesses& guesses) const {
  guesses.learn_time(way, bound_of_cuts(problem));
  StageProblem within = problem;
  within.memory = memory_bytes();
  if (!some_cut_fits(within)) guesses.learn_too_large(way);
}

// To price each cut of a stage once; a proof takes about as many.
int64_t WayTables::jobs_of_cuts(const OuterWays& ways) {
  using Cut = std::tuple<int64_t, int64_t, int64_t, bool, bool>;
  std::set<Cut> cuts;
  std::optional<Cut> last;  // most ways are cut like the one before
  for (size_t i = 0; i < ways.cuts(); ++i) {
    const OuterWay way = ways.cut(i);
    const Cut cut(way.inner.tp, way.inner.cp, way.inner.ep, way.inner.sp, way.inner.vocabulary);
    if (last == cut) continue;
    cuts.insert(cut);
    last = cut;
  }
  return static_cast<int64_t>(cuts.size());
}

// Each dearer than those before it. Where the experts' places are of the whole batch, how many tokens the ranks of a
// way have together decides what these take, and tables of other ways say nothing.
std::vector<std::function<OuterAnswer(size_t)>> WayTables::bounds_by_tables(const OuterWays& ways) {
  if (setting_.figures.is_joined) return {};
  const auto last = std::make_shared<LastWay>(ways);
  const auto none = [](const InnerWay& way) { return all_kept(with_most_rows(way)); };
  const auto asks = [&](auto known) {
    return [this, last, known, same = LastAnswer()](size_t i) mutable {
      const OuterWay& way = (*last)(i);
      return same.of(as_timed(way), [&] { return answer(way, known(way.inner), Asked::kTime); });
    };
  };
  const auto asks_memory = [&](auto known) {
    return [this, last, known](size_t i) {
      const OuterWay& way = (*last)(i);
      return answer(way, known(way.inner), Asked::kMemory);
    };
  };
  const auto by_sums = [&](auto known, Sums sums) {
    return [this, last, known, sums, same = LastAnswer()](size_t i) mutable {
      const OuterWay& way = (*last)(i);
      return same.of(as_timed(way), [&] { return answer_by_parts(way, known(way.inner), sums); });
    };
  };
  // Before a vocabulary is cut: the blocks are the same.
  const auto by_blocks = [&](auto known, Sums sums) {
    return [this, last, known, sums, same = LastAnswer()](size_t i) mutable -> OuterAnswer {
      const OuterWay& way = (*last)(i);
      if (!way.inner.vocabulary) return {};
      return same.of(as_timed(way),
                     [&] { return answer_by_parts(way, with_whole_vocabulary(known(way.inner)), sums); });
    };
  };
  const auto by_fewer = [&](auto known) {
    return [this, last, known, same = LastAnswer()](size_t i) mutable {
      const OuterWay& way = (*last)(i);
      return same.of(as_timed_with_all_kept(way), [&] { return answer_by_fewer_axes(way, known(way.inner)); });
    };
  };
  std::vector<std::function<OuterAnswer(size_t)>> out{by_fewer(by_fewer_tp), by_fewer(by_tp_alone)};
  for (const int64_t ep : kFewerEp) out.push_back(by_fewer([ep](const InnerWay& way) { return by_fewer_ep(way, ep); }));
  const std::vector<std::function<OuterAnswer(size_t)>> others{
      by_fewer(by_tp_and_ep), by_fewer(by_half_cp),
      // By the most rows, without recomputation.
      by_blocks(none, Sums::kNone), asks(none), by_sums(none, Sums::kOfFew),
      // With it, and what is kept elsewhere.
      [this, last, same = LastAnswer()](size_t i) mutable {
        const OuterWay& way = (*last)(i);
        return same.of(as_timed(way), [&] { return answer_by_kept(way); });
      },
      by_blocks(with_most_rows, Sums::kNone), by_blocks(with_most_rows, Sums::kOfFew), asks(with_most_rows),
      by_sums(with_most_rows, Sums::kOfFew), asks_memory(with_most_rows),
      // By its own rows.
      by_blocks(alone_of, Sums::kNone), by_blocks(alone_of, Sums::kOfFew), asks(alone_of), asks_memory(alone_of),
      by_sums(alone_of, Sums::kOfFew), by_sums(alone_of, Sums::kOfAll),
      [this, last](size_t i) { return answer_by_few_ranks((*last)(i)); }};
  out.insert(out.end(), others.begin(), others.end());
  return out;
}

OuterResult WayTables::search(const OuterWays& ways, int64_t ranks, size_t top, const OnProgress& tell,
                              int64_t most_jobs) {
  WayGuesses guesses(setting_, pricer_, ways,
                     [this](const OuterWay& way) -> const PipelineShape& { return shape(way); });
  bool is_guessed = false;
  OuterQuestions ask{.least_bytes = [&](size_t i) { return least_bytes(ways.at(i), ranks, setting_.figures); },
                     .bounds = bounds_by_tables(ways),
                     .problem =
                         [&](size_t i) {
                           const OuterWay way = ways.at(i);
                           auto problem = problem_of(way);
                           if (problem && is_guessed) learn(way, *problem, guesses);
                           return problem;
                         }};
  if (tell) {
    ask.on_progress = [&](const OuterProgress& so_far) {
      tell({so_far.ways, so_far.open, so_far.bound_ps, pricer_.jobs_compiled()});
    };
  }
  if (most_jobs > 0) {
    const bool is_hopeless = jobs_of_cuts(ways) > most_jobs;
    const int64_t before = pricer_.jobs_compiled();
    ask.may_go_on = [this, most_jobs, is_hopeless, before](bool is_stopped) {
      const int64_t jobs = pricer_.jobs_compiled() - before;
      return is_stopped ? jobs < most_jobs + most_jobs / 2 : !is_hopeless && jobs < most_jobs;
    };
    if (!setting_.figures.is_joined)
      ask.likely = [&](int64_t limit) {
        is_guessed = true;
        return guesses.next(limit);
      };
  }
  return search_outer(ways.candidates(setting_.figures), ways.variants(), memory_bytes(), top, ask);
}

// Best first, as the search for time: by parameters and state alone, by the table of one data parallel rank, by its
// own.
WayTables::Fewest WayTables::fewest_bytes(const OuterWays& ways, int64_t ranks, int64_t limit, const OnProgress& tell,
                                          int64_t last_job) {
  enum class Known : uint8_t { kLeast, kAlone, kAll };
  using Open = std::tuple<int64_t, size_t, Known>;
  std::priority_queue<Open, std::vector<Open>, std::greater<>> open;
  for (const size_t i : setting_.figures.is_joined ? ways_with_most_measures(ways) : all_ways(ways)) {
    const OuterWay way = ways.at(i);
    if (divides(way)) open.emplace(least_bytes(way, ranks, setting_.figures), i, Known::kLeast);
  }
  while (!open.empty() && std::get<0>(open.top()) <= limit) {
    if (tell) tell({ways.count(), static_cast<int64_t>(open.size()), 0, pricer_.jobs_compiled(), true});
    const auto [bytes, i, known] = open.top();
    open.pop();
    if (known == Known::kAll) return {.way = i, .bytes = bytes};
    if (pricer_.jobs_compiled() >= last_job) return {.way = {}, .is_stopped = true};
    const OuterWay way = ways.at(i);
    std::optional<StageProblem> problem;
    const bool by_own = known == Known::kAlone || setting_.figures.is_joined;
    if (by_own) {
      problem = problem_of(way);
    } else if (const auto& alone = pricer_.alone(alone_of(way.inner))) {
      problem = problem_with(way, least_of(*alone, alone_of(way.inner), way.inner, setting_.figures));
    }
    const auto fewest = problem ? fewest_bytes_of_cuts(*problem) : std::nullopt;
    if (fewest) open.emplace(std::max(bytes, *fewest), i, by_own ? Known::kAll : Known::kAlone);
  }
  return {};
}

CertifiedTables WayTables::asked() {
  CertifiedTables out;
  const auto add_in_order = [](const Asks& asked, std::vector<CertifiedTable>& to) {
    const std::map<InnerWay, const std::optional<PartPrices>*> in_order(asked.begin(), asked.end());
    for (const auto& [way, table] : in_order) to.push_back(certified_prices(way, *table));
  };
  add_in_order(asked_alone_, out.alone);
  add_in_order(asked_prices_, out.prices);
  return out;
}

const std::optional<PartPrices>& WayTables::alone(const InnerWay& known) {
  const auto found = asked_alone_.find(known);
  if (found != asked_alone_.end()) return *found->second;
  return *asked_alone_.emplace(known, &pricer_.alone(known)).first->second;
}

const std::optional<PartPrices>& WayTables::prices(const InnerWay& way) {
  const auto found = asked_prices_.find(way);
  if (found != asked_prices_.end()) return *found->second;
  return *asked_prices_.emplace(way, &pricer_.prices(way)).first->second;
}

PartTotals WayTables::totals_of(const PartPrices& prices) const {
  PartTotals out;
  for (const auto& [part, count] : runs_) out.add(prices.parts[part], count);
  return out;
}

int64_t WayTables::bound_by(LeastTimes& least, const OuterWay& way) {
  const int64_t moves = least_moves_ps(way.inner, setting_.figures);
  const PipelineShape& of_way = shape(way);
  const std::tuple key(&of_way, way.micro_batches, moves);
  const auto found = least.bounds.find(key);
  if (found != least.bounds.end()) return found->second;
  PartTotals totals = least.totals;
  totals.once += moves;
  const int64_t bound = trireme::bound_of_longer_parts(totals, of_way, way.micro_batches, least.crossing);
  return least.bounds.emplace(key, bound).first->second;
}

int64_t WayTables::bound_of_longer_parts(const OuterWay& way, const PartPrices& prices) {
  PartTotals totals = totals_of(prices);
  totals.once += least_moves_ps(way.inner, setting_.figures);
  return trireme::bound_of_longer_parts(totals, shape(way), way.micro_batches, prices.crossing);
}

bool WayTables::may_fit(const OuterWay& way, const PartPrices& least) {
  const ShapeOfCrews& of_way = shape_of_crews(way);
  StageSums sums;
  std::vector<PartPrice> parts = least.parts;
  if (way.pp == 1) in_one_stage(parts);
  for (const auto& [part, count] : runs_) sums.add(parts[part], count);
  sums.check_bytes(of_way.most_held);
  return some_cut_fits(sums, of_way.shape,
                       {.device = memory_bytes(), .host = setting_.beside.host, .disk = setting_.beside.disk},
                       of_way.even);
}

StageProblem WayTables::problem_with(const OuterWay& way, const PartPrices& prices) {
  StageProblem out{.parts = {},
                   .shape = shape(way),
                   .micro_batches = way.micro_batches,
                   .crossing = prices.crossing,
                   .memory = memory_bytes(),
                   .host = setting_.beside.host,
                   .disk = setting_.beside.disk};
  out.parts.reserve(chain_.size());
  for (const int64_t part : chain_) out.parts.push_back(prices.parts[static_cast<size_t>(part)]);
  if (way.pp == 1) in_one_stage(out.parts);
  check_range(out);
  return out;
}

const WayTables::ShapeOfCrews& WayTables::shape_of_crews(const OuterWay& way) {
  const std::tuple key(way.pp, way.virtual_stages, way.schedule);
  const auto found = shapes_.find(key);
  if (found != shapes_.end()) return found->second;
  ShapeOfCrews out{.shape = shape_of_schedule(schedule_of(way.schedule), way.pp, way.virtual_stages), .even = {}};
  out.most_held = most_held(out.shape);
  if (out.shape.chunks > 1) out.even = even_cuts(static_cast<int64_t>(chain_.size()), out.shape.stages());
  return shapes_.emplace(key, std::move(out)).first->second;
}

}  // namespace trireme
