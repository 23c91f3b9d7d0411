// What the exact searches ask of a way (planner/outer/outer_search.h), by prices of the model's parts.
#pragma once

#include <map>
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
  // From passes alone; what is done once a step, and what crosses, may take nothing.
  std::optional<int64_t> bound_of(const OuterWay& way, bool with_again);
  // The best `top` of these, by all that is known of them.
  OuterResult search(const std::vector<OuterWay>& ways, int64_t ranks, size_t top);

  const CertifiedTables& asked() const { return asked_; }
  const PartPricer& pricer() const { return pricer_; }

 private:
  StageProblem problem_with(const OuterWay& way, const PartPrices& prices);
  const PipelineShape& shape(const std::string& schedule, int64_t pp);

  const ExactSetting& setting_;
  PartPricer pricer_;
  CertifiedTables asked_;
  std::map<std::pair<std::string, int64_t>, PipelineShape> shapes_;
};

}  // namespace trireme
