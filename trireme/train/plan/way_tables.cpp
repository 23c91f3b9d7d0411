#include "trireme/train/plan/way_tables.h"

#include "trireme/planner/outer/pipeline_shape.h"

namespace trireme {
namespace {

void note_asked(CertifiedTable table, std::map<CertifiedCut, CertifiedTable>& to) {
  const CertifiedCut cut = table.cut;
  to.emplace(cut, std::move(table));
}

}  // namespace

WayTables::WayTables(const ExactSetting& setting, int threads)
    : setting_(setting), pricer_(setting.job, setting.parts, threads) {}

std::optional<StageProblem> WayTables::problem_of(const OuterWay& way) {
  const std::optional<PartPrices>& prices = pricer_.prices(way.inner);
  note_asked(certified_prices(way.inner, prices), asked_.prices);
  if (!prices) return std::nullopt;
  return problem_with(way, *prices);
}

std::optional<int64_t> WayTables::bound_of(const OuterWay& way, bool with_again) {
  const std::optional<PartPrices>& prices = pricer_.passes_alone(way.inner, with_again);
  note_asked(certified_passes(way.inner, with_again, prices), asked_.passes);
  if (!prices) return std::nullopt;
  StageProblem problem = problem_with(way, *prices);
  problem.crossing = 0;
  for (PartPrice& part : problem.parts) part.update = part.sync = 0;
  return bound_of_cuts(problem) - way.pp;  // rounding
}

OuterResult WayTables::search(const std::vector<OuterWay>& ways, int64_t ranks, size_t top) {
  std::vector<OuterCandidate> candidates;
  for (const OuterWay& way : ways) candidates.push_back(candidate_of(way, ranks, setting_.figures));
  const OuterQuestions ask{
      .bounds = {[&](size_t i) { return bound_of(ways[i], false); }, [&](size_t i) { return bound_of(ways[i], true); }},
      .problem = [&](size_t i) { return problem_of(ways[i]); }};
  return search_outer(candidates, setting_.memory_bytes, top, ask);
}

StageProblem WayTables::problem_with(const OuterWay& way, const PartPrices& prices) {
  StageProblem out{.parts = {},
                   .shape = shape(way.schedule, way.pp),
                   .micro_batches = way.micro_batches,
                   .crossing = prices.crossing,
                   .memory = setting_.memory_bytes};
  out.parts.push_back(prices.before);
  out.parts.insert(out.parts.end(), static_cast<size_t>(setting_.parts.layers), prices.block);
  out.parts.push_back(prices.after);
  return out;
}

const PipelineShape& WayTables::shape(const std::string& schedule, int64_t pp) {
  const auto found = shapes_.find({schedule, pp});
  if (found != shapes_.end()) return found->second;
  return shapes_.emplace(std::pair(schedule, pp), shape_of_schedule(schedule, pp)).first->second;
}

}  // namespace trireme
