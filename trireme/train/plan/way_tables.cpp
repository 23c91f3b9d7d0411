#include "trireme/train/plan/way_tables.h"

#include <queue>

#include "trireme/planner/outer/pipeline_shape.h"

namespace trireme {

WayTables::WayTables(const ExactSetting& setting, int threads)
    : setting_(setting), pricer_(setting.job, setting.parts, setting.figures, threads), chain_(setting.parts.chain()) {}

std::optional<StageProblem> WayTables::problem_of(const OuterWay& way) {
  const std::optional<PartPrices>& prices = pricer_.prices(way.inner);
  asked_prices_.insert(way.inner);
  if (!prices || (prices->is_joined && way.pp > 1)) return std::nullopt;
  return problem_with(way, *prices);
}

OuterAnswer WayTables::answer(const OuterWay& way, const InnerWay& known, Asked asked) {
  const std::optional<PartPrices>& alone = pricer_.alone(known);
  asked_alone_.insert(known);
  if (!alone) {
    const bool is_own = known == alone_of(way.inner);
    return {.kind = is_own ? OuterAnswer::Kind::kRefused : OuterAnswer::Kind::kBound};
  }
  const StageProblem problem = problem_with(way, least_of(*alone, known, way.inner, setting_.figures), asked);
  if (asked == Asked::kTime) return {.bound_ps = bound_of_longer_parts(problem)};
  return {.kind = some_cut_fits(problem) ? OuterAnswer::Kind::kBound : OuterAnswer::Kind::kTooLarge};
}

OuterAnswer WayTables::answer_if_joined(const OuterWay& way) {
  const InnerWay own = alone_of(way.inner);
  const std::optional<PartPrices>& alone = pricer_.alone(own);
  asked_alone_.insert(own);
  const bool is_refused = !alone || (alone->is_joined && way.pp > 1);
  return {.kind = is_refused ? OuterAnswer::Kind::kRefused : OuterAnswer::Kind::kBound};
}

OuterAnswer WayTables::answer_by_few_ranks(const OuterWay& way) {
  const auto few = with_few_ranks(way.inner);
  if (!few) return {};
  asked_prices_.insert(*few);
  const InnerWay own = alone_of(way.inner);
  const std::optional<PartPrices>&moved = pricer_.prices(*few), &alone = pricer_.alone(own);
  if (!moved || !alone) return {};
  PartPrices least = least_of(*alone, own, way.inner, setting_.figures);
  raise_moved(least, *moved);
  return {.bound_ps = bound_of_longer_parts(problem_with(way, least, Asked::kTime))};
}

OuterResult WayTables::search(const std::vector<OuterWay>& ways, int64_t ranks, size_t top) {
  const std::vector<OuterCandidate> candidates = candidates_of(ways, ranks, setting_.figures);
  const auto without_again = [&](size_t i) {
    InnerWay out = with_most_rows(ways[i].inner);
    out.recompute = "none";
    return out;
  };
  const auto most = [&](size_t i) { return with_most_rows(ways[i].inner); };
  const auto own = [&](size_t i) { return alone_of(ways[i].inner); };
  const auto asks = [&](auto known, Asked asked) {
    return [this, &ways, known, asked](size_t i) { return answer(ways[i], known(i), asked); };
  };
  const OuterQuestions ask{
      .bounds = {asks(without_again, Asked::kTime), asks(most, Asked::kTime), asks(most, Asked::kMemory),
                 [&](size_t i) { return answer_if_joined(ways[i]); }, asks(own, Asked::kTime),
                 asks(own, Asked::kMemory), [&](size_t i) { return answer_by_few_ranks(ways[i]); }},
      .problem = [&](size_t i) { return problem_of(ways[i]); }};
  return search_outer(candidates, setting_.memory_bytes, top, ask);
}

// Best first, as the search for time: by parameters and state alone, by the table of one data parallel rank, by its
// own.
std::optional<WayTables::Fewest> WayTables::fewest_bytes(const std::vector<OuterWay>& ways, int64_t ranks,
                                                         int64_t limit) {
  enum class Known : uint8_t { kLeast, kAlone, kAll };
  using Open = std::tuple<int64_t, size_t, Known>;
  std::priority_queue<Open, std::vector<Open>, std::greater<>> open;
  for (size_t i = 0; i < ways.size(); ++i) {
    const OuterCandidate candidate = candidate_of(ways[i], ranks, setting_.figures);
    if (candidate.divides) open.emplace(candidate.least_bytes, i, Known::kLeast);
  }
  while (!open.empty() && std::get<0>(open.top()) <= limit) {
    const auto [bytes, i, known] = open.top();
    open.pop();
    if (known == Known::kAll) return Fewest{i, bytes};
    std::optional<StageProblem> problem;
    if (known == Known::kAlone) {
      problem = problem_of(ways[i]);
    } else if (const auto& alone = pricer_.alone(alone_of(ways[i].inner));
               alone && !(alone->is_joined && ways[i].pp > 1)) {
      problem = problem_with(ways[i], least_of(*alone, alone_of(ways[i].inner), ways[i].inner, setting_.figures));
    }
    const auto fewest = problem ? fewest_bytes_of_cuts(*problem) : std::nullopt;
    if (fewest) open.emplace(std::max(bytes, *fewest), i, known == Known::kLeast ? Known::kAlone : Known::kAll);
  }
  return std::nullopt;
}

CertifiedTables WayTables::asked() {
  CertifiedTables out;
  for (const InnerWay& way : asked_alone_) out.alone.push_back(certified_prices(way, pricer_.alone(way)));
  for (const InnerWay& way : asked_prices_) out.prices.push_back(certified_prices(way, pricer_.prices(way)));
  return out;
}

StageProblem WayTables::problem_with(const OuterWay& way, const PartPrices& prices, Asked asked) {
  StageProblem out{.parts = {},
                   .shape = shape(way, asked),
                   .micro_batches = way.micro_batches,
                   .crossing = prices.crossing,
                   .memory = setting_.memory_bytes,
                   .host = setting_.beside.host,
                   .disk = setting_.beside.disk};
  out.parts.reserve(chain_.size());
  for (const int64_t part : chain_) out.parts.push_back(prices.parts[static_cast<size_t>(part)]);
  check_range(out);
  return out;
}

const PipelineShape& WayTables::shape(const OuterWay& way, Asked asked) {
  const std::tuple key(way.schedule, way.pp, way.virtual_stages, asked);
  const auto found = shapes_.find(key);
  if (found != shapes_.end()) return found->second;
  PipelineShape out;
  if (asked == Asked::kMemory) {
    out = shape_of_schedule(way.schedule, way.pp, way.virtual_stages);
  } else {
    out = shape(way, Asked::kMemory);
    for (std::vector<HeldMoment>& crew : out.held) crew.clear();
  }
  return shapes_.emplace(key, std::move(out)).first->second;
}

}  // namespace trireme
