// What the exact searches ask of a way (planner/outer/outer_search.h), by prices of the model's parts.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trireme/train/plan/certified_tables.h"
#include "trireme/train/plan/exact_setting.h"

namespace trireme {

class WayTables {
 public:
  // `setting` must outlive this.
  WayTables(const ExactSetting& setting, int threads);

  // Its tables, with the memory of a rank. Nothing where the compiler refuses the way.
  std::optional<StageProblem> problem_of(const OuterWay& way);
  // The best `top` of these, by all that is known of them.
  OuterResult search(const std::vector<OuterWay>& ways, int64_t ranks, size_t top);

  // All that searches asked for.
  CertifiedTables asked();
  const PartPricer& pricer() const { return pricer_; }

 private:
  enum class Asked : uint8_t { kTime, kMemory };
  // By the table of `known`, which is that of one data parallel rank.
  OuterAnswer answer(const OuterWay& way, const InnerWay& known, Asked asked);
  // By its own table of one rank, and what fewer ranks move.
  OuterAnswer answer_by_few_ranks(const OuterWay& way);
  StageProblem problem_with(const OuterWay& way, const PartPrices& prices);
  const PipelineShape& shape(const std::string& schedule, int64_t pp);

  const ExactSetting& setting_;
  PartPricer pricer_;
  std::set<InnerWay> asked_alone_, asked_prices_;
  std::map<std::pair<std::string, int64_t>, PipelineShape> shapes_;
};

}  // namespace trireme
